"""What callbacks ask about the model that they are given to."""

from __future__ import annotations

from typing import Any

from rueda.keras.optimizer import process_set_of
from rueda.process_sets import ProcessSet


def model_of(callback: Any) -> Any:
    if callback.model is None:
        raise ValueError(
            f"{type(callback).__name__} has no model: pass it to model.fit(callbacks=[…]), or call its "
            f"set_model first."
        )
    return callback.model


def team_of(model: Any) -> ProcessSet:
    """The ranks that train this model together: the process set of its distributed optimizer, else all."""
    return process_set_of(getattr(model, "optimizer", None))


def is_first(model: Any) -> bool:
    """Whether this is the first of the ranks that train this model together."""
    team = team_of(model)
    return bool(team.included()) and team.rank() == 0


def sync(model: Any) -> None:
    """On JAX the training loop holds the values: brings them back to the variables, and lets it take them."""
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()
