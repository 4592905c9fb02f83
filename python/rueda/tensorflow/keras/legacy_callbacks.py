"""The callbacks of rueda.keras as callbacks of tf_keras."""

from __future__ import annotations

import warnings
from typing import Any

import tensorflow as tf
import tf_keras

from rueda import numpy as host
from rueda.keras import callbacks as current
from rueda.keras import sessions
from rueda.keras.optimizer import INNER, is_distributed, process_set_of
from rueda.keras.values import as_numpy
from rueda.tensorflow.keras import legacy

_Callback: Any = tf_keras.callbacks.Callback


_Broadcast = current.BroadcastGlobalVariablesCallback


class BroadcastGlobalVariablesCallback(_Broadcast, _Callback):  # type: ignore[misc]
    __doc__ = _Broadcast.__doc__

    def set_model(self, model: Any) -> None:
        """Also makes a compiled step that knows nothing of the wrapped optimizer compile again."""
        super(_Broadcast, self).set_model(model)  # Keras 3's own
        optimizer = getattr(model, "optimizer", None)
        if not is_distributed(optimizer):
            if is_distributed(getattr(optimizer, "inner_optimizer", None)):
                raise ValueError(INNER)
            return
        if sessions.builds_graph():
            return  # Keras has built the step already, and there is no XLA
        if model.jit_compile:
            warnings.warn(current.NO_XLA, RuntimeWarning, stacklevel=2)
            model.jit_compile = False  # XLA has no implementation of our operations
        model.train_function = None

    def _build(self, model: Any) -> None:
        if not sessions.builds_graph():  # with its step, Keras has built this too
            legacy.build(model.optimizer, model.trainable_variables)

    def _variables_of(self, model: Any) -> list[Any]:
        """In graphs also the other global variables, which are matched by their names."""
        own: list[Any] = super()._variables_of(model)
        if not sessions.builds_graph():
            return own
        others = _initialised_globals(own)
        of_ranks = host.allgather_object(
            sorted(others), "BroadcastGlobalVariablesCallback.names", process_set_of(model.optimizer)
        )
        return own + [others[name] for name in sorted(set.intersection(*map(set, of_ranks)))]


def _initialised_globals(known: list[Any]) -> dict[str, Any]:
    """By name, the global variables of the graph that have a value and are not among these."""
    ids = {id(variable) for variable in known}
    others = {one.name: one for one in tf.compat.v1.global_variables() if id(one) not in ids}
    are_set = {name: tf.compat.v1.is_variable_initialized(one) for name, one in others.items()}
    return {name: others[name] for name, is_set in sessions.session().run(are_set).items() if is_set}


class MetricAverageCallback(current.MetricAverageCallback, _Callback):  # type: ignore[misc]
    __doc__ = current.MetricAverageCallback.__doc__


class _KeepsMomentumInVariable:
    """Optimizers of tf_keras.optimizers.legacy do, so that compiled steps heed it, too."""

    model: Any

    def _momentum_now(self) -> float | None:
        momentum: Any = getattr(self.model.optimizer, "momentum", None)
        if isinstance(momentum, tf.Variable):
            return float(as_numpy(momentum))
        return super()._momentum_now()  # type: ignore[misc,no-any-return]


_Schedule = current.LearningRateScheduleCallback


class LearningRateScheduleCallback(_KeepsMomentumInVariable, _Schedule, _Callback):  # type: ignore[misc]
    __doc__ = _Schedule.__doc__


_Warmup = current.LearningRateWarmupCallback


class LearningRateWarmupCallback(_KeepsMomentumInVariable, _Warmup, _Callback):  # type: ignore[misc]
    __doc__ = _Warmup.__doc__


class BestModelCheckpoint(current.SavesOnFirstRank, tf_keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    __doc__ = current.BestModelCheckpoint.__doc__


__all__ = list(current.__all__)
