"""Gradients are allocated in memory that all ranks of the host map, so that reducing them copies nothing.

RUEDA_TORCH_ARENA=1 asks for it. `librueda_torch.so` then puts an allocator in front of torch's own. It first
tests itself, and leaves torch as it was if anything is in doubt. The results have the same bits either way.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path

import torch

from rueda import _core, epochs
from rueda.basics import is_enabled

OFF = "RUEDA_TORCH_ARENA is not set"
ALONE = "no other rank runs on this host"


@dataclass(frozen=True)
class State:
    """Whether gradients are placed in shared memory, and how many were."""

    is_on: bool
    why: str  # why not, as a clause; "" if it is on
    placed: int = 0  # blocks that were allocated there
    refused: int = 0  # blocks for which there was no room: they lie in private memory


class Plugin:
    """The functions of librueda_torch.so."""

    def __init__(self, path: Path) -> None:
        library = ctypes.PyDLL(str(path))
        self.install = library["rueda_torch_install"]
        self.install.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
        self.install.restype = ctypes.c_char_p
        self.await_ = library["rueda_torch_await"]
        self.await_.argtypes = [ctypes.c_uint64, ctypes.c_int32]
        self.counts = library["rueda_torch_counts"]


_lock = threading.Lock()
_plugin: Plugin | None = None
_why: str | None = None  # None: not tried yet


def plugin_path() -> Path:
    """Where the plugin is: beside librueda.so."""
    return _core.library_path().with_name("librueda_torch.so")


def install() -> str:
    """Puts the allocator in front of torch's, once per process. Returns "", or why torch was left alone."""
    global _plugin, _why
    with _lock:
        if _why is None:
            try:
                _plugin = Plugin(plugin_path())
            except OSError as error:
                _why = f"the plugin cannot be loaded ({error}); reinstall rueda"
            else:
                folder = Path(torch.__file__).parent / "lib"
                libraries = (str(folder / name).encode() for name in ("libc10.so", "libtorch_cpu.so"))
                _why = str(_plugin.install(*libraries).decode("utf-8", "replace"))
            _core.log(_core.LOG_INFO, _sentence(_why))
        return _why


def _sentence(why: str) -> str:
    if why:
        return f"Gradients are allocated by torch's own allocator: {why}. They are reduced through a copy."
    return "Gradients are allocated in memory that all ranks of this host map, and reduced in place."


def await_gradients(parameter: torch.Tensor, owner: object) -> None:
    """From now on gradients of this parameter are allocated in shared memory, while `owner` lives."""
    size_bytes = parameter.numel() * parameter.element_size()
    if size_bytes == 0 or parameter.device.type != "cpu" or not is_enabled("TORCH_ARENA"):
        return
    if epochs.is_forked() or _core.local_size() < 2 or install():
        return
    _count(size_bytes, 1)
    weakref.finalize(owner, _forget, size_bytes).atexit = False


def _forget(size_bytes: int) -> None:
    if _count(size_bytes, -1) == 0:
        _core.trim_memory()


def _count(size_bytes: int, by: int) -> int:
    """How many gradients are awaited then."""
    assert _plugin is not None
    return int(_plugin.await_(size_bytes, by))


def try_out() -> str:
    """Tests after install() where a gradient is placed. Returns "", or what was not as expected."""
    parameter = torch.ones(1000, requires_grad=True)
    _count(4000, 1)
    try:
        (parameter * 2).sum().backward()
    finally:
        _count(4000, -1)
    gradient = parameter.grad
    if gradient is None or not bool((gradient == 2).all()):
        return "a gradient was wrong"
    if not _core.is_shared_buffer(gradient.data_ptr()):
        return "torch allocated a gradient elsewhere"
    del gradient
    parameter.grad = None
    return ""


def state() -> State:
    """What became of RUEDA_TORCH_ARENA in this process."""
    if not is_enabled("TORCH_ARENA"):
        return State(False, OFF)
    if _why is None:
        return State(False, ALONE if _core.local_size() == 1 else "no DistributedOptimizer was made yet")
    if _why:
        return State(False, _why)
    placed, refused = ctypes.c_int64(), ctypes.c_int64()
    assert _plugin is not None
    _plugin.counts(ctypes.byref(placed), ctypes.byref(refused))
    return State(True, "", placed.value, refused.value)
