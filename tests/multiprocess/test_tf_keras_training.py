"""Training with rueda.tensorflow.keras where tf.keras is tf_keras (TF_USE_LEGACY_KERAS=1)."""

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

    import horovod.tensorflow.keras as hvd

BATCH = 8  # of one rank


@pytest.fixture(scope="module")
def world():
    """Two ranks with tf_keras."""
    made = ForkedWorld(
        2, "shm,tcp", imports=Imports(("horovod.tensorflow.keras", "pytest"), tuple(QUIET.items()))
    )
    yield made
    made.stop()


def data(count):
    random = np.random.default_rng(0)
    x = random.normal(size=(count, 6)).astype("float32")
    return x, (x @ random.normal(size=(6, 2))).astype("float32")


def my_part(array):
    """This rank's rows of every batch of all ranks."""
    return array.reshape(-1, hvd.size(), BATCH, *array.shape[1:])[:, hvd.rank()].reshape(-1, *array.shape[1:])


def make_model(seed):
    tf.keras.utils.set_random_seed(seed)
    layers = [tf.keras.layers.Dense(8, "tanh"), tf.keras.layers.Dense(2)]
    return tf.keras.Sequential([tf.keras.Input((6,)), *layers])


def train(optimizer, is_distributed, steps=6, wrap=None, **options):
    """(model, losses) of this rank's part, or of one process alone with everything."""
    x, y = data(steps * BATCH * hvd.size())
    model, losses = make_model(hvd.rank() + 1 if is_distributed else 1), []
    callbacks = [
        tf.keras.callbacks.LambdaCallback(on_batch_end=lambda _, logs: losses.append(float(logs["loss"])))
    ]
    if is_distributed:
        optimizer = hvd.DistributedOptimizer(optimizer, **(wrap or {}))
        callbacks.insert(0, hvd.callbacks.BroadcastGlobalVariablesCallback(0))
        x, y = my_part(x), my_part(y)
    # An argument of Keras 2.0 that old scripts pass.
    model.compile(optimizer=optimizer, loss="mse", experimental_run_tf_function=False, **options)
    size = BATCH if is_distributed else BATCH * hvd.size()
    model.fit(x, y, batch_size=size, epochs=2, shuffle=False, verbose=0, callbacks=callbacks)
    return model, losses


def assert_equal_on_all_ranks(model):
    mine = b"".join(value.tobytes() for value in model.get_weights())
    assert len(set(hvd.allgather_object(mine))) == 1


@on_every_rank
def test_the_loss_curve_equals_one_process_with_the_whole_batch():
    assert tf.keras.__name__.startswith("tf_keras")
    optimizers = tf.keras.optimizers
    for make, options in (
        (lambda: optimizers.SGD(0.05, momentum=0.9), {}),
        (lambda: optimizers.Adam(0.01, global_clipnorm=0.5), {}),
        (lambda: optimizers.Adam(0.01), {"run_eagerly": True}),
        (lambda: optimizers.Adam(0.01), {"steps_per_execution": 3}),
        (lambda: optimizers.legacy.Adam(0.01), {}),
    ):
        ours, curve = train(make(), True, **options)
        alone, expected = train(make(), False, **options)
        assert_equal_on_all_ranks(ours)
        together = np.mean(hvd.allgather_object(curve), axis=0)
        np.testing.assert_allclose(together, expected, rtol=2e-4)
        for a, b in zip(ours.get_weights(), alone.get_weights()):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5)


def step_by_hand(optimizer, variable, how, clip):
    """One step on (rank + 1) * variable: gradients computed by the optimizer, clipped, and applied."""
    scale = float(hvd.rank() + 1)

    def compute():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable * scale)
        gradient = optimizer.compute_gradients(loss, [variable], tape)[0][0]
        return tf.clip_by_norm(gradient, clip) if clip else gradient

    def whole():
        gradient = compute()
        optimizer.apply_gradients([(gradient, variable)])
        return gradient

    if how == "in two functions":
        traced = tf.function(compute)

        def step():
            gradient = traced()
            optimizer.apply_gradients([(gradient, variable)])
            return gradient

        return step
    return tf.function(whole) if how == "in a function" else whole


