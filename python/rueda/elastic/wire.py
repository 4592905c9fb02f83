"""Bytes between the ranks of a view, by collectives of the engine."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Protocol

from rueda import _core, in_flight, operations
from rueda.basics import basics
from rueda.operations import Call
from rueda.process_sets import global_process_set

PREFIX = "elastic"


class Wire(Protocol):
    """What a transfer needs of the ranks. All functions are collective."""

    @property
    def rank(self) -> int:
        """This rank."""

    @property
    def size(self) -> int:
        """How many there are."""

    def allgather(self, data: bytes) -> list[bytes]:
        """What each rank gave, in rank order; of one length on all ranks."""

    def broadcast(self, data: bytes, root: int) -> bytes:
        """What root gave, of any length; the others give anything."""

    def start_broadcast(self, chunk: bytearray, root: int, number: int) -> Callable[[], None]:
        """Starts to overwrite the chunk with root's; the result is to be called to wait for it."""


class EngineWire:
    """All ranks of the current epoch."""

    @property
    def rank(self) -> int:
        """This rank."""
        return basics.rank()

    @property
    def size(self) -> int:
        """How many there are."""
        return basics.size()

    def allgather(self, data: bytes) -> list[bytes]:
        """What each rank gave, in rank order; of one length on all ranks."""
        mine = bytearray(data)
        call = Call(_core.ALLGATHER, _core.UINT8, (len(mine),), _address(mine))

        def finish(engine_handle: int) -> bytes:
            found = operations.result(engine_handle, 0)
            return ctypes.string_at(found.address, found.size_bytes)

        handle = in_flight.start(
            [call], [mine], finish, ("allgather", f"{PREFIX}.summary"), global_process_set
        )
        everything: bytes = in_flight.of_handle(handle).settle()
        return [everything[i : i + len(mine)] for i in range(0, len(everything), len(mine))]

    def broadcast(self, data: bytes, root: int) -> bytes:
        """What root gave, of any length; the others give anything."""
        length = bytearray(len(data).to_bytes(8, "little"))
        self._broadcast(length, root, f"{PREFIX}.length")()
        size = int.from_bytes(length, "little")
        content = bytearray(data) if self.rank == root else bytearray(size)
        if size:
            self._broadcast(content, root, f"{PREFIX}.content")()
        return bytes(content)

    def start_broadcast(self, chunk: bytearray, root: int, number: int) -> Callable[[], None]:
        """Starts to overwrite the chunk with root's; the result is to be called to wait for it."""
        return self._broadcast(chunk, root, f"{PREFIX}.chunk.{number}")

    def _broadcast(self, content: bytearray, root: int, name: str) -> Callable[[], None]:
        address = _address(content)
        call = Call(_core.BROADCAST, _core.UINT8, (len(content),), address, address, root_rank=root)
        handle = in_flight.start([call], [content], _nothing, ("broadcast", name), global_process_set)
        operation = in_flight.of_handle(handle)

        def wait() -> None:
            operation.settle()

        return wait


def _nothing(_: int) -> None:
    """The result is where it belongs."""


def _address(content: bytearray) -> int:
    if not content:
        return 0
    return ctypes.addressof((ctypes.c_uint8 * len(content)).from_buffer(content))


def engine_wire() -> Any:
    """The wire of the current epoch."""
    return EngineWire()
