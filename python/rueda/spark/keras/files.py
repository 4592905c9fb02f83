"""Keras models as bytes, and the checkpoints made of them."""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

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


def from_bytes(content: bytes, custom_objects: Mapping[str, Any], compile: bool = False) -> Any:
    """The model that `to_bytes` got."""
    import keras

    def load(path: str) -> Any:
        return keras.saving.load_model(path, custom_objects=dict(custom_objects), compile=compile)

    return with_file(load, content)[0]


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
