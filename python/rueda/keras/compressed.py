"""PowerSGD and TopK of Keras: what they keep are variables of the optimizer, beside those of the plain one.

They hold on every backend, also in compiled train steps. In a .keras file they are an asset of the optimizer,
so that models load without rueda.
"""

from __future__ import annotations

import itertools
import json
import os
import tempfile
import warnings
import zipfile
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from rueda.basics import basics
from rueda.compression import Exchange, Team
from rueda.compression_choices import OTHER_KIND, OTHER_SHAPE
from rueda.keras.backends import Parts, Reduction, travel
from rueda.policy import Average, Sum, check_op
from rueda.pure_compressors import Arrays, PureCompressor, exchange_all

FILE = "rueda_compression.npz"  # in the assets of the optimizer
ANEW = "load the model with keras.saving.load_model, and wrap its optimizer,"
NO_SCALE = (
    "compression={mine!r}: residuals would not follow the changes of a loss scale; use Compression.int8 or "
    ".bf16 with mixed_float16 and LossScaleOptimizer."
)
NO_PASSES = (
    "compression={mine!r} does not go with backward_passes_per_step or gradient_accumulation_steps; use "
    "larger batches."
)
UNKNOWN = (
    "The optimizer was not built for variable {path}; give every variable that it will train to its first "
    "step, or to optimizer.build."
)
_numbers = itertools.count(1)  # of variables

ARRAYS = Arrays(
    np=ops,
    cast=ops.cast,
    largest=lambda vector, count: ops.top_k(vector, count, sorted=False)[1],
    scatter=lambda indices, values, length: ops.scatter(indices[:, None], values, (length,)),
    kind=lambda array: keras.backend.standardize_dtype(array.dtype),
)


def check(compressor: PureCompressor, op: int, is_loss_scaling: bool, passes: int | None) -> None:
    """Raises ValueError for what does not go with a compressor with state."""
    check_op(op, (Average, Sum), f"compression={compressor!r}")
    if is_loss_scaling:
        raise ValueError(NO_SCALE.format(mine=compressor))
    if passes not in (None, 1):
        raise ValueError(NO_PASSES.format(mine=compressor))


