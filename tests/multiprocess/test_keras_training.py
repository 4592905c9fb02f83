"""Training with rueda.keras on every backend of Keras that trains."""

import keras_worlds  # before keras: it chooses the backend

# isort: split
import tempfile
import time
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest
from harness import on_every_rank

import rueda.keras as hvd

world = keras_worlds.world

BATCH = 8  # of one rank


def data(count):
    """(x, y) of all ranks together: batch i is rows [i * n * BATCH, (i + 1) * n * BATCH)."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, 6)).astype("float32")
    return x, (x @ rng.normal(size=(6, 2))).astype("float32")


def my_part(array):
    """This rank's rows of every batch, so that n ranks see what one process sees in batches of n * BATCH."""
    batches = array.reshape(-1, hvd.size(), BATCH, *array.shape[1:])
    return batches[:, hvd.rank()].reshape(-1, *array.shape[1:])


def make_model(seed, layers=1):
    keras.utils.set_random_seed(seed)
    hidden = [keras.layers.Dense(8, activation="tanh") for _ in range(layers)]
    return keras.Sequential([keras.Input((6,)), *hidden, keras.layers.Dense(2)])


def weights(model):
    return [np.asarray(value) for value in model.get_weights()]


def assert_equal_on_all_ranks(model):
    mine = b"".join(value.tobytes() for value in weights(model))
    assert len(set(hvd.allgather_object(mine))) == 1


class Losses(keras.callbacks.Callback):
    """The loss after every call of the train step: the mean so far of its epoch, as Keras reports it."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append(float(logs["loss"]))


def train(optimizer, is_distributed, steps=6, epochs=1, losses=None, **options):
    """A model trained on this rank's part, or alone on everything."""
    x, y = data(steps * BATCH * hvd.size())
    model = make_model(hvd.rank() + 1 if is_distributed else 1)
    callbacks = []
    if is_distributed:
        optimizer = hvd.DistributedOptimizer(optimizer, **options.pop("wrap", {}))
        callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
        x, y = my_part(x), my_part(y)
    options.pop("wrap", None)
    model.compile(optimizer=optimizer, loss="mse", **options)
    size = BATCH if is_distributed else BATCH * hvd.size()
    callbacks += [losses] if losses else []
    model.fit(x, y, batch_size=size, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks)
    return model


def assert_trains_like_one(make_optimizer, rtol=2e-4, **options):
    """n ranks, each with its part of a batch, must go the way one process goes with the whole batch."""
    curve, expected = Losses(), Losses()
    ours = train(make_optimizer(), True, losses=curve, **options)
    alone = train(make_optimizer(), False, losses=expected, **options)
    assert_equal_on_all_ranks(ours)
    together = np.mean(hvd.allgather_object(curve.seen), axis=0)
    assert len(together) > 1
    np.testing.assert_allclose(together, expected.seen, rtol=rtol)
    for a, b in zip(weights(ours), weights(alone)):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=2e-5)
    return ours


@on_every_rank
def test_n_ranks_train_like_one_with_n_fold_batches():
    assert_trains_like_one(lambda: keras.optimizers.SGD(0.05, momentum=0.9), epochs=2)
    assert_trains_like_one(lambda: keras.optimizers.Adam(0.01, global_clipnorm=0.5, weight_decay=0.01))


@on_every_rank
def test_eager_compiled_and_several_steps_in_one_call():
    assert_trains_like_one(lambda: keras.optimizers.Adam(0.01), run_eagerly=True)
    if keras.backend.backend() != "torch":
        assert_trains_like_one(lambda: keras.optimizers.Adam(0.01), steps_per_execution=3)


@on_every_rank
def test_gradients_accumulate_over_batches():
    make = lambda: keras.optimizers.SGD(0.05, gradient_accumulation_steps=3)  # noqa: E731
    assert_trains_like_one(make)
    x, y = data(4 * BATCH * hvd.size())
    model = make_model(1)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05), backward_passes_per_step=2)
    model.compile(optimizer=optimizer, loss="mse")
    model.fit(my_part(x), my_part(y), batch_size=BATCH, shuffle=False, verbose=0)
    summed = make_model(1)
    summed.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")  # the sum of two is twice their average
    summed.fit(x, y, batch_size=2 * BATCH * hvd.size(), shuffle=False, verbose=0)
    for a, b in zip(weights(model), weights(summed)):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


