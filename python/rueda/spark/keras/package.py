"""Which Keras a model is of: Keras 3, or Keras 2 as the package tf_keras."""

from __future__ import annotations

import importlib
from typing import Any

from rueda.which_keras import is_tf_keras

KERAS_2 = "tf_keras"
KERAS_3 = "keras"


def package_of(thing: Any) -> str:
    """The name of the package that its class, or one of its bases, is from; Keras 3 for anything else."""
    packages = {kind.__module__.partition(".")[0] for kind in type(thing).__mro__}
    return KERAS_2 if KERAS_2 in packages else KERAS_3


def keras_of(package: str) -> Any:
    """The module."""
    return importlib.import_module(package)


def variables_of(package: str) -> dict[str, str]:
    """What makes `own` of a rank this package, with the backend that Keras has here."""
    if package == KERAS_2:
        return {"TF_USE_LEGACY_KERAS": "1", "KERAS_BACKEND": "tensorflow"}
    return {"TF_USE_LEGACY_KERAS": "0", "KERAS_BACKEND": keras_of(KERAS_3).backend.backend()}


def own() -> str:
    """The package of this process, in a rank."""
    return KERAS_2 if is_tf_keras() else KERAS_3


def front_end_of(package: str) -> Any:
    """rueda's front end for it."""
    return importlib.import_module("rueda.tensorflow.keras" if package == KERAS_2 else "rueda.keras")
