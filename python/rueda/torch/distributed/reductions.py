"""torch.distributed's reductions as the engine's."""

from __future__ import annotations

from typing import Any

from rueda import _core

_OPS = {
    "SUM": _core.SUM,
    "AVG": _core.AVERAGE,
    "PRODUCT": _core.PRODUCT,
    "MIN": _core.MIN,
    "MAX": _core.MAX,
    "PREMUL_SUM": _core.SUM,
}


def reduction(options: Any) -> tuple[int, float]:
    """(op of the engine, factor of every input) for a ReduceOp, options that hold one, or None: SUM."""
    op = getattr(options, "reduceOp", options)
    if op is None:
        return _core.SUM, 1.0
    name = _name(op)
    known = _OPS.get(name)
    if known is None:
        raise ValueError(
            f"Backend rueda does not reduce with ReduceOp.{name}; use SUM, AVG, PRODUCT, MIN, MAX or "
            "PREMUL_SUM, or a group with another backend."
        )
    return known, _factor(op) if name == "PREMUL_SUM" else 1.0


def _name(op: Any) -> str:
    kind = getattr(op, "op", op)  # a ReduceOp wraps the kind
    return str(getattr(kind, "name", None) or kind).rpartition(".")[2]


def _factor(op: Any) -> float:
    factor = getattr(op, "factor", None)
    if factor is None:
        factor = op.__getstate__()[1]
    return float(factor)
