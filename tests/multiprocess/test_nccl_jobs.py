"""Jobs of several processes whose tensors in CUDA memory go through the tests' own libnccl."""

import fake_gpu
import pytest
from harness import assert_all_succeed, launch
from test_cuda_jobs import PREAMBLE

NCCL = fake_gpu.NCCL

pytestmark = pytest.mark.skipif(
    not NCCL.exists(), reason=f"{NCCL} is missing: it is built with the C++ tests"
)

# Each rank has a device of its own.
START = "import os\n" + PREAMBLE.format(devices=3)


def run(body: str, start: str = START, ranks: int = 3, **settings: str):
    nccl = {"RUEDA_NCCL_LIBRARY": str(NCCL), "FAKE_CUDA_DEVICES": "3", "RUEDA_GPU_OPERATIONS": "nccl"}
    return launch(ranks, start + body, {**fake_gpu.found_by_name(DELAY_US=200), **nccl, **settings})


SUM = """
def sum_of(name, count=5000):
    array = filled(1 + hvd.rank(), count)
    handle = submit(_core.ALLREDUCE, array, name, array.address)
    code = _core.wait(handle, 30.0)
    _core.release(handle)
    return code, see(array)
"""


def test_processes_sum_what_is_on_their_devices():
    assert_all_succeed(
        run(
            SUM
            + """
for step in range(20):
    code, values = sum_of("sum", 1000 * step)
    assert code == _core.OK, _core.last_error()
    assert (values == 6).all()
assert json.loads(_core.describe())["last_algorithm"] == "nccl"
"""
        )
    )


def test_a_killed_process_is_named_to_the_others():
    results = run(
        SUM
        + """
import signal
for step in range(10):
    if hvd.rank() == 2 and step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    code, _ = sum_of("sum")
    if code != _core.OK:
        break
assert 2 <= step < 9, step
assert "rank 2" in _core.last_error() and "was lost" in _core.last_error(), _core.last_error()
"""
    )
    assert [result.status for result in results[:2]] == [0, 0], [result.output for result in results]


def test_processes_with_different_versions_are_named_and_go_through_host_memory():
    choose = 'os.environ["FAKE_NCCL_VERSION"] = "21805" if os.environ["RUEDA_RANK"] == "1" else "22304"\n'
    start = START.replace("hvd.init()", choose + "hvd.init()")
    results = run(
        SUM
        + """
code, values = sum_of("sum")
assert code == _core.OK, _core.last_error()
assert (values == 6).all()
""",
        start,
        RUEDA_GPU_OPERATIONS="",
    )
    assert_all_succeed(results)
    assert "has NCCL 2.23.4 but rank 1" in results[0].output
    assert "has NCCL 2.18.5" in results[0].output
