"""PowerSGD: gradients travel as two thin matrices."""

from __future__ import annotations

import zlib
from typing import Any

import torch

from rueda.compression import Exchange, Team
from rueda.compression_choices import why_not_low_rank
from rueda.policy import check_count
from rueda.torch.error_feedback import ErrorFeedback, Outcome
from rueda.torch.fixed_order import orthonormal, product


class PowerSGD(ErrorFeedback):
    """Sends a gradient as P and Q of low rank: `compression=hvd.PowerSGD(rank=4)` of DistributedOptimizer.

    A gradient of shape [n, ...] counts as a matrix M of n rows and m columns. One step of subspace iteration:
    P = sum of M Q, orthonormalised; Q = sum of the transpose of M times P; the result is P times the
    transpose of Q. So n * rank and m * rank elements travel, as ordinary allreduces NAME and NAME.powersgd.q.
    Q starts the next step. After Vogels, Karimireddy & Jaggi, "PowerSGD: practical low-rank gradient
    compression for distributed optimization" (2019).

    rank: columns of P and Q. Where they have no fewer elements than M (always if M has no more than `rank`
    rows or columns), and where a gradient has one dimension or fewer than min_elements, it travels as it is.
    error_feedback: add to each gradient what was not sent of those before. start_after: so many steps take
    exact sums first. grad_scaler: the torch.amp.GradScaler whose scale the gradients have, so that
    residuals follow it. Raises ValueError or TypeError for arguments that do not fit.
    """

    def __init__(
        self,
        rank: int = 4,
        *,
        error_feedback: bool = True,
        min_elements: int = 4096,
        start_after: int = 0,
        grad_scaler: Any = None,
    ) -> None:
        check_count("PowerSGD", "rank", rank, 1, "P and Q have so many columns")
        self._rank = rank
        self._first: dict[str, torch.Tensor] = {}  # Q of the first step, by name
        super().__init__(error_feedback, min_elements, start_after, grad_scaler)

    def options(self) -> dict[str, Any]:
        """See ErrorFeedback."""
        return {"rank": self._rank}

    def why_not(self, shape: torch.Size, ranks: int) -> str:
        """See ErrorFeedback."""
        return why_not_low_rank(self._rank, shape)

    def exchange(self, name: str, matrix: torch.Tensor, kept: dict[str, Any], team: Team) -> Outcome:
        """See ErrorFeedback."""
        before = kept.get("q")
        first = self._first_q(name, matrix)
        if before is None:
            q = before = first
        else:
            q = orthonormal(before.to(matrix.device)).to(matrix.dtype)
            # Once zero, a column would stay so: a gradient of lower rank leaves it without a direction.
            q = torch.where((q == 0).all(dim=0), first, q)
        [p] = yield Exchange([("", matrix @ q)])
        p = orthonormal(p).to(matrix.dtype)
        mine = matrix.t() @ p  # [columns, rank]
        [q] = yield Exchange([("powersgd.q", mine.clone())])
        kept["next"] = {"q": (before.to(matrix.device, matrix.dtype), q)}
        # Only this product must have equal bits on all ranks: what else is rounded differently is either
        # summed over the ranks afterwards, or this rank's own.
        return product(p, q), torch.addmm(matrix, p, mine.t(), alpha=-1)

    def _first_q(self, name: str, matrix: torch.Tensor) -> torch.Tensor:
        """Random and the same on all ranks, whatever they have drawn before."""
        if name not in self._first:
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            drawn = torch.randn(matrix.shape[1], self._rank, generator=generator)
            self._first[name] = drawn.to(matrix.device, matrix.dtype)
        return self._first[name]
