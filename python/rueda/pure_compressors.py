"""PowerSGD and TopK as functions of arrays, for programs that are traced: those of JAX, and Keras on all its
backends. State is passed in and returned. The arithmetic is that of rueda.torch.powersgd and .topk.

`Arrays` hides what differs between jax.numpy and keras.ops.
"""

from __future__ import annotations

import abc
import math
import zlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Tuple

import numpy as np

from rueda.compression import Exchange, KeepsState, Team
from rueda.compression_choices import (
    check_ratio,
    elements_sent,
    travels_as_it_is,
    why_not_largest,
    why_not_low_rank,
)
from rueda.policy import check_count

State = dict[str, Any]  # arrays by what they are: "residual", "q"
Outcome = Generator[Exchange, list[Any], Tuple[Any, State]]
# A column that loses all but this part of its squared length to those before it is a combination of them.
DEPENDENT = 1e-11


@dataclass(frozen=True)
class Arrays:
    """A module with the functions of numpy, and what its likes call by other names."""

    np: Any  # jax.numpy or keras.ops
    cast: Callable[[Any, str], Any]
    largest: Callable[[Any, int], Any]  # (vector, k) -> indices of the k largest, [k]
    scatter: Callable[[Any, Any, int], Any]  # (indices, values, length) -> a vector, zero elsewhere
    kind: Callable[[Any], str]  # the type of the elements: "float32"

    def sum_of_rows(self, rows: Any) -> Any:
        """[rows, columns] -> [columns]: adds the second half to the first until one row is left, so that the
        order does not depend on the number of threads.
        """
        count = rows.shape[0]
        width = 1 << max(0, count - 1).bit_length()
        if width > count:
            padding = self.np.zeros((width - count, rows.shape[1]), dtype=rows.dtype)
            rows = self.np.concatenate([rows, padding], axis=0)
        while width > 1:
            width //= 2
            rows = rows[:width] + rows[width:]
        return rows[0]

    def orthonormal(self, columns: Any) -> Any:
        """[rows, rank]: an orthonormal basis of what the columns span, by modified Gram-Schmidt. A column
        that depends on those before it becomes zero. What is not finite stays so.
        """
        rest, done = columns, []
        limits = self.sum_of_rows(columns * columns) * DEPENDENT
        for index in range(columns.shape[1]):
            column = rest[:, :1]
            length = self.sum_of_rows(column * column)[0]
            is_new = (length > limits[index]) | (length != length)
            safe = self.np.where(is_new, length, self.np.ones_like(length))
            column = self.np.where(is_new, column / self.np.sqrt(safe), self.np.zeros_like(column))
            done.append(column)
            rest = rest[:, 1:]
            if index + 1 < columns.shape[1]:
                rest = rest - column * self.sum_of_rows(column * rest)
        return self.np.concatenate(done, axis=1)

    def product(self, left: Any, right: Any) -> Any:
        """[rows, rank] and [columns, rank] -> [rows, columns]: left times the transpose of right."""
        total = left[:, :1] * right[:, 0]
        for index in range(1, left.shape[1]):
            total = total + left[:, index : index + 1] * right[:, index]
        return total


