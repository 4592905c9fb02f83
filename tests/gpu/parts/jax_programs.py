"""rueda.jax on CUDA: collectives inside jit, with derivatives, and outside."""

from __future__ import annotations

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # ranks share the GPU

import world
from world import RANK, SIZE, total

if world.IS_STAND_IN:
    world.skip("tests/multiprocess/test_gpu_jax.py does this without a GPU")
try:
    import jax
except ImportError as error:
    world.skip(f"JAX cannot be imported: {error}")
try:
    gpus = jax.devices("cuda")
except RuntimeError as error:
    world.skip(f"JAX has no CUDA: {error}")

import jax.numpy as jnp

import rueda.jax as hvd

jax.config.update("jax_default_device", gpus[min(world.index, len(gpus) - 1)])
hvd.init()
world.require_engine()
n, me = SIZE, RANK


def check_inside_jit():
    x = jnp.full((3, 4), me + 1.0)
    assert "rueda_start" in jax.jit(hvd.allreduce).lower(x).as_text()
    for dtype in ("float32", "float16", "bfloat16", "int32"):
        out = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))(x.astype(dtype))
        assert out.dtype == dtype and (out == total).all()
    tree = {f"leaf{i}": jnp.full((i + 1,), me + 1.0) for i in range(40)}
    out = jax.jit(lambda tree: hvd.allreduce(tree, op=hvd.Sum))(tree)
    assert all((leaf == total).all() for leaf in jax.tree.leaves(out))
    gathered = jax.jit(hvd.allgather)(jnp.full((2,), me + 1.0))
    assert gathered.shape == (2 * n,) and gathered[-1] == n
    assert (jax.jit(lambda x: hvd.broadcast(x, n - 1))(x) == n).all()
    assert (jax.jit(hvd.alltoall)(jnp.full((n,), me + 1.0)) == jnp.arange(1, n + 1)).all()
    part = jax.jit(lambda x: hvd.reducescatter(x, op=hvd.Sum))(jnp.full((2 * n,), me + 1.0))
    assert (part == total).all()


def check_order_of_many_steps():
    @jax.jit
    def step(x):
        for _ in range(4):
            x = hvd.allreduce(x @ x * 0.5, op=hvd.Average)
        return x

    x = jnp.eye(64) * 2
    for _ in range(20):
        x = step(x)
    assert jnp.allclose(x, jnp.eye(64) * 2)


def check_derivatives_and_loops():
    f = jax.jit(jax.grad(lambda x: hvd.allreduce(x * (me + 1), op=hvd.Sum).sum()))
    assert (f(jnp.ones(3)) == n * (me + 1)).all()
    looped = jax.jit(lambda x: jax.lax.fori_loop(0, 5, lambda _, y: hvd.allreduce(y), x))
    assert (looped(jnp.full((3,), 7.0)) == 7).all()


def check_outside_jit():
    out = hvd.allreduce({"a": jnp.full((3,), me + 1.0), "b": jnp.full((2,), me + 1)}, op=hvd.Sum)
    assert (out["a"] == total).all() and (out["b"] == int(total)).all()
    assert next(iter(out["a"].devices())).platform == "gpu"
    assert hvd.allgather(jnp.full((me + 1,), 1.0)).shape == (n * (n + 1) // 2,)


def check_errors_are_the_same_everywhere():
    if n == 1:
        return
    try:
        jax.jit(lambda x: hvd.allreduce(x, name="bad"))(jnp.ones(2 + me)).block_until_ready()
    except Exception as error:
        assert "bad" in str(error), error
    else:
        raise AssertionError("no error")
    out = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))(jnp.full((3,), me + 1.0))
    assert (out == total).all()


world.run_checks(dict(globals()))
