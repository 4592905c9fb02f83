"""Shared buffers are shared mappings, and fork() keeps them shared: a child wrote into its parent's memory.

A child has a private copy of its parent's shared buffers, and what it allocates comes from its own arena.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "multiprocess"))

from harness import library

SIZE = 1 << 20


def load():
    loaded = ctypes.CDLL(library())
    loaded.rueda_alloc.argtypes, loaded.rueda_alloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    loaded.rueda_is_shared_buffer.argtypes = loaded.rueda_release_memory.argtypes = [ctypes.c_void_p]
    return loaded


def test_what_a_child_writes_into_a_shared_buffer_is_not_seen_by_its_parent():
    core = load()
    shared = core.rueda_alloc(SIZE)
    ctypes.memset(shared, 1, SIZE)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        status = 1
        try:
            inherited = ctypes.string_at(shared, SIZE) == b"\1" * SIZE
            ctypes.memset(shared, 9, SIZE)
            own = core.rueda_alloc(SIZE)
            ctypes.memset(own, 5, SIZE)
            are_known = core.rueda_is_shared_buffer(shared) == core.rueda_is_shared_buffer(own) == 1
            core.rueda_release_memory(shared)
            core.rueda_release_memory(own)
            status = 0 if inherited and own and own != shared and are_known else 1
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert ctypes.string_at(shared, SIZE) == b"\1" * SIZE
    assert core.rueda_is_shared_buffer(shared) == 1
    core.rueda_release_memory(shared)
