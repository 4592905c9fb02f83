"""rueda.jax on its paths for GPUs: the calls that XLA would make, by hand on the tests' libcuda, and what
programs become when they are lowered for CUDA.
"""

import os
import subprocess
import sys

import fake_gpu
import pytest
from harness import ROOT, assert_all_succeed, library

PREPARE = """
import fake_gpu
import numpy as np
import rueda.numpy as hvd
from rueda import _core
from xla_calls import FLOAT32, Program, settings

driver = fake_gpu.Driver()
hvd.init()
n, me = hvd.size(), hvd.rank()
total = n * (n + 1) / 2
stream = driver.stream()
program = Program(stream)


def mine(shape=(5,), value=None):
    values = np.full(shape, me + 1 if value is None else value)
    return fake_gpu.array(driver, values, stream)


def place(array):
    return array.address, array.shape, FLOAT32


def start(number, array, out=None, **attributes):
    return program.call("rueda_jax_gpu_start", [place(array)], [place(out or array)], id=number, **attributes)


def done(number, arrays, outs=None):
    outs = [place(array) for array in outs or arrays]
    return program.call("rueda_jax_gpu_done", [place(array) for array in arrays], outs, id=number)


def see(array):
    return fake_gpu.read(driver, array)
"""


def run(body, ranks=2):
    assert_all_succeed(fake_gpu.launch(ranks, PREPARE + body, "staged"))


@fake_gpu.needed
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_group_is_reduced_in_place_and_in_the_order_of_the_stream(ranks):
    run(
        """
waits, original = [], _core.wait
for step in range(5):
    arrays = [mine((i + 1,)) for i in range(4)]
    for i, array in enumerate(arrays):  # ranks start them in their own order
        i = (i + me) % 4
        assert start(10 + i, arrays[i], **settings(_core.ALLREDUCE, f"allreduce.x{i}")) == ""
    before = driver.calls("cuStreamSynchronize")
    assert done(10, arrays) == ""
    assert driver.calls("cuStreamSynchronize") == before
    assert all((see(array) == total).all() for array in arrays)
copied, source = mine(value=0), mine()
assert start(1, source, copied, **settings(_core.ALLREDUCE, "allreduce.copied")) == ""
assert done(1, [copied]) == ""
assert (see(copied) == total).all() and (see(source) == me + 1).all()
""",
        ranks,
    )


@fake_gpu.needed
def test_results_of_another_size_are_copied_to_where_xla_wants_them():
    run("""
x, out = mine((2, 3)), mine((2 * n, 3), 0)
for step in range(5):
    assert start(1, x, **settings(_core.ALLGATHER, "allgather.x")) == ""
    assert done(1, [x], [out]) == ""
    assert (see(out) == np.repeat(np.arange(1, n + 1), 2)[:, None]).all()
y, sent = mine((n, 2)), mine((n, 2), 0)
assert start(2, y, **settings(_core.ALLTOALL, "alltoall.y")) == "" and done(2, [y], [sent]) == ""
assert (see(sent) == np.arange(1, n + 1)[:, None]).all()
z = mine()
assert start(3, z, **settings(_core.BROADCAST, "broadcast.z", root_rank=1)) == "" and done(3, [z]) == ""
assert (see(z) == 2).all()
empty = mine((0,))
assert start(4, empty, **settings(_core.ALLREDUCE, "allreduce.empty")) == "" and done(4, [empty]) == ""
""")


@fake_gpu.needed
def test_an_empty_array_without_an_address_is_on_the_device_of_the_stream():
    run("""
driver = fake_gpu.Driver(1)
stream = driver.stream()
program, none = Program(stream), (0, (0,), FLOAT32)
attributes = settings(_core.ALLREDUCE, "allreduce.empty")
assert program.call("rueda_jax_gpu_start", [none], [none], id=1, **attributes) == ""
assert program.call("rueda_jax_gpu_done", [none], [none], id=1) == ""
""")


@fake_gpu.needed
def test_a_failure_ends_the_program_after_everything_that_it_has_started():
    run("""
bad, good = mine((2 + me,)), mine()
assert start(1, bad, **settings(_core.ALLREDUCE, "allreduce.bad")) == ""
assert start(2, good, **settings(_core.ALLREDUCE, "allreduce.good")) == ""
assert "allreduce.bad" in done(1, [bad])
driver.synchronize(stream)
x, again = mine(), settings(_core.ALLREDUCE, "allreduce.good")
assert start(2, x, **again) == "" and done(2, [x]) == "", "the number is free again"
assert (see(x) == total).all()
assert start(2, x, **again) == "" and start(2, x, **again) == "", "a start never fails"
assert done(2, [x]) == "" and "was called again before" in done(2, [x])
x, short = mine((2,)), mine((2,), 0)
assert start(5, x, **settings(_core.ALLGATHER, "allgather.x")) == ""
assert "the compiled program expects [2]" in done(5, [x], [short])
assert "are of different versions" in start(6, x)
""")


LOWER = """
import jax, jax.numpy as jnp
import rueda.jax as hvd
from rueda import device
hvd.init()
device.is_taken = lambda: True
def step(a, b):
    return hvd.allreduce({"a": a, "b": b}, op=hvd.Sum), hvd.allgather(a)
x = jnp.ones(3)
text = jax.jit(step).trace(x, x).lower(lowering_platforms=("cuda",)).as_text()
assert text.count("@rueda_start(") == 3 and text.count("@rueda_done(") == 2, text
assert "rueda_begin" not in text and "callback" not in text, text
here = jax.jit(step).lower(x, x).as_text()
assert here.count("@rueda_begin(") == 1 and here.count("@rueda_done(") == 2, here
assert jax.jit(step)(x, x)[1].tolist() == [1, 1, 1]
"""


def test_programs_for_cuda_have_a_start_for_each_array_and_a_done_for_each_group():
    pytest.importorskip("jax")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "RUEDA_LIBRARY": library()}
    environment["JAX_PLATFORMS"] = "cpu"
    done = subprocess.run(
        [sys.executable, "-c", LOWER],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
