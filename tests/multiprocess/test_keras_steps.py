"""Steps of Keras in the timeline, on every backend: one mark for each, whoever else could mark it."""

import keras_worlds  # before keras: it chooses the backend

# isort: split
import keras
import numpy as np
from harness import on_every_rank
from step_marks import steps_of

import rueda.keras as hvd

world = keras_worlds.world
STEPS = 6


def fit(optimizer, batches=STEPS, callbacks=(), **options):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile(optimizer=optimizer, loss="mse", **options)
    x, y = np.ones((batches * 2, 4), "float32"), np.zeros((batches * 2, 1), "float32")
    model.fit(x, y, batch_size=2, verbose=0, callbacks=list(callbacks))
    for value in model.get_weights():  # with JAX they may still be under way
        assert np.isfinite(value).all()


@on_every_rank
def test_fit_marks_each_step_once_with_and_without_the_callback():
    assert steps_of(lambda: fit(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)))) == STEPS
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01))
    assert steps_of(lambda: fit(optimizer, callbacks=[callback])) == STEPS


@on_every_rank
def test_several_batches_of_one_step_mark_it_once():
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), backward_passes_per_step=2)
    assert steps_of(lambda: fit(optimizer, batches=2 * STEPS)) == STEPS


@on_every_rank
def test_several_steps_of_one_execution_are_all_marked():
    at_once = 1 if keras.backend.backend() == "torch" else 3  # Keras does not do it with torch
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01))
    assert steps_of(lambda: fit(optimizer, steps_per_execution=at_once)) == STEPS
