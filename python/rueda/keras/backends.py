"""Reducing gradients with the framework that Keras runs on. Each is imported when it is first needed."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras

from rueda import _core
from rueda.basics import may_grow
from rueda.in_flight import synchronize_all
from rueda.operations import check_compression, sent_as, set_size
from rueda.policy import predivide_factors
from rueda.process_sets import ProcessSet, global_process_set
from rueda.steps import mark_step


class Compression:
    """The choices for `compression=`; those of the framework's own front end are taken as well."""

    none = "none"
    fp16 = "fp16"
    bf16 = "bf16"
    int8 = "int8"


def check_choice(compression: Any) -> None:
    """Raises ValueError for anything but a choice of Compression or a compression of the framework."""
    if not isinstance(compression, str):
        check_compression(compression)
    elif compression not in (Compression.none, Compression.fp16, Compression.bf16, Compression.int8):
        raise ValueError(f"compression is {compression!r}, but must be Compression.none, fp16, bf16 or int8.")


@dataclass
class Reduction:
    """How the gradients of one optimizer are reduced over all ranks."""

    prefix: str  # of the names under which ranks match gradients
    op: int = _core.AVERAGE
    compression: Any = Compression.none
    predivide: float = 1.0
    sparse_as_dense: bool = False
    process_set: ProcessSet = field(default_factory=lambda: global_process_set)
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


def _with_torch(reduction: Reduction, gradients: Sequence[Any], names: Sequence[str]) -> list[Any]:
    import torch

    hvd, compression = front_end(), _compression(reduction)
    op, prescale, postscale = reduction.factors()

    def exchange(gradients: Sequence[Any]) -> list[Any]:
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
        results = synchronize_all(handles)
        mark_step(reduction)
        return [used.decompress(result, context) for result, (_, context) in zip(results, pairs)]

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
