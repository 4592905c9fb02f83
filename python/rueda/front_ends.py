"""Which front end serves an object of a framework. One front end can so load another without knowing it."""

from __future__ import annotations

import importlib
from typing import Any

# By the package that the class of an optimizer, or one of its bases, comes from.
_OF_OPTIMIZERS = {"tf_keras": "rueda.tensorflow.keras.legacy", "keras": "rueda.keras"}


def of_keras_optimizer(optimizer: Any) -> Any:
    """The front end whose DistributedOptimizer wraps it; None if it is not an optimizer of Keras."""
    packages = {cls.__module__.split(".")[0] for cls in type(optimizer).__mro__}
    for package, front_end in _OF_OPTIMIZERS.items():
        if package in packages:
            return importlib.import_module(front_end)
    return None