@on_every_rank
def test_computed_gradients_are_reduced_once():
    for how in ("eagerly", "in a function", "in two functions"):
        for op, clip, expected in ((hvd.Sum, None, 3.0), (hvd.Average, None, 1.5), (hvd.Average, 1.0, 0.5)):
            variable = tf.Variable([0.0] * 4)
            optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), op=op)
            step = step_by_hand(optimizer, variable, how, clip)
            for number in (1, 2, 3):
                np.testing.assert_allclose(step(), [expected] * 4, rtol=1e-6)
                np.testing.assert_allclose(variable, [-expected * number] * 4, rtol=1e-6)
            if how != "in two functions":  # where others keep coming
                optimizer.apply_gradients([(tf.fill([4], float(hvd.rank() - 0.5)), variable)])
                np.testing.assert_allclose(variable, [-expected * 3] * 4, rtol=1e-6)


@on_every_rank
def test_each_kind_of_optimizer_reduces_what_it_computes():
    optimizers = tf.keras.optimizers
    scaling = tf.keras.mixed_precision.LossScaleOptimizer
    kinds = (optimizers.SGD, optimizers.legacy.SGD)
    makers = [*kinds, *(lambda rate, kind=kind: scaling(kind(rate)) for kind in kinds)]
    for plain, method in (  # Horovod's wrapper has the second name for all of them
        (make(1.0), method) for make in makers for method in ("compute_gradients", "_compute_gradients")
    ):
        optimizer, variable = hvd.DistributedOptimizer(plain, op=hvd.Sum), tf.Variable([0.0, 0.0])

        def loss(variable=variable):
            return tf.reduce_sum(variable) * float(hvd.rank() + 1)

        pairs = getattr(optimizer, method)(loss, [variable])
        np.testing.assert_allclose(pairs[0][0], [3.0, 3.0])
        optimizer.apply_gradients(pairs)
        np.testing.assert_allclose(variable, [-3.0, -3.0])
        optimizer.minimize(loss, [variable])
        np.testing.assert_allclose(variable, [-6.0, -6.0])


@on_every_rank
def test_computed_gradients_are_summed_over_passes_and_reduced_in_the_last():
    variable = tf.Variable([0.0])
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), backward_passes_per_step=2)
    step = step_by_hand(optimizer, variable, "in a function", None)
    mine = hvd.rank() + 1.0
    for gradient, value in ((mine, 0.0), (3.0, -3.0), (mine, -3.0), (3.0, -6.0)):
        np.testing.assert_allclose(step(), [gradient])
        np.testing.assert_allclose(variable, [value])
    assert int(optimizer.iterations) == 4


@on_every_rank
def test_optimizers_clip_what_is_reduced():
    for kind in (tf.keras.optimizers, tf.keras.optimizers.legacy):
        for settings in ({"clipnorm": 1.0}, {"global_clipnorm": 1.0}, {"clipvalue": 1.0}):
            variable = tf.Variable([0.0])
            optimizer = hvd.DistributedOptimizer(kind.SGD(1.0, **settings))
            # The average is 1; clipped before the reduction it would be 0.
            optimizer.apply_gradients([(tf.constant([4.0 if hvd.rank() == 0 else -2.0]), variable)])
            np.testing.assert_allclose(variable, [-1.0])


@on_every_rank
def test_ranks_that_made_other_models_before_train_together():
    if hvd.rank() == 1:
        make_model(5)  # its layers take the names that the others' have
    for wrap in (None, {"backward_passes_per_step": 2}):
        model, _ = train(tf.keras.optimizers.SGD(0.05), True, wrap=wrap)
        assert_equal_on_all_ranks(model)
    assert len(set(hvd.allgather_object(model.layers[0].name))) == 2


