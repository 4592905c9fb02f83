"""PowerSGD and top-k of rueda.jax: their arithmetic against one process, equal bits, and their state."""

import os
import pickle
import warnings

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from compression_models import ModelOfTopK, step_of_powersgd
from harness import on_every_rank

import rueda.jax as hvd

pytestmark = [
    pytest.mark.parametrize("world", [(2, "shm,tcp"), (3, "tcp")], indirect=True, scope="session"),
    pytest.mark.thorough("world1"),
]

SHAPES = {"kernel": (6, 4, 3, 3), "matrix": (12, 10), "vector": (5,)}


def powersgd(rank=2, **options):
    return hvd.PowerSGD(rank, **{"min_elements": 8, **options})


def topk(ratio=0.1, **options):
    return hvd.TopK(ratio, **{"min_elements": 8, **options})


def optimizer_of(compression, **options):
    """Its updates are the combined gradients with the sign changed."""
    return hvd.DistributedOptimizer(optax.sgd(1.0), compression=compression, **options)


def zeros():
    return {name: jnp.zeros(shape) for name, shape in SHAPES.items()}


def draws(seed, steps):
    """Gradients of all ranks for each step; in the sixth, one of them is not finite."""
    rng = np.random.default_rng(seed)
    for step in range(steps):
        of_ranks = [
            {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
            for _ in range(hvd.size())
        ]
        if step == 5:
            of_ranks[-1]["matrix"][3, 3] = np.nan
        yield of_ranks


def kept(state, name):
    [by_path] = state.kept.values()
    return {key: np.asarray(value) for key, value in by_path[f"['{name}']"].items()}


def equal_everywhere(array):
    rows = np.asarray(hvd.allgather(jnp.asarray(array)[None]))
    return all(np.array_equal(row, rows[0], equal_nan=True) for row in rows)


def ways(optimizer):
    return [optimizer.update, jax.jit(optimizer.update)]


@on_every_rank
def test_steps_of_topk_have_the_bits_of_a_single_process():
    for op, divisor in ((hvd.Average, hvd.size()), (hvd.Sum, 1)):
        for way in range(2):
            optimizer = optimizer_of(topk(), op=op)
            state, model = optimizer.init(zeros()), ModelOfTopK(0.1, hvd.size(), divisor)
            for step, of_ranks in enumerate(draws(1, 12)):
                updates, state = ways(optimizer)[way](of_ranks[hvd.rank()], state)
                for name in ("kernel", "matrix"):
                    wanted, residuals = model.reduce(name, [one[name] for one in of_ranks])
                    where = f"step {step}, {name}"
                    # A compiled program may divide by 3 as it multiplies by a third.
                    off = 0 if divisor in (1, 2) else 1e-6
                    assert np.allclose(-np.asarray(updates[name]), wanted, off, 0, equal_nan=True), where
                    assert equal_everywhere(updates[name]), where
                    mine = kept(state, name)["residual"].ravel()
                    assert np.array_equal(mine, residuals[hvd.rank()]), where
                mean = sum(one["vector"] for one in of_ranks) / divisor
                assert np.allclose(-np.asarray(updates["vector"]), mean, atol=1e-5)


@on_every_rank
def test_each_step_of_powersgd_equals_one_in_a_single_process():
    optimizer = optimizer_of(powersgd())
    state, update = optimizer.init(zeros()), jax.jit(optimizer.update)
    for step, of_ranks in enumerate(draws(2, 12)):
        before = {name: kept(state, name) for name in ("kernel", "matrix")}
        updates, state = update(of_ranks[hvd.rank()], state)
        for name, was in before.items():
            where, now = f"step {step}, {name}", kept(state, name)
            assert equal_everywhere(updates[name]), where
            residuals = np.asarray(hvd.allgather(jnp.asarray(was["residual"])[None]))
            matrices = [
                (one[name] + residual).astype(np.float64).reshape(SHAPES[name][0], -1)
                for one, residual in zip(of_ranks, residuals)
            ]
            if not all(np.isfinite(matrix).all() for matrix in matrices):
                assert not np.isfinite(np.asarray(updates[name])).all(), where
                assert all(np.array_equal(now[key], was[key]) for key in now), where
                continue
            result, unsent, _ = step_of_powersgd(matrices, was["q"].astype(np.float64))
            got = -np.asarray(updates[name]).reshape(result.shape)
            assert np.allclose(got, result, rtol=0, atol=1e-4), where
            mine = now["residual"].reshape(result.shape)
            assert np.allclose(mine, unsent[hvd.rank()], rtol=0, atol=1e-4), where


@on_every_rank
def test_state_that_was_saved_continues_to_the_bit_and_residuals_stay_with_their_rank():
    for make in (powersgd, topk):
        steps = [one[hvd.rank()] for one in draws(3, 10)]
        optimizer = optimizer_of(make())
        state = optimizer.init(zeros())
        for gradients in steps[:4]:
            _, state = optimizer.update(gradients, state)
        again = pickle.loads(pickle.dumps(jax.device_get(state)))
        other = optimizer_of(make())
        for gradients in steps[4:]:
            one, state = optimizer.update(gradients, state)
            two, again = other.update(gradients, again)
            assert all(np.array_equal(one[name], two[name], equal_nan=True) for name in SHAPES)
        of_root = hvd.broadcast_parameters(state, root_rank=0)
        quiet = {name: jnp.zeros(shape) for name, shape in SHAPES.items()}
        sent, _ = optimizer.update(quiet, of_root)
        residual = np.asarray(hvd.broadcast(jnp.asarray(kept(state, "matrix")["residual"]), 0))
        if make is topk:  # what rank 0 had not sent, once and not from every rank
            largest = np.abs(residual).max() / hvd.size()
            assert np.isclose(np.abs(np.asarray(sent["matrix"])).max(), largest, rtol=1e-5)


def refused(kind, text, function, *arguments, **options):
    with pytest.raises(kind) as caught:
        function(*arguments, **options)
    assert text in str(caught.value), str(caught.value)


@on_every_rank
def test_what_does_not_fit_is_refused_in_a_sentence():
    refused(ValueError, "ratio is 0, but it must be greater than 0", hvd.TopK, 0)
    refused(ValueError, "rank is 0, but it must be a whole number of at least 1", hvd.PowerSGD, 0)
    refused(ValueError, "op is 'Adasum', but it must be one of", optimizer_of, topk(), op=hvd.Adasum)
    place = "only the DistributedOptimizer of PyTorch, JAX and Keras has a place"
    refused(ValueError, place, hvd.allreduce, jnp.ones(3), compression=topk())
    refused(ValueError, place, hvd.distributed_value_and_grad, jnp.sum, compression=powersgd())
    state = optimizer_of(powersgd()).init(zeros())
    other = "The checkpoint holds the state of compression PowerSGD(rank=2), but this optimizer uses "
    refused(ValueError, other + "TopK(ratio=0.1)", optimizer_of(topk()).update, zeros(), state)
    refused(ValueError, other + "PowerSGD(rank=3)", optimizer_of(powersgd(3)).update, zeros(), state)
    plain = optax.sgd(1.0).init(zeros())
    refused(ValueError, "holds the state of compression none", optimizer_of(topk()).update, zeros(), plain)
    smaller = {**zeros(), "matrix": jnp.zeros((12, 9))}
    refused(
        ValueError, "shape [12, 10] for parameter ['matrix']", optimizer_of(powersgd()).update, smaller, state
    )
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        large = optimizer_of(hvd.PowerSGD(11, min_elements=8)).init(zeros())
    texts = [str(one.message) for one in seen if "travels as it is" in str(one.message)]
    assert len(texts) == (hvd.rank() == 0) and "['matrix']" not in next(iter(large.kept.values()))


@on_every_rank
def test_ranks_that_ask_for_different_compressors_are_told_so():
    choices = [
        (powersgd(2), powersgd(3)),
        (powersgd(2), topk()),
        (topk(0.1), topk(0.2)),
        (powersgd(2), hvd.Compression.none),
    ]
    for number, choice in enumerate(choices):
        optimizer = optimizer_of(choice[hvd.rank() % 2], name=f"differ.{number}")
        state = optimizer.init({"matrix": zeros()["matrix"]})
        with pytest.raises(hvd.HorovodInternalError) as caught:
            optimizer.update({"matrix": jnp.ones((12, 10))}, state)
        assert "ismatched" in str(caught.value) and "['matrix']" in str(caught.value), str(caught.value)
    assert float(hvd.allreduce(jnp.ones(2), op=hvd.Sum)[0]) == hvd.size()


@on_every_rank
def test_several_passes_and_training_go_with_compression():
    optimizer = optimizer_of(topk(), backward_passes_per_step=2)
    single = optimizer_of(topk())
    state, other = optimizer.init(zeros()), single.init(zeros())
    for of_ranks in draws(4, 5):
        gradients = of_ranks[hvd.rank()]
        nothing, state = jax.jit(optimizer.update)(gradients, state)
        assert not np.asarray(nothing["matrix"]).any()
        twice, state = jax.jit(optimizer.update)(gradients, state)
        once, other = single.update(gradients, other)
        assert np.allclose(twice["matrix"], once["matrix"], atol=1e-5)
    target = np.random.default_rng(9).standard_normal((12, 10)).astype(np.float32)
    for make in (powersgd, topk):
        optimizer = hvd.DistributedOptimizer(optax.sgd(0.2), compression=make())
        weights = jnp.zeros((12, 10))
        state, update = optimizer.init(weights), jax.jit(optimizer.update)
        for _ in range(300):
            updates, state = update(weights - target, state)
            weights = optax.apply_updates(weights, updates)
        assert np.abs(np.asarray(weights) - target).max() < 0.05, make
        assert equal_everywhere(weights)
