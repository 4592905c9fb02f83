"""The one JAX primitive behind all collectives: its shapes, lowering and derivatives.

It takes N arrays and returns N. It becomes N `start` calls, each made as soon as its array is ready, and one
`done` call, so that the program computes while collectives run. Ranks are matched by name and never by order,
because XLA runs independent calls in any order. On the CPU each block of the program calls `begin` first to
say how many groups it has, so that a failure can wait for the last of them. On a GPU the calls run in the
order of the program, and what they enqueue runs on the stream of the program.

Derivatives are those of the sum, over all ranks, of what each rank differentiates: the transpose of a sum is
a sum, and that of an allgather is a reducescatter.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.extend.mlir import ir
from jax.interpreters import ad, batching, mlir

from rueda import _core, device
from rueda import numpy as host
from rueda.in_flight import synchronize_all
from rueda.jax import _plugin
from rueda.numpy import on_device
from rueda.operations import sent_as
from rueda.policy import even_share
from rueda.process_sets import ProcessSet

WORDS = {
    _core.ALLREDUCE: "allreduce",
    _core.ALLGATHER: "allgather",
    _core.BROADCAST: "broadcast",
    _core.ALLTOALL: "alltoall",
    _core.REDUCESCATTER: "reducescatter",
}
IN_PLACE = (_core.ALLREDUCE, _core.BROADCAST)


@dataclass(frozen=True)
class CollectiveSpec:
    """What one collective computes: what its arrays share, and their names. A parameter of the primitive."""

    what: int
    names: tuple[str, ...]  # ranks are matched by them
    process_set: ProcessSet
    set_id: int
    rank: int  # of this process in the set
    size: int  # of the set
    op: int = _core.SUM
    root_rank: int = -1  # world rank
    prescale: float = 1.0
    postscale: float = 1.0
    total_rows: tuple[int, ...] = ()  # allgather: of each result, if ranks give unequal numbers of rows
    wire: int = _core.WIRE_DEFAULT  # how sums travel between hosts
    step: int = 0  # what ends a step of training with this collective (rueda.mark_step); 0: it ends none

    def part(self, indices: Sequence[int], suffix: str) -> CollectiveSpec:
        """The same collective for some of the arrays, under derived names."""
        names = tuple(self.names[i] + suffix for i in indices)
        rows = tuple(self.total_rows[i] for i in indices) if self.total_rows else ()
        return replace(self, names=names, total_rows=rows, step=0)


def result_shape(spec: CollectiveSpec, index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of the index-th result on this rank; ValueError if there can be none."""
    if spec.what in IN_PLACE:
        return shape
    label = f"{WORDS[spec.what]} of {spec.names[index]}"
    if not shape:
        raise ValueError(f"{label}: a scalar has no rows; give it a dimension.")
    rows = shape[0]
    if spec.what == _core.ALLTOALL and rows % spec.size:
        raise ValueError(
            f"{label}: {rows} rows cannot be split evenly between {spec.size} ranks; pad them, or call "
            f"alltoall with splits outside jit."
        )
    if spec.what == _core.ALLGATHER:
        rows = spec.total_rows[index] if spec.total_rows else rows * spec.size
    if spec.what == _core.REDUCESCATTER:
        rows = even_share(rows, spec.size, spec.rank)
    return (rows, *shape[1:])


collective = Primitive("rueda_collective")
collective.multiple_results = True


@collective.def_abstract_eval
def _shapes(*avals: Any, spec: CollectiveSpec) -> list[Any]:
    return [
        aval.update(shape=result_shape(spec, i, aval.shape), weak_type=False) for i, aval in enumerate(avals)
    ]


# ---- outside jit ----


def start(spec: CollectiveSpec, name: str | None, value: Any) -> int:
    """Starts the collective of one concrete array and returns its handle of rueda.numpy."""
    array = value if on_device.find(value) is not None else np.asarray(value)
    factors = {"prescale_factor": spec.prescale, "postscale_factor": spec.postscale}
    if spec.what == _core.ALLREDUCE:
        with sent_as(spec.wire):
            return host.allreduce_async(array, name, spec.op, process_set=spec.process_set, **factors)
    if spec.what == _core.REDUCESCATTER:
        return host.reducescatter_async(array, name, spec.op, spec.process_set, **factors)
    if spec.what == _core.BROADCAST:
        return host.broadcast_async(array, spec.root_rank, name, spec.process_set)
    if spec.what == _core.ALLTOALL:
        return host.alltoall_async(array, None, name, spec.process_set)
    return host.allgather_async(array, name, spec.process_set)


def finish(handles: Sequence[int]) -> list[Any]:
    """Waits for all handles, also when one fails, and returns their results as arrays of numpy or JAX."""
    results = [result[0] if isinstance(result, tuple) else result for result in synchronize_all(handles)]
    return [from_engine(result) for result in results]


