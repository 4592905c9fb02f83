"""Lets the library read the Python stacks of this process, for `rueda stacks`.

Two ways are prepared, because neither serves alone. A thread waits for a request and then writes the stacks
with the interpreter's lock, so no frame changes meanwhile. If another thread keeps the lock in C code, the
library raises a signal in a thread of its own; the handler of `faulthandler` needs no lock.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import threading
from ctypes import byref
from ctypes import sizeof as size_in_bytes

from rueda import _core, memory_files

_lock = threading.Lock()
_is_prepared = False
SPARE_DESCRIPTORS = 64  # left to the connections between ranks, which matter more


def prepare() -> None:
    """Prepares this process, once. Without descriptors or memory files there are no Python stacks."""
    global _is_prepared
    with _lock:
        if _is_prepared:
            return
        _is_prepared = True
        try:
            if not _has_room():
                raise OSError("it may open too few files (ulimit -n)")
            _prepare()
        except OSError as error:
            _core.log(2, f"`rueda stacks` will not show Python code of this process: {error}.")


def _has_room() -> bool:
    may_open = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        may_open == resource.RLIM_INFINITY or len(os.listdir("/proc/self/fd")) + SPARE_DESCRIPTORS < may_open
    )


def _prepare() -> None:
    source = _core.PythonStacks()
    source.struct_size = size_in_bytes(source)
    asked, source.ask_fd = os.pipe()
    source.done_fd, answers = os.pipe()
    source.with_lock_fd = memory_files.make("rueda-stacks")
    source.without_lock_fd = memory_files.make("rueda-stacks")
    source.signal = _core.free_signal()
    if source.signal:
        faulthandler.register(source.signal, file=source.without_lock_fd, all_threads=True, chain=False)
    arguments = (asked, source.with_lock_fd, answers)
    thread = threading.Thread(target=_answer, args=arguments, name="rueda-stacks", daemon=True)
    thread.start()
    source.thread = thread.ident or 0
    if _core.set_python_stacks(byref(source)) != _core.OK:
        raise OSError(_core.last_error())


def _answer(asked: int, file: int, answers: int) -> None:
    while os.read(asked, 1):
        os.ftruncate(file, 0)
        os.lseek(file, 0, os.SEEK_SET)
        faulthandler.dump_traceback(file=file, all_threads=True)
        os.write(answers, b".")


def _after_fork_in_child() -> None:
    global _lock, _is_prepared
    _lock = threading.Lock()  # another thread of the parent may have held it
    _is_prepared = False


os.register_at_fork(after_in_child=_after_fork_in_child)
