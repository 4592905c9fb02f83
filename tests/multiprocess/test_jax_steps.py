"""Steps of JAX programs in the timeline: one mark for each, inside and outside jit."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import optax
import pytest
from harness import on_every_rank
from step_marks import steps_of

import rueda.jax as hvd

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
