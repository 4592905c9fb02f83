"""PowerSGD and top-k of rueda.keras on every backend: arithmetic, compiled steps, files, and refusals."""

import keras_worlds  # before keras: it chooses the backend

# isort: split
import tempfile
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest
from compression_models import ModelOfTopK, step_of_powersgd
from harness import on_every_rank

import rueda.keras as hvd

world = keras_worlds.world

SHAPES = {"kernel": (3, 3, 4, 6), "matrix": (12, 10), "vector": (5,)}


def powersgd(rank=2):
    return hvd.PowerSGD(rank, min_elements=8)


def topk(ratio=0.1):
    return hvd.TopK(ratio, min_elements=8)


def variables():
    return [keras.Variable(np.zeros(shape, "float32"), name=name) for name, shape in SHAPES.items()]


def optimizer_of(compression, **options):
    return hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), compression=compression, **options)


def combined(optimizer, made, gradients):
    """What the step subtracts from variables that are zero."""
    for one in made:
        one.assign(np.zeros(one.shape, "float32"))
    optimizer.apply([keras.ops.convert_to_tensor(gradients[name]) for name in SHAPES], made)
    return {name: -keras.ops.convert_to_numpy(one) for name, one in zip(SHAPES, made)}


def kept(optimizer, name, key):
    place = list(SHAPES).index(name)
    found = [one for one in optimizer.variables if one.path.endswith(f"{key}_{place}")]
    return np.array(keras.ops.convert_to_numpy(found[0]))


def draws(seed, steps):
    """Gradients of all ranks for each step; in the fourth, one of them is not finite."""
    rng = np.random.default_rng(seed)
    for step in range(steps):
        of_ranks = [
            {name: rng.standard_normal(shape).astype("float32") for name, shape in SHAPES.items()}
            for _ in range(hvd.size())
        ]
        if step == 3:
            of_ranks[-1]["matrix"][3, 3] = np.nan
        yield of_ranks


@on_every_rank
def test_steps_of_topk_have_the_bits_of_a_single_process():
    made, optimizer = variables(), optimizer_of(topk())
    optimizer.build(made)
    model = ModelOfTopK(0.1, hvd.size(), hvd.size())
    for step, of_ranks in enumerate(draws(1, 8)):
        got = combined(optimizer, made, of_ranks[hvd.rank()])
        for name in ("kernel", "matrix"):
            wanted, residuals = model.reduce(name, [one[name] for one in of_ranks])
            assert np.array_equal(got[name], wanted, equal_nan=True), (step, name)
            mine = kept(optimizer, name, "residual").ravel()
            assert np.array_equal(mine, residuals[hvd.rank()]), (step, name)
        mean = sum(one["vector"] for one in of_ranks) / hvd.size()
        assert np.allclose(got["vector"], mean, atol=1e-6)


@on_every_rank
def test_each_step_of_powersgd_equals_one_in_a_single_process():
    made, optimizer = variables(), optimizer_of(powersgd())
    optimizer.build(made)
    for step, of_ranks in enumerate(draws(2, 8)):
        was = {key: kept(optimizer, "matrix", key) for key in ("residual", "q")}
        got = combined(optimizer, made, of_ranks[hvd.rank()])
        assert len(set(hvd.allgather_object(got["matrix"].tobytes()))) == 1
        residuals = hvd.allgather_object(was["residual"])
        matrices = [(one["matrix"] + rest).astype("float64") for one, rest in zip(of_ranks, residuals)]
        now = {key: kept(optimizer, "matrix", key) for key in was}
        if step == 3:
            assert not np.isfinite(got["matrix"]).all()
            assert all(np.array_equal(now[key], was[key]) for key in was)
            continue
        result, unsent, _ = step_of_powersgd(matrices, was["q"].astype("float64"))
        assert np.allclose(got["matrix"], result, rtol=0, atol=1e-4), step
        assert np.allclose(now["residual"], unsent[hvd.rank()], rtol=0, atol=1e-4), step


def make_model(compression):
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [keras.Input((6,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(2)]
    )
    model.compile(
        optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), compression=compression), loss="mse"
    )
    return model


def fit(model, epochs):
    """The last loss. Each rank has its own data."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(hvd.size(), 32, 6)).astype("float32")
    y = (x @ rng.normal(size=(6, 2)) / 3).astype("float32")
    mine = hvd.rank()
    options = {"batch_size": 8, "epochs": epochs, "shuffle": False, "verbose": 0}
    return model.fit(x[mine], y[mine], **options).history["loss"][-1]


def weights_of(model):
    return b"".join(np.asarray(value).tobytes() for value in model.get_weights())


@on_every_rank
def test_compiled_training_learns_and_keeps_ranks_equal():
    for make in (lambda: powersgd(1), lambda: topk(0.2)):
        model = make_model(make())
        first = fit(model, 1)
        last = fit(model, 30)
        assert last < 0.6 * first, (first, last)
        assert len(set(hvd.allgather_object(weights_of(model)))) == 1
        residuals = [one for one in model.optimizer.variables if "residual" in one.path]
        assert len(residuals) >= 2
        assert all(np.abs(keras.ops.convert_to_numpy(one)).max() > 0 for one in residuals)


@on_every_rank
def test_a_saved_model_continues_to_the_bit_and_loads_without_rueda():
    for make in (lambda: powersgd(1), lambda: topk(0.2)):
        model = make_model(make())
        fit(model, 2)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.keras"
            model.save(path)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                plain = keras.saving.load_model(path)
            assert len(plain.optimizer.variables) == 2  # steps and learning rate
            again = hvd.load_model(path, compression=make())
            other = hvd.PowerSGD(1 if "TopK" in repr(make()) else 2, min_elements=8)
            with pytest.raises(ValueError) as caught:
                hvd.load_model(path, compression=other)
            assert "The checkpoint holds the state of compression" in str(caught.value)
        assert fit(again, 2) == fit(model, 2)
        assert weights_of(again) == weights_of(model)


def refused(text, function, *arguments, **options):
    with pytest.raises(ValueError) as caught:
        function(*arguments, **options)
    assert text in str(caught.value), str(caught.value)


@on_every_rank
def test_what_does_not_fit_is_refused_in_a_sentence():
    refused("ratio is 0, but it must be greater than 0", hvd.TopK, 0)
    refused("op", optimizer_of, topk(), op=5)
    refused("not the class; write TopK(...)", optimizer_of, hvd.TopK)
    refused("does not go with backward_passes_per_step", optimizer_of, topk(), backward_passes_per_step=2)
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())
    refused("residuals would not follow", hvd.DistributedOptimizer, scaled, compression=powersgd())
    place = "only the DistributedOptimizer of PyTorch, JAX and Keras has a place"
    refused(place, hvd.allreduce, [1.0], compression=topk())


@on_every_rank
def test_ranks_that_ask_for_different_compressors_are_told_so():
    choice = (powersgd(2), powersgd(3))[hvd.rank() % 2]
    made, optimizer = variables(), optimizer_of(choice, name="differ")
    optimizer.build(made)
    with pytest.raises(Exception) as caught:
        combined(optimizer, made, next(draws(1, 1))[hvd.rank()])
    assert "ismatched" in str(caught.value), str(caught.value)
