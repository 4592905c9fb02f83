"""DelayedOptimizer of JAX: own gradients count at once, those of others one step later."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import step_marks
from harness import assert_all_succeed, launch, on_every_rank
from silence import check_silence
from test_jax_training import batches, loss_of, make_params

import rueda.jax as hvd

in_worlds = pytest.mark.parametrize("world", [(2, "shm,tcp"), (3, "tcp")], indirect=True, scope="session")


def steps_of(optimizer, xs, ys, is_jitted):
    """(params, state) -> the same after the step of a number."""

    def step(params, state, x, y):
        grads = jax.grad(loss_of)(params, x, y)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    run = jax.jit(step) if is_jitted else step
    return lambda number, params, state: run(params, state, xs[number, hvd.rank()], ys[number, hvd.rank()])


def reference(plain, params, xs, ys):
    """(agreed, params) after each step: averages are waited for at once, and used one step later."""
    agreed, state, waiting, found = params, plain.init(params), None, []

    @jax.jit
    def apply(grads, state, params):
        updates, state = plain.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    for x, y in zip(xs, ys):
        own = jax.jit(jax.grad(loss_of))(params, x[hvd.rank()], y[hvd.rank()])
        averages = hvd.allreduce(own)
        if waiting is not None:
            agreed, state = apply(waiting, state, agreed)
        waiting = averages
        params, _ = apply(own, state, agreed)
        found.append((agreed, params))
    return found


def is_close(one, other, atol=1e-6):
    return jax.tree.all(jax.tree.map(lambda a, b: np.allclose(a, b, rtol=1e-5, atol=atol), one, other))


def is_same_everywhere(params):
    everyones = hvd.allgather(jax.tree.map(lambda leaf: leaf[None], params))
    return jax.tree.all(jax.tree.map(lambda leaf: bool((leaf == leaf[0]).all()), everyones))


@in_worlds
@on_every_rank
def test_own_gradients_count_at_once_and_those_of_others_one_step_later():
    xs, ys = batches(5)
    for plain in (optax.sgd(0.1, momentum=0.9), optax.adam(0.01)):
        wanted = reference(plain, make_params(1), xs, ys)
        for is_jitted in (True, False):
            optimizer = hvd.DelayedOptimizer(plain)
            step = steps_of(optimizer, xs, ys, is_jitted)
            params = make_params(1)
            state = optimizer.init(params)
            for number in range(5):
                params, state = step(number, params, state)
                assert is_close((state.agreed, params), wanted[number]), (is_jitted, number)
                assert is_same_everywhere(state.agreed)
                assert not is_same_everywhere(params)
            assert int(state.steps) == 5


@in_worlds
@on_every_rank
def test_with_equal_data_it_is_the_wrapped_optimizer_and_a_sum_counts_all_ranks():
    xs, ys = batches(6)
    xs, ys = jnp.broadcast_to(xs[:, :1], xs.shape), jnp.broadcast_to(ys[:, :1], ys.shape)
    plain = optax.adam(0.01)
    wanted, state = make_params(3), plain.init(make_params(3))
    alone = steps_of(plain, xs, ys, True)
    for number in range(6):
        wanted, state = alone(number, wanted, state)
    for optimizer in (hvd.DelayedOptimizer(plain), hvd.DelayedOptimizer(plain, op=hvd.Sum)):
        step = steps_of(optimizer, xs, ys, True)
        params, state = make_params(3), optimizer.init(make_params(3))
        for number in range(6):
            params, state = step(number, params, state)
        assert is_close(params, wanted)  # Adam does not see how large gradients are

    for op, lr in ((hvd.Average, 0.1), (hvd.Sum, 0.1 / hvd.size())):
        optimizer = hvd.DelayedOptimizer(optax.sgd(lr), op=op)
        step = steps_of(optimizer, *batches(3), True)
        params, state = make_params(3), optimizer.init(make_params(3))
        for number in range(3):
            params, state = step(number, params, state)
        wanted = params if op == hvd.Average else wanted
        assert is_close(params, wanted)


@in_worlds
@on_every_rank
def test_a_saved_state_goes_on_inside_jit_and_outside():
    xs, ys = batches(6)
    optimizer = hvd.DelayedOptimizer(optax.adam(0.01), compression=hvd.Compression.fp16)
    steps = {is_jitted: steps_of(optimizer, xs, ys, is_jitted) for is_jitted in (True, False)}
    ends = []
    for before, after in ((True, True), (True, False), (False, True), (False, False)):
        params = make_params(2)
        state = optimizer.init(params)
        for number in range(3):
            params, state = steps[before](number, params, state)
        params, state = jax.tree.map(jnp.asarray, jax.tree.map(np.array, (params, state)))  # as from a file
        for number in range(3, 6):
            params, state = steps[after](number, params, state)
        ends.append(params)
    assert all(is_close(ends[0], other, atol=1e-4) for other in ends[1:])  # 16 bits round a last bit up
    assert not is_close(ends[0], make_params(2))


@in_worlds
@on_every_rank
def test_a_scan_over_steps_with_gradients_of_another_type_than_the_parameters():
    xs, ys = batches(4)
    optimizer = hvd.DelayedOptimizer(optax.sgd(0.1))

    def step(carry, batch):
        params, state = carry
        grads = jax.grad(loss_of)(jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params), *batch)
        updates, state = optimizer.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), jax.tree.leaves(grads)[0].dtype.itemsize

    params = make_params(1)
    mine = xs[:, hvd.rank()].astype(jnp.bfloat16), ys[:, hvd.rank()].astype(jnp.bfloat16)
    (params, state), sizes = jax.jit(lambda carry: jax.lax.scan(step, carry, mine))(
        (params, optimizer.init(params))
    )
    assert sizes.tolist() == [2] * 4
    assert is_same_everywhere(state.agreed)
    assert not is_same_everywhere(params)


@in_worlds
@on_every_rank
def test_all_ranks_go_on_from_the_state_of_one_in_the_middle():
    xs, ys = batches(6)
    for is_jitted in (True, False):
        optimizer = hvd.DelayedOptimizer(optax.adam(0.01))
        step = steps_of(optimizer, xs, ys, is_jitted)
        params = make_params(2)
        state = optimizer.init(params)
        for number in range(6):
            params, state = step(number, params, state)
            if number == 2:
                params, state = hvd.broadcast_parameters((params, state), root_rank=0)
        assert is_same_everywhere(state.agreed)


@in_worlds
@on_every_rank
def test_gradients_that_travel_become_a_plan_and_each_update_marks_a_step():
    xs, ys = batches(1)
    for is_jitted in (True, False):
        optimizer = hvd.DelayedOptimizer(optax.sgd(0.1))
        step, now = steps_of(optimizer, xs, ys, is_jitted), [make_params(1)]
        now.append(optimizer.init(now[0]))

        def one(_, step=step, now=now):
            now[:] = jax.block_until_ready(step(0, *now))

        check_silence(one)
        one(0)
        assert step_marks.steps_of(lambda one=one: [one(0) for _ in range(5)]) == 5


@in_worlds
@on_every_rank
def test_what_makes_no_sense_is_refused_in_a_sentence():
    plain = optax.sgd(0.1)
    with pytest.raises(ValueError, match="DelayedOptimizer wraps an optax"):
        hvd.DelayedOptimizer(3)
    with pytest.raises(ValueError, match="DelayedOptimizer: this optimizer is wrapped already"):
        hvd.DelayedOptimizer(hvd.DistributedOptimizer(plain))
    with pytest.raises(ValueError, match="DistributedOptimizer: this optimizer is wrapped already"):
        hvd.DistributedOptimizer(hvd.DelayedOptimizer(plain))
    optimizer = hvd.DelayedOptimizer(plain)
    with pytest.raises(ValueError, match="update needs the parameters"):
        optimizer.update(make_params(1), optimizer.init(make_params(1)))
    with pytest.raises(ValueError, match="DelayedOptimizer: op is"):
        hvd.DelayedOptimizer(plain, op=hvd.Max)
    with pytest.raises(ValueError, match=r"compression=PowerSGD.* use one of Compression.none"):
        hvd.DelayedOptimizer(plain, compression=hvd.PowerSGD(rank=2))


OVERLAPS = """
import os, time
import jax, jax.numpy as jnp, optax, numpy as np
import rueda.jax as hvd
hvd.init()
optimizer = hvd.DelayedOptimizer(optax.sgd(0.1))
path = os.path.join(folder, "has computed")

