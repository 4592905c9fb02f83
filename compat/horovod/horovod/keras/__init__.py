"""Horovod's Keras front end, served by rueda.keras; with TF_USE_LEGACY_KERAS also for tf_keras."""

from horovod.keras import callbacks, elastic
from horovod.keras.chosen import IS_LEGACY
from rueda.keras import *  # noqa: F403 (the interface is rueda.keras's __all__)
from rueda.keras import __all__, __getattr__, retired  # noqa: F401

if IS_LEGACY:
    from horovod.keras.chosen import (  # noqa: F401 (replace the others)
        DistributedOptimizer,
        PartialDistributedOptimizer,
        load_model,
    )
    from rueda.tensorflow.keras import callbacks, elastic  # noqa: F401

retired.accept()
