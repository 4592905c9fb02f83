"""rueda for tf.keras: `import rueda.tensorflow.keras as hvd`.

tf.keras is Keras 3 on TensorFlow, or with TF_USE_LEGACY_KERAS=1 Keras 2 as the package tf_keras; both work.
"""

from __future__ import annotations

import os

# Which framework Keras runs on is decided when it is first imported.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import rueda.keras as _front_end
from rueda import which_keras as _which_keras
from rueda.keras import *  # noqa: F403 (the interface is rueda.keras's __all__)
from rueda.keras import __all__, __getattr__, retired  # noqa: F401
from rueda.keras.backends import backend_name as _backend_name
from rueda.tensorflow.keras import elastic  # type: ignore[no-redef] # noqa: F401

if _backend_name() != "tensorflow":
    raise ImportError(
        f"rueda.tensorflow.keras needs Keras on TensorFlow, but it runs on {_backend_name()}; set "
        f"KERAS_BACKEND=tensorflow before keras is imported, or import rueda.keras."
    )

if _which_keras.is_tf_keras():
    from rueda.tensorflow.keras import legacy_callbacks as callbacks  # type: ignore[no-redef]
    from rueda.tensorflow.keras.legacy import (  # type: ignore[assignment] # noqa: F401 (replaces the others)
        DelayedOptimizer,
        DistributedOptimizer,
        PartialDistributedOptimizer,
        load_model,
    )
else:
    callbacks = _front_end.callbacks

retired.accept()

__all__ = list(__all__)
