"""What PowerSGD and TopK ask of their arguments, and when they pay: the same for all front ends."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from rueda.compression import CastCompressor
from rueda.policy import Average, Sum, check_op, number_of

OTHER_KIND = (
    "The checkpoint holds the state of compression {saved}, but this optimizer uses {mine}; use the same, or "
    "{instead} to start without residuals."
)
NOT_SAVED = (
    "The checkpoint's key 'compression' holds {found}, but it must hold what a compressor's state_dict() "
    "returned; load the checkpoint as it was saved, or {instead} to start without residuals."
)
WITHOUT_KEY = "delete the key 'compression' of the checkpoint"
OTHER_SHAPE = (
    "The checkpoint's state of compression {mine} has shape {saved} for parameter {name}, whose shape is "
    "{shape} now; load the checkpoint of the same model, or {instead}."
)
DISAGREE = " On this rank gradient {name} is compressed by {mine}; all ranks must give the same compression."


NOT_ENCODED = (
    "compression=Compression.int8 encodes gradients of float32 in host memory, but that of {name} is {kind}; "
    "use Compression.none, .fp16 or .bf16, or a model of float32."
)


def must_encode(compression: Any) -> bool:
    """Whether this compression is a wire type that cannot cast what it does not encode."""
    if isinstance(compression, str):  # Keras has choices by name
        return compression == "int8"
    return hasattr(compression, "wire") and not issubclass(compression, CastCompressor)


def check_wire_op(compression: Any, op: int) -> None:
    """Raises ValueError for an operation that the wire type does not do."""
    if must_encode(compression):
        check_op(op, (Average, Sum), "compression=Compression.int8")


def check_wire_types(compression: Any, kinds: Iterable[tuple[str, str]]) -> None:
    """Raises ValueError for the first parameter that the wire type does not encode. kinds: names, and types
    such as "float32", with what else is wrong with it.
    """
    if must_encode(compression):
        for name, kind in kinds:
            if kind != "float32":
                raise ValueError(NOT_ENCODED.format(name=name, kind=kind))


def check_ratio(ratio: Any) -> float:
    """The ratio of TopK as a number. Raises ValueError or TypeError."""
    number = number_of(ratio, "TopK: ratio")
    if not 0 < number <= 1:
        raise ValueError(
            f"TopK: ratio is {ratio!r}, but it must be greater than 0 and at most 1: the part of each "
            "gradient's elements that a rank sends."
        )
    return number


def elements_sent(ratio: float, elements: int) -> int:
    """k of top-k."""
    return max(1, math.ceil(ratio * elements))


def why_not_low_rank(rank: int, shape: Sequence[int]) -> str:
    """ "" if two thin matrices have fewer elements than a gradient, else why not, as a clause."""
    rows, columns = (shape[0] if shape else 1), math.prod(shape[1:])
    sent = rank * (rows + columns)
    if sent < rows * columns:
        return ""
    return (
        f"P and Q of rank {rank} would have {sent} elements instead of {rows * columns}; choose a "
        "smaller rank"
    )


def why_not_largest(ratio: float, shape: Sequence[int], ranks: int) -> str:
    """ "" if the ranks gather fewer elements than a gradient of this shape has, else why not, as a clause."""
    count = math.prod(shape)
    sent = ranks * elements_sent(ratio, count)
    if sent < count:
        return ""
    return f"{ranks} ranks would gather {sent} elements, with as many indices, instead of {count}; " + (
        "choose a smaller ratio, or PowerSGD"
    )


def travels_as_it_is(compressor: object, name: str, shape: Sequence[int], why: str) -> str:
    """The warning about the first large gradient that is not compressed."""
    what = f"gradient {name} of shape {list(shape)}"
    return f"{compressor!r}: {what}, and perhaps others, travels as it is: {why}."
