"""The callbacks for model.fit."""

from horovod.keras.chosen import IS_LEGACY

if IS_LEGACY:
    from rueda.tensorflow.keras.callbacks import *  # noqa: F403
    from rueda.tensorflow.keras.callbacks import __all__
else:
    from rueda.keras.callbacks import *  # noqa: F403
    from rueda.keras.callbacks import __all__  # type: ignore[no-redef] # noqa: F401
