"""Reads the shard of a rank from Parquet, batch by batch, as numpy arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Optional

import numpy as np

from rueda.spark.common.shards import Piece, RowGroup, bounds
from rueda.spark.common.store import FilesystemStore

Arrays = dict[str, np.ndarray[Any, Any]]


def _dataset(store: FilesystemStore, url: str) -> Any:
    import pyarrow.dataset

    files = store.filesystem()
    if not files.exists(url):
        raise ValueError(f"There is no Parquet data at {url}.")
    return pyarrow.dataset.dataset(store.path(url), filesystem=files, format="parquet")


def column_types(store: FilesystemStore, url: str) -> dict[str, str]:
    """Of the Parquet files below this URL, as Spark names them; lists are all "array"."""
    names = {"bool": "boolean", "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint"}
    return {
        field.name: "array" if _is_list(field.type) else names.get(str(field.type), str(field.type))
        for field in _dataset(store, url).schema
    }


def row_groups(store: FilesystemStore, url: str, columns: Sequence[str] = ()) -> list[RowGroup]:
    """All row groups of the Parquet files below this URL, in the order of their paths. ValueError without
    files, and if they lack one of these columns.
    """
    data = _dataset(store, url)
    check_columns(data.schema.names, columns)
    fragments = sorted(data.get_fragments(), key=lambda fragment: fragment.path)
    return [
        RowGroup(fragment.path, group.id, group.num_rows)
        for fragment in fragments
        for group in fragment.row_groups
    ]


def check_columns(available: Sequence[str], wanted: Sequence[str]) -> None:
    """ValueError that names the columns that are missing."""
    missing = [name for name in wanted if name not in available]
    if missing:
        raise ValueError(f"The data have no column {', '.join(missing)}; they have {', '.join(available)}.")


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _refuse_nulls(name: str, array: Any, depth: int) -> None:
    """depth: how many arrays enclose these values."""
    if array.null_count:
        where = " inside its arrays" if depth else ""
        raise ValueError(f"The column {name} has {array.null_count} nulls{where}; fill or drop them first.")


def to_numpy(name: str, column: Any) -> np.ndarray[Any, Any]:
    """A column of an Arrow table as an array [rows, …]: lists of equal length become dimensions, floats and
    decimals float32, and integers int64. ValueError for nulls, for lists of different lengths, and for other
    types.
    """
    import pyarrow
    import pyarrow.compute

    array = column.combine_chunks() if isinstance(column, pyarrow.ChunkedArray) else column
    shape = [len(array)]
    while _is_list(array.type):
        _refuse_nulls(name, array, len(shape) - 1)
        lengths = pyarrow.compute.unique(pyarrow.compute.list_value_length(array)).to_pylist()
        if len(lengths) > 1:
            raise ValueError(f"The column {name} has arrays of different lengths: {sorted(lengths)[:4]}.")
        shape.append(lengths[0] if lengths else 0)
        array = array.flatten()
    _refuse_nulls(name, array, len(shape) - 1)
    kind = array.type
    if pyarrow.types.is_decimal(kind):
        array = array.cast(pyarrow.float64())
        wanted: Any = np.float32
    elif pyarrow.types.is_boolean(kind) or pyarrow.types.is_integer(kind):
        wanted = np.int64
    elif pyarrow.types.is_floating(kind):
        wanted = np.float32
    else:
        raise ValueError(
            f"The column {name} has the type {kind}; estimators take numbers, arrays and vectors."
        )
    return np.asarray(array.to_numpy(zero_copy_only=False)).astype(wanted).reshape(shape)


@dataclass(frozen=True)
class Plan:
    """How one rank goes through its rows."""

    store: FilesystemStore
    pieces: Sequence[Piece]
    columns: Sequence[str]
    steps: int  # batches of an epoch
    shuffle: bool
    seed: int
    whole_epochs: bool = True  # every row once; else batches of `batch_size` go on where the last epoch ended
    batch_size: int = 1
    keep: bool = False  # in memory, after the first reading
    transform: Optional[Callable[[Any], Any]] = None  # of a pandas DataFrame


class ShardReader:
    """The batches of one rank, epoch by epoch.

    Row groups come in random order, and rows in random order within their row group (with `keep`: within
    the whole shard), anew in each epoch. At most one row group is in memory, besides what a batch needs of
    the one before.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rows = sum(piece.end - piece.begin for piece in plan.pieces)
        self._kept: Optional[Arrays] = None

    def epoch(self, number: int) -> Iterator[Arrays]:
        """Exactly `steps` batches."""
        plan = self.plan
        if plan.whole_epochs:
            # With batches of one row some ranks have one row less than there are steps: they begin anew.
            rows = max(self.rows, plan.steps)
            sizes = [end - begin for begin, end in (bounds(rows, plan.steps, i) for i in range(plan.steps))]
            laps = (self._parts(np.random.default_rng((plan.seed, number))) for _ in range(2))
            yield from cut(chain.from_iterable(laps), sizes)
            return
        first = (
            number * plan.steps * plan.batch_size
        )  # the row at which this epoch begins, counting on and on
        lap, skip = divmod(first, self.rows)
        sizes = [plan.batch_size] * plan.steps
        yield from cut(_without(self._laps(lap), skip), sizes)

    def _laps(self, lap: int) -> Iterator[Arrays]:
        while True:
            yield from self._parts(np.random.default_rng((self.plan.seed, lap)))
            lap += 1

    def _parts(self, random: np.random.Generator) -> Iterator[Arrays]:
        if self.plan.keep:
            if self._kept is None:
                parts = [self._read(piece) for piece in self.plan.pieces]
                self._kept = {
                    name: np.concatenate([part[name] for part in parts]) for name in self.plan.columns
                }
            yield self._shuffled(self._kept, random)
            return
        pieces = list(self.plan.pieces)
        if self.plan.shuffle:
            random.shuffle(pieces)
        for piece in pieces:
            yield self._shuffled(self._read(piece), random)

    def _read(self, piece: Piece) -> Arrays:
        import pyarrow.parquet

        files = self.plan.store.filesystem()
        wanted = None if self.plan.transform else list(self.plan.columns)
        with files.open(piece.path, "rb") as file:
            table = pyarrow.parquet.ParquetFile(file).read_row_group(piece.number, columns=wanted)
        table = table.slice(piece.begin, piece.end - piece.begin)
        if self.plan.transform is not None:
            table = pyarrow.Table.from_pandas(self.plan.transform(table.to_pandas()), preserve_index=False)
            if table.num_rows != piece.end - piece.begin:
                raise ValueError(
                    "transformation_fn must keep the number of rows, because all ranks count on it."
                )
        return {name: to_numpy(name, table.column(name)) for name in self.plan.columns}

    def _shuffled(self, arrays: Arrays, random: np.random.Generator) -> Arrays:
        if not self.plan.shuffle:
            return arrays
        order = random.permutation(len(next(iter(arrays.values()))))
        return {name: array[order] for name, array in arrays.items()}


def _without(parts: Iterator[Arrays], skip: int) -> Iterator[Arrays]:
    """The parts without their first rows."""
    for part in parts:
        rows = len(next(iter(part.values())))
        if skip < rows:
            yield {name: array[skip:] for name, array in part.items()}
        skip = max(0, skip - rows)


def cut(parts: Iterator[Arrays], sizes: Sequence[int]) -> Iterator[Arrays]:
    """Batches of these sizes from parts of any size."""
    left: list[Arrays] = []
    have = 0
    for size in sizes:
        while have < size:
            part = next(parts)
            left.append(part)
            have += len(next(iter(part.values())))
        joined = left[0] if len(left) == 1 else _concatenate(left)
        yield {name: array[:size] for name, array in joined.items()}
        left = [{name: array[size:] for name, array in joined.items()}]
        have -= size


def _concatenate(parts: Sequence[Mapping[str, np.ndarray[Any, Any]]]) -> Arrays:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
