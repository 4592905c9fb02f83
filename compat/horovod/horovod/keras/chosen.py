"""Which Keras a script means: keras, or tf_keras, which tf.keras is with TF_USE_LEGACY_KERAS=1."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import rueda.keras
from rueda import front_ends, which_keras
from rueda.keras.backends import backend_name

IS_LEGACY = (
    which_keras.is_tf_keras()
    and importlib.util.find_spec("tf_keras") is not None
    and backend_name() == "tensorflow"
)


def _front_end_of(optimizer: Any) -> Any:
    return front_ends.of_keras_optimizer(optimizer) or rueda.keras


def DistributedOptimizer(optimizer: Any, *arguments: Any, **settings: Any) -> Any:
    """For an optimizer of tf_keras the one of rueda.tensorflow.keras, for others that of rueda.keras."""
    return _front_end_of(optimizer).DistributedOptimizer(optimizer, *arguments, **settings)


def PartialDistributedOptimizer(optimizer: Any, *arguments: Any, **settings: Any) -> Any:
    """The same for PartialDistributedOptimizer."""
    return _front_end_of(optimizer).PartialDistributedOptimizer(optimizer, *arguments, **settings)


def load_model(*arguments: Any, **settings: Any) -> Any:
    """That of rueda.tensorflow.keras: a model of tf_keras."""
    return importlib.import_module("rueda.tensorflow.keras").load_model(*arguments, **settings)
