"""Steps of JAX programs in the timeline: one mark for each, inside and outside jit."""

import ctypes
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import optax
import pytest
from harness import on_every_rank
from step_marks import steps_of

import rueda.jax as hvd
from rueda import _core, operations

pytestmark = pytest.mark.parametrize("world", [(2, "shm,tcp")], indirect=True, scope="session")

STEPS = 6


def loss_of(params):
    return sum((value**2).sum() for value in params.values())


def as_it_is(step):
    return step


def train(optimizer, calls=STEPS, compile_step=jax.jit):
    params = {"w": jnp.ones((3, 2)), "b": jnp.ones(2)}
    state = optimizer.init(params)

    def step(params, state):
        updates, state = optimizer.update(jax.grad(loss_of)(params), state, params)
        return optax.apply_updates(params, updates), state

    step = compile_step(step)
    for _ in range(calls):
        params, state = step(params, state)
    jax.block_until_ready(params)


@on_every_rank
def test_an_optimizer_marks_each_step_inside_and_outside_jit():
    optimizer = hvd.DistributedOptimizer(optax.sgd(0.1))
    assert steps_of(lambda: train(optimizer)) == STEPS
    assert steps_of(lambda: train(optimizer, compile_step=as_it_is)) == STEPS
    compressed = hvd.DistributedOptimizer(optax.sgd(0.1), compression=hvd.Compression.fp16)
    assert steps_of(lambda: train(compressed)) == STEPS


@on_every_rank
def test_several_passes_of_one_step_mark_it_once():
    optimizer = hvd.DistributedOptimizer(optax.sgd(0.1), backward_passes_per_step=3)
    assert steps_of(lambda: train(optimizer, calls=3 * STEPS)) == STEPS
    assert steps_of(lambda: train(optimizer, 3 * STEPS, as_it_is)) == STEPS


@on_every_rank
def test_value_and_grad_marks_steps_and_two_of_a_step_mark_it_once():
    first, second = (hvd.distributed_value_and_grad(loss_of) for _ in range(2))

    def both(params):
        return first(params)[1], second(params)[1]

    def run():
        compiled, params = jax.jit(both), {"w": jnp.ones(3)}
        for _ in range(STEPS):
            jax.block_until_ready(compiled(params))

    assert steps_of(run) == STEPS


@on_every_rank
def test_an_allreduce_of_the_program_is_no_step():
    reduce = jax.jit(lambda x: hvd.allreduce(x, name="metric"))
    assert steps_of(lambda: [jax.block_until_ready(reduce(jnp.ones(3))) for _ in range(STEPS)]) == 0


def operations_prepared():
    """How many operations this process has prepared: the engine numbers them."""
    prepare, forget = _core.slow["rueda_prepare"], _core.slow["rueda_forget"]
    request, number = _core.Request(), ctypes.c_int64()
    call = operations.Call(_core.ALLREDUCE, _core.FLOAT32, (1,), 0, op=_core.SUM)
    operations.fill(request, call, 0, "test.prepared")
    assert prepare(ctypes.byref(request), ctypes.byref(number)) == 0, _core.last_error()
    forget(number)
    return number.value


@on_every_rank
def test_what_recurs_in_a_compiled_step_is_prepared_once():
    optimizer = hvd.DistributedOptimizer(optax.sgd(0.1))
    params, state = {"w": jnp.ones(3), "b": jnp.ones(2)}, optimizer.init({"w": jnp.ones(3), "b": jnp.ones(2)})

    @jax.jit
    def step(params, state):
        updates, state = optimizer.update(jax.grad(loss_of)(params), state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(2):  # the second time in another epoch, which knows nothing of the first
        before, expected = operations_prepared(), params["b"][0]
        for _ in range(STEPS):
            params, state = step(params, state)
            expected *= 0.8
        assert operations_prepared() - before - 1 == len(params)
        assert params["b"].tolist() == pytest.approx([float(expected)] * 2)
        hvd.shutdown()
        hvd.init()
