"""Collectives on values at rest, and making ranks agree on variables. Outside compiled functions.

Where TensorFlow builds a graph, values of tensors and variables are those in the session, and results arrays.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from typing import Any

import keras
import ml_dtypes  # Keras itself needs it
import numpy as np

from rueda import _core
from rueda import numpy as host
from rueda.ahead import finish_all
from rueda.compression import Int8Compressor
from rueda.errors import HorovodInternalError, internal_error
from rueda.in_flight import let_end
from rueda.keras import sessions
from rueda.keras.backends import Compression, check_choice
from rueda.numpy.arrays import DTYPES, Array
from rueda.operations import sent_as
from rueda.policy import BOTH, variables_of
from rueda.process_sets import ProcessSet, global_process_set

__all__ = [
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_variables",
    "reducescatter",
]

# Ranks draw different dropout masks and augmentations; that is meant to stay.
_KEPT_LOCAL = "seed_generator_state"
# What a rank has not sent is its own, and so is its number there: see compressed.py.
_RESIDUAL = re.compile(r"rueda_\d+_(residual_\d+|rank)$")


def as_numpy(value: Any) -> Array:
    """The value as a numpy array: a tensor of the framework, a keras.Variable, a number, a list."""
    if hasattr(value, "graph") and sessions.builds_graph():
        return sessions.value_of(value)
    if isinstance(value, keras.Variable) or keras.ops.is_tensor(value):
        return np.asarray(keras.ops.convert_to_numpy(value))
    return np.asarray(value)


def _sent(value: Any) -> Array:
    """The value as it is reduced. Python's numbers have the types that frameworks give them."""
    array = as_numpy(value)
    if array.dtype == np.float64 and _is_of_python(value):
        return array.astype(np.float32)
    if array.dtype == np.int64 and _is_of_python(value) and (array == array.astype(np.int32)).all():
        return array.astype(np.int32)
    return array


def _is_of_python(value: Any) -> bool:
    """Whether it is a number of Python's own, or a list of such numbers; not of numpy's."""
    if isinstance(value, (list, tuple)):
        return all(_is_of_python(one) for one in value)
    return type(value) in (bool, int, float)


def _result(array: Array) -> Any:
    """What the caller gets: a tensor of the framework, and in graphs an array or a number of numpy."""
    return array[()] if sessions.builds_graph() else keras.ops.convert_to_tensor(array)


def _compress(array: Array, compression: Any) -> Array:
    """The array as it travels. compression: one of this front end, or a class of the framework."""
    check_choice(compression)
    chosen = compression if isinstance(compression, str) else compression.__name__.lower()
    if array.dtype.kind != "f" or "16" not in chosen:
        return array
    return array.astype(ml_dtypes.bfloat16 if Compression.bf16 in chosen else np.float16)


def _wire(compression: Any) -> int:
    """How the engine sends the sum: the other choices are casts of arrays here."""
    return _core.WIRE_INT8 if compression in (Compression.int8, Int8Compressor) else _core.WIRE_DEFAULT


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = Compression.none,
) -> Any:
    """Reduces a value over all ranks; a tensor of the framework that Keras runs on.

    value: a tensor, variable, number or anything numpy takes; Python's own numbers become float32, and int32
    where they fit. op: Average (default), Sum, Min, Max or
    Product; average=False is an older way to say Sum. Errors as for rueda.numpy.allreduce.

    >>> hvd.allreduce(hvd.rank() * 1.0, op=hvd.Max)  # n - 1
    """
    if op is not None and average is not None:
        raise ValueError(BOTH)
    if op is None:
        op = _core.SUM if average is False else _core.AVERAGE
    array = _sent(value)
    sent = _compress(array, compression)
    with sent_as(_wire(compression)):
        reduced = host.allreduce(sent, name, op, prescale_factor, postscale_factor)
    return _result(reduced.astype(array.dtype))


