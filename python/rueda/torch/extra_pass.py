"""A backward pass too many. It adds to gradients that are being reduced, or were: no step may use them."""

from __future__ import annotations

from typing import NoReturn

TOO_MANY_PASSES = "Gradients were computed more than backward_passes_per_step times before call to step(). "
SPOILED = (
    "The gradients of this step are no longer those of all ranks: on every rank call optimizer.zero_grad(), "
    "and compute them again; where other ranks have taken the step, load the last good state on all first."
)


def too_many_passes(passes: int, zeroed_after: int) -> AssertionError:
    """zeroed_after: so many of the passes came before zero_grad(), and no step between them."""
    if zeroed_after == 0:
        return AssertionError(
            TOO_MANY_PASSES + "Increase backward_passes_per_step to accumulate gradients locally."
        )
    return AssertionError(
        f"{TOO_MANY_PASSES}{zeroed_after} of these {passes} passes came before the last zero_grad(), which "
        "does away with gradients, but not with the count. If a backward() there belongs to no step, leave "
        f"it out, or call optimizer.set_backward_passes_per_step({passes}) after it, which counts anew."
    )


class ExtraPass:
    """Whether there was one since gradients were zeroed."""

    def __init__(self) -> None:
        self._error: Exception | None = None

    @property
    def is_known(self) -> bool:
        """Whether check() would raise."""
        return self._error is not None

    def refuse(self, error: Exception) -> NoReturn:
        """Raises the error, and remembers it."""
        self._error = error
        raise error

    def check(self) -> None:
        """Raises it again, for whoever wants to use the gradients."""
        if self._error is not None:
            raise type(self._error)(f"{self._error} {SPOILED}")

    def forget(self) -> None:
        """The gradients are zeroed."""
        self._error = None
