"""Data loaders that read ahead in a thread: a base class, and a mixin for any loader of its kind."""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple, Optional

_LOOK_SECONDS = 0.1  # how soon a full queue notices that nobody takes from it any more


class BaseDataLoader:
    """A loader of batches. Subclasses define `__len__` (batches in an epoch) and `_iterate`."""

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__.")

    def _iterate(self) -> Iterator[Any]:
        """The batches of one epoch."""
        raise NotImplementedError(f"{type(self).__name__} must define _iterate.")

    def __iter__(self) -> Iterator[Any]:
        for batch in self._iterate():
            yield self._process_batch(batch)

    def _process_batch(self, batch: Any) -> Any:
        """Called on each batch in the thread of the consumer, for example to move it to a device."""
        return batch


class _Raised(NamedTuple):
    error: BaseException


class _End:
    """Comes after the last batch."""


class _Epoch:
    """One pass over a loader: a thread that fills a queue."""

    def __init__(self, batches: Iterator[Any], size: int) -> None:
        self._batches = batches
        self._queue: queue.Queue[Any] = queue.Queue(size)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._fill, name="rueda-data", daemon=True)
        self._thread.start()

    def _fill(self) -> None:
        try:
            for batch in self._batches:
                if not self._put(batch):
                    return
            self._put(_End())
        except BaseException as error:
            self._put(_Raised(error))
        finally:
            if hasattr(self._batches, "close"):
                self._batches.close()

    def _put(self, item: Any) -> bool:
        """False if nobody wants more."""
        while not self._is_over.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put(item, timeout=_LOOK_SECONDS)
                return True
        return False

    def take(self) -> Any:
        return self._queue.get()

    def waiting(self) -> int:
        return self._queue.qsize()

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()


class AsyncDataLoaderMixin:
    """Lets a thread read ahead. Mix it in before the loader class:

    >>> class Loader(AsyncDataLoaderMixin, MyLoader): ...
    >>> for batch in Loader(async_loader_queue_size=8, path="data"): ...

    async_loader_queue_size: batches that are read ahead; 0 reads in the thread of the consumer.
    debug_data_loader: says on stderr how many batches are ready when one is taken. All other arguments go to
    the loader class. Each iteration reads one epoch, in a thread that ends with it; what the loader raises is
    raised in the consumer.
    """

    def __init__(
        self,
        async_loader_queue_size: int = 64,
        debug_data_loader: bool = False,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if async_loader_queue_size < 0:
            raise ValueError(f"async_loader_queue_size must be at least 0, not {async_loader_queue_size}.")
        self.async_loader_queue_size = async_loader_queue_size
        self.debug_data_loader = debug_data_loader
        self._epoch: Optional[_Epoch] = None
        super().__init__(*args, **kwargs)

    def close_async_loader(self) -> None:
        """Ends the thread of an iteration that was not finished. Repeating it does nothing."""
        epoch, self._epoch = self._epoch, None
        if epoch is not None:
            epoch.close()

    def __iter__(self) -> Iterator[Any]:
        if self.async_loader_queue_size == 0:
            yield from super().__iter__()  # type: ignore[misc]
            return
        self.close_async_loader()
        batches: Iterator[Any] = self._iterate()  # type: ignore[attr-defined]
        epoch = self._epoch = _Epoch(batches, self.async_loader_queue_size)
        try:
            while not isinstance(item := epoch.take(), _End):
                if isinstance(item, _Raised):
                    raise item.error
                if self.debug_data_loader:
                    print(f"rueda: {epoch.waiting()} more batches are ready", file=sys.stderr, flush=True)
                yield self._process_batch(item)  # type: ignore[attr-defined]
        finally:
            epoch.close()
            if self._epoch is epoch:
                self._epoch = None
