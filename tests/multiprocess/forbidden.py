"""What hosts forbid, put in force on this process: system calls, and large files."""

import ctypes
import platform
import resource
from typing import Callable, Dict

MEMFD_CREATE = {"x86_64": 319, "aarch64": 279}
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 22, 38
SECCOMP_MODE_FILTER = 2
LOAD_WORD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06  # of BPF, absolute or with a constant
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | 1  # the latter: EPERM


class _Instruction(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_uint16),
        ("if_true", ctypes.c_uint8),
        ("if_false", ctypes.c_uint8),
        ("constant", ctypes.c_uint32),
    ]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction))]


def forbid_memory_files() -> None:
    """As the seccomp profile of a container: memfd_create fails, also in programs started later."""
    steps = (_Instruction * 4)(
        (LOAD_WORD, 0, 0, 0),  # the number of the call
        (JUMP_IF_EQUAL, 0, 1, MEMFD_CREATE[platform.machine()]),
        (RETURN, 0, 0, REFUSE),
        (RETURN, 0, 0, ALLOW),
    )
    libc = ctypes.CDLL(None, use_errno=True)
    program = _Program(len(steps), steps)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def limit_files(size_bytes: int) -> None:
    """As `ulimit -f`."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))


WAYS: Dict[str, Callable[[], None]] = {
    "seccomp": forbid_memory_files,
    "files of 1 KiB": lambda: limit_files(1 << 10),
    "files of 1 MiB": lambda: limit_files(1 << 20),
}
