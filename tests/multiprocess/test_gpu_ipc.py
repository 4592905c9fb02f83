"""Ranks in processes of their own map one another's GPU memory, through the tests' own libcuda."""

import fake_gpu
import pytest
from harness import assert_all_succeed, launch

pytestmark = fake_gpu.needed

PREAMBLE = """
import os
import signal
import numpy as np
import fake_gpu
import rueda.numpy as hvd

hvd.init()
me, n = hvd.rank(), hvd.size()
driver = fake_gpu.Driver(me % {devices})
stream = driver.stream()

def filled(value, count):
    return fake_gpu.array(driver, np.full(count, value), stream)
"""

# With sections of this size, calls that are as large go from GPU to GPU.
SECTIONS = {"RUEDA_STAGING_BYTES": "262144"}

SUMS = """
for step in range(5):
    for count in (1, 1000, 300_001):
        array = filled(me + step, count)
        result = hvd.allreduce(array, op=hvd.Sum, name=f"sum{count}")
        assert (fake_gpu.read(driver, result) == n * step + n * (n - 1) / 2).all(), (step, count)
        result = hvd.broadcast(filled(me + step, count), 1, name=f"root{count}")
        assert (fake_gpu.read(driver, result) == 1 + step).all(), (step, count)
assert (driver.calls("cuIpcOpenMemHandle") > 0) == EXPECTED, driver.calls("cuIpcOpenMemHandle")
hvd.shutdown()
assert driver.calls("cuIpcOpenMemHandle") == driver.calls("cuIpcCloseMemHandle")
"""


def run(ranks, devices, body, use, **settings):
    variables = {
        **fake_gpu.found_by_name(DELAY_US=200, DEVICES=2, **settings),
        "RUEDA_CUDA_IPC": use,
        **SECTIONS,
    }
    return launch(ranks, PREAMBLE.format(devices=devices) + body, variables, limit_s=100)


@pytest.mark.parametrize("ranks, devices, use", [(2, 2, "on"), (3, 1, "auto"), (2, 2, "off")])
def test_sums_and_broadcasts_are_right_and_what_was_mapped_is_closed(ranks, devices, use):
    finished = run(ranks, devices, f"EXPECTED = {use != 'off'}\n" + SUMS, use)
    assert_all_succeed(finished)
    named = sum("rank 0 and rank 1 use the same GPU" in one.output for one in finished)
    assert named == (devices == 1), [one.output for one in finished]


def test_where_memory_cannot_be_mapped_one_sentence_says_so_and_the_job_goes_on():
    # Every process fails to map its first one.
    finished = run(
        2, 2, "EXPECTED = True\n" + SUMS.split("hvd.shutdown")[0], "auto", PLANT="cuIpcOpenMemHandle:1:217"
    )
    assert_all_succeed(finished)
    said = [one.output.count("pass through host memory, not from GPU to GPU") for one in finished]
    assert sum(said) == 1, [one.output for one in finished]


def test_a_killed_rank_ends_the_others_with_its_name():
    body = """
from rueda.errors import HorovodInternalError
hvd.allreduce(filled(1, 100_000), name="first")
try:
    for step in range(1000):
        if me == 1 and step == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        hvd.allreduce(filled(1, 100_000), name="next")
except HorovodInternalError as error:
    assert "rank 1" in str(error), error
    print("it was named")
"""
    finished = run(3, 2, body, "on")
    assert [one.output.count("it was named") for one in finished] == [1, 0, 1], [
        one.output for one in finished
    ]


def test_a_rank_without_a_visible_gpu_makes_the_others_use_host_memory():
    body = """
if me == 0:
    array = filled(3, 100_000)
    assert (fake_gpu.read(driver, hvd.allreduce(array, op=hvd.Sum, name="x")) == 3).all()
hvd.join()
"""
    hidden = "import os\nif os.environ['RUEDA_RANK'] == '1': os.environ['CUDA_VISIBLE_DEVICES'] = ''\n"
    preamble = PREAMBLE.format(devices=1).replace(
        "driver = fake_gpu.Driver(me % 1)\nstream = driver.stream()\n",
        "if me == 0:\n    driver = fake_gpu.Driver(0)\n    stream = driver.stream()\n",
    )
    variables = {**fake_gpu.found_by_name(DELAY_US=200, DEVICES=2), "RUEDA_CUDA_IPC": "auto", **SECTIONS}
    finished = launch(2, hidden + preamble + body, variables, limit_s=100)
    assert_all_succeed(finished)
    assert sum("rank 1: this process sees no GPU" in one.output for one in finished) == 1, [
        one.output for one in finished
    ]
