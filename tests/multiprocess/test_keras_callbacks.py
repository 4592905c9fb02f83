"""The callbacks and value functions of rueda.keras, on every backend of Keras."""

import keras_worlds  # before keras: it chooses the backend

# isort: split
import tempfile
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest
from harness import on_every_rank
from keras_worlds import fit

import rueda.keras as hvd

world = keras_worlds.world


def make_model(seed=1, is_built=True, rate=0.4, width=3, **settings):
    keras.utils.set_random_seed(seed)
    first = [keras.Input((4,))] if is_built else []
    model = keras.Sequential(
        [*first, keras.layers.Dense(width), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
    )
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(rate, momentum=0.5), **settings)
    model.compile(optimizer=optimizer, loss="mse")
    return model


class Rates(keras.callbacks.Callback):
    """The learning rate of every batch."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()
        self.seen.append(float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)))


@on_every_rank
def test_broadcast_makes_models_equal_whether_built_or_not():
    for is_built in (True, False, hvd.rank() == 0):  # the last: root has loaded it, and the others make it
        model = make_model(seed=hvd.rank() + 1, is_built=is_built)
        fit(model, [hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
        values = [np.asarray(value).tobytes() for value in model.get_weights()]
        assert len({b"".join(one) for one in hvd.allgather_object(values)}) == 1
        assert all(np.isfinite(value).all() for value in model.get_weights())


@on_every_rank
def test_metrics_are_averaged_before_others_read_them():
    read = []
    reader = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: read.append(dict(logs)))
    model = make_model()
    own = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: logs.update(mine=float(hvd.rank())))
    history = fit(model, [own, hvd.callbacks.MetricAverageCallback(), reader])
    assert read[0]["mine"] == (hvd.size() - 1) / 2
    assert len({one["loss"] for one in hvd.allgather_object(read[0])}) == 1
    assert history.history["loss"][0] == pytest.approx(read[0]["loss"])


@on_every_rank
def test_metrics_of_some_ranks_alone_are_refused_on_every_rank():
    model, x, y = make_model(), np.ones((2, 4), "float32"), np.zeros((2, 1), "float32")
    only_here = {"validation_data": (x, y)} if hvd.rank() == 0 else {}
    with pytest.raises(hvd.HorovodInternalError, match=r"different metrics: rank 1 without val_loss; .*"):
        fit(model, [hvd.callbacks.MetricAverageCallback()], **only_here)
    fit(model, [hvd.callbacks.MetricAverageCallback()], validation_data=(x, y))


def warnings_of(model):
    """What model.fit with the broadcast callback says in RuntimeWarnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(model, [hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    return [str(one.message) for one in caught if issubclass(one.category, RuntimeWarning)]


@on_every_rank
def test_an_optimizer_that_is_not_distributed_is_warned_about():
    model = make_model()
    assert warnings_of(model) == []
    copy = keras.models.clone_model(model)
    copy.compile_from_config(model.get_compile_config())  # makes a plain optimizer
    (said,) = warnings_of(copy)
    assert "optimizer of this model, SGD, is not distributed" in said and "hvd.load_model" in said


@on_every_rank
def test_xla_that_is_asked_for_is_switched_off_with_a_word_where_it_cannot_be():
    # On PyTorch it asks for TorchInductor, which takes a minute.
    for asked in ("auto",) if keras.backend.backend() == "torch" else ("auto", True):
        model = make_model()
        model.compile(optimizer=model.optimizer, loss="mse", jit_compile=asked)
        said = warnings_of(model)
        is_told = asked is True and hasattr(model, "_resolve_auto_jit_compile")  # not in older Keras 3
        if keras.backend.backend() == "tensorflow" and is_told:
            assert len(said) == 1 and "runs without jit_compile=True" in said[0]
        else:
            assert said == []
    if keras.backend.backend() == "tensorflow":
        assert not model.jit_compile
        model.compile(optimizer=model.optimizer, loss="mse", jit_compile=True)
        with pytest.raises(NotImplementedError, match="cannot be compiled by XLA"):
            fit(model, [])


@on_every_rank
def test_warmup_climbs_batch_by_batch_from_one_nth_to_the_full_rate():
    n, rates = hvd.size(), Rates()
    warmup = hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.4, warmup_epochs=2, verbose=1)
    history = fit(make_model(), [warmup, rates], epochs=3)
    expected = [0.4 * ((i + 1) / 4 * (n - 1) / 2 + 1) / n for i in range(8)] + [0.4] * 4
    np.testing.assert_allclose(rates.seen, expected, rtol=1e-5)
    np.testing.assert_allclose(history.history["lr"], expected[3::4], rtol=1e-5)


@on_every_rank
def test_schedules_act_within_their_epochs():
    rates = Rates()
    constant = hvd.callbacks.LearningRateScheduleCallback(0.4, 0.5, start_epoch=1, end_epoch=3)
    fit(make_model(), [constant, rates], batches=2, epochs=4)
    np.testing.assert_allclose(rates.seen, [0.4, 0.4, 0.4, 0.4, 0.2, 0.2, 0.2, 0.2], rtol=1e-5)
    rates = Rates()
    smooth = hvd.callbacks.LearningRateScheduleCallback(0.4, lambda epoch: 1 + epoch, staircase=False)
    fit(make_model(), [smooth, rates], batches=2, epochs=2)
    np.testing.assert_allclose(rates.seen, [0.4, 0.6, 0.8, 1.0], rtol=1e-5)


@on_every_rank
def test_momentum_follows_the_rate_for_one_batch_where_steps_are_not_compiled():
    seen = []

    class Momentum(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            seen.append(self.model.optimizer.momentum)

    model = make_model(rate=0.4)
    model.run_eagerly = True
    halve = hvd.callbacks.LearningRateScheduleCallback(0.4, lambda epoch: 0.5**epoch)
    fit(model, [halve, Momentum()], batches=2, epochs=2)
    np.testing.assert_allclose(seen, [0.5, 0.5, 0.25, 0.5], rtol=1e-6)
    assert model.optimizer.momentum == 0.5


@on_every_rank
def test_the_best_model_is_saved_by_rank_0_alone():
    with tempfile.TemporaryDirectory() as folder:
        best = hvd.callbacks.BestModelCheckpoint(monitor="loss")
        with pytest.raises(ValueError, match="has no filepath: set it before"):
            fit(make_model(), [best])
        best.filepath = str(Path(folder) / "best.keras")
        fit(make_model(), [best], epochs=2)
        assert Path(best.filepath).exists() == (hvd.rank() == 0)


@on_every_rank
def test_callbacks_keep_to_the_process_set_of_the_optimizer():
    me, callbacks = hvd.rank(), hvd.callbacks
    teams = [hvd.add_process_set([rank]) for rank in range(hvd.size())]  # each trains a model of its own
    with tempfile.TemporaryDirectory() as folder:
        best = callbacks.BestModelCheckpoint(monitor="loss")
        best.filepath = str(Path(folder) / "best.keras")
        rates = Rates()
        model = make_model(rate=0.01, width=3 + me, process_set=teams[me])
        inside = [
            callbacks.BroadcastGlobalVariablesCallback(me),
            callbacks.MetricAverageCallback(),
            callbacks.LearningRateWarmupCallback(0.01, warmup_epochs=2),
            best,
            rates,
        ]
        losses = fit(model, inside, epochs=2).history["loss"]
        assert Path(best.filepath).exists()
    np.testing.assert_allclose(rates.seen, 0.01, rtol=1e-6)  # of a set of one rank from the start
    assert np.isfinite(losses).all() and len(set(hvd.allgather_object(losses[0]))) == hvd.size()
    with pytest.raises(ValueError, match=rf"root_rank is {1 - me}, but .* over the ranks \[{me}\]; pass one"):
        fit(model, [callbacks.BroadcastGlobalVariablesCallback(1 - me)])
    outside = make_model(width=3 + me, process_set=teams[1 - me])
    plain = [callbacks.BroadcastGlobalVariablesCallback(1 - me), callbacks.MetricAverageCallback()]
    for callback in plain:  # of ranks that are not in the set nothing is asked
        callback.set_model(outside)
        callback.on_train_begin()
        callback.on_epoch_end(0, {f"loss of {me}": 1.0})
    for team in teams:
        hvd.remove_process_set(team)


@on_every_rank
def test_one_callback_broadcasts_every_model_it_is_given():
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    for fold in range(2):
        model = make_model(seed=10 * fold + hvd.rank(), rate=0.01)
        fit(model, callbacks)
        assert all(np.isfinite(value).all() for value in model.get_weights())
        values = b"".join(np.asarray(value).tobytes() for value in model.get_weights())
        assert len(set(hvd.allgather_object(values))) == 1, fold


@on_every_rank
def test_misuse_is_one_sentence():
    schedule = hvd.callbacks.LearningRateScheduleCallback
    with pytest.raises(TypeError, match=r"initial_lr must be a number, not str \('x'\)"):
        hvd.callbacks.LearningRateWarmupCallback("x")
    with pytest.raises(ValueError, match="warmup_epochs must be a finite number, not inf"):
        hvd.callbacks.LearningRateWarmupCallback(0.1, warmup_epochs=float("inf"))
    with pytest.raises(ValueError, match="Parameter `initial_lr` is required"):
        schedule(None, 1.0)
    with pytest.raises(ValueError, match="LearningRateScheduleCallback has no model: pass it to"):
        schedule(0.1, 1.0).on_train_begin()
    best = hvd.callbacks.BestModelCheckpoint()
    best.filepath = "best.keras"
    with pytest.raises(ValueError, match="BestModelCheckpoint has no model: pass it to"):
        best.on_epoch_end(0, {"val_loss": 1.0})
    smooth = schedule(0.1, 1.0, staircase=False)
    smooth.set_model(make_model())
    with pytest.raises(ValueError, match="Could not autodetect the number of steps per epoch"):
        smooth.on_train_begin()
    model = make_model()
    rate = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    model.compile(optimizer=keras.optimizers.SGD(rate), loss="mse")
    with pytest.raises(ValueError, match="made with a schedule of its own"):
        fit(model, [schedule(0.1, 2.0, start_epoch=0), schedule(0.2, 1.0)])
    with pytest.raises(ValueError, match="Keras 3 keeps no list of all variables"):
        hvd.broadcast_global_variables(0)


@on_every_rank
def test_numbers_of_python_have_the_types_that_frameworks_give_them():
    def kind(value):
        return keras.backend.standardize_dtype(value.dtype)

    for value, expected in ((1.5, "float32"), (3, "int32"), ([[1, 2]], "int32"), ((1.5, 2), "float32")):
        assert kind(hvd.allreduce(value)) == kind(hvd.broadcast(value, 0)) == expected
        assert kind(hvd.allgather([value])) == kind(hvd.reducescatter([value])) == expected
    if keras.backend.backend() != "jax":  # which has 64 bits only where they are asked for
        for value, expected in ((np.float64(1.5), "float64"), (np.arange(2), "int64"), (2**40, "int64")):
            assert kind(hvd.allreduce(value)) == expected


@on_every_rank
def test_values_of_any_kind():
    n, rank = hvd.size(), hvd.rank()
    number = lambda value: keras.ops.convert_to_numpy(value).tolist()  # noqa: E731
    assert number(hvd.allreduce(float(rank))) == (n - 1) / 2
    assert number(hvd.allreduce(keras.ops.ones(2), average=False)) == [n, n]
    assert number(hvd.allreduce(np.ones(2, "float32"), op=hvd.Sum, compression=hvd.Compression.fp16)) == [
        n,
        n,
    ]
    assert number(hvd.allgather([rank] * (rank + 1))) == [r for r in range(n) for _ in range(r + 1)]
    assert number(hvd.broadcast(keras.Variable([float(rank)]), 1)) == [1.0]
    assert number(hvd.reducescatter(np.arange(n * 1.0), op=hvd.Sum)) == [n * rank]
    large = hvd.allreduce(np.float32(2.0**17), compression=hvd.Compression.bf16)  # float16 has no such number
    assert number(large) == 2.0**17
    with pytest.raises(ValueError, match="compression is 'int4', but must be"):
        hvd.allreduce(np.float32(1.0), compression="int4")
    with pytest.raises(ValueError, match="supersedes average"):
        hvd.allreduce(1.0, average=True, op=hvd.Sum)
