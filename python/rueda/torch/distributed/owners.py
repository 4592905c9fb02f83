"""Works that C++ keeps longer than Python does.

C++ that gets a Work, as DDP's reducer does for join(), owns only the C++ half. Once the Python half is gone,
C++ finds only the methods of the base class, whose wait() never ends. A Work that Python drops is therefore
kept here as long as its C++ half has another owner. PyTorch offers no count of owners; it is read from
memory, at the place that `can_count` has found.
"""

from __future__ import annotations

from ctypes import c_uint32, c_void_p

from torch._C._distributed_c10d import Work as _TorchWork

_TO_POINTER = object.__basicsize__  # pybind11's instance: the head of any Python object, then the C++ half
_TO_COUNT = 8  # c10::intrusive_ptr_target: the table of virtual functions, then the strong count

_kept: dict[int, _TorchWork] = {}  # by id; no lock, because garbage collection may run at any point


def count(work: _TorchWork) -> int:
    """Number of owners of the C++ half, the Python half among them."""
    half = c_void_p.from_address(id(work) + _TO_POINTER).value
    return c_uint32.from_address(half + _TO_COUNT).value if half else 0


def _finds_counts() -> bool:
    work = _TorchWork()
    if count(work) != 1:
        return False
    box = work.boxed()
    both = count(work)
    del box
    return both == 2 and count(work) == 1


can_count = _finds_counts()


def keep_if_shared(work: _TorchWork) -> None:
    """Called when Python drops a Work, on any thread: revives it if C++ also owns it."""
    release_unshared()
    if can_count and count(work) > 1:
        _kept[id(work)] = work


def release_unshared() -> None:
    """Drops the kept Works that C++ has dropped. Usually there are none, or one."""
    if not _kept:
        return
    for key, work in list(_kept.items()):
        if count(work) == 1:
            _kept.pop(key, None)