class PureCompressor(KeepsState, abc.ABC):
    """Base of compressors whose state is an argument and a result: pass an object as `compression` of
    DistributedOptimizer. It keeps nothing itself.
    """

    turns: ClassVar[int]  # exchanges of a step

    def __init__(self, error_feedback: bool, min_elements: int) -> None:
        kind = type(self).__name__
        check_count(kind, "min_elements", min_elements, 0, "smaller gradients travel as they are")
        self._has_feedback = bool(error_feedback)
        self._min_elements = min_elements

    @property
    @abc.abstractmethod
    def label(self) -> str:
        """Equal for compressors that can continue one another's state."""

    @abc.abstractmethod
    def why_not(self, shape: Sequence[int], ranks: int) -> str:
        """ "" if a gradient of this shape is to be compressed, else why that does not pay, as a clause."""

    @abc.abstractmethod
    def _begin(self, name: str, shape: Sequence[int]) -> State:
        """What the subclass keeps, at first: arrays of numpy."""

    @abc.abstractmethod
    def _exchange(self, name: str, matrix: Any, kept: State, team: Team, arrays: Arrays) -> Outcome:
        """Combines matrices of all ranks; returns the result and what is kept next, with "residual"."""

    def begin(self, name: str, shape: Sequence[int], kind: str, ranks: int) -> State | None:
        """The first state of a gradient, in arrays of numpy; None if it travels as it is. kind: its type."""
        elements = math.prod(shape)
        is_small = elements < max(1, self._min_elements)
        if is_small or "float" not in kind or self.why_not(shape, ranks):
            return None
        state = self._begin(name, shape)
        if self._has_feedback:
            state["residual"] = np.zeros(tuple(shape), wide(kind))
        return {key: value.astype(wide(kind)) for key, value in state.items()}

    def warning(self, name: str, shape: Sequence[int], ranks: int) -> str:
        """What to say of a gradient that is large enough, and travels as it is; "" if nothing."""
        if len(shape) < 2 or math.prod(shape) < max(1, self._min_elements):
            return ""
        why = self.why_not(shape, ranks)
        return travels_as_it_is(self, name, shape, why) if why else ""

    def reduce(self, name: str, tensor: Any, kept: State, team: Team, arrays: Arrays) -> Outcome:
        """A generator that yields each Exchange in turn, gets what comes back, and returns the combined
        gradient and its next state. If the result is not finite, the state stays as it was.
        """
        kind = arrays.kind(tensor)
        whole = arrays.cast(tensor, wide(kind))
        if self._has_feedback:
            whole = whole + kept["residual"]
        shape = tuple(tensor.shape)
        matrix = arrays.np.reshape(whole, (shape[0] if shape else 1, -1))
        result, state = yield from self._exchange(name, matrix, kept, team, arrays)
        is_finite = arrays.np.all(arrays.np.isfinite(result))
        state["residual"] = arrays.np.reshape(state["residual"], shape)
        following = {key: arrays.np.where(is_finite, state[key], kept[key]) for key in kept}
        return arrays.cast(arrays.np.reshape(result, shape), kind), following


