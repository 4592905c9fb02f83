"""Top-k: the largest elements of gradients travel, with their indices."""

from __future__ import annotations

from typing import Any

import torch

from rueda import epochs
from rueda.compression import Exchange, Team
from rueda.compression_choices import check_ratio, elements_sent, why_not_largest
from rueda.torch.error_feedback import ErrorFeedback, Outcome

LARGEST_INT32 = 2**31 - 1


class TopK(ErrorFeedback):
    """Sends the largest elements of a gradient: `compression=hvd.TopK(ratio=0.01)` of DistributedOptimizer.

    Of a gradient of N elements, each rank sends k = ceil(ratio * N), at least 1, as ordinary allgathers
    NAME.topk.indices and NAME.topk.values; the result is the sum or average of what all ranks sent. After
    Stich, Cordonnier & Jaggi, "Sparsified SGD with memory" (2018).

    ratio: greater than 0, at most 1. Where ranks * k >= N, because all ranks' elements come to every rank,
    and where a gradient has fewer than min_elements, it travels as it is. The other arguments are those of
    PowerSGD. Raises ValueError or TypeError for arguments that do not fit.
    """

    def __init__(
        self,
        ratio: float = 0.01,
        *,
        error_feedback: bool = True,
        min_elements: int = 4096,
        start_after: int = 0,
        grad_scaler: Any = None,
    ) -> None:
        self._ratio = check_ratio(ratio)
        self._greeted: dict[str, int] = {}  # by gradient: the last epoch in which all ranks used TopK
        super().__init__(error_feedback, min_elements, start_after, grad_scaler)

    def __repr__(self) -> str:
        return f"TopK(ratio={self._ratio:g})"

    def why_not(self, shape: torch.Size, ranks: int) -> str:
        """See ErrorFeedback."""
        return why_not_largest(self._ratio, shape, ranks)

    def exchange(self, name: str, matrix: torch.Tensor, kept: dict[str, Any], team: Team) -> Outcome:
        """See ErrorFeedback."""
        unsent = matrix.reshape(-1).clone()
        indices = unsent.abs().topk(elements_sent(self._ratio, unsent.numel()), sorted=False).indices
        values = unsent[indices]
        unsent[indices] = 0
        width = torch.int32 if unsent.numel() <= LARGEST_INT32 else torch.int64
        tensors = [("topk.indices", indices.to(width)[None]), ("topk.values", values[None])]
        # Where other ranks sum this gradient, or P of PowerSGD, the shapes differ, and all are told so. At
        # first before anything is gathered, because what some ranks alone gather does not end.
        greeting = [("", values.new_zeros(1))]
        if self._greeted.get(name) == epochs.current():
            _, all_indices, all_values = yield Exchange(tensors, is_gathered=True, beside=greeting)
        else:
            yield Exchange(greeting)
            self._greeted[name] = epochs.current()
            all_indices, all_values = yield Exchange(tensors, is_gathered=True)
        total = torch.zeros_like(unsent)
        # One rank after the other: within one, no index recurs, so the order of additions is fixed.
        for row, numbers in zip(all_indices, all_values):
            total.index_add_(0, row.long(), numbers)
        return total.div_(team.divisor), unsent
