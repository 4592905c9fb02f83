"""Decisions about collectives and optimizers that all front ends share. Knows no framework."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from rueda import _core, errors

Average = _core.AVERAGE
Sum = _core.SUM
Adasum = _core.ADASUM
Min = _core.MIN
Max = _core.MAX
Product = _core.PRODUCT

OPS = (Average, Sum, Adasum, Min, Max, Product)

BOTH = "The op parameter supersedes average. Please provide only one of them."
AVERAGE_REPLACED = (
    "Parameter `average` has been replaced with `op` and will be removed; use op=hvd.Average or hvd.Sum."
)

ALREADY_DISTRIBUTED = (
    "This optimizer is a DistributedOptimizer already; wrap the optimizer that it was made from."
)


def _unknown_op(op: int) -> Exception:
    return errors.internal_error("Reduction op type not supported.")


def handle_average_backwards_compatibility(
    op: int | None, average: bool | None, unknown: Callable[[int], Exception] = _unknown_op
) -> int:
    """The op meant by the arguments `op` and (older) `average`. unknown: what to raise for anything else."""
    if op is not None:
        if average is not None:
            raise ValueError(BOTH)
        if op not in OPS:
            raise unknown(op)
        return op
    if average is not None:
        warnings.warn(AVERAGE_REPLACED, DeprecationWarning, stacklevel=3)
        return Average if average else Sum
    return Average


def check_op(op: int, allowed: Sequence[int], kind: str) -> None:
    """ValueError unless the operation is one of those allowed. kind: what the sentence begins with."""
    if op not in allowed:
        names = dict(zip(OPS, ("Average", "Sum", "Adasum", "Min", "Max", "Product")))
        wanted = ", ".join(names[one] for one in allowed)
        raise ValueError(f"{kind}: op is {names.get(op, op)!r}, but it must be one of {wanted}.")


def check_gradient_op(op: int, what: str) -> None:
    """ValueError for operations by which optimizers without Adasum cannot combine gradients."""
    if op not in (Average, Sum):
        raise ValueError(f"{what}: op is {op!r}, but op currently only supports Average and Sum.")


def check_predivide(op: int, factor: float) -> None:
    """ValueError unless the factor can split the division of an average in two."""
    if not (math.isfinite(factor) and factor != 0):
        raise ValueError(f"gradient_predivide_factor must be a finite number other than 0, not {factor}.")
    if factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average; leave it at 1.0.")


def predivide_factors(factor: float) -> tuple[float, float]:
    """What an average is multiplied by before and after its sum: 1 / factor, then factor / ranks.

    The division by the number of ranks is the engine's, as for every average.
    """
    return 1.0 / factor, factor


def check_passes(passes: int) -> None:
    """ValueError unless gradients can be summed over this many passes."""
    if passes < 1:
        raise ValueError(f"backward_passes_per_step is {passes}, but backward_passes_per_step must be > 0.")


def groups_of(groups: Any, num_groups: int) -> Any:
    """The argument `groups`, or its older form. Called by the function that the user calls."""
    if num_groups == 0:
        return groups
    warnings.warn(
        "Parameter `num_groups` has been replaced by `groups` and will be removed.",
        DeprecationWarning,
        stacklevel=3,
    )
    return num_groups if groups is None else groups


def even_share(count: int, parts: int, part: int) -> int:
    """How many of `count` things one part has: the first parts have one more where they differ."""
    return count // parts + (part < count % parts)


def split_evenly(items: Sequence[Any], parts: int) -> list[list[Any]]:
    """Consecutive parts whose lengths differ by one at most, the longer ones first."""
    split, start = [], 0
    for part in range(parts):
        stop = start + even_share(len(items), parts, part)
        split.append(list(items[start:stop]))
        start = stop
    return split
