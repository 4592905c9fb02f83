"""allreduce and reducescatter, single and grouped, blocking and not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rueda import _core, in_flight
from rueda.numpy import arrays
from rueda.numpy.arrays import Array
from rueda.operations import Naming, is_group
from rueda.policy import OPS, Average, Sum, check_op
from rueda.process_sets import ProcessSet, global_process_set

__all__ = [
    "allreduce",
    "allreduce_async",
    "grouped_allreduce",
    "grouped_allreduce_async",
    "grouped_reducescatter",
    "reducescatter",
    "reducescatter_async",
]


def _start_allreduce(
    values: Sequence[Any],
    naming: Naming,
    op: int,
    factors: tuple[float, float],
    process_set: ProcessSet,
) -> int:
    check_op(op, OPS, "Allreduce")
    inputs = arrays.as_inputs(values)
    outputs, addresses = zip(*(arrays.empty(source, source.shape) for source in inputs))
    pre, post = factors
    calls = arrays.calls(_core.ALLREDUCE, inputs, addresses, op=op, prescale=pre, postscale=post)

    def finish(engine_handle: int) -> Any:
        return list(outputs) if is_group(naming) else outputs[0]

    borrowed, stream = [*inputs, *outputs], arrays.stream_of(inputs)
    return in_flight.start(calls, borrowed, finish, naming, process_set, stream)


def allreduce_async(
    array: Any,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts an allreduce and returns its handle; see allreduce. Leave the input unchanged meanwhile."""
    factors = (prescale_factor, postscale_factor)
    return _start_allreduce([array], ("allreduce", name), op, factors, process_set)


def allreduce(
    array: Any,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Reduces an array over all ranks of a process set; a new array with the same bits on every rank.

    array: anything numpy.asarray takes, of any shape, equal in shape and type on all ranks; or an array on a
    GPU with `__cuda_array_interface__` or DLPack, in C order, for a result on that GPU. name: what ranks
    are matched by; None counts. op: Average (default), Sum, Adasum, Min, Max or Product; the result is
    postscale · op(prescale · array). Raises ValueError for arguments this rank can judge,
    HorovodInternalError when ranks disagree or are lost.

    >>> import numpy as np, rueda.numpy as hvd
    >>> hvd.init()
    >>> hvd.allreduce(np.full(3, hvd.rank()), op=hvd.Max)  # array([n - 1, n - 1, n - 1])
    """
    output: Array = in_flight.run(
        allreduce_async, array, name, op, prescale_factor, postscale_factor, process_set
    )
    return output


def grouped_allreduce_async(
    values: Iterable[Any],
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts one allreduce of several arrays, which completes as a whole, and returns its handle."""
    values = arrays.group(values)
    if not values:
        raise ValueError("A grouped operation needs at least one array, but the list is empty.")
    factors = (prescale_factor, postscale_factor)
    return _start_allreduce(values, ("grouped_allreduce", name), op, factors, process_set)


def grouped_allreduce(
    values: Iterable[Any],
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Array]:
    """Reduces several arrays, of any types and shapes, as one operation; a list in the same order.

    Every rank must give as many arrays. Otherwise as allreduce; an empty list gives an empty list.

    >>> total, largest_batch = hvd.grouped_allreduce([loss_sum, count], op=hvd.Sum)
    """
    values = arrays.group(values)
    if not values:
        return []
    outputs: list[Array] = in_flight.run(
        grouped_allreduce_async, values, name, op, prescale_factor, postscale_factor, process_set
    )
    return outputs


# ---- reducescatter ----


def _start_reducescatter(
    values: Sequence[Any],
    naming: Naming,
    op: int,
    factors: tuple[float, float],
    process_set: ProcessSet,
) -> int:
    check_op(op, (Average, Sum), "Reducescatter")
    inputs = arrays.as_inputs(values)
    if any(source.ndim == 0 for source in inputs):
        raise ValueError("Reducescatter does not support scalar inputs; give at least one dimension.")
    settings = {"op": op, "prescale": factors[0], "postscale": factors[1]}
    return arrays.start_gathering(_core.REDUCESCATTER, inputs, naming, process_set, **settings)


def reducescatter_async(
    array: Any,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts a reducescatter and returns its handle; see reducescatter."""
    factors = (prescale_factor, postscale_factor)
    return _start_reducescatter([array], ("reducescatter", name), op, factors, process_set)


def reducescatter(
    array: Any,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Array:
    """Reduces an array over all ranks and returns this rank's slice along dimension 0.

    array: [rows, …], at least one dimension, equal on all ranks. Rank r of n receives rows // n rows, one
    more if r < rows % n, consecutive in rank order. op: Average (default) or Sum. Errors as for allreduce.

    >>> hvd.reducescatter(np.ones((4, 2)), op=hvd.Sum)  # 2 ranks: [2, 2], all 2.0
    """
    output: Array = in_flight.run(
        reducescatter_async, array, name, op, process_set, prescale_factor, postscale_factor
    )
    return output


def grouped_reducescatter(
    values: Iterable[Any],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Array]:
    """Reduces and scatters several arrays as one operation; a list in the same order. See reducescatter.

    >>> mine = hvd.grouped_reducescatter([np.ones(4), np.ones((6, 2))], op=hvd.Sum)
    """
    values = arrays.group(values)
    if not values:
        return []
    factors = (prescale_factor, postscale_factor)
    outputs: list[Array] = in_flight.run(
        _start_reducescatter, values, ("grouped_reducescatter", name), op, factors, process_set
    )
    return outputs