def finish_step(spec: CollectiveSpec, handles: Sequence[int]) -> list[Any]:
    """Like finish; then marks the step that the collective ends."""
    results = finish(handles)
    if spec.step:
        _core.mark_step(spec.step)
    return results


def from_engine(result: Any) -> Any:
    """A result of rueda.numpy: in host memory as it is, on a GPU as an array of JAX on the same memory."""
    return jax.dlpack.from_dlpack(result) if isinstance(result, on_device.DeviceArray) else result


def _run_on_host(spec: CollectiveSpec, *values: Any) -> list[Any]:
    return finish_step(spec, [start(spec, name, value) for name, value in zip(spec.names, values)])


@collective.def_impl
def _run(*values: Any, spec: CollectiveSpec) -> list[Any]:
    return [jnp.asarray(result) for result in _run_on_host(spec, *values)]


# ---- inside jit ----

_ids = itertools.count(1)  # of call sites in compiled programs of this process


_CONFIG = "mhlo.backend_config"  # the attribute in which a custom call has its own
_RUN = jax.core.ShapedArray((), np.dtype("int32"))  # the number of a block's run


def _run_of_block(ctx: Any) -> Any:
    """The number of the run of the block that is being lowered. Counts one more group of that block."""
    block = ir.InsertionPoint.current.block
    begin: Any = block.operations[0] if len(block.operations) else None
    if not _is_begin(begin):
        lower = jax.ffi.ffi_lowering(_plugin.BEGIN, has_side_effect=True)
        with ir.InsertionPoint.at_block_begin(block):
            (run,) = lower(ctx.replace(avals_in=[], avals_out=[_RUN]), groups=np.int64(1))
        return run
    groups = ir.IntegerAttr(ir.DictAttr(begin.operation.attributes[_CONFIG])["groups"])
    begin.operation.attributes[_CONFIG] = ir.DictAttr.get(
        {"groups": ir.IntegerAttr.get(groups.type, groups.value + 1)}
    )
    return begin.operation.results[0]


def _is_begin(operation: Any) -> bool:
    if operation is None or operation.operation.name != "stablehlo.custom_call":
        return False
    target: str = ir.StringAttr(operation.operation.attributes["call_target_name"]).value
    return target == _plugin.BEGIN


def _require_one_device(ctx: Any, spec: CollectiveSpec) -> None:
    axes = ctx.module_context.axis_context  # jit, shard_map and pmap each describe it in their own way
    sizes = (
        getattr(axes, "num_devices", None),
        getattr(getattr(axes, "mesh", None), "size", None),
        getattr(getattr(axes, "axis_env", None), "nreps", None),
    )
    devices: int = next((size for size in sizes if size), 1)
    if devices > 1:
        raise NotImplementedError(
            f"{WORDS[spec.what]} of {spec.names[0]}: the program runs on {devices} devices of this process, "
            f"but a rank of rueda drives one: start a rank for each device, or reduce over the devices of a "
            f"process with jax.lax.psum and call rueda outside."
        )


def _lower_cpu(ctx: Any, *operands: Any, spec: CollectiveSpec) -> Any:
    first, started = _lower_starts(ctx, operands, spec)
    run = _run_of_block(ctx)
    return _lower_done(ctx.replace(avals_in=[*ctx.avals_in, _RUN]), first, [*started, run], spec)


def _lower_gpu(ctx: Any, *operands: Any, spec: CollectiveSpec) -> Any:
    if not device.is_taken():
        return _lower_staged(ctx, *operands, spec=spec)
    _plugin.register_for_gpu()
    first, started = _lower_starts(ctx, operands, spec)
    return _lower_done(ctx, first, started, spec)


def _lower_starts(ctx: Any, operands: Sequence[Any], spec: CollectiveSpec) -> tuple[int, list[Any]]:
    """The number of the first start, and what all starts return."""
    _require_one_device(ctx, spec)
    first = next(_ids)
    for _ in operands[1:]:
        next(_ids)
    attributes = {
        "what": np.int64(spec.what),
        "op": np.int64(spec.op),
        "process_set": np.int64(spec.set_id),
        "root_rank": np.int64(spec.root_rank),
        "prescale": np.float64(spec.prescale),
        "postscale": np.float64(spec.postscale),
        "wire": np.int64(spec.wire),
    }
    # Without side effects XLA would merge equal calls, hoist them from loops and drop unused ones.
    lower_start = jax.ffi.ffi_lowering(_plugin.START, has_side_effect=True, operand_output_aliases={0: 0})
    started: list[Any] = []
    for i, (name, operand, aval) in enumerate(zip(spec.names, operands, ctx.avals_in)):
        one = ctx.replace(avals_in=[aval], avals_out=[aval])
        key = f"{WORDS[spec.what]}.{name}"
        started += lower_start(one, operand, id=np.int64(first + i), name=key, **attributes)
    return first, started


