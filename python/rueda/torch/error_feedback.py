"""What lossy compressors of gradients share: the residual, exact sums, non-finite values, loss scales.

Error feedback as in Karimireddy et al., "Error feedback fixes SignSGD and other gradient compression schemes"
(2019): what a rank did not send is added to its next gradient.
"""

from __future__ import annotations

import abc
import warnings
from collections.abc import Generator
from typing import Any, Tuple

import torch

from rueda.basics import basics
from rueda.compression import Exchange, StatefulCompressor, Team
from rueda.compression_choices import NOT_SAVED, OTHER_KIND, OTHER_SHAPE, WITHOUT_KEY, travels_as_it_is
from rueda.policy import check_count

# The combined matrix, and what this rank has not sent of its own.
Outcome = Generator[Exchange, list[Any], Tuple[torch.Tensor, torch.Tensor]]


class ErrorFeedback(StatefulCompressor):
    """Base of PowerSGD and TopK. A subclass says when it pays and how a matrix travels."""

    def __init__(self, error_feedback: bool, min_elements: int, start_after: int, grad_scaler: Any) -> None:
        kind = type(self).__name__
        check_count(kind, "min_elements", min_elements, 0, "smaller gradients travel as they are")
        check_count(kind, "start_after", start_after, 0, "so many steps take exact sums first")
        if grad_scaler is not None and not callable(getattr(grad_scaler, "get_scale", None)):
            raise TypeError(
                f"{kind}: grad_scaler must be a torch.amp.GradScaler, not {type(grad_scaler).__name__}."
            )
        self._has_feedback = bool(error_feedback)
        self._min_elements = min_elements
        self._start_after = start_after
        self._grad_scaler = grad_scaler
        self._has_warned = False
        # By name. "steps": reductions so far; "residual": of the tensor's shape; "scale": of the loss, for
        # which the residual holds; and what the subclass keeps. Tensors are replaced, never changed.
        self._kept: dict[str, dict[str, Any]] = {}

    @abc.abstractmethod
    def why_not(self, shape: torch.Size, ranks: int) -> str:
        """ "" if a gradient of this shape is to be compressed, else why that does not pay, as a clause."""

    @abc.abstractmethod
    def exchange(self, name: str, matrix: torch.Tensor, kept: dict[str, Any], team: Team) -> Outcome:
        """Combines matrices of all ranks, [first dimension, others], float32 or float64. What is to be kept
        goes to kept["next"].
        """

    def options(self) -> dict[str, Any]:
        """Those that a checkpoint must share."""
        return {}

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value}" for name, value in self.options().items())
        return f"{type(self).__name__}({options})"

    def reduce(
        self, name: str, tensor: torch.Tensor, team: Team
    ) -> Generator[Exchange, list[Any], torch.Tensor]:
        """See StatefulCompressor."""
        if not tensor.is_floating_point():
            raise ValueError(
                f"{type(self).__name__}: {name} is of type {tensor.dtype}, but only floating-point tensors "
                "can be compressed; use Compression.none for it."
            )
        kept = self._kept.get(name, {})
        if kept.get("steps", 0) < self._start_after or not self._pays(name, tensor, team):
            exact: torch.Tensor
            [exact] = yield Exchange([("", tensor)])
            self._kept[name] = {**kept, "steps": kept.get("steps", 0) + 1}
            return exact
        scale = 1.0 if self._grad_scaler is None else float(self._grad_scaler.get_scale())
        wide = torch.float64 if tensor.dtype == torch.float64 else torch.float32
        residual = self._residual(kept, tensor, wide, scale)
        matrix = tensor.to(wide) if residual is None else tensor.to(wide) + residual
        working = dict(kept)
        reduced, unsent = yield from self.exchange(name, matrix.view(len(tensor), -1), working, team)
        result = reduced.to(tensor.dtype).view(tensor.shape)
        self._keep(name, working, result, (residual, unsent.view(tensor.shape)), scale)
        return result

    def _residual(
        self, kept: dict[str, Any], tensor: torch.Tensor, wide: torch.dtype, scale: float
    ) -> torch.Tensor | None:
        """In the unit of this step's gradient."""
        residual: torch.Tensor | None = kept.get("residual")
        if residual is None or not self._has_feedback:
            return None
        if residual.shape != tensor.shape:
            raise ValueError(
                f"{self!r} keeps a residual of shape {list(residual.shape)} for a gradient whose shape is "
                f"{list(tensor.shape)} now; give the parameter another name, or make a new optimizer."
            )
        residual = residual.to(device=tensor.device, dtype=wide)
        before = kept.get("scale", scale)
        return residual if before == scale else residual * (scale / before)

    def _keep(
        self,
        name: str,
        working: dict[str, Any],
        result: torch.Tensor,
        residuals: tuple[torch.Tensor | None, torch.Tensor],
        scale: float,
    ) -> None:
        """Ends a step of this tensor. If the result is not finite, which all ranks see alike, all that was
        kept stays as it was: a GradScaler skips such a step, and nothing of it may come back.
        """
        is_finite = torch.isfinite(result).all()
        before, after = residuals
        state = {"steps": working.get("steps", 0) + 1, "scale": scale}
        if self._has_feedback:
            before = torch.zeros_like(after) if before is None else before
            state["residual"] = torch.where(is_finite, after, before)
        for key, (old, new) in working.get("next", {}).items():
            state[key] = torch.where(is_finite, new, old)
        self._kept[name] = state

    def _pays(self, name: str, tensor: torch.Tensor, team: Team) -> bool:
        if tensor.numel() < max(1, self._min_elements):
            return False
        why = self.why_not(tensor.shape, team.ranks)
        if why and tensor.dim() > 1 and not self._has_warned and team.rank == 0:
            warnings.warn(travels_as_it_is(self, name, tensor.shape, why), stacklevel=2)
            self._has_warned = True
        return not why

    # ---- state ----

    def state_dict(self) -> dict[str, Any]:
        """Tensors by name, on their devices, and the rank whose residuals these are."""
        tensors = {name: dict(kept) for name, kept in self._kept.items()}
        rank = basics.rank() if basics.is_initialized() else 0
        return {"kind": type(self).__name__, "options": self.options(), "rank": rank, "tensors": tensors}

    def check_state(self, state: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> None:
        """See StatefulCompressor."""
        if not state:
            return
        mine, saved = (type(self).__name__, self.options()), (state.get("kind"), state.get("options", {}))
        if mine != saved:
            options = ", ".join(f"{key}={value}" for key, value in saved[1].items())
            raise ValueError(
                OTHER_KIND.format(saved=f"{saved[0]}({options})", mine=repr(self), instead=WITHOUT_KEY)
            )
        if not isinstance(state.get("tensors"), dict):
            raise ValueError(NOT_SAVED.format(found=f"only {sorted(state)}", instead=WITHOUT_KEY))
        for name, kept in state["tensors"].items():
            residual, shape = kept.get("residual"), shapes.get(name)
            if residual is not None and shape is not None and tuple(residual.shape) != tuple(shape):
                lists = {"saved": list(residual.shape), "shape": list(shape)}
                raise ValueError(OTHER_SHAPE.format(mine=repr(self), name=name, instead=WITHOUT_KEY, **lists))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See StatefulCompressor. Residuals are taken only by the rank that saved them: what rank 0 has not
        sent must not be sent by every rank.
        """
        self.check_state(state, {})
        self._kept = {name: dict(kept) for name, kept in state.get("tensors", {}).items()}
        if state and basics.is_initialized() and basics.rank() != state["rank"]:
            self._drop_residuals()

    def shared_state(self) -> dict[str, Any]:
        """All but the residuals."""
        state = self.state_dict()
        for kept in state["tensors"].values():
            kept.pop("residual", None)
        return state

    def load_shared_state(self, state: dict[str, Any]) -> None:
        """See StatefulCompressor. Residuals of this rank stay."""
        self.check_state(state, {})
        for name, kept in state["tensors"].items():
            own = self._kept.get(name, {})
            kept_here = ("residual", "scale") if "residual" in own else ()
            self._kept[name] = {**kept, **{key: own[key] for key in kept_here}}

    def _drop_residuals(self) -> None:
        for kept in self._kept.values():
            kept.pop("residual", None)
