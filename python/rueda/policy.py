"""Decisions about collectives and optimizers that all front ends share. Knows no framework."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Iterable, Sequence
from ctypes import c_double
from typing import Any, SupportsFloat

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
        given = names.get(op, op) if isinstance(op, int) else op
        raise ValueError(f"{kind}: op is {given!r}, but it must be one of {wanted}.")


def root_rank_of(root_rank: Any) -> int:
    """The argument root_rank as an int; TypeError unless it is a whole number."""
    try:
        return operator.index(root_rank)
    except TypeError:
        text = f"broadcast: root_rank must be an int, not {type(root_rank).__name__} ({root_rank!r})."
        raise TypeError(text) from None


def check_name(name: Any) -> None:
    """Raises TypeError unless this is None or a string. The text of other objects may differ between ranks,
    which would then wait for one another.
    """
    if name is not None:
        _core.check_text(name, "name")


def number_of(value: Any, what: str, must_be_finite: bool = False) -> float:
    """The argument `what` as a float; TypeError if it is not a number, ValueError if it is not finite."""
    try:
        number = c_double(value).value
    except (TypeError, OverflowError):
        raise TypeError(f"{what} must be a number, not {type(value).__name__} ({value!r}).") from None
    if must_be_finite and not math.isfinite(number):
        raise ValueError(f"{what} must be a finite number, not {number}.")
    return number


def check_factors(prescale: Any, postscale: Any) -> tuple[float, float]:
    """The arguments prescale_factor and postscale_factor as floats; TypeError if one is not a number."""
    return number_of(prescale, "prescale_factor"), number_of(postscale, "postscale_factor")


def check_gradient_op(op: int, what: str) -> None:
    """ValueError for operations by which optimizers without Adasum cannot combine gradients."""
    if op not in (Average, Sum):
        raise ValueError(f"{what}: op is {op!r}, but op currently only supports Average and Sum.")


def check_predivide(op: int, factor: float) -> None:
    """ValueError unless the factor can split the division of an average in two, TypeError if it is none."""
    if not isinstance(factor, SupportsFloat):
        raise TypeError(f"gradient_predivide_factor must be a number, not {factor!r}.")
    if not (math.isfinite(factor) and factor != 0):
        raise ValueError(f"gradient_predivide_factor must be a finite number other than 0, not {factor}.")
    if factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average; leave it at 1.0.")


def predivide_factors(factor: float) -> tuple[float, float]:
    """What an average is multiplied by before and after its sum: 1 / factor, then factor / ranks.

    The division by the number of ranks is the engine's, as for every average.
    """
    return 1.0 / factor, factor


def check_count(what: str, name: str, value: Any, least: int, why: str) -> None:
    """ValueError unless the argument is a whole number that is large enough."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(
            f"{what}: {name} is {value!r}, but it must be a whole number of at least {least}: {why}."
        )


def check_every(what: str, every: Any) -> None:
    """ValueError unless ranks can communicate after so many steps. what: the name of the wrapper."""
    check_count(what, "every", every, 1, "ranks communicate after so many steps")


def check_outer(outer_lr: Any, outer_momentum: Any) -> tuple[float, float]:
    """The learning rate and the momentum of DiLoCo's outer optimizer. Raises ValueError or TypeError."""
    lr = number_of(outer_lr, "outer_lr", must_be_finite=True)
    momentum = number_of(outer_momentum, "outer_momentum", must_be_finite=True)
    if lr <= 0 or not 0 <= momentum < 1:
        raise ValueError(
            f"DiLoCo: outer_lr is {lr} and outer_momentum {momentum}, but the first must be above 0, and the "
            "second from 0 to below 1."
        )
    return lr, momentum


def check_passes(passes: int) -> None:
    """ValueError unless gradients can be summed over this many passes."""
    try:
        is_whole = int(passes) == passes
    except (TypeError, ValueError, OverflowError):
        is_whole = False
    if not is_whole:
        raise ValueError(f"backward_passes_per_step must be a whole number, not {passes!r}.")
    if passes < 1:
        raise ValueError(f"backward_passes_per_step is {passes}, but backward_passes_per_step must be > 0.")


def variables_of(values: Any, kind: str) -> list[Any]:
    """The variables, for instance a model's; TypeError for anything else. kind: the function called."""
    if hasattr(values, "assign"):
        raise TypeError(f"{kind} takes a list of variables; put a single variable into a list.")
    variables = list(values) if isinstance(values, Iterable) else [values]
    for variable in variables:
        if not hasattr(variable, "assign"):
            raise TypeError(f"{kind} takes a list of variables, but got {type(variable).__name__}.")
    return variables


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