@on_every_rank
def test_loss_scaling_skips_the_same_steps_on_all_ranks():
    for wrap in ("whole", "policy"):
        model = make_model(1)
        optimizer = keras.optimizers.SGD(0.05)
        if wrap == "policy":
            keras.config.set_dtype_policy("mixed_float16")
        else:
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=256.0)
        try:
            optimizer = hvd.DistributedOptimizer(optimizer)
        finally:
            keras.config.set_dtype_policy("float32")
        assert isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        model.compile(optimizer=optimizer, loss="mse")
        optimizer.build(model.trainable_variables)
        before = float(keras.ops.convert_to_numpy(optimizer.dynamic_scale))
        x, y = data(4 * BATCH * hvd.size())
        x, y = my_part(x).copy(), my_part(y)
        if hvd.rank() == 1:
            x[BATCH] = np.inf  # in the second batch of one rank
        model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
        assert_equal_on_all_ranks(model)
        assert all(np.isfinite(value).all() for value in weights(model))
        # Halved once: one of four steps was skipped. (Whether Keras counts it depends on its version.)
        assert float(keras.ops.convert_to_numpy(optimizer.dynamic_scale)) == before / 2
        scales = hvd.allgather_object(float(keras.ops.convert_to_numpy(optimizer.dynamic_scale)))
        assert len(set(scales)) == 1


@on_every_rank
def test_a_loss_scale_optimizer_outside_is_refused():
    inner = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05))
    outer = keras.optimizers.LossScaleOptimizer(inner)
    with pytest.raises(ValueError, match="wrap it as a whole"):
        hvd.DistributedOptimizer(outer)
    model = make_model(1)
    model.compile(optimizer=outer, loss="mse")
    x, y = data(BATCH)
    with pytest.raises(ValueError, match="wrap it as a whole"):
        model.train_on_batch(x, y)
    # In fit the broadcast callback puts it right.
    model = make_model(1)
    inner = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05))
    model.compile(optimizer=keras.optimizers.LossScaleOptimizer(inner), loss="mse")
    model.fit(x, y, verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    assert_equal_on_all_ranks(model)


@on_every_rank
def test_local_layers_compression_and_factors():
    x, y = data(3 * BATCH * hvd.size())
    model = make_model(1)
    optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.05), local_layers=model.layers[-1])
    model.compile(optimizer=optimizer, loss="mse")
    model.fit(my_part(x), my_part(y), batch_size=BATCH, shuffle=False, verbose=0)
    shared, local = weights(model)[:2], weights(model)[2:]
    assert len({value.tobytes() for value in hvd.allgather_object(local[0])}) == hvd.size()
    assert not np.array_equal(shared[0], weights(make_model(1))[0])
    optimizer = keras.optimizers.SGD(0.05)
    with pytest.raises(ValueError, match="layer later is not built: build the model"):
        hvd.PartialDistributedOptimizer(optimizer, local_layers=keras.layers.Dense(2, name="later"))
    hvd.DistributedOptimizer(optimizer)  # was left as it came
    for wrap in ({"compression": hvd.Compression.fp16}, {"gradient_predivide_factor": 2.0}):
        assert_trains_like_one(lambda: keras.optimizers.SGD(0.05), rtol=5e-2, wrap=wrap)