@on_every_rank
def test_several_batches_make_one_step():
    model, _ = train(tf.keras.optimizers.SGD(0.05), True, wrap={"backward_passes_per_step": 2})
    x, y = data(6 * BATCH * hvd.size())
    summed = make_model(1)
    summed.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse")  # a sum is twice the average
    summed.fit(x, y, batch_size=2 * BATCH * hvd.size(), epochs=2, shuffle=False, verbose=0)
    assert_equal_on_all_ranks(model)
    for a, b in zip(model.get_weights(), summed.get_weights()):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
    assert int(model.optimizer.iterations) == 12


@on_every_rank
def test_loss_scaling_skips_the_same_steps_on_all_ranks():
    for make in (tf.keras.optimizers.SGD, tf.keras.optimizers.legacy.SGD):
        model = make_model(1)
        scaling = tf.keras.mixed_precision.LossScaleOptimizer(make(0.05), initial_scale=256.0)
        model.compile(optimizer=hvd.DistributedOptimizer(scaling), loss="mse")
        x, y = data(4 * BATCH * hvd.size())
        x, y = my_part(x).copy(), my_part(y)
        if hvd.rank() == 1:
            x[BATCH] = np.inf  # in the second batch of one rank
        model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
        assert_equal_on_all_ranks(model)
        assert all(np.isfinite(value).all() for value in model.get_weights())
        assert float(scaling.loss_scale) == 128.0  # halved once: one of four was skipped


@on_every_rank
def test_callbacks_schedule_average_and_save():
    rates = []
    watch = tf.keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: rates.append(float(model.optimizer.learning_rate))
    )
    model = make_model(1)
    model.compile(optimizer=hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.4)), loss="mse")
    x, y = data(4 * BATCH * hvd.size())
    read = []
    reader = tf.keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: read.append(dict(logs)))
    warmup = hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.4, warmup_epochs=2)
    with tempfile.TemporaryDirectory() as folder:
        best = hvd.callbacks.BestModelCheckpoint(monitor="loss")
        with pytest.raises(ValueError, match="has no filepath: set it before"):
            model.fit(my_part(x), my_part(y), verbose=0, callbacks=[best])
        best.filepath = str(Path(folder) / "best.keras")
        callbacks = [hvd.callbacks.MetricAverageCallback(), warmup, best, reader, watch]
        model.fit(my_part(x), my_part(y), batch_size=BATCH, epochs=3, verbose=0, callbacks=callbacks)
        assert Path(best.filepath).exists() == (hvd.rank() == 0)
    expected = [0.4 * ((i + 1) / 4 / 2 + 1) / 2 for i in range(8)] + [0.4] * 4
    np.testing.assert_allclose(rates, expected, rtol=1e-5)
    assert len({one["loss"] for one in hvd.allgather_object(read[0])}) == 1


@on_every_rank
def test_saved_models_load_without_rueda_and_go_on_with_it():
    model, _ = train(tf.keras.optimizers.Adam(0.01), True)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.keras")
        model.save(path)
        plain = tf.keras.models.load_model(path)
        loaded = hvd.load_model(path)
    assert type(plain.optimizer) is tf.keras.optimizers.Adam
    assert type(loaded.optimizer) is not tf.keras.optimizers.Adam
    x, y = data(2 * BATCH * hvd.size())
    plain.fit(x, y, batch_size=BATCH * hvd.size(), shuffle=False, verbose=0)
    for one in (model, loaded):
        one.fit(my_part(x), my_part(y), batch_size=BATCH, shuffle=False, verbose=0)
        for a, b in zip(one.get_weights(), plain.get_weights()):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5)


@on_every_rank
def test_sync_batch_normalization_is_loaded_as_ours():
    import rueda.tensorflow

    layer = rueda.tensorflow.SyncBatchNormalization  # tf_keras has one of that name, too
    model = tf.keras.Sequential([tf.keras.Input((6,)), layer(), tf.keras.layers.Dense(2)])
    model.compile(optimizer=hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.05)), loss="mse")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("model.keras", "model.h5"):
            path = str(Path(folder) / name)
            model.save(path)
            tf.keras.saving.get_custom_objects().pop("rueda>SyncBatchNormalization", None)  # a new process
            assert type(hvd.load_model(path).layers[0]) is layer


