"""Which rows each rank reads, and how they are cut into batches. Numbers in, numbers out.

Row i of n belongs to rank r of s if r·n/s ≤ i < (r+1)·n/s, so shards differ by one row at most. All ranks
take the same number of steps, the number that the largest shard needs; each shard is cut into that many
batches, whose sizes differ by one row at most. So no row is dropped and none is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class RowGroup(NamedTuple):
    """A row group of a Parquet file."""

    path: str
    number: int  # within the file
    rows: int


class Piece(NamedTuple):
    """Consecutive rows of a row group."""

    path: str
    number: int
    begin: int
    end: int


def bounds(count: int, parts: int, index: int) -> tuple[int, int]:
    """Where part `index` of `parts` begins and ends."""
    return index * count // parts, (index + 1) * count // parts


def shard(groups: Sequence[RowGroup], rank: int, size: int) -> list[Piece]:
    """The rows of one rank."""
    begin, end = bounds(sum(group.rows for group in groups), size, rank)
    pieces, first = [], 0
    for group in groups:
        low, high = max(begin, first), min(end, first + group.rows)
        if low < high:
            pieces.append(Piece(group.path, group.number, low - first, high - first))
        first += group.rows
    return pieces


def steps_per_epoch(rows: int, size: int, batch_size: int) -> int:
    """How many steps all ranks take. ValueError if a rank would have no row."""
    if rows < size:
        raise ValueError(f"There are {rows} rows for {size} ranks; each rank needs at least one.")
    largest = -(-rows // size)
    return -(-largest // batch_size)