@on_every_rank
def test_saved_models_load_without_rueda_and_go_on_with_it():
    x, y = data(3 * BATCH * hvd.size())
    model = train(keras.optimizers.Adam(0.01), True)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.keras")
        model.save(path)
        plain = keras.saving.load_model(path)
        assert type(plain.optimizer) is type(keras.optimizers.Adam())  # on torch a class of its own
        assert plain.optimizer.get_config() == model.optimizer.get_config()
        loaded = hvd.load_model(path)
    assert type(loaded.optimizer) is not type(plain.optimizer)
    assert int(keras.ops.convert_to_numpy(loaded.optimizer.iterations)) == 6
    for one in (model, loaded):
        one.fit(my_part(x), my_part(y), batch_size=BATCH, shuffle=False, verbose=0)
    plain.fit(x, y, batch_size=BATCH * hvd.size(), shuffle=False, verbose=0)
    assert_equal_on_all_ranks(loaded)
    for a, b, c in zip(weights(model), weights(loaded), weights(plain)):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(a, c, rtol=2e-4, atol=2e-5)


@on_every_rank
def test_a_model_that_only_root_has_loaded_starts_all_ranks():
    """Its variables are named otherwise than those of a model that was just made."""
    from rueda.keras import retired

    retired.accept()  # as importing horovod.keras does: compiled models must still be restored
    x, y = data(2 * BATCH * hvd.size())
    model = make_model(hvd.rank())
    if hvd.rank() == 0:
        model.compile(optimizer=keras.optimizers.Adam(0.05), loss="mse")
        model.fit(x, y, batch_size=BATCH, verbose=0)
        with tempfile.TemporaryDirectory() as folder:
            model.save(Path(folder) / "model.keras")
            model = hvd.load_model(Path(folder) / "model.keras")
    else:
        model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.05)), loss="mse")
    start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(my_part(x), my_part(y), batch_size=BATCH, verbose=0, callbacks=[start])
    assert_equal_on_all_ranks(model)


@on_every_rank
def test_sync_batch_normalization_is_loaded_as_it_was_saved():
    if keras.backend.backend() != "tensorflow":
        return  # the layer is TensorFlow's
    import rueda.tensorflow

    layer = rueda.tensorflow.SyncBatchNormalization
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4), layer(), keras.layers.Dense(2)])
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)), loss="mse")
    x, y = data(2 * BATCH * hvd.size())
    model.fit(my_part(x), my_part(y), batch_size=BATCH, verbose=0)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.keras")
        model.save(path)
        keras.saving.get_custom_objects().pop("rueda>SyncBatchNormalization")  # as in a new process
        loaded = hvd.load_model(path)
        other = type("SyncBatchNormalization", (keras.layers.BatchNormalization,), {})
        plain = keras.saving.load_model(path, custom_objects={"rueda>SyncBatchNormalization": other})
    assert type(loaded.layers[1]) is layer and type(plain.layers[1]) is other
    for one in (loaded, plain):
        np.testing.assert_array_equal(one.predict(x, verbose=0), model.predict(x, verbose=0))


@on_every_rank
def test_copies_made_of_a_configuration_reduce_too():
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
    copy = type(optimizer).from_config(optimizer.get_config())
    variable = keras.Variable(np.zeros(2, "float32"))
    copy.apply([keras.ops.convert_to_tensor([float(hvd.rank()), 1.0])], [variable])
    np.testing.assert_allclose(np.asarray(variable), [-(hvd.size() - 1) / 2, -1.0])


