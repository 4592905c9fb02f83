"""The callbacks for tf.keras: those of rueda.keras, or of tf_keras where TF_USE_LEGACY_KERAS is set."""

from __future__ import annotations

from rueda import which_keras

if which_keras.is_tf_keras():
    from rueda.tensorflow.keras.legacy_callbacks import *  # noqa: F403
    from rueda.tensorflow.keras.legacy_callbacks import __all__
else:
    from rueda.keras.callbacks import *  # noqa: F403
    from rueda.keras.callbacks import __all__

__all__ = list(__all__)
