"""Elastic training for tf.keras: what rueda.keras.elastic has, or the same for tf_keras."""

from __future__ import annotations

from typing import Any

from rueda import which_keras
from rueda.keras import elastic as _current
from rueda.keras.elastic import *  # noqa: F403

if which_keras.is_tf_keras():
    import tf_keras

    from rueda.tensorflow import elastic as _own

    _Callback: Any = tf_keras.callbacks.Callback

    class CommitStateCallback(_current.Commits, _Callback):  # type: ignore[misc,no-redef]
        __doc__ = _current.CommitStateCallback.__doc__

    class UpdateBatchStateCallback(_current.UpdatesBatch, _Callback):  # type: ignore[misc,no-redef]
        __doc__ = _current.UpdateBatchStateCallback.__doc__

    class UpdateEpochStateCallback(_current.UpdatesEpoch, _Callback):  # type: ignore[misc,no-redef]
        __doc__ = _current.UpdateEpochStateCallback.__doc__

    KerasState: Any = _own.TensorFlowKerasState  # type: ignore[no-redef]
    run = _own.run

__all__ = list(_current.__all__)