class Kept:
    """What a compressor keeps of the gradients of an optimizer, as variables."""

    def __init__(self, reduction: Reduction, parameters: Sequence[Any]) -> None:
        self._compressor: PureCompressor = reduction.compression
        self._reduction = reduction
        self._rank = variable_of(np.asarray(basics.rank(), np.int32), "rank")  # whose residuals these are
        self._by_name: dict[str, dict[str, Any]] = {}
        warning = ""
        for i, parameter in enumerate(parameters):
            name, shape = name_of(i, parameter), tuple(parameter.shape)
            kind = keras.backend.standardize_dtype(parameter.dtype)
            state = self._compressor.begin(name, shape, kind, reduction.size())
            warning = warning or self._compressor.warning(name, shape, reduction.size())
            if state is not None:
                made = {key: variable_of(value, f"{key}_{i}") for key, value in state.items()}
                self._by_name[name] = made
        if warning and basics.rank() == 0:
            warnings.warn(warning, stacklevel=4)

    def variables(self) -> list[Any]:
        return [self._rank, *(one for kept in self._by_name.values() for one in kept.values())]

    def reduce(self, gradients: Sequence[Any], names: Sequence[str]) -> list[Any]:
        """The gradients combined over all ranks, in the same order; the variables are then the next ones."""
        size = self._reduction.size()
        if not gradients or size == 1:
            return list(gradients)
        team = Team(
            self._reduction.process_set.rank() or 0, size, size if self._reduction.op == Average else 1
        )
        work, plain = {}, {}
        for name, gradient in zip(names, gradients):
            if name in self._by_name:
                work[name] = self._compressor.reduce(name, gradient, self._own(name), team, ARRAYS)
            else:
                plain[name] = gradient
        results, states = self._run(work, plain)
        for name, state in states.items():
            for key, value in state.items():
                self._by_name[name][key].assign(value)
        self._rank.assign(ops.cast(basics.rank(), "int32"))
        return [results[name] for name in names]

    def _own(self, name: str) -> dict[str, Any]:
        """The state; what another rank has not sent must not be sent by this one too."""
        kept = {key: ops.convert_to_tensor(variable) for key, variable in self._by_name[name].items()}
        if "residual" in kept:
            is_mine = ops.equal(ops.convert_to_tensor(self._rank), basics.rank())
            kept["residual"] = ops.where(is_mine, kept["residual"], ops.zeros_like(kept["residual"]))
        return kept

    def _run(self, work: dict[str, Any], plain: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The results by name, and the next states."""

        def travel_once(wanted: dict[str, Exchange], exact: dict[str, Any], is_last: bool) -> Any:
            return travel(self._reduction, Parts.of(wanted, exact), is_last)

        return exchange_all(work, plain, self._compressor.turns, travel_once)

    # ---- files ----

    def save(self, folder: str) -> None:
        arrays: dict[str, Any] = {
            json.dumps([name, key]): np.asarray(ops.convert_to_numpy(value))
            for name, kept in self._by_name.items()
            for key, value in kept.items()
        }
        label, rank = np.asarray(self._compressor.label), np.asarray(ops.convert_to_numpy(self._rank))
        np.savez(os.path.join(folder, FILE), label=label, rank=rank, **arrays)

    def load(self, path: Any) -> None:
        """Raises ValueError, and changes nothing, if the file is of another compressor or model."""
        with np.load(path, allow_pickle=False) as saved:
            mine, label = repr(self._compressor), str(saved["label"])
            if label != self._compressor.label:
                raise ValueError(OTHER_KIND.format(saved=label, mine=mine, instead=ANEW))
            found = []
            for name, kept in self._by_name.items():
                for key, variable in kept.items():
                    where = json.dumps([name, key])
                    shape = saved[where].shape if where in saved else ()
                    if shape != tuple(variable.shape):
                        shapes = {"saved": list(shape), "shape": list(variable.shape)}
                        raise ValueError(OTHER_SHAPE.format(mine=mine, name=name, instead=ANEW, **shapes))
                    found.append((variable, saved[where]))
            self._rank.assign(saved["rank"])
        for variable, value in found:
            variable.assign(value)


def name_of(index: int, parameter: Any) -> str:
    """Of a gradient, for example "3.kernel": layers of loaded models may have other names than new ones."""
    own = getattr(parameter, "path", "").rpartition("/")[2]
    return f"{index}.{own}" if own else str(index)


def variable_of(value: Any, what: str) -> Any:
    def initial(shape: Any, dtype: Any) -> Any:  # a function, because TensorFlow may be tracing a train step
        return ops.convert_to_tensor(value, dtype=dtype)

    options = {"shape": value.shape, "dtype": str(value.dtype), "trainable": False}
    return keras.Variable(initial, **options, name=f"rueda_{next(_numbers)}_{what}")


class Compressing:
    """What the class of an optimizer with such a compressor adds to that of a distributed one."""

    _rueda_reduction: Reduction
    _rueda_kept: Any  # None until it is built
    _rueda_places: dict[int, int]  # of the variables for which it was built, by their id()
    _rueda_saves: bool  # while Keras writes or reads the variables of the plain optimizer

    @property
    def variables(self: Any) -> Any:
        """Those of the plain optimizer, and what the compressor keeps."""
        plain = super().variables  # type: ignore[misc]
        if self._rueda_kept is None or self._rueda_saves:
            return plain
        return type(plain)([*plain, *self._rueda_kept.variables()])

    def build(self: Any, variables: Any) -> None:
        """Makes what the compressor keeps, too."""
        super().build(variables)  # type: ignore[misc]
        self._rueda_begin(list(variables))

    def _rueda_begin(self: Any, variables: Sequence[Any]) -> None:
        places = {id(variable): place for place, variable in enumerate(variables)}
        object.__setattr__(self, "_rueda_places", places)
        object.__setattr__(self, "_rueda_kept", self._rueda_keep(variables))

    def _rueda_keep(self: Any, variables: Sequence[Any]) -> Any:
        return Kept(self._rueda_reduction, variables)

    def _rueda_name(self: Any, place: int, variable: Any) -> str:
        """What is kept belongs to a variable, wherever it stands in a step."""
        return name_of(place if variable is None else self._rueda_place(variable), variable)

    def _rueda_place(self: Any, variable: Any) -> int:
        place: int | None = self._rueda_places.get(id(variable))
        if place is None:
            raise ValueError(UNKNOWN.format(path=getattr(variable, "path", variable)))
        return place

    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        """Builds the optimizer where Keras would do so after the gradients are reduced, as on TensorFlow."""
        if trainable_variables is not None and not self.built:
            trainable_variables = list(trainable_variables)
            with keras.name_scope(self.name, caller=self):
                self.build(trainable_variables)
        return super().apply(grads, trainable_variables)  # type: ignore[misc]

    def _rueda_exchange(self: Any, gradients: Sequence[Any], names: Sequence[str]) -> list[Any]:
        reduced: list[Any] = self._rueda_kept.reduce(gradients, names)
        return reduced

    def save_own_variables(self: Any, store: Any) -> None:
        """Those of the plain optimizer, so that the file loads without rueda."""
        self._rueda_plainly(super().save_own_variables, store)  # type: ignore[misc]

    def load_own_variables(self: Any, store: Any) -> None:
        """Those of the plain optimizer."""
        self._rueda_plainly(super().load_own_variables, store)  # type: ignore[misc]

    def save_assets(self: Any, folder: Any) -> None:
        """What the compressor keeps, as a file beside the variables."""
        if self._rueda_kept is not None:
            self._rueda_kept.save(folder)

    def load_assets(self: Any, folder: Any) -> None:
        """What save_assets wrote; a model that was saved without it begins anew."""
        path = None if folder is None else os.path.join(folder, FILE)
        if path is not None and os.path.exists(path) and self._rueda_kept is not None:
            self._rueda_kept.load(path)

    def _rueda_plainly(self: Any, work: Any, store: Any) -> None:
        object.__setattr__(self, "_rueda_saves", True)
        try:
            work(store)
        finally:
            object.__setattr__(self, "_rueda_saves", False)


def load_from_archive(optimizer: Any, filepath: Any) -> None:
    """Continues from what a .keras file has of the compressor, which its plain optimizer could not take."""
    kept = getattr(optimizer, "_rueda_kept", None)
    if kept is None or not zipfile.is_zipfile(filepath):
        return
    with zipfile.ZipFile(filepath) as archive, tempfile.TemporaryDirectory() as folder:
        for name in archive.namelist():
            if name.endswith(f"/optimizer/{FILE}"):
                kept.load(archive.extract(name, folder))
