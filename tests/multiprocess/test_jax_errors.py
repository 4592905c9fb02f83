"""What goes wrong under rueda.jax, and how it says so."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import pytest
from harness import launch, on_every_rank

import rueda.jax as hvd


def two_ranks(test):
    return pytest.mark.parametrize("world", [(2, "shm,tcp"), (2, "tcp")], indirect=True, scope="session")(
        test
    )


@two_ranks
@on_every_rank
def test_mismatches_name_the_array_and_the_ranks_and_nothing_breaks():
    rank = hvd.rank()
    reduce = jax.jit(lambda x: hvd.allreduce(x, "grads"))
    with pytest.raises(
        jax.errors.JaxRuntimeError, match=r"allreduce.grads: rank 0 has \[2\], rank 1 has \[3\]"
    ):
        reduce(jnp.ones(2 + rank)).block_until_ready()
    with pytest.raises(
        hvd.HorovodInternalError, match=r"allreduce.grads: rank 0 has \[2\], rank 1 has \[3\]"
    ):
        hvd.allreduce(jnp.ones(2 + rank), "grads")
    dtype = jnp.int32 if rank else jnp.float32
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"data types.*grads"):
        reduce(jnp.ones(2, dtype)).block_until_ready()
    # One of many in flight fails; the others' memory is given back in good order.
    with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match=r"many\[7\]"):
        tree = [jnp.ones(50 + (i == 7) * rank) for i in range(20)]
        jax.block_until_ready(jax.jit(lambda t: hvd.allreduce(t, "many"))(tree))
    assert reduce(jnp.ones(4)).tolist() == [1.0] * 4


@two_ranks
@on_every_rank
def test_uneven_rows_within_jit_are_an_error_not_garbage():
    gather = jax.jit(lambda x: hvd.allgather(x, "rows"))
    with pytest.raises(
        jax.errors.JaxRuntimeError, match=r"allgather.rows has the shape \[5\], but the compiled"
    ):
        gather(jnp.ones(2 + hvd.rank())).block_until_ready()


@two_ranks
@on_every_rank
def test_what_this_rank_can_judge_is_refused_at_once():
    with pytest.raises(ValueError, match="only Sum and Average have a derivative"):
        jax.grad(lambda x: hvd.allreduce(x, op=hvd.Max).sum())(jnp.ones(2))
    for reduce in (hvd.allreduce, jax.jit(hvd.allreduce, static_argnums=1)):
        with pytest.raises(ValueError, match="cannot encode"):
            reduce(jnp.ones(2), "x\ud800y")
    with pytest.raises(ValueError, match="a scalar has no rows"):
        jax.jit(hvd.allgather)(1.0)
    with pytest.raises(ValueError, match="3 rows cannot be split evenly between 2 ranks"):
        jax.jit(hvd.alltoall)(jnp.ones(3))
    with pytest.raises(ValueError, match="splits give results of a size that is not known"):
        jax.jit(lambda x: hvd.alltoall(x, [1, 1]))(jnp.ones(2))
    for given, text in (
        ({"name": 5}, r"The name has to be a string, not int \(5\)"),
        ({"prescale_factor": "2"}, r"prescale_factor must be a number, not str \('2'\)"),
    ):
        for reduce in (hvd.allreduce, hvd.reducescatter, hvd.grouped_allreduce):
            with pytest.raises(TypeError, match=text):
                reduce([jnp.ones(2)], **given)
    with pytest.raises(TypeError, match="root_rank must be an int, not float"):
        hvd.broadcast(jnp.ones(2), root_rank=0.5)
    with pytest.raises(TypeError, match="takes a list of arrays, not NoneType"):
        hvd.grouped_allreduce(None)
    with pytest.raises(ValueError, match="op is 17"):
        hvd.allreduce(jnp.ones(2), op=17)
    with pytest.raises(ValueError, match="Adasum weighs whole arrays"):
        jax.vmap(lambda x: hvd.allreduce(x, op=hvd.Adasum))(jnp.ones((2, 2)))
    with pytest.raises(ValueError, match="does not exist, or has not been registered"):
        hvd.allreduce(jnp.ones(2), process_set=hvd.ProcessSet([0]))


@two_ranks
@on_every_rank
def test_what_one_failure_leaves_in_flight_ends_and_later_steps_are_right():
    rank, size = hvd.rank(), hvd.size()

    @jax.jit
    def step(a, b):
        def body(carry, _):
            return carry + hvd.allreduce(b, "in_scan", hvd.Sum), hvd.allreduce(a, "a_in_scan")[0]

        scanned, _ = jax.lax.scan(body, jnp.zeros_like(b), None, length=2)
        return hvd.allreduce(a, "a", hvd.Sum), hvd.allreduce(b * 2, "b", hvd.Sum), scanned

    for turn in range(12):
        b = jnp.full(1 << 16, turn + 100.0 * rank)
        is_bad = turn % 3 == 1
        if is_bad:
            with pytest.raises(
                (jax.errors.JaxRuntimeError, ValueError), match=r"allreduce.a.*rank 1 has \[3\]"
            ):
                jax.block_until_ready(step(jnp.ones(2 + rank), b))
            continue
        total = size * turn + 100.0 * sum(range(size))
        _, doubled, scanned = step(jnp.ones(2), b)
        assert (doubled == 2 * total).all() and (scanned == 2 * total).all(), turn


@two_ranks
@on_every_rank
def test_one_function_or_name_may_serve_several_times_in_a_program():
    rank, size = hvd.rank(), hvd.size()
    grads_of = hvd.distributed_value_and_grad(lambda w, x: jnp.sum(w * x), op=hvd.Sum)

    def after(work, x):  # the ranks come to their calls in different orders
        return x + 0 * jax.lax.fori_loop(0, work, lambda _, c: jnp.sin(c) @ c, jnp.eye(32))[0, 0]

    @jax.jit
    def step(x, y, first, second):
        (_, a), (_, b) = (grads_of(jnp.ones(100), after(n, v)) for n, v in ((first, x), (second, y)))
        c, d = (hvd.allreduce(after(n, v), "given", hvd.Sum) for n, v in ((first, x), (second, y)))
        return a, b, c, d

    for turn in range(10):
        x, y = jnp.full(100, 1.0 + rank + turn), jnp.full(100, 1000.0 + rank + turn)
        work = (1, 100) if rank else (100, 1)
        for got, base in zip(step(x, y, *work), (1, 1000, 1, 1000)):
            assert (got == sum(base + other + turn for other in range(size))).all(), (turn, base)


@two_ranks
@on_every_rank
def test_random_keys_travel_and_other_types_are_refused_by_name():
    rank = hvd.rank()
    state = {"key": jax.random.key(rank), "old": jax.random.PRNGKey(rank), "w": jnp.full(2, 1.0 + rank)}
    for send in (hvd.broadcast_parameters, jax.jit(hvd.broadcast_parameters)):
        sent = send(state)
        assert (jax.random.key_data(sent["key"]) == jax.random.key_data(jax.random.key(0))).all()
        assert sent["old"].dtype == jnp.uint32 and (sent["old"] == jax.random.PRNGKey(0)).all()
        assert sent["w"].tolist() == [1.0, 1.0]
    for reduce in (hvd.allreduce, jax.jit(hvd.allreduce, static_argnums=1)):
        with pytest.raises(ValueError, match=r"allreduce of t\['b'\]: no collective takes the type uint32"):
            reduce({"a": jnp.ones(2), "b": jnp.ones(2, jnp.uint32)}, "t")
    with pytest.raises(ValueError, match=r"broadcast of broadcast_parameters\['name'\]: str is not an array"):
        hvd.broadcast_parameters({"a": jnp.ones(2), "name": "adam"})
    assert hvd.broadcast_parameters({"a": jnp.ones(2)})["a"].tolist() == [1.0, 1.0]  # its name is free


DYING = """
import os, sys
os.environ["JAX_PLATFORMS"] = "cpu"
import jax, jax.numpy as jnp
import rueda.jax as hvd
hvd.init()
step = jax.jit(lambda t: hvd.allreduce(t, "step"))
tree = [jnp.ones(1000) for _ in range(8)]
for i in range(50):
    if i == 20 and hvd.rank() == 1:
        os._exit(9)
    try:
        jax.block_until_ready(step(tree))
    except (jax.errors.JaxRuntimeError, ValueError) as error:  # JAX raises either
        assert i >= 19 and "rank 1" in str(error), (i, error)
        print("survivor saw:", error)
        sys.exit(3)
