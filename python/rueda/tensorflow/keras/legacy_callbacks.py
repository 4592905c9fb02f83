"""The callbacks of rueda.keras as callbacks of tf_keras."""

from __future__ import annotations

import warnings
from typing import Any

import tf_keras

from rueda.keras import callbacks as current
from rueda.keras.optimizer import INNER, is_distributed
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
        if model.jit_compile:
            warnings.warn(current.NO_XLA, RuntimeWarning, stacklevel=2)
            model.jit_compile = False  # XLA has no implementation of our operations
        model.train_function = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Sends where everything is built."""
        model = current._model_of(self)
        current.warn_if_plain(model)
        if model.built and model.trainable_variables and model.optimizer is not None:
            legacy.build(model.optimizer, model.trainable_variables)
            self._send(model)


class MetricAverageCallback(current.MetricAverageCallback, _Callback):  # type: ignore[misc]
    __doc__ = current.MetricAverageCallback.__doc__


class LearningRateScheduleCallback(current.LearningRateScheduleCallback, _Callback):  # type: ignore[misc]
    __doc__ = current.LearningRateScheduleCallback.__doc__


class LearningRateWarmupCallback(current.LearningRateWarmupCallback, _Callback):  # type: ignore[misc]
    __doc__ = current.LearningRateWarmupCallback.__doc__


class BestModelCheckpoint(current.SavesOnFirstRank, tf_keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    __doc__ = current.BestModelCheckpoint.__doc__


__all__ = list(current.__all__)
