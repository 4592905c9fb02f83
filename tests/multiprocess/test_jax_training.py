"""Training with rueda.jax: n ranks do what one process does with n-fold batches."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from harness import on_every_rank
from outer_model import OuterModel

import rueda.jax as hvd

pytestmark = [
    pytest.mark.parametrize("world", [(2, "shm,tcp"), (3, "tcp")], indirect=True, scope="session"),
    pytest.mark.thorough("world1"),
]

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


def bits_of(tree):
    return b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree))


def agreed(tree):
    return len(set(hvd.allgather_object(bits_of(tree)))) == 1


def assert_same_everywhere(params):
    assert agreed(params)


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


def step_alone(exchange, optimizer):
    """A step of one rank, and what follows it."""

    @jax.jit
    def step(params, states, x, y):
        grads = jax.grad(loss_of)(params, x, y)
        updates, state = optimizer.update(grads, states[0], params)
        params, exchanged = exchange.update(optax.apply_updates(params, updates), states[1])
        return params, (state, exchanged)

    return step


@on_every_rank
def test_ranks_that_step_alone_agree_after_so_many_steps():
    xs, ys = batches(7)
    compressed = {"compression": hvd.Compression.bf16}
    for exchange in (hvd.LocalSGD(every=3), hvd.DiLoCo(every=3), hvd.DiLoCo(every=3, **compressed)):
        optimizer = optax.adam(0.01)
        params = make_params(1)
        states = (optimizer.init(params), exchange.init(params))
        step, seen = step_alone(exchange, optimizer), []
        for number in range(7):
            params, states = step(params, states, xs[number, hvd.rank()], ys[number, hvd.rank()])
            seen.append(agreed(params))
        assert seen == [False, False, True, False, False, True, False]
        if isinstance(exchange.init(params), hvd.local_steps.DiLoCoState):
            assert agreed(states[1].agreed) and agreed(states[1].velocity)


@on_every_rank
def test_fragments_take_turns_and_their_changes_may_travel_during_a_step():
    parts = [range(0, 4), range(4, 8), range(8, 12)]
    due = {step: parts[step // 2 % 3 - 1] for step in range(2, 15, 2)}
    rng = np.random.default_rng(hvd.rank())
    for overlap, nesterov, compiled in ((False, True, True), (True, True, True), (True, False, False)):
        outer = {"outer_lr": 0.5, "outer_momentum": 0.25, "nesterov": nesterov}
        exchange = hvd.DiLoCo(6, **outer, fragments=3, overlap=overlap)
        params, update = make_params(1), jax.jit(exchange.update) if compiled else exchange.update
        state, structure = exchange.init(params), jax.tree.structure(params)
        expected = OuterModel(jax.tree.leaves(params), due, overlap, *outer.values())
        for _ in range(14):
            leaves = jax.tree.leaves(params)
            mine = [leaf + jnp.asarray(rng.normal(size=leaf.shape), jnp.float32) for leaf in leaves]
            ranks = hvd.allgather_object([np.asarray(leaf) for leaf in mine])
            params, state = update(structure.unflatten(mine), state)
            for leaf, one in zip(jax.tree.leaves(params), expected.after(ranks)[hvd.rank()]):
                np.testing.assert_allclose(leaf, one, rtol=1e-5, atol=1e-5)
        assert agreed(state.agreed) and agreed(state.velocity)
    with pytest.raises(ValueError, match="DiLoCo: fragments is 13, but there are 12 parameters"):
        hvd.DiLoCo(20, fragments=13).init(params)
    with pytest.raises(ValueError, match="overlap needs every to be at least 2"):
        hvd.DiLoCo(1, overlap=True)


@on_every_rank
def test_a_rank_computes_while_changes_travel_and_a_copy_of_the_state_goes_on_alike():
    exchange, params = hvd.DiLoCo(2, overlap=True), make_params(1)
    state = exchange.init(params)
    for step in range(2):
        params = jax.tree.map(lambda leaf: leaf + hvd.rank() + 1.0, params)
        if step == 1 and hvd.rank() != 0:
            hvd.barrier()  # rank 0 comes here only if it does not wait for what others send
        params, state = exchange.update(params, state)
    if hvd.rank() == 0:
        hvd.barrier()
    saved = jax.tree.map(jnp.array, state)
    after = [exchange.update(params, one) for one in (state, saved)]  # the second starts its sum anew
    after += [hvd.DiLoCo(2, overlap=True).update(params, saved), jax.jit(exchange.update)(params, saved)]
    assert len({bits_of(one) for one in after[:3]}) == 1 and all(agreed(one[0]) for one in after)
    assert_close(after[3][0], after[0][0])
    params, state = exchange.update(*after[0])  # starts the next, which nobody takes
    other, saved = exchange.init(params), jax.tree.map(jnp.array, state)
    for _ in range(2):
        _, other = exchange.update(params, other)
    assert agreed(exchange.update(params, saved)[0])
    state = exchange.init(params)
    for _ in range(2):
        params, state = exchange.update(jax.tree.map(lambda leaf: leaf + hvd.rank(), params), state)
    copied = jax.tree.map(jnp.array, state) if hvd.rank() == 0 else state
    assert agreed(exchange.update(params, copied)[0]), "one rank alone has copied its state"


@on_every_rank
def test_teams_average_in_each_step_and_exchange_after_several():
    half = max(1, hvd.size() // 2)
    teams = [hvd.add_process_set(range(at, min(at + half, hvd.size()))) for at in range(0, hvd.size(), half)]
    team, (xs, ys) = hvd.rank() // half, batches(6)
    optimizer = hvd.DistributedOptimizer(optax.sgd(0.1), process_set=teams[team])
    exchange, params = hvd.DiLoCo(every=3), make_params(1)
    states = (optimizer.init(params), exchange.init(params))
    step, seen = step_alone(exchange, optimizer), []
    for number in range(6):
        params, states = step(params, states, xs[number, hvd.rank()], ys[number, hvd.rank()])
        seen.append(len(set(hvd.allgather_object((team, bits_of(params))))) == len(teams))
        assert agreed(params) == (number % 3 == 2)
    assert all(seen), "each team has one model at any time"
    for one in teams:
        hvd.remove_process_set(one)


@on_every_rank
def test_diloco_is_nesterov_with_the_mean_change():
    exchange = hvd.DiLoCo(every=1, outer_lr=0.5, outer_momentum=0.8)
    params = {"w": jnp.zeros(2)}
    state, velocity, expected = exchange.init(params), 0.0, 0.0
    for _ in range(3):
        params = {"w": params["w"] + 1.0 + hvd.rank()}  # a step of this rank
        params, state = exchange.update(params, state)
        change = -(1.0 + (hvd.size() - 1) / 2)
        velocity = 0.8 * velocity + change
        expected -= 0.5 * (change + 0.8 * velocity)
        np.testing.assert_allclose(params["w"], [expected] * 2, rtol=1e-5)
    for make in (hvd.LocalSGD, hvd.DiLoCo):
        with pytest.raises(ValueError, match="every is 0, but it must be a whole number of at least 1"):
            make(every=0)
    with pytest.raises(ValueError, match="outer_momentum 1"):
        hvd.DiLoCo(every=1, outer_momentum=1.0)
