"""Gradients of the collectives; TensorFlow finds them by the types of the operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from rueda.basics import basics
from rueda.policy import Average, Sum
from rueda.process_sets import ProcessSet, process_set_table
from rueda.tensorflow.mpi_ops import (
    _allreduce,
    _grouped_allreduce,
    allgather,
    alltoall,
    grouped_allgather,
    rank_op,
    size_op,
)

for _name in ("Size", "ProcessSetIncluded", "LocalSize", "Rank", "LocalRank", "Join", "Barrier"):
    tf.no_gradient(f"Horovod{_name}")


class _SetOf(ProcessSet):
    """The set an operation was made with, known by its id alone."""

    def __init__(self, operation: Any) -> None:
        super().__init__([])
        self.process_set_id = int(operation.get_attr("process_set_id"))


def _reduction_of(operation: Any) -> dict[str, Any]:
    return {
        "op": int(operation.get_attr("reduce_op")),
        "prescale_factor": operation.get_attr("prescale_factor"),
        "postscale_factor": operation.get_attr("postscale_factor"),
        **_place_of(operation),
    }


def _place_of(operation: Any) -> dict[str, Any]:
    return {
        "ignore_name_scope": bool(operation.get_attr("ignore_name_scope")),
        "process_set": _SetOf(operation),
        "name": _gradient_name(operation),
    }


def _gradient_name(operation: Any) -> str | None:
    """In eager execution the gradient's name follows from the operation's; nodes get names of their own."""
    if not tf.executing_eagerly():
        return None
    name = operation.get_attr("tensor_name").decode()
    return f"{name}.grad" if name else None


def _of_outputs_types(operation: Any, grads: Sequence[Any]) -> list[Any]:
    """TensorFlow may give float32 zeros beside the float64 gradients of a group."""
    return [tf.cast(grad, output.dtype) for grad, output in zip(grads, operation.outputs)]


@tf.RegisterGradient("HorovodAllreduce")
def _allreduce_gradient(operation: Any, grad: Any) -> Any:
    return _allreduce(tf.convert_to_tensor(grad), **_reduction_of(operation))


@tf.RegisterGradient("HorovodGroupedAllreduce")
def _grouped_allreduce_gradient(operation: Any, *grads: Any) -> Any:
    return _grouped_allreduce(_of_outputs_types(operation, grads), **_reduction_of(operation))


def _my_rows(operation: Any, averaged: Any, counts: Any) -> Any:
    """The rows of a gathered tensor's gradient that came from this rank. counts: rows per rank of the set."""
    set_number = int(operation.get_attr("process_set_id"))
    if set_number == 0:
        me = rank_op()
    else:
        me = tf.constant((process_set_table.ranks_of(set_number) or []).index(basics.rank()))
    begin = tf.reduce_sum(counts[:me])
    return averaged[begin : begin + counts[me]]


@tf.RegisterGradient("HorovodAllgather")
def _allgather_gradient(operation: Any, grad: Any) -> Any:
    place = _place_of(operation)
    averaged = _allreduce(tf.convert_to_tensor(grad), op=Average, **place)
    mine = tf.shape(operation.inputs[0], out_type=tf.int32)[:1]
    place["name"] = place["name"] and f"{place['name']}.rows"
    return _my_rows(operation, averaged, allgather(mine, **place))


@tf.RegisterGradient("HorovodGroupedAllgather")
def _grouped_allgather_gradient(operation: Any, *grads: Any) -> Any:
    place = _place_of(operation)
    averaged = _grouped_allreduce(_of_outputs_types(operation, grads), op=Average, **place)
    mine = tf.stack([tf.shape(tensor, out_type=tf.int32)[0] for tensor in operation.inputs])
    place["name"] = place["name"] and f"{place['name']}.rows"
    counts = allgather(mine[tf.newaxis], **place)  # [ranks, tensors]
    return [_my_rows(operation, one, counts[:, i]) for i, one in enumerate(averaged)]


def _root_only(operation: Any, averaged: Any) -> Any:
    is_root = tf.equal(rank_op(), int(operation.get_attr("root_rank")))
    return averaged * tf.cast(is_root, averaged.dtype)


@tf.RegisterGradient("HorovodBroadcast")
def _broadcast_gradient(operation: Any, grad: Any) -> Any:
    averaged = _allreduce(tf.convert_to_tensor(grad), op=Average, **_place_of(operation))
    return _root_only(operation, averaged)


@tf.RegisterGradient("HorovodGroupedBroadcast")
def _grouped_broadcast_gradient(operation: Any, *grads: Any) -> Any:
    averaged = _grouped_allreduce(_of_outputs_types(operation, grads), op=Average, **_place_of(operation))
    return [_root_only(operation, one) for one in averaged]


@tf.RegisterGradient("HorovodAlltoall")
def _alltoall_gradient(operation: Any, grad: Any, _splits_grad: Any) -> Any:
    returned, _ = alltoall(tf.convert_to_tensor(grad), splits=operation.outputs[1], **_place_of(operation))
    shape = tf.shape(operation.inputs[0])
    unsent = shape[:1] - tf.shape(returned)[:1]  # rows after the splits, which went nowhere
    zeros = tf.zeros(tf.concat([unsent, shape[1:]], 0), returned.dtype)
    return [tf.concat([returned, zeros], 0), None]


def _before_gather(operation: Any, grad: Any) -> Any:
    factor = operation.get_attr("prescale_factor") * operation.get_attr("postscale_factor")
    scaled = tf.convert_to_tensor(grad)
    if int(operation.get_attr("reduce_op")) == Sum:
        scaled = scaled * tf.cast(size_op(int(operation.get_attr("process_set_id"))), scaled.dtype)
    return scaled if factor == 1.0 else scaled * tf.cast(factor, scaled.dtype)


@tf.RegisterGradient("HorovodReducescatter")
def _reducescatter_gradient(operation: Any, grad: Any) -> Any:
    return allgather(_before_gather(operation, grad), **_place_of(operation))


@tf.RegisterGradient("HorovodGroupedReducescatter")
def _grouped_reducescatter_gradient(operation: Any, *grads: Any) -> Any:
    scaled = [_before_gather(operation, grad) for grad in _of_outputs_types(operation, grads)]
    return grouped_allgather(scaled, **_place_of(operation))