def exchange_all(
    work: dict[str, Any],
    plain: dict[str, Any],
    turns: int,
    travel: Callable[[dict[str, Exchange], dict[str, Any], bool], tuple[dict[str, Any], dict[str, Any]]],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The results by name, and the next states. All exchanges that can travel at once do.

    work: what `PureCompressor.reduce` has begun, by name. plain: what is summed as it is. travel(wanted,
    plain, is_last) does the exchanges of one turn: their answers, and the sums of plain.
    """
    results: dict[str, Any] = {}
    states: dict[str, Any] = {}
    answers: dict[str, Any] = dict.fromkeys(work)
    turn = 0
    while answers or plain:
        wanted: dict[str, Exchange] = {}
        for name in list(answers):
            try:
                wanted[name] = work[name].send(answers.pop(name))
            except StopIteration as end:
                results[name], states[name] = end.value
        turn += 1
        if wanted or plain:
            answers, exact = travel(wanted, plain, not work or turn == turns)
            results.update(exact)
            plain = {}
    return results, states


def wide(kind: str) -> str:
    """The type in which a gradient of this type is computed with."""
    return "float64" if kind == "float64" else "float32"


class PowerSGD(PureCompressor):
    """Sends a gradient as P and Q of low rank: `compression=hvd.PowerSGD(rank=4)` of DistributedOptimizer.

    A gradient of shape [n, …] counts as a matrix M of n rows and m columns. P = sum of M Q, orthonormalised;
    Q = sum of the transpose of M times P; the result is P times the transpose of Q. So n * rank and m * rank
    elements travel, as allreduces NAME and NAME.powersgd.q. Q starts the next step. After Vogels,
    Karimireddy & Jaggi, "PowerSGD: practical low-rank gradient compression for distributed optimization"
    (2019).

    rank: columns of P and Q. Where they have no fewer elements than M, and where a gradient has one
    dimension or fewer than min_elements, it travels as it is. error_feedback: add to each gradient what was
    not sent of those before. Raises ValueError or TypeError for arguments that do not fit.

    >>> optimizer = hvd.DistributedOptimizer(optimizer, compression=hvd.PowerSGD(rank=4))
    """

    turns = 2

    def __init__(self, rank: int = 4, *, error_feedback: bool = True, min_elements: int = 4096) -> None:
        check_count("PowerSGD", "rank", rank, 1, "P and Q have so many columns")
        self._rank = rank
        super().__init__(error_feedback, min_elements)

    def __repr__(self) -> str:
        return f"PowerSGD(rank={self._rank})"

    @property
    def label(self) -> str:
        """See PureCompressor."""
        return repr(self)

    def why_not(self, shape: Sequence[int], ranks: int) -> str:
        """See PureCompressor."""
        return why_not_low_rank(self._rank, shape)

    def _begin(self, name: str, shape: Sequence[int]) -> State:
        return {"q": self._first_q(name, math.prod(shape[1:]))}

    def _first_q(self, name: str, columns: int) -> Any:
        """Random and the same on all ranks, whatever they have drawn before."""
        drawn = np.random.default_rng(zlib.crc32(name.encode()))
        return drawn.standard_normal((columns, self._rank))

    def _exchange(self, name: str, matrix: Any, kept: State, team: Team, arrays: Arrays) -> Outcome:
        xp = arrays.np
        q = arrays.orthonormal(kept["q"])
        # Once zero, a column would stay so: a gradient of lower rank leaves it without a direction.
        first = xp.array(self._first_q(name, matrix.shape[1]).astype(arrays.kind(q)))
        q = xp.where(xp.all(q == 0, axis=0), first, q)
        [p] = yield Exchange([("", xp.matmul(matrix, q))])
        p = arrays.orthonormal(p)
        mine = xp.matmul(xp.transpose(matrix), p)  # [columns, rank]
        [q] = yield Exchange([("powersgd.q", mine)])
        unsent = matrix - xp.matmul(p, xp.transpose(mine))
        return arrays.product(p, q), {"q": q, "residual": unsent}


class TopK(PureCompressor):
    """Sends the largest elements of a gradient: `compression=hvd.TopK(ratio=0.01)` of DistributedOptimizer.

    Of a gradient of N elements, each rank sends k = ceil(ratio * N), at least 1, as allgathers
    NAME.topk.indices and NAME.topk.values; the result is the sum or average of what all ranks
    sent. After Stich, Cordonnier & Jaggi, "Sparsified SGD with memory" (2018).

    ratio: greater than 0, at most 1. Where ranks * k >= N, and where a gradient has fewer than min_elements,
    it travels as it is. error_feedback: add to each gradient what was not sent of those before. Raises
    ValueError or TypeError for arguments that do not fit.

    >>> optimizer = hvd.DistributedOptimizer(optimizer, compression=hvd.TopK(ratio=0.01))
    """

    turns = 1

    def __init__(self, ratio: float = 0.01, *, error_feedback: bool = True, min_elements: int = 4096) -> None:
        self._ratio = check_ratio(ratio)
        super().__init__(error_feedback, min_elements)

    def __repr__(self) -> str:
        return f"TopK(ratio={self._ratio:g})"

    @property
    def label(self) -> str:
        """See PureCompressor. Another ratio can continue."""
        return "TopK"

    def why_not(self, shape: Sequence[int], ranks: int) -> str:
        """See PureCompressor."""
        return why_not_largest(self._ratio, shape, ranks)

    def _begin(self, name: str, shape: Sequence[int]) -> State:
        return {}

    def _exchange(self, name: str, matrix: Any, kept: State, team: Team, arrays: Arrays) -> Outcome:
        xp, count = arrays.np, math.prod(matrix.shape)
        whole = xp.reshape(matrix, (count,))
        # What is no number counts as the largest, so that all ranks see it.
        size = xp.where(whole == whole, xp.abs(whole), xp.full_like(whole, float("inf")))
        indices = arrays.largest(size, elements_sent(self._ratio, count))
        values = xp.take(whole, indices, axis=0)
        tensors = [("topk.indices", arrays.cast(indices, "int32")[None]), ("topk.values", values[None])]
        # Where other ranks sum this gradient, or P of PowerSGD, the shapes differ, and all are told so.
        greeting = [("", xp.zeros((1,), dtype=values.dtype))]
        _, all_indices, all_values = yield Exchange(tensors, is_gathered=True, beside=greeting)
        # One rank after the other: within one, no index recurs, so the order of additions is fixed.
        total = arrays.scatter(all_indices[0], all_values[0], count)
        for rank in range(1, team.ranks):
            total = total + arrays.scatter(all_indices[rank], all_values[rank], count)
        unsent = whole - arrays.scatter(indices, values, count)
        return total / team.divisor, {"residual": unsent}
