"""rueda's own metrics among the scalars of a training with model.fit."""

from __future__ import annotations

import os
from typing import Any

import keras

from rueda.tensorboard import MetricsWriter, Writer


class MetricsCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Writes what rueda.tensorboard.MetricsWriter writes, on rank 0, at the end of each epoch.

    log_dir: as for keras.callbacks.TensorBoard; the scalars go to its folder rueda, so that both callbacks
    may have the same. writer: a SummaryWriter to use instead. update_freq: "epoch", or a number of batches,
    as for keras.callbacks.TensorBoard; steps are then batches. After init.

    >>> model.fit(x, y, callbacks=[MetricsCallback("logs")])
    """

    def __init__(
        self,
        log_dir: str | None = None,
        writer: Writer | None = None,
        update_freq: int | str = "epoch",
    ) -> None:
        super().__init__()
        if update_freq != "epoch" and (not isinstance(update_freq, int) or update_freq < 1):
            raise ValueError(
                f'MetricsCallback: update_freq is {update_freq!r}; pass "epoch" or a number of batches.'
            )
        self._every = update_freq if isinstance(update_freq, int) else 0
        own = None if log_dir is None else os.path.join(log_dir, "rueda")
        self._metrics = MetricsWriter(log_dir=own, writer=writer)
        self._batches = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Writes after every update_freq batches."""
        self._batches += 1
        if self._every and self._batches % self._every == 0:
            self._metrics.write(self._batches)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Writes the epoch."""
        if not self._every:
            self._metrics.write(epoch)

    def on_train_end(self, logs: Any = None) -> None:
        """Closes the file; fit may be called again with a new callback."""
        self._metrics.close()
