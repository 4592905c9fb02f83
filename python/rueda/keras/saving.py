"""Loading models that all ranks continue to train."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import keras

from rueda.keras.backends import Compression
from rueda.keras.compressed import load_from_archive
from rueda.keras.optimizer import DistributedOptimizer


def known_objects(
    custom_optimizers: Sequence[type] | None, custom_objects: dict[str, Any] | None
) -> dict[str, Any]:
    """What a file may name besides Keras's own classes; custom_objects wins if names agree."""
    known: dict[str, Any] = dict(_own_layers())
    known |= {one.__name__: one for one in custom_optimizers or []}
    known.update(custom_objects or {})
    return known


def _own_layers() -> dict[str, Any]:
    """rueda's layers by the names in files, because Keras does not import what a file names."""
    if keras.backend.backend() != "tensorflow":
        return {}
    layer = importlib.import_module("rueda.tensorflow.sync_batch_norm").SyncBatchNormalization
    return {name: layer for name in (layer.__name__, f"rueda>{layer.__name__}")}  # Horovod's name, and ours


def optimizer_of(model: Any, filepath: Any, loader: str) -> Any:
    """The optimizer of a model that was loaded; ValueError if the file held none. loader: Keras' function."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        raise ValueError(
            f"load_model: {filepath} holds a model without an optimizer; load it with {loader} and compile "
            "it with hvd.DistributedOptimizer(…)."
        )
    return optimizer


def load_model(
    filepath: Any,
    custom_optimizers: Sequence[type] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """keras.saving.load_model whose model has its optimizer, state included, wrapped in DistributedOptimizer.

    filepath: what model.save wrote, with or without rueda; SyncBatchNormalization of rueda.tensorflow is
    known. custom_optimizers: optimizer classes of your own; custom_objects wins where names agree.
    legacy_opts: accepted for old scripts, without effect. ValueError if the file holds no compiled optimizer.

    >>> model = hvd.load_model("checkpoint.keras")
    >>> model.fit(x, y)
    """
    known = known_objects(custom_optimizers, custom_objects)
    model = keras.saving.load_model(filepath, custom_objects=known)
    optimizer = optimizer_of(model, filepath, "keras.saving.load_model")
    # The optimizer has taken steps, but the model was just made and has compiled none.
    model.optimizer = DistributedOptimizer(optimizer, compression=compression, warn_if_late=False)
    load_from_archive(model.optimizer, filepath)
    return model
