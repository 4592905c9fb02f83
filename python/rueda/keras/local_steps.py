"""Callbacks for ranks that train on their own and exchange what they have learned after so many batches."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from rueda import _core, epochs
from rueda import numpy as host
from rueda.diloco import OuterOptimizer, Turns
from rueda.keras.backends import Compression, check_choice, check_types
from rueda.keras.optimizer import process_set_of, reduces
from rueda.keras.trained import model_of, sync
from rueda.keras.values import as_numpy
from rueda.numpy.arrays import Array
from rueda.operations import sent_as, set_size
from rueda.policy import check_every, check_outer
from rueda.process_sets import ProcessSet, global_process_set

TWICE = (
    "{name}: the optimizer of this model averages gradients in every step already; compile the model with an "
    "optimizer that is not distributed, or is so over fewer ranks (process_set=…)."
)
BY_NAME = "DiLoCoCallback: compression is {given!r}, but must be Compression.none, fp16, bf16 or int8."
_WIRES = {
    Compression.none: _core.WIRE_DEFAULT,
    Compression.bf16: _core.WIRE_BF16,
    Compression.fp16: _core.WIRE_FP16,
    Compression.int8: _core.WIRE_INT8,
}
# Models whose ranks exchange weights.
_exchanging: weakref.WeakSet[Any] = weakref.WeakSet()


def exchanges_weights(model: Any) -> bool:
    """Whether a callback of this module makes the ranks' models equal now and then."""
    return model in _exchanging


def _floats(variables: Sequence[Any]) -> list[Any]:
    return [variable for variable in variables if "float" in str(variable.dtype)]


class LocalSGDCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Averages the model's weights over all ranks after each `every` batches, and at the end of each epoch.

    Between them ranks train on their own, with an optimizer that is not a DistributedOptimizer, or is one of
    fewer ranks, such as those of a host. Weights that are not trained (statistics of batch normalisation) are
    averaged too. All ranks must have equally many batches. process_set: the ranks that train together. Raises
    ValueError for wrong arguments.

    >>> model.compile(optimizer=keras.optimizers.SGD(0.01), loss="mse")
    >>> start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    >>> model.fit(x, y, callbacks=[start, hvd.callbacks.LocalSGDCallback(every=8)])
    """

    def __init__(self, every: int, process_set: ProcessSet = global_process_set) -> None:
        super().__init__()
        check_every(type(self).__name__, every)
        self.every, self._process_set = every, process_set
        self._batches = 0

    def set_model(self, model: Any) -> None:
        """Refuses a model whose optimizer averages gradients over these ranks already."""
        super().set_model(model)
        optimizer = getattr(model, "optimizer", None)
        if reduces(optimizer):
            name = type(self).__name__
            averaging = set_size(process_set_of(optimizer), name)
            if averaging >= set_size(self._process_set, name):
                raise ValueError(TWICE.format(name=name))
        _exchanging.add(model)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Exchanges, if it is time."""
        self._batches += 1
        if self._batches % self.every == 0:
            self._meet()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Exchanges, so that all ranks evaluate and save one model."""
        if self._batches % self.every != 0:
            self._meet()

    def _meet(self, *what: Any) -> None:
        if self._process_set.included() is False or self._process_set.size() == 1:
            return
        model = model_of(self)
        sync(model)
        self._exchange(model, *what)

    def _exchange(self, model: Any) -> None:
        self._average(_floats(model.variables))

    def _average(self, variables: Sequence[Any]) -> None:
        averages = Averages("local_sgd", variables)
        averages.start(_core.WIRE_DEFAULT, self._process_set)
        averages.apply()


class Averages:
    """Values that are averaged together under one name."""

    def __init__(self, name: str, variables: Sequence[Any]) -> None:
        self._name, self._variables = name, variables
        self._handle: int | None = None  # of what is under way

    @property
    def is_under_way(self) -> bool:
        return self._handle is not None

    def start(self, wire: int, process_set: ProcessSet) -> None:
        """Starts averaging what travels of this rank's values. wire: how, between hosts."""
        if not self._variables:
            return
        values = self._outgoing([as_numpy(variable) for variable in self._variables])
        with sent_as(wire):
            self._handle = host.grouped_allreduce_async(values, self._name, process_set=process_set)

    def apply(self) -> None:
        """Waits for the averages, and gives the variables their next values."""
        handle, self._handle = self._handle, None
        if handle is not None:
            for variable, value in zip(self._variables, self._next(host.synchronize(handle))):
                variable.assign(value)

    def _outgoing(self, values: list[Array]) -> list[Array]:
        return values

    def _next(self, averages: list[Array]) -> list[Array]:
        return averages


def _wide(value: Array) -> Array:
    return value if value.dtype == np.float64 else value.astype(np.float32)


