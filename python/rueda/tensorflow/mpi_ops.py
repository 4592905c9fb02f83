"""The collectives as TensorFlow operations, their gradients, and the functions about the job.

Each works eagerly, in tf.function and in graphs for sessions. Ranks match operations by name: in graphs
that of the node, in eager execution the argument `name`, else the operation's type.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from rueda import _core, exports, process_sets
from rueda.basics import basics
from rueda.exports import *  # noqa: F403
from rueda.operations import current_wire
from rueda.policy import Average, Sum, variables_of
from rueda.process_sets import *  # noqa: F403
from rueda.process_sets import ProcessSet, global_process_set
from rueda.tensorflow.arguments import (
    check_num_rank_power_of_2,
    group_of,
    handle_average_backwards_compatibility,
    set_id,
    underlying,
)
from rueda.tensorflow.plugin import default_name, functions, run

_basics = basics  # libraries use it under this name


__all__ = [
    "allgather",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "check_num_rank_power_of_2",
    "grouped_allgather",
    "handle_average_backwards_compatibility",
    "join",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "size_op",
]
__all__ += exports.__all__
__all__ += process_sets.__all__


def _run(word: str, tensor: Any, name: str | None, process_set: ProcessSet, **settings: Any) -> Any:
    """Runs or builds the operation of one tensor. word: "Allreduce". name: the user's."""
    what, known = f"Horovod{word}", set_id(process_set, word)
    function = getattr(functions, f"horovod_{word.lower()}")
    name = name or default_name(what, tensor)
    _mark_unnamed(settings, name)
    return run(function, what, name, tensor=tensor, process_set_id=known, **settings)


def _run_grouped(
    word: str, tensors: Sequence[Any], name: str | None, process_set: ProcessSet, **settings: Any
) -> list[Any]:
    """Like _run, for several tensors of one type."""
    what, known = f"HorovodGrouped{word}", set_id(process_set, word)
    function = getattr(functions, f"horovod_grouped_{word.lower()}")
    name = name or default_name(what, tensors[0], tensors[-1])
    _mark_unnamed(settings, name)
    return list(run(function, what, name, tensors=list(tensors), process_set_id=known, **settings))


def _mark_unnamed(settings: dict[str, Any], name: str | None) -> None:
    """Without a name, eager operations have that of their type: what one loses belongs to no other."""
    if name is None and "wire" in settings:
        settings["wire"] |= _core.WIRE_WITHOUT_FEEDBACK


# ---- reductions of dense tensors; compression and slices are added by reductions.py ----


def _reduction(op: int, prescale: float, postscale: float, ignore_name_scope: bool) -> dict[str, Any]:
    """The attributes of an operation that reduces."""
    factors = {"prescale_factor": prescale, "postscale_factor": postscale}
    return {"reduce_op": op, **factors, "ignore_name_scope": ignore_name_scope, "wire": current_wire()}


