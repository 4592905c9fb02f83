"""Keras models as bytes, and the checkpoints made of them."""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import numpy as np

from rueda.spark.keras.package import keras_of

Array = np.ndarray[Any, Any]
History = dict[str, list[float]]


def with_file(action: Callable[[str], Any], content: bytes = b"") -> tuple[Any, bytes]:
    """Calls the action with the path of a .keras file. Returns its result, and what the file holds then."""
    with tempfile.TemporaryDirectory(prefix="rueda-spark-") as folder:
        path = os.path.join(folder, "model.keras")
        if content:
            with open(path, "wb") as file:
                file.write(content)
        result = action(path)
        with open(path, "rb") as file:
            return result, file.read()


def to_bytes(model: Any) -> bytes:
    """What model.save writes."""
    return with_file(model.save)[1]


def from_bytes(content: bytes, custom_objects: Mapping[str, Any], package: str) -> Any:
    """The model that `to_bytes` got, without its optimizer; package: its Keras."""
    keras = keras_of(package)

    def load(path: str) -> Any:
        return keras.saving.load_model(path, custom_objects=dict(custom_objects), compile=False)

    return with_file(load, content)[0]


def revive(deserialize: Any, value: Any) -> Any:
    """A serialized object of Keras; what else a user gave stays as it is."""
    if isinstance(value, (list, tuple)):
        return [revive(deserialize, one) for one in value]
    return deserialize(value) if isinstance(value, dict) and "class_name" in value else value


def shaped(array: Array, shape: Sequence[Optional[int]]) -> Array:
    """The rows in the shape of an input of the model, if that is known."""
    known = [-1 if size is None else int(size) for size in shape[1:]]
    return array.reshape(len(array), *known) if known.count(-1) <= 1 else array


def input_shapes(model: Any) -> list[Any]:
    """The shapes of the inputs; empty if the model is not built yet."""
    try:
        return [tensor.shape for tensor in model.inputs or []]
    except (AttributeError, ValueError):
        return []


def pack(model: bytes, history: History, epoch: int) -> bytes:
    """A checkpoint: a zip file, whose parts can be taken out with other programs too."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model.keras", model)
        archive.writestr("progress.json", json.dumps({"history": history, "epoch": epoch}))
    return file.getvalue()


def unpack(checkpoint: bytes) -> tuple[bytes, History, int]:
    """What `pack` got."""
    with zipfile.ZipFile(io.BytesIO(checkpoint)) as archive:
        progress = json.loads(archive.read("progress.json"))
        return archive.read("model.keras"), progress["history"], progress["epoch"]
