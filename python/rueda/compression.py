"""The interface of gradient compression, for the tensors of any framework."""

from __future__ import annotations

import abc
import weakref
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rueda import _core


class Compressor:
    """Base of compressors: subclass it and pass the class as `compression`. On JAX both may be traced."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Returns the tensor to reduce instead of `tensor`, and the context that decompress needs."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The reduced tensor in its original form."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The tensor itself."""
        return tensor


class CastCompressor(Compressor):
    """Base of compressors that send floating-point tensors in fewer bits, and others as they are."""

    dtype: ClassVar[Any]  # on the wire

    @staticmethod
    def is_floating(tensor: Any) -> bool:
        """Whether the tensor holds floating-point numbers."""
        raise NotImplementedError

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        """The tensor in another type."""
        raise NotImplementedError

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """The tensor in the type in which it travels, and its own type."""
        return (cls.cast(tensor, cls.dtype), tensor.dtype) if cls.is_floating(tensor) else (tensor, None)

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        """The tensor in its original type."""
        return tensor if ctx is None else cls.cast(tensor, ctx)


class Int8Compressor(Compressor):
    """Sends sums and averages of float32 between hosts as int8 with a scale for 256 elements, and adds what
    that loses of a named tensor to its next values. Inside a host sums are exact. See docs/wire_types.md.
    """

    wire: ClassVar[int] = _core.WIRE_INT8

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Refused: the engine encodes sums, and nothing else is one."""
        raise ValueError(
            "Compression.int8 is for Sum and Average of allreduce and DistributedOptimizer; use "
            "Compression.none, .fp16 or .bf16 here."
        )

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The tensor itself."""
        return tensor


def wire_of(compression: Any, op: int, is_plain: bool) -> int:
    """The wire type with which the engine sends an allreduce in the place of compress(); WIRE_DEFAULT: none.

    is_plain: it is of float32 in host memory. For others, and other operations than Sum and Average, a
    compressor that can also cast does so.
    """
    wire: int = getattr(compression, "wire", _core.WIRE_DEFAULT)
    can_cast = isinstance(compression, type) and issubclass(compression, CastCompressor)
    if can_cast and not (is_plain and op in (_core.SUM, _core.AVERAGE)):
        return _core.WIRE_DEFAULT
    return wire


@dataclass(frozen=True)
class Team:
    """The ranks that combine a tensor, as a compressor with state sees them."""

    rank: int  # of this process among them
    ranks: int
    divisor: int  # of the sum: `ranks` for an average, 1 for a sum


@dataclass(frozen=True)
class Exchange:
    """What a compressor with state wants to travel next: tensors, each with the end of its name.

    They are combined in place as the optimizer combines gradients (summed or averaged), or gathered: then
    each has one row, and the rows of all ranks come back in rank order. `beside`: tensors that are combined
    beside gathered ones; they come back before those.
    """

    tensors: Sequence[tuple[str, Any]]
    is_gathered: bool = False
    beside: Sequence[tuple[str, Any]] = ()


class KeepsState:
    """What compressors with state are, whether they keep it themselves or give it to an optimizer."""


class StatefulCompressor(KeepsState, abc.ABC):
    """Base of compressors that keep something of each tensor from step to step: pass an object of a subclass
    as `compression` of DistributedOptimizer. State belongs to names of tensors, not to buckets.
    """

    _owner: Callable[[], object] | None = None

    @abc.abstractmethod
    def reduce(self, name: str, tensor: Any, team: Team) -> Generator[Exchange, list[Any], Any]:
        """A generator that yields each Exchange in turn, gets the tensors that come back, and returns the
        combined tensor, which must have equal bits on all ranks.

        All ranks must yield the same names. What follows a `yield` runs only if the exchange succeeded, so
        state that changes after the last one is as it was when a step fails. `tensor` may be changed.
        """

    @abc.abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must hold, of this rank."""

    @abc.abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from what state_dict() returned; {}: starts anew. Raises ValueError and changes nothing
        if that is of another compressor.
        """

    def check_state(self, state: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> None:
        """Raises ValueError unless load_state_dict would take the state, for tensors of these shapes."""

    def shared_state(self) -> dict[str, Any]:
        """The part of state_dict() that must be equal on all ranks, for broadcast_optimizer_state."""
        return {}

    def load_shared_state(self, state: dict[str, Any]) -> None:
        """Takes what shared_state() returned on another rank."""

    def belong_to(self, owner: object) -> None:
        """Raises ValueError if another optimizer uses this compressor: names of tensors may be the same."""
        if self._owner is not None and self._owner() not in (None, owner):
            kind = type(self).__name__
            raise ValueError(f"This {kind} belongs to another optimizer; make one {kind} for each optimizer.")
        self._owner = weakref.ref(owner)
