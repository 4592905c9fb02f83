"""What travels to whom when a state is sent: pure, so the plan is the same on every rank.

The bytes that must be sent are one stream, cut into chunks of 4 MiB. Chunk i is broadcast by holder i mod h,
so that the members that hold the state share the work. Every receiver compares each chunk with its digest.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

CHUNK_BYTES = 4 << 20
DIGEST_BYTES = 32


class Stream:
    """Several buffers as one sequence of bytes. buffers: memoryviews of bytes."""

    def __init__(self, buffers: Sequence[memoryview]) -> None:
        self._buffers = buffers
        self.size = sum(one.nbytes for one in buffers)

    def chunk_count(self, chunk_bytes: int = CHUNK_BYTES) -> int:
        """How many chunks it has; the last one may be shorter."""
        return -(-self.size // chunk_bytes)

    def read(self, chunk: int, chunk_bytes: int = CHUNK_BYTES) -> bytearray:
        """A copy of one chunk."""
        found = bytearray()
        for part in self._parts(chunk, chunk_bytes):
            found += part
        return found

    def write(self, chunk: int, content: bytes | bytearray, chunk_bytes: int = CHUNK_BYTES) -> None:
        """Puts the bytes of one chunk where they belong."""
        taken = 0
        for part in self._parts(chunk, chunk_bytes):
            part[:] = content[taken : taken + part.nbytes]
            taken += part.nbytes

    def digests(self, chunk_bytes: int = CHUNK_BYTES) -> list[bytes]:
        """The digest of each chunk."""
        found = []
        for chunk in range(self.chunk_count(chunk_bytes)):
            digest = hashlib.sha256()
            for part in self._parts(chunk, chunk_bytes):
                digest.update(part)
            found.append(digest.digest())
        return found

    def _parts(self, chunk: int, chunk_bytes: int) -> Iterator[memoryview]:
        start, stop = chunk * chunk_bytes, min((chunk + 1) * chunk_bytes, self.size)
        at = 0
        for buffer in self._buffers:
            if at >= stop:
                return
            first, last = max(start - at, 0), min(stop - at, buffer.nbytes)
            if first < last:
                yield buffer[first:last]
            at += buffer.nbytes


def digest_of(parts: Sequence[bytes]) -> bytes:
    """One digest of several, or of texts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def kinds_of(name: str, value: Any) -> Iterator[bytes]:
    """What shape and type the arrays of a value have; of dicts, lists and tuples, those within."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        yield f"{name}:{tuple(value.shape)}:{value.dtype}".encode()
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            yield from kinds_of(f"{name}.{key}", value[key])
    elif isinstance(value, (list, tuple)):
        for number, one in enumerate(value):
            yield from kinds_of(f"{name}.{number}", one)


def layout_of(names: Sequence[str], sizes: Sequence[int]) -> bytes:
    """What buffers there are, in their order."""
    return digest_of([f"{name}:{size}".encode() for name, size in zip(names, sizes)])


@dataclass(frozen=True)
class Summary:
    """What a rank says of the state that it has, in bytes of a fixed number."""

    is_holder: bool
    layout: bytes
    shared: bytes  # of what should be equal on all ranks: parameters and the state of optimizers
    own: bytes  # of what may differ from rank to rank: statistics of batch normalisation

    def to_bytes(self) -> bytes:
        """For an allgather."""
        return bytes([self.is_holder]) + self.layout + self.shared + self.own

    @staticmethod
    def from_bytes(data: bytes) -> Summary:
        """The reverse."""
        layout, shared, own = (data[1 + i * DIGEST_BYTES : 1 + (i + 1) * DIGEST_BYTES] for i in range(3))
        return Summary(bool(data[0]), layout, shared, own)


@dataclass(frozen=True)
class Transfer:
    """Who sends what to whom."""

    root: int  # whose skeleton and own buffers all ranks take
    sources: tuple[int, ...]  # ranks that send chunks of the shared buffers; the root is one of them
    is_shared_sent: bool  # whether any rank needs the shared buffers
    is_own_sent: bool
    divergent: tuple[int, ...]  # holders that have other shared buffers than the sources

    def sender(self, chunk: int) -> int:
        """The rank that broadcasts this chunk of the shared buffers."""
        return self.sources[chunk % len(self.sources)]


def plan(summaries: Sequence[Summary]) -> Transfer:
    """The transfer that makes all ranks equal. Where holders differ, the most count, or the first of them."""
    holders = [rank for rank, one in enumerate(summaries) if one.is_holder] or [0]
    counts = Counter((summaries[rank].layout, summaries[rank].shared) for rank in holders)
    most = max(counts.values())

    def content(rank: int) -> tuple[bytes, bytes]:
        return summaries[rank].layout, summaries[rank].shared

    root = next(rank for rank in holders if counts[content(rank)] == most)
    ranks = range(len(summaries))
    sources = tuple(rank for rank in holders if content(rank) == content(root))
    return Transfer(
        root,
        sources,
        any(content(rank) != content(root) for rank in ranks),
        any((one.layout, one.own) != (summaries[root].layout, summaries[root].own) for one in summaries),
        tuple(rank for rank in holders if rank not in sources),
    )
