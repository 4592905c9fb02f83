"""DelayedOptimizer of rueda.keras on every backend: own gradients count at once, others one step later."""

import keras_worlds  # before keras: it chooses the backend

# isort: split
import tempfile
from pathlib import Path

import keras
import numpy as np
import pytest
from harness import assert_all_succeed, launch, on_every_rank
from keras_worlds import BACKENDS, imports_of

import rueda.keras as hvd

world = keras_worlds.world

SHAPES = [(3, 4), (5,)]


def draws(seed, steps):
    """Gradients of all ranks for each step."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        yield [[rng.standard_normal(shape).astype("float32") for shape in SHAPES] for _ in range(hvd.size())]


def means(of_ranks):
    return [sum(parts) / hvd.size() for parts in zip(*of_ranks)]


def model_of(optimizer, seed=1, **options):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.layers.Dense(3, activation="tanh"), keras.layers.Dense(1)])
    model.build((None, 4))
    model.compile(optimizer=optimizer, loss="mse", **options)
    return model


def data(batches):
    rng = np.random.default_rng(7 + hvd.rank())
    return rng.standard_normal((batches * 2, 4)).astype("float32"), np.ones((batches * 2, 1), "float32")


def fit(model, batches, first=0):
    """The weights that all ranks have, and those of this rank."""
    x, y = data(first + batches)
    ends = Ends()
    callbacks = [ends, hvd.callbacks.AgreedWeightsCallback()]
    model.fit(x[2 * first :], y[2 * first :], batch_size=2, shuffle=False, verbose=0, callbacks=callbacks)
    return weights_of(model), ends.weights


def weights_of(model):
    return [np.array(keras.ops.convert_to_numpy(weight)) for weight in model.trainable_variables]


class Ends(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        hvd.callbacks.sync(self.model)
        self.weights = weights_of(self.model)


def are_close(one, other):
    return all(np.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(one, other))


def are_same_everywhere(weights):
    return all(
        all(np.array_equal(a, b) for a, b in zip(weights, theirs)) for theirs in hvd.allgather_object(weights)
    )


@on_every_rank
def test_a_step_uses_its_own_gradients_and_the_mean_of_the_step_before():
    made = [keras.Variable(np.zeros(shape, "float32")) for shape in SHAPES]
    optimizer = hvd.DelayedOptimizer(keras.optimizers.SGD(1.0))
    before = None
    for of_ranks in draws(1, 5):
        own = of_ranks[hvd.rank()]
        for one in made:
            one.assign(np.zeros(one.shape, "float32"))  # as where a program changes them
        optimizer.apply([keras.ops.convert_to_tensor(one) for one in own], made)
        for at, one in enumerate(made):
            wanted = -own[at] if before is None else -before[at] - own[at]
            assert np.allclose(keras.ops.convert_to_numpy(one), wanted, atol=1e-6)
        before = means(of_ranks)


@on_every_rank
def test_a_loop_may_train_some_weights_in_any_order():
    def steps(optimizer, takes):
        """The weights that all ranks have after so many steps with gradients that are the same."""
        made = [keras.Variable(np.zeros(3, "float32"), name="kernel") for _ in range(3)]
        optimizer.build(made)
        for step in range(5):
            grads = [np.full(3, 1 + at + (step % 2), "float32") for at in range(3)]
            chosen = takes(list(range(3)))
            optimizer.apply(
                [keras.ops.convert_to_tensor(grads[at]) for at in chosen], [made[at] for at in chosen]
            )
        return [np.array(keras.ops.convert_to_numpy(one)) for one in made]

    for takes in (lambda all: all[1:], lambda all: all[::-1], lambda all: all):
        plain = steps(keras.optimizers.SGD(0.1, momentum=0.9), takes)
        optimizer = hvd.DelayedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9))
        assert are_close(steps(optimizer, takes), plain)
    unknown = keras.Variable(np.zeros(3, "float32"), name="late")
    with pytest.raises(ValueError, match=r"was not built for variable .*late; give every variable"):
        optimizer.apply([keras.ops.ones(3)], [unknown])
    model = model_of(hvd.DelayedOptimizer(keras.optimizers.SGD(0.1)))
    fit(model, 3)
    hvd.broadcast_variables(model.variables + model.optimizer.variables, root_rank=0)
    assert are_same_everywhere(fit(model, 2)[0])


@on_every_rank
def test_compiled_and_eager_trainings_are_those_of_one_process_with_old_gradients():
    for eagerly in (False, True):
        model = model_of(hvd.DelayedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)), run_eagerly=eagerly)
        agreed, ahead = fit(model, 6)
        assert are_same_everywhere(agreed)
        assert not are_same_everywhere(ahead)

        # The same by hand: averages are waited for at once, and used one step later.
        weights = weights_of(model_of(keras.optimizers.SGD(0.0)))
        speed, waiting, mine = [np.zeros_like(one) for one in weights], None, weights
        x, y = data(6)
        for step in range(6):
            own = gradients_of(mine, x[2 * step : 2 * step + 2], y[2 * step : 2 * step + 2])
            if waiting is not None:
                speed = [0.9 * velocity - 0.1 * one for velocity, one in zip(speed, waiting)]
                weights = [one + velocity for one, velocity in zip(weights, speed)]
            waiting = means(hvd.allgather_object(own))
            mine = [one + 0.9 * v - 0.1 * grad for one, v, grad in zip(weights, speed, own)]
        assert are_close(agreed, weights), eagerly
        assert are_close(ahead, mine), eagerly


def gradients_of(weights, x, y):
    """By hand: two dense layers, tanh between, the mean of squares."""
    kernel, bias, last, offset = weights
    hidden = np.tanh(x @ kernel + bias)
    error = 2 * (hidden @ last + offset - y) / y.size
    back = (error @ last.T) * (1 - hidden**2)
    return [x.T @ back, back.sum(0), hidden.T @ error, error.sum(0)]


@on_every_rank
def test_wire_types_loaded_files_and_sparse_gradients():
    for compression in (hvd.Compression.fp16, hvd.Compression.int8):
        model = model_of(hvd.DelayedOptimizer(keras.optimizers.Adam(0.01), compression=compression))
        assert are_same_everywhere(fit(model, 4)[0])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        model.save(path)
        loaded = keras.saving.load_model(path)  # as without rueda
        assert not hasattr(loaded.optimizer, "_rueda_reduction")
        hvd.DelayedOptimizer(loaded.optimizer, warn_if_late=False)
        loaded.compile(loaded.optimizer, loss="mse")
        assert are_same_everywhere(fit(loaded, 3, first=4)[0])

    keras.utils.set_random_seed(1)
    words = keras.Sequential([keras.layers.Embedding(5, 3), keras.layers.Dense(1)])
    words.build((None, 2))
    words.compile(hvd.DelayedOptimizer(keras.optimizers.SGD(0.5)), loss="mse")
    before = keras.ops.convert_to_numpy(words.trainable_variables[0]).copy()
    x = np.full((6, 2), hvd.rank(), "int32")
    callbacks = [hvd.callbacks.AgreedWeightsCallback()]
    words.fit(x, np.ones((6, 2, 1), "float32"), batch_size=2, verbose=0, callbacks=callbacks)
    after = keras.ops.convert_to_numpy(words.trainable_variables[0])
    assert are_same_everywhere([after])
    assert [not np.array_equal(a, b) for a, b in zip(before, after)] == [True, True, False, False, False]


@on_every_rank
def test_epochs_callbacks_and_weights_that_a_program_changes():
    model = model_of(hvd.DelayedOptimizer(keras.optimizers.Adam(0.01)))
    x, y = data(8)
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.AgreedWeightsCallback()]
    model.set_weights([weight + hvd.rank() for weight in model.get_weights()])
    for _ in range(2):
        model.fit(x, y, batch_size=2, epochs=2, verbose=0, callbacks=callbacks)
        assert are_same_everywhere(weights_of(model))
        assert model.optimizer.iterations == 8 * 2 * (_ + 1)
    model.set_weights([np.ones_like(weight) for weight in model.get_weights()])
    fit(model, 1)
    assert all(np.abs(weight - 1).max() < 0.1 for weight in weights_of(model))


@on_every_rank
def test_with_equal_data_it_is_the_wrapped_optimizer():
    x, y = np.linspace(-1, 1, 48, dtype="float32").reshape(12, 4), np.ones((12, 1), "float32")
    ends = Ends()
    model = model_of(hvd.DelayedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)))
    model.fit(x, y, batch_size=2, shuffle=False, verbose=0, callbacks=[ends])
    plain = model_of(keras.optimizers.SGD(0.1, momentum=0.9))
    plain.fit(x, y, batch_size=2, shuffle=False, verbose=0)
    assert are_close(ends.weights, weights_of(plain))


@on_every_rank
def test_what_makes_no_sense_is_refused_in_a_sentence():
    def sgd():
        return keras.optimizers.SGD(0.1)

    accumulating = keras.optimizers.SGD(0.1, gradient_accumulation_steps=3)
    refused = [
        (3, {}, "DelayedOptimizer wraps a keras.optimizers.Optimizer"),
        (hvd.DelayedOptimizer(sgd()), {}, "DelayedOptimizer: this optimizer is wrapped already"),
        (sgd(), {"op": hvd.Max}, "DelayedOptimizer: op is"),
        (sgd(), {"compression": hvd.PowerSGD(2)}, r"use one of Compression.none"),
        (sgd(), {"compression": "half"}, "compression is 'half'"),
        (keras.optimizers.LossScaleOptimizer(sgd()), {}, "use the dtype policy mixed_bfloat16"),
        (accumulating, {}, "gradient_accumulation_steps is 3, but each batch must make a step"),
    ]
    for optimizer, options, text in refused:
        with pytest.raises(ValueError, match=text):
            hvd.DelayedOptimizer(optimizer, **options)
    with pytest.raises(ValueError, match="DistributedOptimizer: this optimizer is wrapped already"):
        hvd.DistributedOptimizer(hvd.DelayedOptimizer(sgd()))


OVERLAPS = """
import os, time
import keras, numpy as np
import rueda.keras as hvd
hvd.init()
backend = keras.backend.backend()
path = os.path.join(folder, "has computed")