def _lower_done(ctx: Any, first: int, operands: Sequence[Any], spec: CollectiveSpec) -> Any:
    aliases = {i: i for i in range(len(spec.names))} if spec.what in IN_PLACE else None
    lower_done = jax.ffi.ffi_lowering(_plugin.DONE, has_side_effect=True, operand_output_aliases=aliases)
    return lower_done(ctx, *operands, id=np.int64(first), step=np.int64(spec.step))


def _staged(*values: Any, spec: CollectiveSpec) -> Any:
    """On devices whose memory the engine does not take: goes through host memory and blocks."""
    device.warn_staged("JAX arrays")
    shapes = [
        jax.ShapeDtypeStruct(result_shape(spec, i, value.shape), value.dtype)
        for i, value in enumerate(values)
    ]
    return jax.pure_callback(lambda *arrays: _run_on_host(spec, *arrays), shapes, *values)


# Lowered within its block, and not as a separate function that JAX then calls.
_IN_PLACE = (
    {"cacheable": False} if "cacheable" in inspect.signature(mlir.register_lowering).parameters else {}
)
_lower_staged = mlir.lower_fun(_staged, multiple_results=True)
mlir.register_lowering(collective, _lower_cpu, platform="cpu", **_IN_PLACE)
mlir.register_lowering(collective, _lower_gpu, platform="cuda", **_IN_PLACE)
mlir.register_lowering(collective, _lower_staged)


# ---- derivatives ----


def _require_linear(spec: CollectiveSpec) -> None:
    if spec.what == _core.ALLREDUCE and spec.op not in (_core.SUM, _core.AVERAGE):
        raise ValueError(
            f"allreduce of {spec.names[0]}: only Sum and Average have a derivative; use one of them, or "
            f"jax.lax.stop_gradient on the argument."
        )


def _jvp(primals: Any, tangents: Any, *, spec: CollectiveSpec) -> Any:
    _require_linear(spec)
    outputs = collective.bind(*primals, spec=spec)
    moved = [i for i, tangent in enumerate(tangents) if type(tangent) is not ad.Zero]
    results = [ad.Zero(output.aval.to_tangent_aval()) for output in outputs]
    if moved:
        derived = collective.bind(*(tangents[i] for i in moved), spec=spec.part(moved, ".jvp"))
        for i, value in zip(moved, derived):
            results[i] = value
    return outputs, results


def _transposed(spec: CollectiveSpec, operands: Any) -> tuple[CollectiveSpec, float]:
    """The collective whose matrix over all ranks is the transpose, and a factor for its results.

    For a broadcast, all ranks except root have to set their results to zero.
    """
    if spec.what == _core.ALLGATHER:
        return replace(spec, what=_core.REDUCESCATTER, op=_core.SUM, total_rows=()), 1.0
    if spec.what == _core.REDUCESCATTER:
        rows = tuple(operand.aval.shape[0] for operand in operands)
        factor = spec.prescale * spec.postscale / (spec.size if spec.op == _core.AVERAGE else 1)
        return replace(spec, what=_core.ALLGATHER, prescale=1.0, postscale=1.0, total_rows=rows), factor
    if spec.what == _core.BROADCAST:
        return replace(spec, what=_core.ALLREDUCE, op=_core.SUM), float(host.rank() == spec.root_rank)
    return spec, 1.0


def _transpose(cotangents: Any, *operands: Any, spec: CollectiveSpec) -> Any:
    results: list[Any] = [ad.Zero(operand.aval) for operand in operands]
    moved = [i for i, cotangent in enumerate(cotangents) if type(cotangent) is not ad.Zero]
    if not moved:
        return results
    transposed, factor = _transposed(spec, operands)
    values = collective.bind(*(cotangents[i] for i in moved), spec=transposed.part(moved, ".t"))
    for i, value in zip(moved, values):
        results[i] = value if factor == 1.0 else value * jnp.asarray(factor, value.dtype)
    return results


ad.primitive_jvps[collective] = _jvp
ad.primitive_transposes[collective] = _transpose


# ---- vmap ----


def _batch(operands: Any, axes: Any, *, spec: CollectiveSpec) -> Any:
    if spec.what == _core.ALLREDUCE and spec.op == _core.ADASUM:
        raise ValueError(
            f"allreduce of {spec.names[0]}: Adasum weighs whole arrays and cannot be used under vmap; call "
            f"it on the batched array outside vmap."
        )
    if spec.what in IN_PLACE:
        return collective.bind(*operands, spec=spec), list(axes)
    moved, out_axes = [], []
    for name, operand, axis in zip(spec.names, operands, axes):
        is_batched = axis is not None
        if is_batched and operand.ndim == 1:
            raise ValueError(f"{WORDS[spec.what]} of {name}: a scalar has no rows; give a dimension.")
        # Rows stay in front, because rows move between ranks.
        moved.append(jnp.moveaxis(operand, axis, 1) if is_batched else operand)
        out_axes.append(1 if is_batched else axis)
    return collective.bind(*moved, spec=spec), out_axes


batching.primitive_batchers[collective] = _batch