def allgather(value: Any, name: str | None = None) -> Any:
    """Concatenates the values [rows, …] of all ranks along dimension 0; a tensor of the framework.

    >>> hvd.allgather([hvd.rank()])  # [0, …, n - 1]
    """
    return _result(host.allgather(_sent(value), name))


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """Returns root's value on every rank; a tensor of the framework.

    >>> hvd.broadcast(hvd.rank(), root_rank=1)  # 1
    """
    return _result(host.broadcast(_sent(value), root_rank, name))


def reducescatter(value: Any, name: str | None = None, op: int = _core.AVERAGE) -> Any:
    """Reduces a value [rows, …] over all ranks and returns this rank's slice along dimension 0.

    >>> hvd.reducescatter([1.0, 2.0], op=hvd.Sum)  # 2 ranks: [2.0] on rank 0, [4.0] on rank 1
    """
    return _result(host.reducescatter(_sent(value), name, op))


def broadcast_variables(
    variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Overwrites Keras variables with root's; states of random generators stay each rank's own.

    variables: the same ones in the same order on every rank, for instance model.variables. All broadcasts are
    started before any is awaited. Errors as for rueda.numpy.allreduce.

    >>> hvd.broadcast_variables(model.variables, root_rank=0)
    """
    finish_all()  # of what a DelayedOptimizer has sent; it sends again what its new state needs
    pending: list[tuple[int, Any, Array, int]] = []  # place, variable, what was sent, handle
    for i, variable in enumerate(variables_of(variables, "broadcast_variables")):
        path = getattr(variable, "path", "")
        if path.endswith(_KEPT_LOCAL) or _RESIDUAL.search(path):
            continue
        array = as_numpy(variable)
        # Types that the engine does not have travel as bytes.
        is_known = array.dtype.name in DTYPES
        sent = array if is_known else np.frombuffer(array.tobytes(), np.uint8)
        try:
            # Named by place alone, because a model that root has loaded may name its variables differently.
            handle = host.broadcast_async(sent, root_rank, f"variables.{i}", process_set)
        except HorovodInternalError:
            _received(pending)  # if one has failed before, that is the cause
            raise
        except Exception:
            let_end(handle for _, _, _, handle in pending)
            raise
        pending.append((i, variable, array, handle))
    for (_, variable, array, _), value in zip(pending, _received(pending)):
        _assign(variable, value.view(array.dtype).reshape(array.shape))


def _assign(variable: Any, value: Array) -> None:
    if sessions.builds_graph():
        sessions.assign(variable, value)
    else:
        variable.assign(value)


def _received(pending: Sequence[tuple[int, Any, Array, int]]) -> list[Array]:
    """The arrays of all. An error names the variable; it comes once the others have ended or been left."""
    arrays: list[Array] = []
    for i, variable, _, handle in pending:
        try:
            arrays.append(host.synchronize(handle))
        except HorovodInternalError as error:
            let_end(later for _, _, _, later in pending[len(arrays) + 1 :])
            path = getattr(variable, "path", "unnamed")
            raise internal_error(f"{error} Variable {i} is {path} on this rank.") from error
    return arrays


def broadcast_global_variables(root_rank: int) -> None:
    """Overwrites all global variables of a graph of TensorFlow 1 with root's, in the session of tf_keras.

    ValueError elsewhere, because Keras 3 keeps no list of all variables. Use
    callbacks.BroadcastGlobalVariablesCallback in model.fit, or broadcast_variables(model.variables +
    optimizer.variables, root_rank) in a loop of your own.
    """
    if sessions.builds_graph():
        build = importlib.import_module("rueda.tensorflow.functions").broadcast_global_variables
        sessions.session().run(build(root_rank))
        return
    raise ValueError(
        "broadcast_global_variables: Keras 3 keeps no list of all variables; add "
        "hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank) to model.fit, or call "
        "hvd.broadcast_variables(model.variables + model.optimizer.variables, root_rank)."
    )