def tell(x):  # in the middle of a step
    if hvd.rank() == 0 and int(x[0]) == 1:
        open(path, "x").close()
    return x

def loss_of(params, x):
    return (params["w"] * jax.pure_callback(tell, jax.ShapeDtypeStruct((4,), jnp.float32), x)).sum()

def step(params, state, x):
    grads = jax.grad(loss_of)(params, x)
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state

params = {"w": jnp.ones(4)}
state = optimizer.init(params)
run = jax.jit(step) if is_jitted else step
params, state = run(params, state, jnp.zeros(4))
jax.block_until_ready(params)
deadline = time.monotonic() + 60
while hvd.rank() == 1 and not os.path.exists(path):
    assert time.monotonic() < deadline, "rank 0 waits for gradients of the step before, and computes nothing"
    time.sleep(0.01)
params, state = run(params, state, jnp.ones(4))
params, state = run(params, state, jnp.ones(4) * 2)
assert np.allclose(state.agreed["w"], 1 - 0.1), state
assert np.allclose(params["w"], 1 - 0.1 - 0.2), params
"""


@pytest.mark.parametrize("is_jitted", [True, False])
def test_a_step_computes_before_the_gradients_of_the_last_have_arrived(tmp_path, is_jitted):
    assert_all_succeed(launch(2, f"folder, is_jitted = {str(tmp_path)!r}, {is_jitted}\n" + OVERLAPS))
