"""The state of a framework's variables, which are kept as arrays of numpy; it knows no framework."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rueda.basics import basics
from rueda.elastic import pieces
from rueda.elastic.state import ObjectState

NOT_BUILT = "Model must be built first. Run `model.build(input_shape)`."
OTHER_VARIABLES = (
    "This rank has {mine} variables, but those that hold the commit have {theirs}: build the same model and "
    "optimizer on every rank, before hvd.elastic.run."
)


def check_built(model: Any) -> None:
    """Raises ValueError if a model of Keras has no variables yet."""
    if not getattr(model, "built", False):
        raise ValueError(NOT_BUILT)


class VariablesState(ObjectState):
    """A state of variables beside plain values. Subclasses say which variables, and how they are read and
    written.
    """

    def __init__(self, bcast_object: Callable[[Any], Any], **kwargs: Any) -> None:
        self._values: list[np.ndarray] = []
        super().__init__(bcast_object, basics.rank, **kwargs)
        self._save_variables()

    # ---- what subclasses define ----

    def _variables(self) -> list[Any]:
        """The variables, in the same order on all ranks."""
        raise NotImplementedError

    def _read(self) -> list[np.ndarray]:
        """Copies of their values."""
        raise NotImplementedError

    def _assign(self, values: Sequence[Any]) -> None:
        """Gives them these values."""
        raise NotImplementedError

    def _broadcast(self) -> None:
        """Gives them the values of rank 0."""
        raise NotImplementedError

    def _kinds(self) -> list[str]:
        """Shape and type of those that are there before the first step; others may be made by it."""
        raise NotImplementedError

    # ---- the state ----

    def save(self) -> None:
        """Copies the values of all variables."""
        self._save_variables()
        super().save()

    def restore(self) -> None:
        """Assigns the copies."""
        self._assign(self._values)
        super().restore()

    def sync(self) -> None:
        """Makes all ranks equal to those that hold the newest commit; before there is a view, to rank 0."""
        if self._view is None:
            self._broadcast()
            self._save_variables()
        super().sync()

    def _save_variables(self) -> None:
        self._values = self._read()

    def _capture(self) -> dict[str, Any]:
        return {**super()._capture(), "variables": self._values}

    def _adopt(self, tree: dict[str, Any]) -> None:
        mine, theirs = len(self._variables()), len(tree["variables"])
        if mine != theirs:
            raise ValueError(OTHER_VARIABLES.format(mine=mine, theirs=theirs))
        self._assign(tree["variables"])
        self._save_variables()
        super()._adopt(tree)

    def _layout(self) -> bytes:
        return pieces.digest_of([super()._layout(), *(kind.encode() for kind in self._kinds())])
