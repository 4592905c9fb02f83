"""What ranks are told of a training. They need no pyspark for it, whose import takes a while."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from rueda.spark.common.data import Columns, Prepared
from rueda.spark.common.reading import Plan
from rueda.spark.common.shards import shard, steps_per_epoch
from rueda.spark.common.store import FilesystemStore


@dataclass(frozen=True)
class Schedule:
    """How much is trained on what; the same on every rank."""

    store: FilesystemStore
    run_id: str
    data: Prepared
    columns: Columns
    label_types: Mapping[str, str]  # Spark's names, of those labels that are columns of the data
    epochs: int
    batch_size: int
    val_batch_size: int
    steps: Optional[int]  # None: every row once
    val_steps: Optional[int]
    shuffle: bool
    seed: int
    keep: bool
    transform: Any

    def train_plan(self, rank: int, size: int) -> Plan:
        """What this rank reads in each epoch."""
        steps = self.steps or steps_per_epoch(self.data.train_rows, size, self.batch_size)
        return self._plan(
            self.data.train, rank, size, (steps, self.steps is None, self.batch_size, self.shuffle)
        )

    def val_plan(self, rank: int, size: int) -> Optional[Plan]:
        """What it reads for validation."""
        if not self.data.val:
            return None
        steps = self.val_steps or steps_per_epoch(self.data.val_rows, size, self.val_batch_size)
        return self._plan(
            self.data.val, rank, size, (steps, self.val_steps is None, self.val_batch_size, False)
        )

    def _plan(self, groups: Sequence[Any], rank: int, size: int, how: tuple[int, bool, int, bool]) -> Plan:
        steps, whole_epochs, batch_size, shuffle = how
        return Plan(
            store=self.store,
            pieces=shard(groups, rank, size),
            columns=self.columns.all(),
            steps=steps,
            shuffle=shuffle,
            seed=self.seed * 1000 + rank,
            whole_epochs=whole_epochs,
            batch_size=batch_size,
            keep=self.keep,
            transform=self.transform,
        )