@on_every_rank
def test_broadcasting_warns_of_training_apart_and_of_xla_switched_off():
    x, y = data(BATCH)
    for optimizer, options, text in (
        (tf.keras.optimizers.SGD(0.1), {}, "optimizer of this model, SGD, is not distributed"),
        (
            hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)),
            {"jit_compile": True},
            "without jit_compile",
        ),
        (hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), {}, None),
    ):
        model = make_model(1)
        model.compile(optimizer=optimizer, loss="mse", **options)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(x, y, verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
        said = [str(one.message) for one in caught if issubclass(one.category, RuntimeWarning)]
        assert len(said) == (text is not None) and all(text in one for one in said)


@on_every_rank
def test_horovod_keras_serves_tf_keras_where_it_is_tf_keras():
    import keras

    import horovod.keras
    import rueda.keras

    optimizer = horovod.keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.05))
    model = make_model(hvd.rank() + 1)
    model.compile(optimizer=optimizer, loss="mse")
    x, y = data(2 * BATCH * hvd.size())
    callbacks = [horovod.keras.callbacks.BroadcastGlobalVariablesCallback(0)]
    model.fit(my_part(x), my_part(y), batch_size=BATCH, verbose=0, callbacks=callbacks)
    assert_equal_on_all_ranks(model)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.keras")
        model.save(path)
        assert isinstance(horovod.keras.load_model(path), tf.keras.Model)
    layer = model.layers[-1]
    partial = horovod.keras.PartialDistributedOptimizer(tf.keras.optimizers.SGD(0.05), local_layers=layer)
    assert isinstance(partial, tf.keras.optimizers.SGD)
    other = horovod.keras.DistributedOptimizer(keras.optimizers.SGD(0.05))
    assert isinstance(other, keras.optimizers.SGD)
    assert rueda.keras.optimizer.is_distributed(other)


@on_every_rank
def test_misuse_is_one_sentence():
    import rueda.keras
    import rueda.tensorflow as plain

    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
    with pytest.raises(ValueError, match="DelayedOptimizer wraps optimizers of Keras 3"):
        hvd.DelayedOptimizer(optimizer)
    with pytest.raises(ValueError, match="wrapped already"):
        hvd.DistributedOptimizer(optimizer)
    with pytest.raises(ValueError, match=r"wraps an optimizer of tf_keras.*but got builtins.str"):
        hvd.DistributedOptimizer("adam")
    for settings, text in (
        ({"gradient_predivide_factor": 0}, "must be a finite number other than 0"),
        ({"compression": "int4"}, "compression is 'int4', but must be Compression.none, fp16, bf16 or int8"),
    ):
        with pytest.raises(ValueError, match=text):
            hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1), **settings)
    with pytest.raises(ValueError, match="got one of tf_keras; set TF_USE_LEGACY_KERAS=1"):
        rueda.keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
    with pytest.raises(ValueError, match="layer later is not built: build the model"):
        hvd.PartialDistributedOptimizer("adam", local_layers=tf.keras.layers.Dense(1, name="later"))
    best = hvd.callbacks.BestModelCheckpoint()
    best.filepath = "best.keras"
    with pytest.raises(ValueError, match="BestModelCheckpoint has no model: pass it to"):
        best.on_train_begin()
    through_tensorflow = plain.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
    assert type(through_tensorflow) is not tf.keras.optimizers.SGD
    model = make_model(1)
    model.compile(optimizer=tf.keras.mixed_precision.LossScaleOptimizer(optimizer), loss="mse")
    with pytest.raises(ValueError, match="wrap it as a whole"):
        model.fit(*data(BATCH), verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
