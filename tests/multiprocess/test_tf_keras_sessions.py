"""Training with tf_keras in graphs of TensorFlow 1: TF_USE_LEGACY_KERAS=1 and disable_v2_behavior()."""

import importlib.util
import os
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
from harness import QUIET_TENSORFLOW, on_every_rank
from nursery import ForkedWorld, Imports

if importlib.util.find_spec("tf_keras") is None or importlib.util.find_spec("tensorflow") is None:
    pytest.skip("there is no tf_keras; make test-matrix runs these", allow_module_level=True)

QUIET = {"TF_USE_LEGACY_KERAS": "1", "KERAS_BACKEND": "tensorflow", **QUIET_TENSORFLOW}

if "RUEDA_RANK" in os.environ:  # the process that runs pytest has Keras on the backend of another module
    import tensorflow as tf

    tf.compat.v1.disable_v2_behavior()

    import horovod.keras
    import horovod.tensorflow
    import horovod.tensorflow.keras

    backend = tf.compat.v1.keras.backend
    optimizers = tf.keras.optimizers.legacy
    FRONT_ENDS = (horovod.keras, horovod.tensorflow.keras)
    hvd = horovod.tensorflow.keras

BATCH = 8  # of one rank


@pytest.fixture(scope="module")
def world():
    """Two ranks with tf_keras in graphs."""
    made = ForkedWorld(2, "shm,tcp", imports=Imports(("pytest",), tuple(QUIET.items())))
    yield made
    made.stop()


def data(steps):
    random = np.random.default_rng(0)
    x = random.normal(size=(steps * BATCH * hvd.size(), 6)).astype("float32")
    return x, (x @ random.normal(size=(6, 2))).astype("float32")


def my_part(array):
    """This rank's rows of every batch of all ranks."""
    return array.reshape(-1, hvd.size(), BATCH, *array.shape[1:])[:, hvd.rank()].reshape(-1, *array.shape[1:])


def make_model(seed):
    backend.clear_session()
    tf.compat.v1.set_random_seed(seed)
    layers = [tf.keras.layers.Dense(8, "tanh", input_shape=(6,)), tf.keras.layers.Dense(2)]
    return tf.keras.Sequential(layers)


def fit(model, optimizer, callbacks=(), epochs=2, steps=4, part=my_part, **options):
    x, y = data(steps)
    model.compile(optimizer=optimizer, loss="mse", metrics=["mae"])
    size = BATCH if part is my_part else BATCH * hvd.size()
    given = dict(batch_size=size, epochs=epochs, shuffle=False, verbose=0, callbacks=list(callbacks))
    return model.fit(part(x), part(y), **given, **options)


def assert_equal_on_all_ranks(model):
    mine = b"".join(value.tobytes() for value in model.get_weights())
    assert len(set(hvd.allgather_object(mine))) == 1


@on_every_rank
def test_values_are_numbers_and_arrays_and_not_tensors():
    rank = hvd.rank()
    for front_end in FRONT_ENDS:
        for value, result, kind in (
            (1.5 + rank, 2.0, np.float32),
            (3 + rank, 3, np.int32),
            ([1.5, 2.5], [1.5, 2.5], np.float32),
            (np.float64(1.5), 1.5, np.float64),
            (np.arange(3), [0, 1, 2], np.int64),
        ):
            found = front_end.allreduce(value)
            assert isinstance(found, (np.ndarray, np.generic)) and found.dtype == kind, found
            np.testing.assert_array_equal(found, result)
        np.testing.assert_array_equal(front_end.allgather([[float(rank)]]), [[0.0], [1.0]])
        assert front_end.broadcast(rank, 1) == 1
        np.testing.assert_array_equal(front_end.reducescatter([1.0, 2.0], op=hvd.Sum), [2.0 + 2 * rank])
        variable = tf.compat.v1.Variable(float(rank + 1))
        backend.get_session().run(variable.initializer)
        assert front_end.allreduce(variable * 2) == front_end.allreduce(variable, op=hvd.Sum) == 3.0


@on_every_rank
def test_global_variables_are_sent_within_the_session():
    for front_end in FRONT_ENDS:
        model = make_model(hvd.rank() + 1)
        variable = tf.compat.v1.Variable(float(hvd.rank()), name="counter")
        backend.get_session().run(variable.initializer)
        assert front_end.broadcast_global_variables(1) is None
        assert backend.get_session().run(variable) == 1.0
        assert_equal_on_all_ranks(model)


@on_every_rank
def test_the_weights_equal_those_of_one_process_with_the_whole_batch():
    for front_end in FRONT_ENDS:
        for make in (lambda: optimizers.SGD(0.05, momentum=0.9), lambda: optimizers.Adam(0.01, clipnorm=0.5)):
            alone = make_model(1)
            fit(alone, make(), part=lambda array: array)
            expected = alone.get_weights()
            ours = make_model(1 + hvd.rank())
            fit(
                ours,
                front_end.DistributedOptimizer(make()),
                [front_end.callbacks.BroadcastGlobalVariablesCallback(0)],
            )
            assert_equal_on_all_ranks(ours)
            for a, b in zip(ours.get_weights(), expected):
                np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5)


