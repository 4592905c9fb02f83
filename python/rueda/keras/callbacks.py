"""Callbacks for model.fit."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from rueda import numpy as host
from rueda.basics import basics
from rueda.errors import internal_error
from rueda.keras.backends import await_values
from rueda.keras.optimizer import is_distributed, marks_steps, process_set_of, wrap_loss_scaling
from rueda.keras.values import as_numpy, broadcast_variables
from rueda.operations import set_size
from rueda.policy import number_of
from rueda.process_sets import ProcessSet
from rueda.steps import mark_step

NO_STEPS = (
    "Could not autodetect the number of steps per epoch. Please specify the steps_per_epoch parameter of "
    "{callback}."
)
PLAIN = (
    "BroadcastGlobalVariablesCallback: the optimizer of this model, {optimizer}, is not distributed, so "
    "ranks start alike and then train apart: compile the model with hvd.DistributedOptimizer(…), or load it "
    "with hvd.load_model; only a train step that reduces its gradients itself needs neither."
)
BAD_ROOT = (
    "BroadcastGlobalVariablesCallback: root_rank is {root}, but the optimizer of this model is distributed "
    "over the ranks {ranks}; pass one of these."
)
NO_XLA = (
    "BroadcastGlobalVariablesCallback: model.fit runs without jit_compile=True, because on TensorFlow XLA "
    "cannot compile the reductions of the optimizer; compile the model with jit_compile=False."
)


def _model_of(callback: Any) -> Any:
    if callback.model is None:
        raise ValueError(
            f"{type(callback).__name__} has no model: pass it to model.fit(callbacks=[…]), or call its "
            f"set_model first."
        )
    return callback.model


def _team_of(model: Any) -> ProcessSet:
    """The ranks that train this model together: the process set of its distributed optimizer, else all."""
    return process_set_of(getattr(model, "optimizer", None))


def is_first(model: Any) -> bool:
    """Whether this is the first of the ranks that train this model together."""
    team = _team_of(model)
    return bool(team.included()) and team.rank() == 0


def warn_if_plain(model: Any) -> None:
    """The warning for ranks that would train apart without an error."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or is_distributed(optimizer) or not basics.is_initialized() or basics.size() == 1:
        return
    warnings.warn(PLAIN.format(optimizer=type(optimizer).__name__), RuntimeWarning, stacklevel=3)


def _is_xla_asked_for(model: Any) -> bool:
    """Whether the user chose XLA: Keras keeps no record, but "auto" would not have."""
    resolve = getattr(model, "_resolve_auto_jit_compile", None)
    return bool(model.jit_compile) and resolve is not None and not resolve()


