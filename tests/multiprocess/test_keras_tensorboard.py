"""rueda's own metrics beside the scalars of model.fit, as TensorBoard would read them."""

import keras_worlds  # before keras: it chooses the backend

# isort: split
import pathlib
import struct
import tempfile

import keras
import numpy as np
import pytest
from harness import on_every_rank

import rueda.keras as hvd
from rueda.keras.tensorboard import MetricsCallback

world = keras_worlds.world


def _scalars(folder):
    """{tag: [(step, value)]} of the event files there, whoever wrote them."""
    from tensorboardX.proto.event_pb2 import Event

    found = {}
    for file in pathlib.Path(folder).rglob("*tfevents*"):
        rest = file.read_bytes()
        while rest:
            (size,) = struct.unpack("<Q", rest[:8])
            event = Event.FromString(rest[12 : 12 + size])
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
            rest = rest[16 + size :]
    return found


def _fit(epochs, **settings):
    with tempfile.TemporaryDirectory() as folder:
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
        callback = MetricsCallback(folder, **settings)
        x = np.ones((8, 4), np.float32)
        model.fit(x, x[:, :1], batch_size=2, epochs=epochs, verbose=0, callbacks=[callback])
        return _scalars(folder)


@on_every_rank
def test_rank_0_writes_its_metrics_at_the_end_of_each_epoch():
    found = _fit(2)
    if hvd.rank() != 0:
        assert found == {}
        return
    tags = ["bytes_per_second", "planned_share", "step_seconds", "waiting_share"]
    assert sorted(found) == [f"rueda/{tag}" for tag in tags]
    assert all([step for step, _ in values] == [0, 1] for values in found.values()), found
    assert all(value > 0 for _, value in found["rueda/step_seconds"] + found["rueda/bytes_per_second"])


@on_every_rank
def test_the_number_of_batches_between_two_writes_can_be_chosen():
    found = _fit(1, update_freq=2)
    if hvd.rank() == 0:
        assert [step for step, _ in found["rueda/bytes_per_second"]] == [2, 4]


@pytest.mark.parametrize("wrong", [0, "batch", 1.5])
def test_a_frequency_that_is_none_is_refused(wrong):
    with pytest.raises(ValueError, match="update_freq"):
        MetricsCallback("x", update_freq=wrong)
