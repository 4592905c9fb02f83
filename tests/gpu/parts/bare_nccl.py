"""NCCL by itself: its C functions, without torch.distributed, for the ranks of one part."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path
from typing import Any

import world

_ID_BYTES, _FLOAT32, _SUM, _IN_PROGRESS = 128, 7, 0, 7
_MAGIC, _VERSION, _DEFAULT = 0xCAFEBEEF, 21800, -(2**31)
_LIMIT_S = 40.0


class _Id(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char * _ID_BYTES),)


class _Config(ctypes.Structure):  # ncclConfig_t as of 2.18; a later library takes its defaults for the rest
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("blocking", ctypes.c_int),
        ("cga_cluster_size", ctypes.c_int),
        ("min_ctas", ctypes.c_int),
        ("max_ctas", ctypes.c_int),
        ("net_name", ctypes.c_char_p),
        ("split_share", ctypes.c_int),
    )


def load() -> ctypes.CDLL:
    """The library that rueda would take. Ends the part where there is none."""
    path = os.environ.get("RUEDA_NCCL_LIBRARY") or "libnccl.so.2"  # torch has loaded its own
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        world.skip(f"NCCL cannot be loaded: {error}")
    library.ncclGetErrorString.restype = ctypes.c_char_p
    return library


def version(library: ctypes.CDLL) -> str:
    """Such as "2.23.4"."""
    number = ctypes.c_int()
    library.ncclGetVersion(ctypes.byref(number))
    return f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"


class Communicator:
    """That of all ranks of this part. Its calls go to one stream."""

    def __init__(self, library: ctypes.CDLL, stream: int) -> None:
        self._library, self._stream = library, ctypes.c_void_p(stream)
        self._handle = ctypes.c_void_p()
        # Blocking calls cost the least, but the tests' own library has none.
        self._is_blocking = not world.IS_STAND_IN
        config = _Config(ctypes.sizeof(_Config), _MAGIC, _VERSION, int(self._is_blocking))
        config.cga_cluster_size = config.min_ctas = config.max_ctas = config.split_share = _DEFAULT
        made = library.ncclCommInitRankConfig(
            ctypes.byref(self._handle), world.SIZE, self._share_id(), world.RANK, ctypes.byref(config)
        )
        self._settle(made)

    def all_reduce(self, source: int, target: int, count: int) -> None:
        """Enqueues the sum of float32 numbers, between two addresses."""
        places = ctypes.c_void_p(source), ctypes.c_void_p(target), ctypes.c_size_t(count)
        issued = self._library.ncclAllReduce(*places, _FLOAT32, _SUM, self._handle, self._stream)
        if issued or not self._is_blocking:
            self._settle(issued)

    def close(self) -> None:
        """After everything enqueued has ended."""
        self._settle(self._library.ncclCommFinalize(self._handle))
        self._library.ncclCommDestroy(self._handle)

    def _share_id(self) -> _Id:
        """Rank 0 makes it, and leaves it in the folder of the part."""
        place = Path("nccl-id")
        if world.RANK == 0:
            made = _Id()
            self._check(self._library.ncclGetUniqueId(ctypes.byref(made)))
            place.with_suffix(".part").write_bytes(bytes(made))
            place.with_suffix(".part").rename(place)
            return made
        deadline = time.monotonic() + _LIMIT_S
        while not place.exists():
            if time.monotonic() > deadline:
                raise RuntimeError("rank 0 has made no id for NCCL")
            time.sleep(0.005)
        return _Id.from_buffer_copy(place.read_bytes())

    def _settle(self, result: int) -> None:
        deadline = time.monotonic() + _LIMIT_S
        state = ctypes.c_int(result)
        while state.value == _IN_PROGRESS or (state.value == 0 and not self._is_blocking):
            self._check(self._library.ncclCommGetAsyncError(self._handle, ctypes.byref(state)))
            if state.value == 0:
                break
            if time.monotonic() > deadline:
                raise RuntimeError("NCCL does not get ready")
            time.sleep(0)
        self._check(state.value)

    def _check(self, result: Any) -> None:
        if result:
            raise RuntimeError(f"NCCL failed: {self._library.ncclGetErrorString(result).decode()}")