def _sync(model: Any) -> None:
    """On JAX the training loop holds the values: brings them back to the variables, and lets it take them."""
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Makes all ranks start from root's model and optimizer, each model that it is given to once.

    All ranks of the process set of the model's optimizer; root_rank is a rank of the job and one of them.
    Before the first batch where the model is built by then, else after it. States of random generators
    (dropout) stay each rank's own. local_variables: variables to leave alone; device: accepted for old
    scripts, without effect. Put it first in the list of callbacks. At the end of every epoch it raises what
    failed in a step meanwhile, which Keras on JAX does not. Warns where the model's optimizer is not
    distributed, and where the user's jit_compile=True cannot be followed (on TensorFlow).

    >>> model.fit(x, y, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    """

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank = root_rank
        self._local = {id(variable) for variable in local_variables or []}
        self._sent: Any = None  # the model that was sent last

    def register_local_var(self, var: Any) -> None:
        """This variable is not sent."""
        self._local.add(id(var))

    def set_model(self, model: Any) -> None:
        """Also makes a compiled step of the model communicate if it would not."""
        super().set_model(model)
        optimizer = getattr(model, "optimizer", None)
        inner = getattr(optimizer, "inner_optimizer", None)
        if inner is not None and is_distributed(inner) and not is_distributed(optimizer):
            wrap_loss_scaling(optimizer)
        if not is_distributed(optimizer):
            return
        if keras.backend.backend() == "tensorflow":
            if _is_xla_asked_for(model):
                warnings.warn(NO_XLA, RuntimeWarning, stacklevel=2)
            model.jit_compile = False  # XLA has no implementation of our operations there
        model.train_function = None  # a step compiled before the optimizer was wrapped does not communicate

    def on_train_begin(self, logs: Any = None) -> None:
        """Sends, if everything is built already."""
        model = _model_of(self)
        warn_if_plain(model)
        if not model.built or not model.trainable_variables or model.optimizer is None:
            return
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        self._send(model)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Sends, if the first batch has built everything. Marks a step, if the optimizer does not."""
        if not marks_steps(getattr(self.model, "optimizer", None)):
            mark_step(self.model)
        if self._sent is not _model_of(self):
            _sync(self.model)
            self._send(self.model)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Awaits the steps of the epoch."""
        _sync(_model_of(self))
        await_values(self.model.trainable_variables)

    def _send(self, model: Any) -> None:
        if self._sent is model:
            return
        team = _team_of(model)
        if team.included() is False:
            self._sent = model
            return
        if self.root_rank not in (team.ranks or ()):
            raise ValueError(BAD_ROOT.format(root=self.root_rank, ranks=team.ranks))
        seen, variables = set(self._local), []
        own = model.optimizer.variables  # in tf_keras sometimes a method
        for variable in [*model.variables, *(own() if callable(own) else own)]:
            if id(variable) not in seen:
                seen.add(id(variable))
                variables.append(variable)
        broadcast_variables(variables, self.root_rank, team)
        self._sent = model


class MetricAverageCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Averages the metrics of an epoch over all ranks that train this model, in place, at its end.

    These are the process set of its optimizer. Put it before callbacks that read metrics. device: accepted
    for old scripts, without effect. Raises HorovodInternalError on every rank if their metrics differ.

    >>> callbacks = [hvd.callbacks.MetricAverageCallback(), keras.callbacks.ReduceLROnPlateau()]
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Replaces each value of logs by its average."""
        team, names = _team_of(self.model), sorted(logs or ())
        if team.included() is False:
            return
        _check_same(names, team)
        if not logs:
            return
        values = [np.asarray(as_numpy(logs[name]), np.float64) for name in names]
        key = "metrics." + ",".join(names)
        for name, value in zip(names, host.grouped_allreduce(values, key, process_set=team)):
            logs[name] = float(value) if value.ndim == 0 else value


def _check_same(names: Sequence[str], team: ProcessSet) -> None:
    """Raises on every rank if the names of metrics differ, because ranks would wait for them forever."""
    of_ranks = host.allgather_object(names, "MetricAverageCallback.names", team)
    known = set().union(*of_ranks)
    lacking: dict[str, list[str]] = {}  # names of metrics, and the ranks without them
    for rank, own in zip(team.ranks or (), of_ranks):
        if missing := ", ".join(sorted(known - set(own))):
            lacking.setdefault(missing, []).append(str(rank))
    if lacking:
        parts = [f"rank {', '.join(ranks)} without {missing}" for missing, ranks in lacking.items()]
        raise internal_error(
            f"MetricAverageCallback: ranks have different metrics: {'; '.join(parts)}; compile all models "
            f"with the same metrics, and give all ranks validation_data or none."
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
        _model_of(self)
        if self.steps_per_epoch is None and not self.staircase:
            steps = (getattr(self, "params", None) or {}).get("steps")  # Keras 3.3 sets it in fit only
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
            _model_of(self).optimizer.momentum = self._momentum
            self._momentum = None

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the rate to the logs, as "lr"."""
        if logs is not None:
            logs["lr"] = self._rate()

    def _rate(self) -> float:
        model = _model_of(self)
        _sync(model)
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
        is_compiled = not model.run_eagerly and (keras.backend.backend() != "torch" or model.jit_compile)
        momentum = getattr(model.optimizer, "momentum", None)
        if self.momentum_correction and momentum and before and not is_compiled:
            self._momentum = momentum
            model.optimizer.momentum = momentum * rate / before


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
            size = set_size(_team_of(self.model), "LearningRateWarmupCallback")
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


class SavesOnFirstRank:
    """What stands in front of Keras's ModelCheckpoint in BestModelCheckpoint."""

    filepath: Any

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: Any = "epoch",
    ) -> None:
        suffix = ".weights.h5" if save_weights_only else ".keras"
        unset: Any = (f"unset{suffix}", monitor, verbose, True, save_weights_only, mode, save_freq)
        super().__init__(*unset)
        self.filepath = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Refuses to train without a place to save to."""
        _model_of(self)
        if not self.filepath:
            raise ValueError("BestModelCheckpoint has no filepath: set it before model.fit.")
        super().on_train_begin(logs)  # type: ignore[misc]

    def _save_model(self, *arguments: Any, **settings: Any) -> None:
        if is_first(_model_of(self)):
            super()._save_model(*arguments, **settings)  # type: ignore[misc]


class BestModelCheckpoint(SavesOnFirstRank, keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """Saves the best model so far, on the first rank that trains it.

    Set `filepath` (ending in .keras) before model.fit.

    monitor, verbose, mode, save_freq, save_weights_only: as in keras.callbacks.ModelCheckpoint.

    >>> best = hvd.callbacks.BestModelCheckpoint(monitor="val_loss")
    >>> best.filepath = "best.keras"
    """


__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]
