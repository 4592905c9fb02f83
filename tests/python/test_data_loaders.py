"""Loaders that read ahead: rueda.data, which is also horovod.data."""

import gc
import threading

import pytest

from horovod.data import AsyncDataLoaderMixin, BaseDataLoader


class Numbers(BaseDataLoader):
    def __init__(self, count, fail_at=None):
        self.count, self.fail_at, self.closed = count, fail_at, threading.Event()
        self.threads = set()

    def __len__(self):
        return self.count

    def _iterate(self):
        try:
            for number in range(self.count):
                if number == self.fail_at:
                    raise OSError("a bad sector")
                self.threads.add(threading.current_thread().name)
                yield number
        finally:
            self.closed.set()

    def _process_batch(self, batch):
        return batch * 10


class AsyncNumbers(AsyncDataLoaderMixin, Numbers):
    pass


@pytest.mark.parametrize("size", [0, 1, 64])
def test_every_epoch_has_all_batches_in_order(size):
    loader = AsyncNumbers(async_loader_queue_size=size, count=5)
    assert len(loader) == 5
    assert [list(loader), list(loader)] == [[0, 10, 20, 30, 40]] * 2
    assert loader.threads == {"rueda-data" if size else threading.current_thread().name}


@pytest.mark.parametrize("size", [0, 1])
def test_what_the_loader_raises_reaches_the_consumer_after_the_batches_before_it(size):
    loader = AsyncNumbers(size, count=5, fail_at=2)
    seen = []
    with pytest.raises(OSError, match="bad sector"):
        for batch in loader:
            seen.append(batch)
    assert seen == [0, 10]


def test_an_iteration_that_is_left_ends_its_thread():
    loader = AsyncNumbers(1, count=1000)
    for batch in loader:
        if batch == 20:
            break
    gc.collect()
    assert loader.closed.wait(20)
    iterator = iter(loader)
    assert next(iterator) == 0
    loader.closed.clear()
    loader.close_async_loader()
    loader.close_async_loader()
    assert loader.closed.is_set()
    assert "rueda-data" not in [thread.name for thread in threading.enumerate()]


def test_a_class_without_iterate_is_told_what_it_lacks():
    with pytest.raises(NotImplementedError, match="_iterate"):
        next(iter(BaseDataLoader()))
    with pytest.raises(ValueError, match="at least 0"):
        AsyncNumbers(-1, count=1)