class Fragment(Averages):
    """Weights of which the changes are averaged, for an outer optimizer in float32 or float64. It begins with
    these weights, which all ranks have.
    """

    def __init__(self, name: str, variables: Sequence[Any], outer: OuterOptimizer) -> None:
        super().__init__(name, variables)
        self._outer = outer
        self._agreed = [_wide(as_numpy(variable)).copy() for variable in variables]
        self._velocity = [np.zeros_like(value) for value in self._agreed]

    def _outgoing(self, values: list[Array]) -> list[Array]:
        return [agreed - _wide(value) for agreed, value in zip(self._agreed, values)]

    def _next(self, averages: list[Array]) -> list[Array]:
        self._agreed, self._velocity = self._outer.step(self._agreed, self._velocity, averages)
        return self._agreed  # new arrays: a framework may keep them


class DiLoCoCallback(LocalSGDCallback):
    """SGD with momentum makes a step with the average of how far the ranks have come.

    After each `every` batches, and at the end of each epoch; from Douillard et al., "DiLoCo" (2023). As
    LocalSGDCallback, which averages what is not trained here too. The first batch ends with an average of all
    weights, from which the exchanges go on. outer_lr, outer_momentum, nesterov: of the outer optimizer.
    compression: of the changes that travel between hosts, one of hvd.Compression. fragments: the weights are
    exchanged in so many parts, which take turns. overlap: a part travels during one more batch, whose step is
    then lost for this part; not at the end of an epoch. Saved models have nothing of it: a training that is
    resumed begins with an outer momentum of 0.

    >>> model.fit(x, y, callbacks=[start, hvd.callbacks.DiLoCoCallback(every=50)])
    """

    def __init__(
        self,
        every: int,
        outer_lr: float = 0.7,
        outer_momentum: float = 0.9,
        nesterov: bool = True,
        compression: str = Compression.none,
        process_set: ProcessSet = global_process_set,
        *,
        fragments: int = 1,
        overlap: bool = False,
    ) -> None:
        super().__init__(every, process_set)
        check_choice(compression)
        if not isinstance(compression, str):
            raise ValueError(BY_NAME.format(given=compression))
        self._compression = compression
        self._outer = OuterOptimizer(*check_outer(outer_lr, outer_momentum), nesterov)
        self._turns = Turns(type(self).__name__, every, fragments, bool(overlap))
        self._fragments: list[Fragment] = []  # none until the first batch has ended
        self._others = Averages("local_sgd", [])  # weights that are not trained
        self._agreed: list[int] = []  # after how many batches all ranks had the same of each
        self._epoch = 0  # in which the outer optimizer began

    def on_train_begin(self, logs: Any = None) -> None:
        """After another init, whose ranks may be others, the outer optimizer begins anew."""
        if self._fragments and self._epoch != epochs.current():
            self._fragments, self._agreed = [], []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Exchanges what is due. The first batch begins the outer optimizer, and is not counted."""
        if self._fragments or self._process_set.size() == 1:
            self._batches += 1
        places = range(len(self._fragments))
        due = [place for place in places if self._turns.is_due(place, self._batches)]
        if due or not self._fragments or any(fragment.is_under_way for fragment in self._fragments):
            self._meet(due, self._turns.overlap)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Exchanges what has changed since its last exchange, so that all ranks have one model."""
        if self._fragments:
            self._meet()

    def _exchange(self, model: Any, due: Sequence[int] | None = None, overlap: bool = False) -> None:
        """due: None: all that has changed."""
        if not self._fragments:
            self._begin(model)
            return
        self._apply()
        if due is None:
            due = [place for place, batches in enumerate(self._agreed) if batches != self._batches]
        for place in due:
            self._fragments[place].start(_WIRES[self._compression], self._process_set)
        if due and due[-1] == len(self._fragments) - 1:
            self._others.start(_core.WIRE_DEFAULT, self._process_set)
        if not overlap:
            self._apply()

    def _begin(self, model: Any) -> None:
        trained, everything = _floats(model.trainable_variables), _floats(model.variables)
        check_types(self._compression, trained)
        parts = self._turns.split(trained)
        self._average(everything)
        names = ["diloco"] if len(parts) == 1 else [f"diloco.{place}" for place in range(len(parts))]
        self._fragments = [Fragment(name, part, self._outer) for name, part in zip(names, parts)]
        are_trained = {id(variable) for variable in trained}
        self._others = Averages("local_sgd", [one for one in everything if id(one) not in are_trained])
        self._agreed, self._epoch = [self._batches] * len(parts), epochs.current()

    def _apply(self) -> None:
        for place, fragment in enumerate(self._fragments):
            if fragment.is_under_way:
                fragment.apply()
                self._agreed[place] = self._batches
        self._others.apply()