def tell(x):  # in the middle of a step
    if hvd.rank() == 0 and np.asarray(x)[0, 0] == 1 and not os.path.exists(path):
        open(path, "x").close()
    return np.asarray(x)

class Telling(keras.layers.Layer):
    def call(self, x):
        if backend == "jax":
            import jax
            return jax.pure_callback(tell, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
        if backend == "tensorflow":
            import tensorflow as tf
            return tf.ensure_shape(tf.numpy_function(tell, [x], tf.float32), x.shape)
        return x

keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((4,), batch_size=2), Telling(), keras.layers.Dense(1)])
model.compile(hvd.DelayedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
for number in range(3):
    deadline = time.monotonic() + 60
    while number == 1 and hvd.rank() == 1 and not os.path.exists(path):
        assert time.monotonic() < deadline, "rank 0 waits for rank 1, and computes nothing"
        time.sleep(0.01)
    x = np.full((2, 4), number, "float32")
    model.train_on_batch(x, np.ones((2, 1), "float32"))
    if backend == "torch":  # a step sends, and does not wait
        tell(x)
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_computes_before_the_gradients_of_the_last_have_arrived(tmp_path, backend):
    environment = dict(imports_of(backend).environment)
    assert_all_succeed(launch(2, f"folder = {str(tmp_path)!r}\n" + OVERLAPS, environment))