"""


def test_a_dying_rank_does_not_hang_the_others():
    finished = launch(2, DYING)
    assert finished[1].status == 9
    assert finished[0].status == 3 and "survivor saw" in finished[0].output, finished[0].output


def test_without_init_the_answer_is_one_sentence():
    script = """
import os
os.environ["JAX_PLATFORMS"] = "cpu"
import jax, jax.numpy as jnp, rueda.jax as hvd
for f in (hvd.allreduce, jax.jit(hvd.allreduce)):
    try:
        f(jnp.ones(2))
    except ValueError as error:
        assert "has not been initialized; use hvd.init()" in str(error)
    else:
        raise SystemExit("accepted")
"""
    [finished] = launch(1, script)
    assert finished.status == 0, finished.output


def test_several_devices_in_one_process_are_refused():
    script = """
import os
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import jax, jax.numpy as jnp, numpy as np, rueda.jax as hvd
hvd.init()
mesh = jax.sharding.Mesh(np.array(jax.devices()), "d")
rows = jax.sharding.PartitionSpec("d")
spread = jax.device_put(jnp.ones(4), jax.sharding.NamedSharding(mesh, rows))
for call in (lambda: jax.jit(hvd.allreduce)(spread), lambda: jax.pmap(hvd.allreduce)(jnp.ones((2, 3)))):
    try:
        jax.block_until_ready(call())
    except NotImplementedError as error:
        assert "runs on 2 devices of this process" in str(error), error
    else:
        raise SystemExit("accepted")
"""
    [finished] = launch(1, script)
    assert finished.status == 0, finished.output