@on_every_rank
def test_the_broadcast_takes_the_global_variables_that_all_ranks_have():
    model = make_model(hvd.rank())
    shared = tf.compat.v1.Variable(hvd.rank() + 1, name="shared")
    tf.compat.v1.Variable(0, name="unset")
    own = tf.compat.v1.Variable(hvd.rank(), name=f"own_{hvd.rank()}")
    session = backend.get_session()
    session.run([shared.initializer, own.initializer])
    broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(1)
    fit(model, hvd.DistributedOptimizer(optimizers.SGD(0.1 * (hvd.rank() + 1))), [broadcast])
    assert session.run([shared, own]) == [2, hvd.rank()]
    np.testing.assert_allclose(backend.get_value(model.optimizer.lr), 0.2)
    assert_equal_on_all_ranks(model)


def watch(seen):
    """A callback that notes rate and momentum of each batch, and compares the logs of ranks."""

    class Watch(tf.keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            hyper = (self.model.optimizer.lr, self.model.optimizer.momentum)
            seen.append([float(backend.get_value(one)) for one in hyper])

        def on_epoch_end(self, epoch, logs=None):
            assert logs["lr"] == pytest.approx(seen[-1][0])
            assert len({str(one) for one in hvd.allgather_object(logs)}) == 1

    return Watch()


@on_every_rank
def test_rates_warm_up_step_by_step_and_momentum_is_corrected_for_one_batch():
    for front_end in FRONT_ENDS:
        model, seen = make_model(1), []
        callbacks = [
            front_end.callbacks.BroadcastGlobalVariablesCallback(0),
            front_end.callbacks.MetricAverageCallback(),
            front_end.callbacks.LearningRateWarmupCallback(initial_lr=0.4, warmup_epochs=2, verbose=1),
            front_end.callbacks.LearningRateScheduleCallback(0.4, lambda epoch: 0.5, start_epoch=2),
            watch(seen),
        ]
        optimizer = front_end.DistributedOptimizer(optimizers.SGD(0.4, momentum=0.5))
        fit(model, optimizer, callbacks, epochs=3)
        rates = [0.4 * ((i + 1) / 4 / 2 + 1) / 2 for i in range(8)] + [0.2] * 4
        np.testing.assert_allclose([rate for rate, _ in seen], rates, rtol=1e-5)
        ratios = [after / before for before, after in zip([0.4, *rates], rates)]
        np.testing.assert_allclose([momentum for _, momentum in seen], np.multiply(ratios, 0.5), rtol=1e-5)
        np.testing.assert_allclose(backend.get_value(model.optimizer.momentum), 0.5)


@on_every_rank
def test_several_batches_make_one_step():
    for averages in (False, True):
        summed = make_model(1)
        x, y = data(4)
        summed.compile(optimizer=optimizers.SGD(0.05 if averages else 0.1), loss="mse")
        summed.fit(x, y, batch_size=2 * BATCH * hvd.size(), epochs=2, shuffle=False, verbose=0)
        expected = summed.get_weights()
        model = make_model(1)
        options = {"backward_passes_per_step": 2, "average_aggregated_gradients": averages}
        optimizer = hvd.DistributedOptimizer(optimizers.SGD(0.05), **options)
        fit(model, optimizer, [hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
        assert_equal_on_all_ranks(model)
        for a, b in zip(model.get_weights(), expected):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
        assert backend.get_value(optimizer.iterations) == 8


@on_every_rank
def test_a_model_that_one_rank_loads_is_resumed_by_all():
    """As in Horovod's example of ImageNet with Keras: only the first rank reads the checkpoint."""
    model = make_model(1)
    fit(model, hvd.DistributedOptimizer(optimizers.SGD(0.05, momentum=0.9)))
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "checkpoint.h5")
        model.save(path)
        expected = hvd.broadcast_object(model.get_weights())
        backend.clear_session()
        if hvd.rank() == 0:
            resumed = hvd.load_model(path)
        else:
            resumed = make_model(5)
            resumed.compile(
                optimizer=hvd.DistributedOptimizer(optimizers.SGD(0.05, momentum=0.9)), loss="mse"
            )
    first = []
    watch = tf.keras.callbacks.LambdaCallback(on_train_begin=lambda _: first.extend(resumed.get_weights()))
    x, y = data(2)
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), watch]
    resumed.fit(my_part(x), my_part(y), batch_size=BATCH, epochs=2, verbose=0, callbacks=callbacks)
    for a, b in zip(first, expected):
        np.testing.assert_array_equal(a, b)
    assert_equal_on_all_ranks(resumed)


@on_every_rank
def test_optimizers_of_tensorflow_itself_train_keras_models():
    for make in (tf.compat.v1.train.AdamOptimizer, tf.compat.v1.train.GradientDescentOptimizer):
        model = make_model(1 + hvd.rank())
        optimizer = horovod.tensorflow.DistributedOptimizer(make(0.05))
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)  # that it is not distributed
            fit(model, optimizer, [hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
        assert_equal_on_all_ranks(model)


@on_every_rank
def test_gradients_are_got_reduced():
    make_model(1)
    variable = tf.keras.backend.variable([1.0, 2.0])
    loss = tf.reduce_sum(variable) * float(hvd.rank() + 1)
    optimizer = hvd.DistributedOptimizer(optimizers.SGD(1.0), op=hvd.Sum)
    (gradient,) = optimizer.get_gradients(loss, [variable])
    step = optimizer.apply_gradients([(gradient, variable)])
    session = backend.get_session()
    np.testing.assert_allclose(session.run(gradient), [3.0, 3.0])
    session.run(step)
    np.testing.assert_allclose(session.run(variable), [-2.0, -1.0])


@on_every_rank
def test_optimizers_that_keras_cannot_use_in_graphs_are_refused_by_name():
    with pytest.raises(ValueError, match=r"make tf.keras.optimizers.legacy.Adam instead of"):
        hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.1))
