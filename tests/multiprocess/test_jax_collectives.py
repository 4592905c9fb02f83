"""What the collectives of rueda.jax return, inside and outside jit, and their derivatives."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import on_every_rank

import rueda.jax as hvd
from rueda import _core
from rueda.jax import primitive

pytestmark = [
    pytest.mark.parametrize("world", [(2, "shm,tcp"), (3, "tcp")], indirect=True, scope="session"),
    pytest.mark.thorough("world0"),
]

REDUCED = ["uint8", "int8", "uint16", "int16", "int32", "float16", "bfloat16", "float32"]
SHAPES = [(), (17,), (3, 4), (0,), (0, 3)]
WAYS = [lambda f: f, jax.jit]


def mine(shape, dtype="float32", rank=None):
    """Small whole numbers that differ between ranks and elements: exact in every type."""
    rank = hvd.rank() if rank is None else rank
    return jnp.asarray((np.arange(np.prod(shape, dtype=int)) % 5 + rank).reshape(shape)).astype(dtype)


def everyones(shape, dtype="float32"):
    return [mine(shape, dtype, rank) for rank in range(hvd.size())]


def same(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape, (a, b)
    np.testing.assert_array_equal(np.asarray(a, np.float64), np.asarray(b, np.float64))


@on_every_rank
def test_every_dtype_and_shape_in_one_program_and_outside():
    tree = {f"{dtype}{shape}": mine(shape, dtype) for dtype in REDUCED for shape in SHAPES}
    for way in WAYS:
        summed = way(lambda tree: hvd.allreduce(tree, op=hvd.Sum))(tree)
        sent = way(lambda tree: hvd.broadcast(tree, 1))(tree)
        for dtype in REDUCED:
            for shape in SHAPES:
                key = f"{dtype}{shape}"
                expected = sum(np.asarray(x, np.float64) for x in everyones(shape, dtype))
                same(summed[key], jnp.asarray(expected).astype(dtype))
                same(sent[key], mine(shape, dtype, 1))


@on_every_rank
def test_other_operations_and_factors():
    n, rank = hvd.size(), hvd.rank()
    x = jnp.array([rank + 1.0, -rank])
    for way in WAYS:
        assert way(lambda x: hvd.allreduce(x, op=hvd.Min))(x).tolist() == [1, 1 - n]
        assert way(lambda x: hvd.allreduce(x, op=hvd.Max))(x).tolist() == [n, 0]
        assert np.allclose(way(hvd.allreduce)(x), [(n + 1) / 2, (1 - n) / 2])
        scaled = way(lambda x: hvd.allreduce(x, None, hvd.Sum, 0.5, 3.0))(jnp.full(4, 2.0))
        assert scaled.tolist() == [3.0 * n] * 4
        half = way(lambda x: hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16))(x)
        assert half.dtype == jnp.float32 and half.tolist() == [n * (n + 1) / 2, -n * (n - 1) / 2]


@on_every_rank
def test_gathers_scatters_and_exchanges():
    n, rank = hvd.size(), hvd.rank()
    for way in WAYS:
        for dtype in [*REDUCED, "bool"]:
            same(way(hvd.allgather)(mine((2, 3), dtype)), jnp.concatenate(everyones((2, 3), dtype)))
        for rows in (2 * n, 2 * n + 1):
            out = way(lambda x: hvd.reducescatter(x, op=hvd.Sum))(mine((rows, 2)))
            same(out, np.array_split(sum(everyones((rows, 2))), n)[rank])
        same(way(hvd.alltoall)(jnp.full(2 * n, float(rank))), jnp.repeat(jnp.arange(n) * 1.0, 2))
    same(hvd.allgather(mine((rank, 2))), jnp.concatenate([mine((r, 2), rank=r) for r in range(n)]))
    output, received = hvd.alltoall(jnp.ones(rank * n), splits=[rank] * n)
    assert received.tolist() == list(range(n)) and output.shape == (sum(range(n)),)


@on_every_rank
def test_derivatives_are_those_of_the_sum_over_ranks():
    """Checked against the same function written for all ranks at once, without communication."""
    n, rank = hvd.size(), hvd.rank()
    rows = 2 * n
    cases = {
        "allreduce": (lambda x: hvd.allreduce(x, op=hvd.Sum), lambda xs, r: sum(xs)),
        "average": (hvd.allreduce, lambda xs, r: sum(xs) / n),
        "allgather": (hvd.allgather, lambda xs, r: jnp.concatenate(xs)),
        "broadcast": (lambda x: hvd.broadcast(x, 1), lambda xs, r: xs[1]),
        "reducescatter": (hvd.reducescatter, lambda xs, r: jnp.array_split(sum(xs) / n, n)[r]),
        "uneven": (
            lambda x: hvd.reducescatter(x[1:], op=hvd.Sum),
            lambda xs, r: jnp.array_split(sum(x[1:] for x in xs), n)[r],
        ),
        "alltoall": (hvd.alltoall, lambda xs, r: jnp.concatenate([x[2 * r : 2 * r + 2] for x in xs])),
    }
    xs = [jax.random.normal(jax.random.key(r), (rows, 3)) for r in range(n)]
    weights = [jax.random.normal(jax.random.key(10 + r), (n * rows, 3)) for r in range(n)]

    def loss(out, r):
        return (jnp.sin(out) * weights[r][: out.shape[0]]).sum()

    # All cases in one program: compiling is what takes time here.
    def gradients(x):
        return {name: jax.grad(lambda x, f=f: loss(f(x), rank))(x) for name, (f, _) in cases.items()}

    def tangents(x):
        return {name: jax.jvp(f, (x,), (2 * x,))[1] for name, (f, _) in cases.items()}

    def of_all_ranks(xs):
        total = lambda xs, model: sum(loss(model(xs, r), r) for r in range(n))  # noqa: E731
        return {name: jax.grad(total)(xs, model)[rank] for name, (_, model) in cases.items()}

    expected = jax.jit(of_all_ranks)(xs)
    straight = jax.jit(lambda xs: {name: model(xs, rank) for name, (_, model) in cases.items()})(xs)
    for way in WAYS:
        got = way(gradients)(xs[rank])
        for name in cases:
            np.testing.assert_allclose(got[name], expected[name], atol=1e-5, err_msg=name)
    moved = jax.jit(tangents)(xs[rank])
    for name in cases:
        np.testing.assert_allclose(moved[name], 2 * straight[name], atol=1e-5, err_msg=name)


@on_every_rank
def test_second_derivatives_remat_and_scan():
    n = hvd.size()
    total = lambda x: hvd.allreduce(x, op=hvd.Sum)  # noqa: E731
    x = jnp.arange(3.0) + hvd.rank()
    s = sum(np.arange(3.0) + r for r in range(n))
    hessian = jax.jit(jax.hessian(lambda x: (total(x) ** 3).sum()))(x)
    np.testing.assert_allclose(hessian, np.diag(6 * s * n * n), rtol=1e-6)
    plain = jax.jit(jax.grad(lambda x: (jnp.sin(total(x)) ** 2).sum()))(x)
    remat = jax.jit(jax.grad(jax.checkpoint(lambda x: (jnp.sin(total(x)) ** 2).sum())))(x)
    np.testing.assert_array_equal(plain, remat)
    carried, _ = jax.jit(lambda x: jax.lax.scan(lambda c, _: (hvd.allreduce(c) + 1, None), x, length=5))(x)
    np.testing.assert_allclose(carried, s / n + 5, rtol=1e-6)


@on_every_rank
def test_vmap_equals_a_loop():
    n = hvd.size()
    x = jax.random.normal(jax.random.key(hvd.rank()), (2 * n, 2 * n, 3))
    functions = [
        hvd.allreduce,
        hvd.allgather,
        hvd.alltoall,
        lambda x: hvd.broadcast(x, 1),
        lambda x: hvd.reducescatter(x, op=hvd.Sum),
    ]
    for function in functions:
        for axis in (0, 2):
            looped = [function(part) for part in jnp.moveaxis(x, axis, 0)]
            for way in WAYS:
                got = way(jax.vmap(function, in_axes=axis))(x)
                np.testing.assert_allclose(got, jnp.stack(looped), rtol=1e-6)
    nested = jax.jit(jax.vmap(jax.grad(lambda v: hvd.allreduce(v, op=hvd.Sum).sum())))(x)
    assert np.all(nested == n)


@on_every_rank
def test_ranks_may_trace_and_run_in_any_order():
    """60 collectives of one program, in another order on each rank, and matched by name."""
    order = np.random.default_rng(hvd.rank()).permutation(60)

    @jax.jit
    def program(values):
        return {int(i): hvd.allreduce(jnp.tanh(values[i]), f"order.{i}", hvd.Sum) for i in order}

    for step in range(5):
        out = program([mine((100,)) * (i + 1) / (step + 1) for i in range(60)])
        for i in range(60):
            expected = sum(jnp.tanh(x * (i + 1) / (step + 1)) for x in everyones((100,)))
            np.testing.assert_allclose(out[i], expected, rtol=1e-5)


@on_every_rank
def test_many_runs_queued_before_the_first_is_awaited():
    step = jax.jit(lambda x: hvd.allreduce(x @ x / 64, op=hvd.Average))
    outs = [step(jnp.full((64, 64), float(i + hvd.rank()))) for i in range(30)]
    for i, out in enumerate(outs):
        expected = np.mean([(i + r) ** 2 for r in range(hvd.size())])
        np.testing.assert_allclose(out, expected, rtol=1e-5)


@on_every_rank
def test_process_sets_and_values_at_rest():
    others = hvd.add_process_set(range(1, hvd.size()))
    if others.included():
        for way in WAYS:
            out = way(lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=others))(jnp.ones(2))
            assert out.tolist() == [hvd.size() - 1.0] * 2
            gathered = way(lambda x: hvd.allgather(x, process_set=others))(jnp.ones(1))
            assert gathered.shape == (hvd.size() - 1,)
    hvd.remove_process_set(others)
    params = {"w": mine((3, 2)), "b": [mine((2,), "bfloat16")]}
    got = hvd.broadcast_parameters(params, root_rank=1)
    same(got["w"], mine((3, 2), rank=1))
    same(got["b"][0], mine((2,), "bfloat16", 1))
    assert hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))
    assert hvd.broadcast_object("root" if hvd.rank() == 0 else None, name="o") == "root"


@on_every_rank
def test_the_way_through_host_memory_that_other_devices_take():
    n, rank = hvd.size(), hvd.rank()
    for what, expected in ((_core.ALLREDUCE, [n * 1.0] * 2), (_core.ALLGATHER, [1.0] * 2 * n)):
        spec = primitive.CollectiveSpec(what, ("a", "b"), hvd.global_process_set, 0, rank, n)
        a, b = jax.jit(lambda x: primitive._staged(x, 2 * x, spec=spec))(jnp.ones(2))  # noqa: B023
        assert a.tolist() == expected and b.tolist() == [2 * value for value in expected]
