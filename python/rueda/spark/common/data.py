"""From a DataFrame or Parquet files to what the ranks read."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

from rueda.spark.common.reading import check_columns, row_groups
from rueda.spark.common.shards import RowGroup
from rueda.spark.common.store import FilesystemStore


@dataclass(frozen=True)
class Prepared:
    """The rows of a fit, as the ranks find them."""

    train: Sequence[RowGroup]
    val: Sequence[RowGroup] = ()

    @property
    def train_rows(self) -> int:
        return sum(group.rows for group in self.train)

    @property
    def val_rows(self) -> int:
        return sum(group.rows for group in self.val)


def as_array(column: str, kind: Any) -> Any:
    """The column, with vectors of Spark ML as arrays; nulls stay, for `to_numpy` to name them."""
    from pyspark.ml.functions import vector_to_array
    from pyspark.ml.linalg import VectorUDT
    from pyspark.sql.functions import col, when

    quoted = col(f"`{column}`")
    if not isinstance(kind, VectorUDT):
        return quoted
    return when(quoted.isNotNull(), vector_to_array(quoted, "float32")).alias(column)


def split(frame: Any, validation: Union[float, str, None], seed: int) -> tuple[Any, Optional[Any]]:
    """(training rows, validation rows or None)."""
    from pyspark.sql.functions import coalesce, col, lit

    if validation is None or validation == 0:
        return frame, None
    if isinstance(validation, str):
        check_columns(frame.columns, [validation])
        chosen = coalesce(col(f"`{validation}`").cast("boolean"), lit(False))  # null: not marked
        return frame.where(~chosen), frame.where(chosen)
    if not 0 < validation < 1:
        raise ValueError(
            f"validation is {validation}; give a share between 0 and 1, or the name of a column."
        )
    train, val = frame.randomSplit([1.0 - validation, validation], seed=seed)
    return train, val


@dataclass(frozen=True)
class Columns:
    """What is read of the data."""

    features: Sequence[str]
    labels: Sequence[str]
    weight: Optional[str]

    def all(self) -> list[str]:
        """Each name once."""
        names = [*self.features, *self.labels, *([self.weight] if self.weight else [])]
        return list(dict.fromkeys(names))


def write(
    frame: Any,
    store: FilesystemStore,
    folder: str,
    columns: Sequence[str],
    split_by: tuple[Any, int],
    files: int,
) -> Prepared:
    """Writes the columns to Parquet files below the folder. split_by: (validation, seed); files: 0 keeps the
    partitions of the DataFrame.
    """
    validation, seed = split_by
    extra = [validation] if isinstance(validation, str) and validation not in columns else []
    check_columns(frame.columns, [*columns, *extra])
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    frame = frame.select(*(as_array(name, kinds[name]) for name in [*columns, *extra]))
    if files:
        frame = frame.repartition(files)
    if validation and not isinstance(validation, str):
        frame = frame.persist()  # so that both parts come from the same rows
    try:
        parts = split(frame, validation, seed)
        urls = [posixpath.join(folder, name) for name in ("train", "val")]
        for part, url in zip(parts, urls):
            if part is not None:
                part.select(*(f"`{name}`" for name in columns)).write.mode("overwrite").parquet(url)
    finally:
        frame.unpersist()
    val = row_groups(store, urls[1]) if parts[1] is not None else []
    return Prepared(row_groups(store, urls[0]), val)
