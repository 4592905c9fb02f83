"""Loading models whose training goes on with all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from rueda.keras.backends import Compression
from rueda.keras.optimizer import DistributedOptimizer


def known_objects(
    custom_optimizers: Sequence[type] | None, custom_objects: dict[str, Any] | None
) -> dict[str, Any]:
    """What a file may name beside Keras's own classes; custom_objects wins where names agree."""
    known: dict[str, Any] = {one.__name__: one for one in custom_optimizers or []}
    known.update(custom_objects or {})
    return known


def load_model(
    filepath: Any,
    custom_optimizers: Sequence[type] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """keras.saving.load_model whose model has its optimizer, state included, wrapped in DistributedOptimizer.

    filepath: what model.save wrote, with or without rueda. custom_optimizers: optimizer classes of your own;
    custom_objects wins where names agree. legacy_opts: accepted for old scripts, without effect. Raises
    ValueError when the file holds no compiled optimizer.

    >>> model = hvd.load_model("checkpoint.keras")
    >>> model.fit(x, y)
    """
    known = known_objects(custom_optimizers, custom_objects)
    model = keras.saving.load_model(filepath, custom_objects=known)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        raise ValueError(
            f"load_model: {filepath} holds a model without an optimizer; load it with "
            f"keras.saving.load_model and compile it with hvd.DistributedOptimizer(…)."
        )
    # The optimizer has taken steps, but the model was just made and has compiled none.
    model.optimizer = DistributedOptimizer(optimizer, compression=compression, warn_if_late=False)
    return model
