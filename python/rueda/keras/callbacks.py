"""Callbacks for model.fit."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from rueda import numpy as host
from rueda.basics import basics
from rueda.errors import internal_error
from rueda.keras.backends import await_values
from rueda.keras.delayed import use_agreed_weights
from rueda.keras.learning_rate import LearningRateScheduleCallback, LearningRateWarmupCallback
from rueda.keras.local_steps import DiLoCoCallback as DiLoCoCallback
from rueda.keras.local_steps import LocalSGDCallback as LocalSGDCallback
from rueda.keras.local_steps import exchanges_weights
from rueda.keras.optimizer import is_distributed, marks_steps, reduces, wrap_loss_scaling
from rueda.keras.trained import is_first, model_of, sync, team_of
from rueda.keras.values import as_numpy, broadcast_variables
from rueda.process_sets import ProcessSet
from rueda.steps import mark_step

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


def warn_if_plain(model: Any) -> None:
    """The warning for ranks that would train apart without an error."""
    optimizer = getattr(model, "optimizer", None)
    if exchanges_weights(model):
        return
    if optimizer is None or reduces(optimizer) or not basics.is_initialized() or basics.size() == 1:
        return
    warnings.warn(PLAIN.format(optimizer=type(optimizer).__name__), RuntimeWarning, stacklevel=3)


def _is_xla_asked_for(model: Any) -> bool:
    """Whether the user chose XLA: Keras keeps no record, but "auto" would not have."""
    resolve = getattr(model, "_resolve_auto_jit_compile", None)
    return bool(model.jit_compile) and resolve is not None and not resolve()


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Makes all ranks start from root's model and optimizer, each model that it is given to once.

    All ranks of the process set of the model's optimizer; root_rank is a rank of the job and one of them.
    Before the first batch where all ranks have built the model by then, else after it. States of random
    generators (dropout) stay each rank's own. local_variables: variables to leave alone; device: accepted for
    old scripts, without effect. Put it first in the list of callbacks. At the end of every epoch it raises
    what failed in a step meanwhile, which Keras on JAX does not. Warns where the model's optimizer is not
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
        """Sends, if everything is built already on all ranks."""
        model = model_of(self)
        warn_if_plain(model)
        if self._is_ready_everywhere(model):
            self._build(model)
            self._send(model)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Sends, if the first batch has built everything. Marks a step, if the optimizer does not."""
        if not marks_steps(getattr(self.model, "optimizer", None)):
            mark_step(self.model)
        if self._sent is not model_of(self):
            sync(self.model)
            self._send(self.model)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Awaits the steps of the epoch."""
        sync(model_of(self))
        await_values(self.model.trainable_variables)

    def _is_ready_everywhere(self, model: Any) -> bool:
        """Whether all ranks can send before the first batch. Root's model may come from a file, and so be
        built, where those of the others are not.
        """
        team = team_of(model)
        is_ready = bool(model.built and model.trainable_variables and model.optimizer is not None)
        if team.included() is False:
            return is_ready
        key = "BroadcastGlobalVariablesCallback.ready"
        of_ranks = host.allgather_object((is_ready, self._sent is model), key, team)
        if not all(is_sent for _, is_sent in of_ranks):
            self._sent = None  # another rank has a new model
        return all(is_ready for is_ready, _ in of_ranks)

    def _build(self, model: Any) -> None:
        """Makes the optimizer's own variables."""
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)

    def _send(self, model: Any) -> None:
        if self._sent is model:
            return
        team = team_of(model)
        if team.included() is False:
            self._sent = model
            return
        if self.root_rank not in (team.ranks or ()):
            raise ValueError(BAD_ROOT.format(root=self.root_rank, ranks=team.ranks))
        seen, variables = set(self._local), []
        for variable in self._variables_of(model):
            if id(variable) not in seen:
                seen.add(id(variable))
                variables.append(variable)
        broadcast_variables(variables, self.root_rank, team)
        self._sent = model

    def _variables_of(self, model: Any) -> list[Any]:
        """What is sent, the same on all ranks; some may come twice."""
        own = getattr(model.optimizer, "variables", ())  # in tf_keras sometimes a method, or missing
        return [*model.variables, *(own() if callable(own) else own)]


class AgreedWeightsCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """At the end of each epoch, gives a model that a DelayedOptimizer trains the weights that all ranks have.

    Between steps those of a rank have made one more step, with its own gradients. Put it before callbacks
    that save the model. With other optimizers it does nothing.

    >>> callbacks = [hvd.callbacks.AgreedWeightsCallback(), keras.callbacks.ModelCheckpoint("best.keras")]
    """

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Does so."""
        model = model_of(self)
        sync(model)
        use_agreed_weights(getattr(model, "optimizer", None), model.trainable_variables)


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
        team, names = team_of(self.model), sorted(logs or ())
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
        model_of(self)
        if not self.filepath:
            raise ValueError("BestModelCheckpoint has no filepath: set it before model.fit.")
        super().on_train_begin(logs)  # type: ignore[misc]

    def _save_model(self, *arguments: Any, **settings: Any) -> None:
        if is_first(model_of(self)):
            super()._save_model(*arguments, **settings)  # type: ignore[misc]


class BestModelCheckpoint(SavesOnFirstRank, keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """Saves the best model so far, on the first rank that trains it.

    Set `filepath` (ending in .keras) before model.fit.

    monitor, verbose, mode, save_freq, save_weights_only: as in keras.callbacks.ModelCheckpoint.

    >>> best = hvd.callbacks.BestModelCheckpoint(monitor="val_loss")
    >>> best.filepath = "best.keras"
    """


__all__ = [  # what Horovod has; tf_keras has the same
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]
