"""Elastic training for Keras; with TF_USE_LEGACY_KERAS for tf_keras."""

from horovod.keras.chosen import IS_LEGACY

if IS_LEGACY:
    from rueda.tensorflow.keras.elastic import *  # noqa: F403
    from rueda.tensorflow.keras.elastic import __all__
else:
    from rueda.keras.elastic import *  # noqa: F403
    from rueda.keras.elastic import __all__  # type: ignore[no-redef] # noqa: F401
