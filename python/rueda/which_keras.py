"""Which Keras tf.keras is: Keras 3, or Keras 2 as the package tf_keras."""

from __future__ import annotations

import os


def is_tf_keras() -> bool:
    """Whether tf.keras is Keras 2, the package tf_keras. The rule is TensorFlow's own."""
    return os.environ.get("TF_USE_LEGACY_KERAS") in ("true", "True", "1")
