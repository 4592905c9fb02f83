"""What one rank does for a `KerasEstimator`. Keras is imported when the variables are as the driver wants
them (`package.variables_of`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from rueda import numpy as host
from rueda.spark.common.data import Columns
from rueda.spark.common.reading import Arrays, Plan, ShardReader
from rueda.spark.common.schedule import Schedule
from rueda.spark.keras.files import (
    History,
    from_bytes,
    input_shapes,
    pack,
    revive,
    shaped,
    to_bytes,
    unpack,
    with_file,
)
from rueda.spark.keras.outputs import Outputs, of_rank
from rueda.spark.keras.package import KERAS_2, front_end_of, keras_of, own

PACKAGE = own()
keras, hvd = keras_of(PACKAGE), front_end_of(PACKAGE)
_Dataset: Any = keras.utils.Sequence if PACKAGE == KERAS_2 else keras.utils.PyDataset
_Callback: Any = keras.callbacks.Callback


@dataclass(frozen=True)
class Recipe:
    """What is trained, and how."""

    schedule: Schedule
    model: bytes
    optimizer: Any  # as keras.optimizers.serialize has it
    loss: Any
    loss_weights: Any
    metrics: Any
    custom_objects: Mapping[str, Any]
    label_shapes: Any
    compression: Any
    callbacks: Sequence[Any]
    checkpoint_callback: Any
    verbose: int


class Batches(_Dataset):  # type: ignore[misc]
    """The batches of a rank. Keras may look at the first ones before it begins with the first.

    epoch: the first one of training, from 0; None for validation, which reads the same rows each time.
    """

    def __init__(
        self, plan: Plan, columns: Columns, shapes: tuple[Sequence[Any], Any], epoch: Optional[int]
    ) -> None:
        super().__init__()
        self._is_training = epoch is not None
        self._reader = ShardReader(plan)
        self._columns = columns
        self._shapes = shapes  # of inputs and labels
        self._epoch = epoch or 0
        self._next = 0
        self._batches: Iterator[Arrays] = iter(())

    def __len__(self) -> int:
        return self._reader.plan.steps

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        if index == 0 or index < self._next:
            self._batches, self._next = self._reader.epoch(self._epoch), 0
        while True:
            batch = next(self._batches)
            self._next += 1
            if self._next > index:
                return self._as_keras(batch)

    def on_epoch_end(self) -> None:
        if self._is_training:
            self._epoch += 1

    def _as_keras(self, batch: Arrays) -> tuple[Any, ...]:
        inputs = [batch[name] for name in self._columns.features]
        if self._shapes[0]:
            inputs = [shaped(array, shape) for array, shape in zip(inputs, self._shapes[0])]
        labels = [batch[name] for name in self._columns.labels]
        if self._shapes[1]:
            labels = [array.reshape(list(shape)) for array, shape in zip(labels, self._shapes[1])]
        both = [part[0] if len(part) == 1 else tuple(part) for part in (inputs, labels)]
        return (*both, batch[self._columns.weight]) if self._columns.weight else (both[0], both[1])


class Saves(_Callback):  # type: ignore[misc]
    """Rank 0 keeps a checkpoint and the numbers of each epoch."""

    def __init__(self, recipe: Recipe, history: History) -> None:
        super().__init__()
        self.recipe = recipe
        self.history = history

    def on_epoch_end(self, epoch: int, logs: Optional[Mapping[str, Any]] = None) -> None:
        """epoch: from 0."""
        schedule, numbers = self.recipe.schedule, {name: float(value) for name, value in (logs or {}).items()}
        for name, value in numbers.items():
            self.history.setdefault(name, []).append(value)
        if hvd.rank() != 0:
            return
        if schedule.store.save_runs:
            checkpoint = pack(to_bytes(self.model), self.history, epoch + 1)
            schedule.store.save_checkpoint(schedule.run_id, checkpoint)
            schedule.store.save_logs(schedule.run_id, self.history)
        if self.recipe.verbose:
            words = "  ".join(f"{name} {value:.4f}" for name, value in numbers.items())
            print(f"epoch {epoch + 1}/{schedule.epochs}  {words}", flush=True)


def prepare(recipe: Recipe) -> tuple[Any, History, int]:
    """The compiled model, the history and the epochs that are done, perhaps of the last checkpoint."""
    schedule = recipe.schedule
    own = schedule.store.last_checkpoint(schedule.run_id) if hvd.rank() == 0 else None
    checkpoint = host.broadcast_object(own, root_rank=0, name="checkpoint")
    compression = recipe.compression or hvd.Compression.none
    history: History = {}
    done = 0
    if checkpoint is None:
        model = from_bytes(recipe.model, recipe.custom_objects, PACKAGE)
        optimizer = keras.optimizers.deserialize(recipe.optimizer, custom_objects=dict(recipe.custom_objects))
        optimizer = hvd.DistributedOptimizer(optimizer, compression=compression)
    else:
        content, history, done = unpack(checkpoint)
        objects = dict(recipe.custom_objects)

        def load(path: str) -> Any:
            return hvd.load_model(path, custom_objects=objects, compression=compression)

        model = with_file(load, content)[0]
        optimizer = model.optimizer
        if done >= schedule.epochs:
            return model, history, done
    with keras.saving.custom_object_scope(dict(recipe.custom_objects)):
        model.compile(
            optimizer=optimizer,
            loss=revive(keras.losses.deserialize, recipe.loss),
            loss_weights=recipe.loss_weights,
            metrics=revive(keras.metrics.deserialize, recipe.metrics),
        )
    return model, history, done


def train(recipe: Recipe) -> Optional[tuple[bytes, History]]:
    """Runs on every rank. Rank 0 returns the trained model and the history."""
    hvd.init()
    keras.utils.set_random_seed(recipe.schedule.seed + hvd.rank())
    schedule = recipe.schedule
    model, history, done = prepare(recipe)
    shapes = (input_shapes(model), recipe.label_shapes)
    rank, size = hvd.rank(), hvd.size()
    val_plan = schedule.val_plan(rank, size)
    saves = Saves(recipe, history)
    given = of_rank(recipe.callbacks, rank)
    has_outputs = rank == 0 and schedule.store.save_runs
    outputs = Outputs(given, schedule.store, schedule.run_id) if has_outputs else None
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    callbacks += [*given, *([outputs] if outputs else [])]

    def fit(best: str) -> None:
        if recipe.checkpoint_callback is not None:
            recipe.checkpoint_callback.filepath = best
        also = [recipe.checkpoint_callback] if recipe.checkpoint_callback is not None else []
        if done < schedule.epochs:
            model.fit(
                Batches(schedule.train_plan(rank, size), schedule.columns, shapes, done),
                validation_data=Batches(val_plan, schedule.columns, shapes, None) if val_plan else None,
                initial_epoch=done,
                epochs=schedule.epochs,
                callbacks=[*callbacks, *also, saves],
                shuffle=False,  # the reader does
                verbose=0,
            )
        if recipe.checkpoint_callback is None or not os.path.exists(best):
            model.save(best)

    try:
        content = with_file(fit)[1]
    finally:
        if outputs:
            outputs.close()
    hvd.shutdown()
    return (content, history) if rank == 0 else None