def _allreduce(
    tensor: Any,
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """postscale · op(prescale · tensor) over the set; the shape and type of tensor."""
    settings = _reduction(op, prescale_factor, postscale_factor, ignore_name_scope)
    return _run("Allreduce", tensor, name, process_set, **settings)


def _grouped_allreduce(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Like _allreduce, for tensors of one type as one operation."""
    settings = _reduction(op, prescale_factor, postscale_factor, ignore_name_scope)
    return _run_grouped("Allreduce", tensors, name, process_set, **settings)


def _reducescatter(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """This rank's rows of the reduced tensor: [d // n (+ 1 on the first d % n ranks), …]."""
    settings = _reduction(op, prescale_factor, postscale_factor, ignore_name_scope)
    return _run("Reducescatter", tensor, name, process_set, **settings)


def _grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Average,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """Like _reducescatter, for tensors of one type as one operation."""
    settings = _reduction(op, prescale_factor, postscale_factor, ignore_name_scope)
    return _run_grouped("Reducescatter", tensors, name, process_set, **settings)


# ---- gathers, broadcasts, exchanges ----


def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The ranks' tensors one below the other: [sum of rows, …], in rank order.

    tensor: [rows, …], any number of rows per rank, other dimensions and type equal. Differentiable: the
    gradient is averaged over the ranks and cut back to this rank's rows.
    """
    return _run("Allgather", tensor, name, process_set, ignore_name_scope=ignore_name_scope)


def grouped_allgather(
    tensors: Iterable[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """allgather of several tensors of one type as one operation; an empty list gives an empty list."""
    tensors = group_of(tensors)
    if not tensors:
        return []
    return _run_grouped("Allgather", tensors, name, process_set, ignore_name_scope=ignore_name_scope)


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Root's tensor on every rank. root_rank: a world rank. Same shape and type on all ranks.

    Differentiable: root's gradient is the average of all ranks' gradients, that of the others zero.
    """
    return _run(
        "Broadcast", tensor, name, process_set, root_rank=root_rank, ignore_name_scope=ignore_name_scope
    )


def _grouped_broadcast(
    tensors: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    return _run_grouped("Broadcast", tensors, name, process_set, root_rank=root_rank)


def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Overwrites variables of one type, on one device, with root's values, and returns these.

    Raises ValueError when resource variables and the reference variables of TensorFlow 1 are mixed.
    """
    variables = variables_of(variables, "broadcast_")
    if not variables:
        return []
    kinds = {hasattr(underlying(variable), "handle") for variable in variables}  # True: resource variables
    if len(kinds) > 1:
        raise ValueError(
            "All variables passed to broadcast_() should be of the same kind, resource or reference"
        )
    values = [tf.convert_to_tensor(variable) for variable in variables]
    updates = _grouped_broadcast(values, root_rank, name, process_set)
    assigned = [variable.assign(update) for variable, update in zip(variables, updates)]
    if tf.executing_eagerly():
        return updates
    with tf.control_dependencies([one for one in assigned if one is not None]):
        return [tf.identity(update) for update in updates]


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends the first splits[0] rows to the set's rank 0, the next splits[1] to rank 1, and so on.

    tensor: [rows, …]. splits: int32 [size of the set], rows beyond their sum are not sent; None: equal
    parts. Differentiable. Returns the received rows in rank order; with splits also how many came from each
    rank, int32 [size of the set].
    """
    output, received_splits = _run(
        "Alltoall",
        tensor,
        name,
        process_set,
        splits=tf.constant([], tf.int32) if splits is None else _as_int32(splits),
        ignore_name_scope=ignore_name_scope,
    )
    return output if splits is None else (output, received_splits)


def _as_int32(splits: Any) -> Any:
    tensor = tf.convert_to_tensor(splits)
    if not tensor.dtype.is_integer and tensor.shape != [0]:
        message = f"alltoall expects splits to contain 32-bit integer elements. They are {tensor.dtype.name}."
        raise tf.errors.InvalidArgumentError(None, None, message)
    return tf.cast(tensor, tf.int32)


def join() -> Any:
    """Takes part in the others' allreduces with zeros until every rank has joined.

    Returns the world rank that joined last, an int32 scalar.
    """
    return functions.horovod_join()


def barrier(process_set: ProcessSet = global_process_set, name: str | None = None) -> Any:
    """Ends once every rank of the set has run it; in graphs an operation to be run or depended on."""
    set_number = set_id(process_set, "Barrier")
    if tf.executing_eagerly():
        return functions.horovod_barrier(tensor_name=name or "", process_set_id=set_number)
    return functions.horovod_barrier(name=name, process_set_id=set_number)


# ---- numbers at run time: for graphs that outlive a change of the job ----


def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Number of ranks of the set when the operation runs, int32 scalar."""
    return functions.horovod_size(process_set_id=process_set_id, name=name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """1 if this rank is in the set, else 0; -1 before init, -3 for an unknown set. int32 scalar."""
    return functions.horovod_process_set_included(process_set_id=process_set_id, name=name)


def local_size_op(name: str | None = None) -> Any:
    """Number of ranks on this host when the operation runs, int32 scalar."""
    return functions.horovod_local_size(name=name)


def rank_op(name: str | None = None) -> Any:
    """World rank when the operation runs, int32 scalar."""
    return functions.horovod_rank(name=name)


def local_rank_op(name: str | None = None) -> Any:
    """Rank on this host when the operation runs, int32 scalar."""
    return functions.horovod_local_rank(name=name)
