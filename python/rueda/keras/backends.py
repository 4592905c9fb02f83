"""Reducing gradients with the framework that Keras runs on. Each is imported when it is first needed."""

from __future__ import annotations

import importlib
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras

from rueda import _core
from rueda.ahead import Ahead
from rueda.basics import may_grow
from rueda.compression import Exchange
from rueda.compression_choices import check_wire_types
from rueda.in_flight import synchronize_all
from rueda.operations import check_compression, sent_as, set_size
from rueda.policy import predivide_factors
from rueda.process_sets import ProcessSet, global_process_set
from rueda.pure_compressors import PureCompressor
from rueda.steps import mark_step

_NOT_IN_NODES = re.compile("[^A-Za-z0-9_.]")  # of graphs of TensorFlow


class Compression:
    """The choices for `compression=`; those of the framework's own front end are taken as well."""

    none = "none"
    fp16 = "fp16"
    bf16 = "bf16"
    int8 = "int8"


def check_choice(compression: Any) -> None:
    """Raises ValueError for anything but a choice of Compression or a compression of the framework."""
    if isinstance(compression, type) and issubclass(compression, PureCompressor):
        name = compression.__name__
        raise ValueError(f"compression must be an object of {name}, not the class; write {name}(...).")
    if not isinstance(compression, str):
        check_compression(compression)
    elif compression not in (Compression.none, Compression.fp16, Compression.bf16, Compression.int8):
        raise ValueError(f"compression is {compression!r}, but must be Compression.none, fp16, bf16 or int8.")


def check_types(compression: Any, variables: Sequence[Any]) -> None:
    """Raises ValueError for a variable whose gradients the wire type does not encode."""
    kinds = ((one.path, keras.backend.standardize_dtype(one.dtype)) for one in variables)
    check_wire_types(compression, kinds)


@dataclass
class Reduction:
    """How the gradients of one optimizer are reduced over all ranks."""

    prefix: str  # of the names under which ranks match gradients
    op: int = _core.AVERAGE
    compression: Any = Compression.none
    predivide: float = 1.0
    sparse_as_dense: bool = False
    process_set: ProcessSet = field(default_factory=lambda: global_process_set)
    is_delayed: bool = False  # each step uses the gradients of the one before
    step: int = field(default_factory=itertools.count(1).__next__)  # what the timeline knows its steps by
    _reducer: Any = None  # of TensorFlow's front end, made once

    def size(self) -> int:
        """Number of ranks that reduce together."""
        return set_size(self.process_set, self.prefix)

    def factors(self) -> tuple[int, float, float]:
        """(op, prescale, postscale) of the collective."""
        return self.op, *predivide_factors(self.predivide)


def backend_name() -> str:
    """ "jax", "torch" or "tensorflow"; ValueError for a backend that cannot train."""
    name: str = keras.backend.backend()
    if name not in _REDUCERS:
        raise ValueError(
            f"rueda.keras trains on the Keras backends {', '.join(sorted(_REDUCERS))}, but Keras runs on "
            f"{name}; set KERAS_BACKEND before keras is imported."
        )
    return name


def front_end() -> Any:
    """The rueda front end of the framework that Keras runs on."""
    return importlib.import_module(f"rueda.{backend_name()}")


