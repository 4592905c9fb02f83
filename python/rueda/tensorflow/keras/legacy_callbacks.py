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


class BestModelCheckpoint(tf_keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    __doc__ = current.BestModelCheckpoint.__doc__

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: Any = "epoch",
    ) -> None:
        super().__init__("unset", monitor, verbose, True, save_weights_only, mode, save_freq)
        self.filepath: Any = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Refuses to train without a place to save to."""
        current._model_of(self)
        if not self.filepath:
            raise ValueError("BestModelCheckpoint has no filepath: set it before model.fit.")
        super().on_train_begin(logs)

    def _save_model(self, *arguments: Any, **settings: Any) -> None:
        if current.is_first(current._model_of(self)):
            super()._save_model(*arguments, **settings)


__all__ = list(current.__all__)
