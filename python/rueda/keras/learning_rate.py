"""The callbacks that set the learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from rueda.keras.trained import is_first, model_of, sync, team_of
from rueda.keras.values import as_numpy
from rueda.operations import set_size
from rueda.policy import number_of

NO_STEPS = (
    "Could not autodetect the number of steps per epoch. Please specify the steps_per_epoch parameter of "
    "{callback}."
)


class LearningRateScheduleCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Sets the learning rate to initial_lr · multiplier(epoch) while start_epoch ≤ epoch < end_epoch.

    multiplier: a function of the epoch, or a constant c, which means c ** (epoch - start_epoch). staircase:
    once an epoch (default), else every batch with a fraction of the epoch, for which steps_per_epoch is taken
    from model.fit or has to be given. momentum_correction: scales the momentum of SGD by the change of the
    rate for the batch of the change; only where the train step is not compiled, since a compiled one holds
    its momentum fixed. Raises ValueError for a missing initial_lr or number of steps.

    >>> hvd.callbacks.LearningRateScheduleCallback(0.1, lambda epoch: 0.1 ** (epoch // 30))
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("Parameter `initial_lr` is required")
        self.initial_lr = number_of(initial_lr, "initial_lr", True)
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0
        self._momentum: float | None = None
        self.multiplier: Callable[[float], float]
        if callable(multiplier):
            self.multiplier = multiplier
        else:
            constant = number_of(multiplier, "multiplier", True)
            self.multiplier = lambda epoch: constant ** (epoch - start_epoch)

    def on_train_begin(self, logs: Any = None) -> None:
        """Finds the number of steps per epoch."""
        model_of(self)
        if self.steps_per_epoch is None and not self.staircase:
            steps = _steps_in(getattr(self, "params", None) or {})  # Keras 3.3 sets it in fit only
            if not steps:
                raise ValueError(NO_STEPS.format(callback=type(self).__name__))
            self.steps_per_epoch = steps

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Remembers the epoch."""
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets the rate that this batch is to be trained with."""
        epoch = self.current_epoch
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return
        if self.staircase and batch == 0:
            self._set_rate(epoch)
        elif not self.staircase:
            if self.steps_per_epoch is None:
                raise ValueError(NO_STEPS.format(callback=type(self).__name__))
            self._set_rate(epoch + batch / self.steps_per_epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Gives the momentum its own value back."""
        if self._momentum is not None:
            model_of(self).optimizer.momentum = self._momentum
            self._momentum = None

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the rate to the logs, as "lr"."""
        if logs is not None:
            logs["lr"] = self._rate()

    def _rate(self) -> float:
        model = model_of(self)
        sync(model)
        return float(as_numpy(model.optimizer.learning_rate))

    def _set_rate(self, epoch: float) -> None:
        model = self.model
        rate = self.initial_lr * self.multiplier(epoch)
        before = self._rate()
        if math.isclose(rate, before, rel_tol=1e-6):  # it is kept in float32
            return
        try:
            model.optimizer.learning_rate = rate
        except TypeError as error:
            raise ValueError(
                f"{type(self).__name__} cannot set the learning rate, because the optimizer was made with a "
                f"schedule of its own; make it with a number."
            ) from error
        momentum = self._momentum_now() if self.momentum_correction else None
        if momentum and before:
            self._momentum = momentum
            model.optimizer.momentum = momentum * rate / before

    def _momentum_now(self) -> float | None:
        """The momentum, if the optimizer has one and the train step heeds a change of it."""
        model = self.model
        if not model.run_eagerly and (keras.backend.backend() != "torch" or model.jit_compile):
            return None
        return getattr(model.optimizer, "momentum", None)


def _steps_in(parameters: dict[str, Any]) -> int | None:
    """The steps per epoch by what Keras tells its callbacks: in graphs of TensorFlow 1 only of samples."""
    steps: int | None = parameters.get("steps")
    samples, size = parameters.get("samples"), parameters.get("batch_size")
    return math.ceil(samples / size) if not steps and samples and size else steps


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from initial_lr / n to initial_lr over warmup_epochs, batch by batch.

    n: the number of ranks that train this model. initial_lr: the rate of n ranks, usually that of one times
    hvd.size(), as in Goyal et al., "Accurate, large minibatch SGD" (2017). verbose: the first of these ranks
    says when the warm-up has ended. Otherwise as LearningRateScheduleCallback.

    >>> hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.1 * hvd.size(), warmup_epochs=3, verbose=1)
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            size = set_size(team_of(self.model), "LearningRateWarmupCallback")
            done = epoch + 1.0 / (self.steps_per_epoch or 1)  # so that the last batch has the full rate
            return (done * (size - 1) / warmup_epochs + 1) / size

        super().__init__(
            initial_lr,
            multiplier,
            0,
            int(np.ceil(number_of(warmup_epochs, "warmup_epochs", True))),
            False,
            momentum_correction,
            steps_per_epoch,
        )
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Says when the warmup is over."""
        super().on_epoch_end(epoch, logs)
        if (
            self.end_epoch is not None
            and epoch == self.end_epoch - 1
            and self.verbose
            and is_first(self.model)
        ):
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {self._rate():g}.")
