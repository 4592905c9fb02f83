"""Graphs of TensorFlow 1, in which tf_keras still trains: the values of tensors and variables there.

TensorFlow is not imported here; who builds a graph has done so.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from rueda import which_keras
from rueda.numpy.arrays import Array


def builds_graph() -> bool:
    """Whether TensorFlow now builds a graph for a session: tf.compat.v1.disable_v2_behavior(), tf.Graph()."""
    tf: Any = sys.modules.get("tensorflow")
    return tf is not None and not tf.executing_eagerly() and not tf.inside_function()


def session() -> Any:
    """The session that tf_keras trains in, with its variables initialised; else the default session."""
    tf: Any = sys.modules["tensorflow"]
    if which_keras.is_tf_keras():
        return tf.compat.v1.keras.backend.get_session()
    found = tf.compat.v1.get_default_session()
    if found is None:
        raise ValueError(
            "The value of a tensor in a graph of TensorFlow is known only to a session: enter "
            "`with tf.compat.v1.Session():`, or set TF_USE_LEGACY_KERAS=1, whose Keras has one."
        )
    return found


def value_of(tensor: Any) -> Array:
    """The value of a tensor or variable of the graph."""
    return np.asarray(session().run(tensor))


def assign(variable: Any, value: Array) -> None:
    """Gives a variable of the graph this value, without adding to the graph."""
    initializer = variable.initializer
    session().run(initializer, {initializer.inputs[1]: value})