@on_every_rank
def test_wrapping_late_or_twice_or_something_else():
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    with pytest.raises(ValueError, match="wrapped already"):
        hvd.DistributedOptimizer(optimizer)
    with pytest.raises(ValueError, match="got str"):
        hvd.DistributedOptimizer("adam")
    with pytest.raises(ValueError, match="must be a finite number other than 0, not 0"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(), gradient_predivide_factor=0)
    with pytest.raises(ValueError, match="compression is 'int4', but must be"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(), compression="int4")
    with pytest.raises(ValueError, match="or have compress and decompress, unlike 8"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(), compression=8)
    with pytest.raises(TypeError, match="broadcast_variables takes a list of variables, but got str"):
        hvd.broadcast_variables("x", root_rank=0)
    with pytest.raises(ValueError, match="only supports Average and Sum"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), op=hvd.Max)
    model = make_model(1)
    model.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse")
    x, y = data(2 * BATCH * hvd.size())
    model.fit(x, y, verbose=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hvd.DistributedOptimizer(model.optimizer)
    assert any("call model.compile again" in str(one.message) for one in caught)
    # The callback makes the model compile its step again.
    model.fit(
        my_part(x), my_part(y), verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    )
    assert_equal_on_all_ranks(model)


def errors_of_steps():
    """What a failed collective raises within a step: the framework's own kind of error."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.errors.FailedPreconditionError
    if keras.backend.backend() == "jax":
        import jax

        return (jax.errors.JaxRuntimeError, ValueError)
    return hvd.HorovodInternalError


@on_every_rank
def test_ranks_that_disagree_within_a_step_raise_and_may_go_on():
    x, y = data(2 * BATCH * hvd.size())
    model = make_model(1)
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(0.05), op=hvd.Sum if hvd.rank() else hvd.Average, name="disagreeing"
    )
    model.compile(optimizer=optimizer, loss="mse")
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    with pytest.raises(errors_of_steps(), match=r"(?s)disagreeing.*rank 0.*rank 1"):
        model.fit(x, y, batch_size=BATCH, verbose=0, callbacks=callbacks)
    wide = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8 + hvd.rank())])
    with pytest.raises(hvd.HorovodInternalError, match=r"rank 0 has \[6, 8\], rank 1 has \[6, 9\].*kernel"):
        hvd.broadcast_variables(wide.variables, root_rank=0)
    train(keras.optimizers.SGD(0.05), True)


@on_every_rank
def test_ranks_may_name_their_layers_otherwise():
    if hvd.rank() == 0:
        make_model(3)  # the layers of the next one get other numbers
    x, y = data(2 * BATCH * hvd.size())
    model = make_model(1)
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.05), name="renamed"), loss="mse")
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    model.fit(x, y, batch_size=BATCH, verbose=0, callbacks=callbacks)
    values = np.concatenate([np.ravel(value) for value in model.get_weights()])
    assert len(set(hvd.allgather_object(values.tobytes()))) == 1


@on_every_rank
def test_a_set_that_is_not_registered_is_refused_not_trained_apart():
    x, y = data(BATCH * hvd.size())
    model = make_model(1)
    model.compile(
        optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.05), process_set=hvd.ProcessSet([0, 1])),
        loss="mse",
    )
    with pytest.raises(ValueError, match="has not been registered"):
        model.fit(x, y, batch_size=BATCH, verbose=0)


class Late:
    """A variable that takes rank 0 a while to read."""

    path = "late"

    def __array__(self, dtype=None, copy=None):
        time.sleep(0.3 if hvd.rank() == 0 else 0.0)
        return np.full(2, float(hvd.rank()), "float32")

    def assign(self, value):
        self.value = value


@on_every_rank
def test_names_are_free_again_after_a_broadcast_that_failed():
    late = Late()
    with pytest.raises(hvd.HorovodInternalError, match=r"rank 0 has \[2\], rank 1 has \[3\].*Variable 0"):
        hvd.broadcast_variables([keras.Variable(np.zeros(2 + hvd.rank())), late], root_rank=1)
    assert not hasattr(late, "value")
    hvd.broadcast_variables([keras.Variable(np.zeros(2)), late], root_rank=1)
    assert (late.value == 1).all()


@on_every_rank
def test_a_loop_of_ones_own():
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.5))
    variable = keras.Variable(np.zeros(3, "float32"))
    optimizer.build([variable])
    hvd.broadcast_variables([variable, *optimizer.variables], root_rank=0)
    called = optimizer.variables()  # as in Keras 2
    assert list(map(id, called)) == list(map(id, optimizer.variables)) and len(called) > 0
    optimizer.apply([keras.ops.convert_to_tensor(np.full(3, hvd.rank() + 1.0, "float32"))], [variable])
    optimizer.apply_gradients([(keras.ops.convert_to_tensor(np.full(3, 2.0, "float32")), variable)])
    expected = -0.5 * (hvd.size() + 1) / 2 - 1.0
    np.testing.assert_allclose(keras.ops.convert_to_numpy(variable), np.full(3, expected), rtol=1e-6)
