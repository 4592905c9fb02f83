"""allreduce and reducescatter as users call them: with compression, placement and tf.IndexedSlices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorflow as tf

from rueda.compression import NoneCompressor, wire_of
from rueda.operations import check_compression, sent_as
from rueda.policy import Adasum, Average, Sum
from rueda.process_sets import ProcessSet, global_process_set
from rueda.tensorflow.arguments import (
    by_kind,
    group_of,
    handle_average_backwards_compatibility,
    set_id,
    type_of,
)
from rueda.tensorflow.compression import Compression, Compressor
from rueda.tensorflow.mpi_ops import (
    _allreduce,
    _grouped_allreduce,
    _grouped_reducescatter,
    _reducescatter,
    allgather,
    size_op,
)
from rueda.tensorflow.plugin import default_name

__all__ = ["allreduce", "grouped_allreduce", "grouped_reducescatter", "reducescatter"]

NO_SPARSE_ADASUM = (
    "The Adasum reduction does not currently support sparse tensors. As a workaround please pass "
    "sparse_as_dense=True to DistributedOptimizer"
)


def _on(device: str) -> AbstractContextManager[Any]:
    return tf.device(device) if device else nullcontext()


def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Reduces a tensor over all ranks of a process set and returns the result, the same bits on every rank.

    tensor: a tensor, variable or array of any shape, equal shape and type on all ranks; or
    tf.IndexedSlices, which are gathered: the result holds all ranks' slices (op Average or Sum). op:
    Average (default), Sum, Adasum, Min, Max or Product; the result is postscale · op(prescale · tensor).
    Differentiable: the gradient is the same allreduce of the output's gradient. Raises
    tf.errors.InvalidArgumentError for what this rank can judge, FailedPreconditionError when ranks
    disagree, UnknownError when one is lost.

    >>> hvd.allreduce(tf.ones([3]), op=hvd.Sum)  # [n, n, n]
    """
    op = handle_average_backwards_compatibility(op, average)
    if isinstance(tensor, tf.IndexedSlices):
        if (prescale_factor, postscale_factor) != (1.0, 1.0):
            raise NotImplementedError("Pre/postscale_factor are not supported with tf.IndexedSlices")
        with _on(device_sparse):
            return _allreduce_slices(tensor, op, name, process_set, ignore_name_scope)
    check_compression(compression)
    with _on(device_dense):
        name = name or default_name("HorovodAllreduce", tensor)
        dense = tf.convert_to_tensor(tensor)
        wire = wire_of(compression, op, dense.dtype == tf.float32)
        compression = NoneCompressor if wire else compression
        compressed, context = compression.compress(dense)
        with sent_as(wire):
            reduced = _allreduce(
                compressed, name, op, prescale_factor, postscale_factor, ignore_name_scope, process_set
            )
        return compression.decompress(reduced, context)


def _allreduce_slices(
    slices: Any, op: int, name: str | None, process_set: ProcessSet, ignore_name_scope: bool
) -> Any:
    """All ranks' slices in one. Rows that several ranks have stay apart, and add up when they are used."""
    if op == Adasum:
        raise NotImplementedError(NO_SPARSE_ADASUM)
    if op not in (Average, Sum):
        raise NotImplementedError("Only Sum and Average ops are supported with tf.IndexedSlices")
    names = [f"{name}_values", f"{name}_indices"] if name else [None, None]
    values = allgather(slices.values, names[0], ignore_name_scope, process_set)
    indices = allgather(slices.indices, names[1], ignore_name_scope, process_set)
    if op == Average:
        # True division, which makes floats of integers, because rows of several ranks are added after it.
        values = values / tf.cast(size_op(set_id(process_set, "Allreduce")), values.dtype)
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


def _reduce_group(
    tensors: Sequence[Any],
    compression: type[Compressor],
    name: str | None,
    reduce: Callable[[list[Any], str | None], list[Any]],
) -> list[Any]:
    """Compresses, reduces one group per type, decompresses; order is kept."""
    check_compression(compression)
    pairs = [compression.compress(tf.convert_to_tensor(tensor)) for tensor in tensors]
    outputs: list[Any] = [None] * len(pairs)
    types = by_kind(pairs, lambda pair: type_of(pair[0]))
    for dtype, positions in types.items():
        # Each type of a call needs its own name: in eager execution all would have that of the operation.
        own = name if len(types) == 1 or name is None else f"{name}_{dtype.name}"
        reduced = reduce([pairs[i][0] for i in positions], own)
        for position, output in zip(positions, reduced):
            outputs[position] = compression.decompress(output, pairs[position][1])
    return outputs


def grouped_allreduce(
    tensors: Iterable[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """allreduce of several tensors as one operation per type; tf.IndexedSlices among them are gathered.

    Returns a list in the order of tensors; an empty list gives an empty list.
    """
    tensors = group_of(tensors)
    if not tensors:
        return []
    op = handle_average_backwards_compatibility(op, average)
    outputs: list[Any] = [None] * len(tensors)
    dense = [i for i, tensor in enumerate(tensors) if not isinstance(tensor, tf.IndexedSlices)]
    for i in sorted(set(range(len(tensors))) - set(dense)):
        own = f"{name}_slices_{i}" if name else None
        factors = (prescale_factor, postscale_factor)
        outputs[i] = allreduce(
            tensors[i],
            None,
            device_dense,
            device_sparse,
            compression,
            op,
            *factors,
            own,
            process_set,
            ignore_name_scope,
        )

    check_compression(compression)
    with _on(device_dense):
        sent = [tf.convert_to_tensor(tensors[i]) for i in dense]
    wire = wire_of(compression, op, all(tensor.dtype == tf.float32 for tensor in sent))
    compression = NoneCompressor if wire else compression

    def reduce(group: list[Any], own: str | None) -> list[Any]:
        return _grouped_allreduce(
            group, own, op, prescale_factor, postscale_factor, ignore_name_scope, process_set
        )

    with _on(device_dense), sent_as(wire):
        reduced = _reduce_group(sent, compression, name, reduce)
    for i, output in zip(dense, reduced):
        outputs[i] = output
    return outputs


def _check_scatter_op(op: int) -> None:
    if op not in (Average, Sum):
        message = "Reducescatter currently only supports AVERAGE and SUM."
        raise tf.errors.AbortedError(None, None, message)


def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduces a tensor and leaves each rank its part of the rows.

    tensor: [rows, …], at least one dimension, equal shape and type on all ranks. op: Average or Sum. Rank
    r of n gets rows // n rows, one more if r < rows % n, consecutive in rank order. Differentiable.
    """
    check_compression(compression)
    _check_scatter_op(op)
    with _on(device_dense):
        name = name or default_name("HorovodReducescatter", tensor)
        compressed, context = compression.compress(tf.convert_to_tensor(tensor))
        factors = (prescale_factor, postscale_factor)
        reduced = _reducescatter(compressed, name, op, ignore_name_scope, process_set, *factors)
        return compression.decompress(reduced, context)


def grouped_reducescatter(
    tensors: Iterable[Any],
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """reducescatter of several tensors as one operation per type; an empty list gives an empty list."""
    tensors = group_of(tensors)
    if not tensors:
        return []
    _check_scatter_op(op)

    def reduce(group: list[Any], own: str | None) -> list[Any]:
        return _grouped_reducescatter(group, own, op, False, process_set, prescale_factor, postscale_factor)

    with _on(device_dense):
        return _reduce_group(tensors, compression, None, reduce)
