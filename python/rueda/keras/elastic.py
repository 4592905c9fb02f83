"""Elastic training for Keras: `hvd.elastic` of `import rueda.keras as hvd`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from rueda.elastic import exports
from rueda.elastic.exports import *  # noqa: F403
from rueda.elastic.loop import Hooks, decorate
from rueda.elastic.variables import VariablesState, check_built
from rueda.keras.trained import sync
from rueda.keras.values import as_numpy, broadcast_variables
from rueda.numpy import broadcast_object
from rueda.policy import check_count

__all__ = [
    "CommitStateCallback",
    "KerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
    *exports.__all__,
]

NO_ATTRIBUTE = (
    "{callback} sets state.{name}, but the state has no {name}: make it with KerasState(…, {name}=0)."
)


class KerasState(VariablesState):
    """The state of a Keras model and its optimizer. Each keyword becomes an attribute.

    model: must be built. optimizer: default the model's.

    >>> state = hvd.elastic.KerasState(model, batch=0, epoch=0)
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        check_built(model)
        self.model = model
        self.optimizer = optimizer or getattr(model, "optimizer", None)
        if self.optimizer is not None and not getattr(self.optimizer, "built", True):
            self.optimizer.build(model.trainable_variables)
        super().__init__(broadcast_object, **kwargs)

    def _variables(self) -> list[Any]:
        """In the same order on all ranks. States of random generators stay each rank's own."""
        own = getattr(self.optimizer, "variables", ())
        seen: dict[int, Any] = {}
        for one in [*self.model.variables, *(own() if callable(own) else own)]:
            if "seed_generator_state" not in getattr(one, "path", ""):
                seen.setdefault(id(one), one)
        return list(seen.values())

    def _read(self) -> list[np.ndarray]:
        sync(self.model)
        return [np.array(as_numpy(one)) for one in self._variables()]

    def _assign(self, values: Sequence[Any]) -> None:
        for variable, value in zip(self._variables(), values):
            variable.assign(value)

    def _broadcast(self) -> None:
        broadcast_variables(self._variables(), root_rank=0)

    def _kinds(self) -> list[str]:
        return [f"{tuple(one.shape)}:{one.dtype}" for one in self.model.variables]


class StateCallback:
    """What the callbacks of this module share: they watch a state."""

    model: Any

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def _check(self, name: str) -> None:
        if not hasattr(self.state, name):
            raise ValueError(NO_ATTRIBUTE.format(callback=type(self).__name__, name=name))


class Commits(StateCallback):
    """What stands in front of Keras's Callback in CommitStateCallback."""

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__(state)
        why = "the state is committed after so many batches"
        check_count(type(self).__name__, "batches_per_commit", batches_per_commit, 1, why)
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Any = None) -> None:
        """Counts from here."""
        self.batches_remaining = self.batches_per_commit

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Commits, if it is time."""
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.batches_remaining = self.batches_per_commit
            self.state.commit()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Commits."""
        self.state.commit()


class UpdatesBatch(StateCallback):
    """What stands in front of Keras's Callback in UpdateBatchStateCallback."""

    params: Any

    def __init__(self, state: Any) -> None:
        super().__init__(state)
        self._check("batch")
        self.steps_per_epoch: Any = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Keras has said how many steps an epoch has, where it knows."""
        self.steps_per_epoch = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """The first epoch after a reset has fewer steps, those that are left of it."""
        if self.params.get("steps"):
            if self.steps_per_epoch is None:
                self.steps_per_epoch = self.params["steps"]
            self.params["steps"] = self.steps_per_epoch - self.state.batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """The state has this batch behind it."""
        self.state.batch = batch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """The next epoch begins with its first batch."""
        self.state.batch = 0


class UpdatesEpoch(StateCallback):
    """What stands in front of Keras's Callback in UpdateEpochStateCallback."""

    def __init__(self, state: Any) -> None:
        super().__init__(state)
        self._check("epoch")
        self.initial_epoch = state.epoch

    def on_train_begin(self, logs: Any = None) -> None:
        """Keras counts epochs from 0 in each fit, unless it is told otherwise."""
        self.initial_epoch = self.state.epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """The state has this epoch behind it."""
        self.state.epoch = self.initial_epoch + epoch + 1


class CommitStateCallback(Commits, keras.callbacks.Callback):  # type: ignore[misc]
    """Commits the state every `batches_per_commit` batches, and at the end of each epoch.

    Put it after the callbacks that update the state.

    >>> model.fit(data, callbacks=[hvd.elastic.UpdateBatchStateCallback(state), CommitStateCallback(state)])
    """


class UpdateBatchStateCallback(UpdatesBatch, keras.callbacks.Callback):  # type: ignore[misc]
    """Sets state.batch to the number of the last batch, and to 0 at the end of an epoch."""


class UpdateEpochStateCallback(UpdatesEpoch, keras.callbacks.Callback):  # type: ignore[misc]
    """Sets state.epoch to the number of epochs that are done. fit is to be called for those that are left."""


def _hooks() -> Hooks:
    """Those of the framework that Keras runs on."""
    backend = keras.backend.backend()
    if backend not in ("jax", "tensorflow"):
        return Hooks()
    module = importlib.import_module(f"rueda.{backend}.elastic")
    translate: Callable[[Exception], Exception | None] = module.translate
    return Hooks(translate)


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Runs func(state, …) until it returns, through changes of the job.

    When ranks are lost, the others restore the last commit and call func again; when ranks come, all do.
    func calls model.fit for the epochs that are left. In a job that is not elastic, func is called once.

    >>> @hvd.elastic.run
    ... def train(state):
    ...     model.fit(x, y, epochs=10 - state.epoch, callbacks=callbacks)
    """
    hooks = _hooks()

    def forget_step(state: Any, *args: Any, **kwargs: Any) -> Any:
        model: Any = getattr(state, "model", None)
        if hasattr(model, "train_function"):
            model.train_function = None  # what was compiled for another number of ranks
        return func(state, *args, **kwargs)

    forget_step.__name__ = getattr(func, "__name__", "func")
    wrapped: Callable[..., Any] = decorate(forget_step, hooks)
    return wrapped
