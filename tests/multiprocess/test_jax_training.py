"""Training with rueda.jax: n ranks do what one process does with n-fold batches."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from harness import on_every_rank

import rueda.jax as hvd

pytestmark = pytest.mark.parametrize("world", [(2, "shm,tcp"), (3, "tcp")], indirect=True, scope="session")

BATCH = 6


def make_params(seed):
    rng = np.random.default_rng(seed)
    shapes = {f"layer{i}": {"w": (5, 5), "b": (5,)} for i in range(6)}
    return jax.tree.map(
        lambda shape: jnp.asarray(rng.normal(size=shape) / 2, jnp.float32),
        shapes,
        is_leaf=lambda node: isinstance(node, tuple),
    )


def loss_of(params, x, y):
    for name in sorted(params):
        x = jnp.tanh(x @ params[name]["w"] + params[name]["b"])
    return ((x - y) ** 2).mean()


def batches(steps):
    """[steps, ranks, BATCH, 5] of x and y."""
    rng = np.random.default_rng(5)
    return [jnp.asarray(rng.normal(size=(steps, hvd.size(), BATCH, 5)), jnp.float32) for _ in range(2)]


def train(optimizer, params, xs, ys, value_and_grad=None):
    """The parameters reached."""
    return train_with_losses(optimizer, params, xs, ys, value_and_grad)[0]


def train_with_losses(optimizer, params, xs, ys, value_and_grad=None):
    """The parameters reached, and this rank's loss in each step."""
    value_and_grad = value_and_grad or jax.value_and_grad(loss_of)

    @jax.jit
    def step(params, state, x, y):
        loss, grads = value_and_grad(params, x, y)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    state, losses = optimizer.init(params), []
    for x, y in zip(xs, ys):
        params, state, loss = step(params, state, x, y)
        losses.append(loss)
    return params, jnp.stack(losses)


def assert_same_everywhere(params):
    bits = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(params))
    assert len(set(hvd.allgather_object(bits))) == 1


def assert_close(ours, alone, rtol=1e-4):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-5), ours, alone)


@on_every_rank
def test_n_ranks_train_like_one():
    rank, n = hvd.rank(), hvd.size()
    xs, ys = batches(30)
    start = hvd.broadcast_parameters(make_params(rank), root_rank=1)
    assert_same_everywhere(start)
    assert_close(start, make_params(1), rtol=0)
    whole = [a.reshape(30, n * BATCH, 5) for a in (xs, ys)]
    alone, curve = train_with_losses(optax.adam(0.01), make_params(1), *whole)
    mine = (xs[:, rank], ys[:, rank])
    wrapped = hvd.DistributedOptimizer(optax.adam(0.01))
    predivided = hvd.DistributedOptimizer(optax.adam(0.01), gradient_predivide_factor=2.0)
    ways = {
        "optimizer": train_with_losses(wrapped, start, *mine),
        "gradients": train_with_losses(
            optax.adam(0.01), start, *mine, hvd.distributed_value_and_grad(loss_of)
        ),
        "predivided": train_with_losses(predivided, start, *mine),
    }
    for way, (ours, losses) in ways.items():
        assert_same_everywhere(ours)
        assert_close(ours, alone)
        np.testing.assert_allclose(hvd.allreduce(losses), curve, rtol=1e-5, err_msg=way)
    optimizer = hvd.DistributedOptimizer(optax.sgd(0.05), compression=hvd.Compression.bf16)
    coarse = train(optimizer, start, *mine)
    assert_same_everywhere(coarse)
    assert_close(coarse, train(optax.sgd(0.05), make_params(1), *whole), rtol=0.2)


@on_every_rank
def test_several_batches_make_one_step_and_one_exchange():
    rank, n = hvd.rank(), hvd.size()
    xs, ys = batches(12)
    ours = train(
        hvd.DistributedOptimizer(optax.sgd(0.1), backward_passes_per_step=3),
        make_params(1),
        xs[:, rank],
        ys[:, rank],
    )
    whole = [a.reshape(4, 3 * n * BATCH, 5) for a in (xs, ys)]
    assert_same_everywhere(ours)
    assert_close(ours, train(optax.sgd(0.1), make_params(1), *whole))


@on_every_rank
def test_ranks_that_trace_again_stay_in_step():
    """One rank compiles its step anew for another batch size; the names of gradients do not change."""
    optimizer = hvd.DistributedOptimizer(optax.sgd(0.1))
    params = make_params(1)
    state = optimizer.init(params)

    @jax.jit
    def step(params, x):
        grads = jax.grad(loss_of)(params, x, x)
        mean = hvd.allreduce(x.mean())
        return optimizer.update(grads, state, params)[0], mean

    for rows in (4, 5, 6, 4):
        updates, mean = step(params, jnp.ones((rows if hvd.rank() == 0 else 4, 5)))
        assert_same_everywhere(updates)
        assert float(mean) == 1.0


@on_every_rank
def test_misuse_is_one_sentence():
    optimizer = hvd.DistributedOptimizer(optax.sgd(0.1))
    with pytest.raises(ValueError, match="wrapped already; wrap it once"):
        hvd.DistributedOptimizer(optimizer)
    with pytest.raises(ValueError, match="wrapped already; wrap it once"):
        hvd.DistributedOptimizer(hvd.DistributedOptimizer(optax.sgd(0.1), backward_passes_per_step=2))
    with pytest.raises(ValueError, match="but got str"):
        hvd.DistributedOptimizer("sgd")
    with pytest.raises(ValueError, match="only supports Average and Sum"):
        hvd.DistributedOptimizer(optax.sgd(0.1), op=hvd.Max)
    for factor in (0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="must be a finite number other than 0"):
            hvd.DistributedOptimizer(optax.sgd(0.1), gradient_predivide_factor=factor)
    with pytest.raises(ValueError, match="distributed_value_and_grad: op is"):
        hvd.distributed_value_and_grad(jnp.sum, op=hvd.Max)
    with pytest.raises(ValueError, match="unlike 'fp16'"):
        hvd.allreduce(jnp.ones(2), compression="fp16")
    for given, error, text in (
        (hvd.ProcessSet([0, 1]), ValueError, "has not been registered"),
        (5, TypeError, "process_set must be a ProcessSet, .*not int"),
    ):
        one = hvd.DistributedOptimizer(optax.sgd(0.1), process_set=given)
        with pytest.raises(error, match=text):
            one.update(jnp.ones(2), one.init(jnp.ones(2)), jnp.ones(2))
    with pytest.raises(ValueError, match="backward_passes_per_step is 0"):
        hvd.DistributedOptimizer(optax.sgd(0.1), backward_passes_per_step=0)