def reduce_gradients(reduction: Reduction, gradients: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """The gradients (none is None), reduced over the ranks. If the train step is compiled, this is traced.

    Marks a step in the timeline, each time it runs.
    """
    if not gradients or (reduction.size() == 1 and not may_grow()):
        return list(gradients)
    return _REDUCERS[backend_name()](reduction, gradients, names)


def reduce_ahead(
    reduction: Reduction, ahead: Ahead, waiting: Sequence[Any], following: Sequence[Any], names: Sequence[str]
) -> list[Any]:
    """The waiting gradients, reduced over the ranks, while the following ones travel, if they are not traced.
    Within a compiled step the waiting ones travel while it computes the following ones.
    """
    if backend_name() != "torch" or reduction.size() == 1:
        return reduce_gradients(reduction, waiting, names)
    import torch

    def exchange(waiting: Sequence[Any], following: Sequence[Any]) -> list[Any]:
        taken = ahead.take()
        if taken is not None and all(map(torch.equal, waiting, taken[0])):
            reduced = taken[1]
        else:  # a state was loaded
            reduced = _start_torch(reduction, waiting, names)()
        ahead.start([one.detach() for one in following], _start_torch(reduction, following, names))
        return reduced

    result: list[Any] = torch.compiler.disable(exchange)(waiting, following)
    return result


@dataclass(frozen=True)
class Parts:
    """What travels at once: (gradient, name, tensor) each."""

    sums: list[tuple[str, str, Any]]
    rows: list[tuple[str, str, Any]]  # gathered
    plain: list[tuple[str, str, Any]]  # gradients that are not compressed

    @staticmethod
    def of(wanted: Mapping[str, Exchange], plain: Mapping[str, Any]) -> Parts:
        """Of the exchanges of compressed gradients, and others, by name."""
        sums: list[tuple[str, str, Any]] = []
        rows: list[tuple[str, str, Any]] = []
        for name, one in wanted.items():
            sums += [_part(name, *tensor) for tensor in one.beside]
            (rows if one.is_gathered else sums).extend(_part(name, *tensor) for tensor in one.tensors)
        return Parts(sums, rows, [(name, name, tensor) for name, tensor in plain.items()])


def _part(name: str, ending: str, tensor: Any) -> tuple[str, str, Any]:
    return name, f"{name}.{ending}" if ending else name, tensor


def travel(reduction: Reduction, parts: Parts, is_last: bool) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """What came back for each compressed gradient, and the others reduced. is_last: it ends the step."""
    exchange = _EXCHANGES[backend_name()]
    # Sums first: ranks that disagree are told so by them.
    summed = exchange(reduction, [*parts.sums, *parts.plain], False, is_last and not parts.rows)
    gathered = exchange(reduction, parts.rows, True, is_last) if parts.rows else []
    back: dict[str, list[Any]] = {}
    for (name, _, _), tensor in zip([*parts.sums, *parts.rows], [*summed[: len(parts.sums)], *gathered]):
        back.setdefault(name, []).append(tensor)
    exact = {name: one for (name, _, _), one in zip(parts.plain, summed[len(parts.sums) :])}
    return back, exact


def _exchange_jax(reduction: Reduction, named: list[Any], gathers: bool, is_last: bool) -> list[Any]:
    module = importlib.import_module("rueda.jax.collectives")
    op, prescale, postscale = reduction.factors()
    terms = {} if gathers else {"op": op, "prescale": prescale, "postscale": postscale}
    what = _core.ALLGATHER if gathers else _core.ALLREDUCE
    step = reduction.step if is_last else 0
    spec = module.describe(what, reduction.process_set, step=step, **terms)
    tensors = [(f".{name}", tensor) for _, name, tensor in named]
    result: list[Any] = module.exchange(tensors, reduction.prefix, spec)
    return result


def _exchange_torch(reduction: Reduction, named: list[Any], gathers: bool, is_last: bool) -> list[Any]:
    import torch

    hvd = front_end()
    terms, within = reduction.factors(), reduction.process_set

    def start(name: str, tensor: Any) -> int:
        tensor, name = tensor.detach().contiguous(), f"{reduction.prefix}.{name}"
        if gathers:
            return hvd.allgather_async(tensor, name, within)  # type: ignore[no-any-return]
        return hvd.allreduce_async(tensor, None, name, *terms, within)  # type: ignore[no-any-return]

    def exchange(named: list[Any]) -> list[Any]:
        results = synchronize_all([start(name, tensor) for _, name, tensor in named])
        if is_last:
            mark_step(reduction)
        return results

    result: list[Any] = torch.compiler.disable(exchange)(named)
    return result


def _exchange_tensorflow(reduction: Reduction, named: list[Any], gathers: bool, is_last: bool) -> list[Any]:
    reductions = importlib.import_module("rueda.tensorflow.reductions")
    mark = importlib.import_module("rueda.tensorflow.plugin").mark_step
    op, prescale, postscale = reduction.factors()

    def run(name: str, tensor: Any) -> Any:
        name = _NOT_IN_NODES.sub("_", f"{reduction.prefix}.{name}")
        if gathers:
            return reductions.allgather(tensor, name, process_set=reduction.process_set)
        if reduction.sparse_as_dense and hasattr(tensor, "dense_shape"):
            tensor = keras.ops.convert_to_tensor(tensor)
        factors = (
            {}
            if hasattr(tensor, "dense_shape")
            else {"prescale_factor": prescale, "postscale_factor": postscale}
        )
        return reductions.allreduce(tensor, op=op, name=name, process_set=reduction.process_set, **factors)

    # Eager operations block, so ranks that disagree must come to the same gradient to be told so.
    by_name = {name: run(name, tensor) for _, name, tensor in sorted(named, key=lambda one: one[1])}
    results = [by_name[name] for _, name, _ in named]
    return mark(reduction.step, results) if is_last else results


_EXCHANGES: dict[str, Callable[[Reduction, list[Any], bool, bool], list[Any]]] = {
    "jax": _exchange_jax,
    "torch": _exchange_torch,
    "tensorflow": _exchange_tensorflow,
}


def _compression(reduction: Reduction) -> Any:
    chosen = reduction.compression
    return getattr(front_end().Compression, chosen) if isinstance(chosen, str) else chosen


def _with_jax(reduction: Reduction, gradients: Sequence[Any], names: Sequence[str]) -> list[Any]:
    reduce = importlib.import_module("rueda.jax.collectives").reduce_gradients
    tree, compression = dict(zip(names, gradients)), _compression(reduction)
    reduced = reduce(
        tree, reduction.prefix, reduction.factors(), reduction.process_set, compression, reduction.step
    )
    return [reduced[name] for name in names]


def _start_torch(
    reduction: Reduction, gradients: Sequence[Any], names: Sequence[str]
) -> Callable[[], list[Any]]:
    hvd, compression = front_end(), _compression(reduction)
    op, prescale, postscale = reduction.factors()
    plain = [gradient.detach().contiguous() for gradient in gradients]
    wire = hvd.compression.wire_type(compression, plain, op)
    used = hvd.Compression.none if wire else compression
    pairs = [used.compress(gradient) for gradient in plain]
    with sent_as(wire):
        handles = [
            hvd.allreduce_async(
                sent, None, f"{reduction.prefix}.{name}", op, prescale, postscale, reduction.process_set
            )
            for (sent, _), name in zip(pairs, names)
        ]

    def finish() -> list[Any]:
        results = synchronize_all(handles)
        mark_step(reduction)
        return [used.decompress(result, context) for result, (_, context) in zip(results, pairs)]

    return finish


def _with_torch(reduction: Reduction, gradients: Sequence[Any], names: Sequence[str]) -> list[Any]:
    import torch

    def exchange(gradients: Sequence[Any]) -> list[Any]:
        return _start_torch(reduction, gradients, names)()

    result: list[Any] = torch.compiler.disable(exchange)(gradients)
    return result


def _with_tensorflow(reduction: Reduction, gradients: Sequence[Any], names: Sequence[str]) -> list[Any]:
    if reduction._reducer is None:
        module = importlib.import_module("rueda.tensorflow.gradients")
        reduction._reducer = module.GradientReducer(
            reduction.prefix,
            compression=_compression(reduction),
            sparse_as_dense=reduction.sparse_as_dense,
            op=reduction.op,
            gradient_predivide_factor=reduction.predivide,
            process_set=reduction.process_set,
        )
    reduced: list[Any] = reduction._reducer.reduce(gradients, parts=names)
    return reduced


_REDUCERS: dict[str, Callable[[Reduction, Sequence[Any], Sequence[str]], list[Any]]] = {
    "jax": _with_jax,
    "torch": _with_torch,
    "tensorflow": _with_tensorflow,
}


def scaled(grad: Any, factor: float) -> Any:
    """A gradient times a factor, sparse as it was."""
    if factor == 1.0:
        return grad
    if hasattr(grad, "dense_shape"):  # tf.IndexedSlices
        return type(grad)(grad.values * factor, grad.indices, grad.dense_shape)
    return grad * factor


def await_values(variables: Sequence[Any]) -> None:
    """Raises errors of steps that run in the background, as on JAX, where Keras would ignore them."""
    if keras.backend.backend() == "jax":
        import jax

        jax.block_until_ready([variable.value for variable in variables])


def exchange_in_trace(
    is_step: Any, reduce: Callable[[list[Any]], list[Any]], gradients: list[Any]
) -> list[Any]:
    """Within JAX: reduce(gradients) if is_step holds, else the gradients. Only the taken branch runs."""
    import jax

    result: list[Any] = jax.lax.cond(is_step, reduce, list, gradients)
    return result
