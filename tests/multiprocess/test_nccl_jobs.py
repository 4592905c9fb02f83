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


def test_processes_combine_vectors_by_adasum():
    assert_all_succeed(
        run(
            SUM
            + """
_core.SUM = _core.ADASUM
for step in range(5):
    code, values = sum_of("vectors", 70_000)
    assert code == _core.OK, _core.last_error()
    assert (values == 2.25).all(), values  # the average of 1 and 2, then that of 1.5 and 3
assert json.loads(_core.describe())["last_algorithm"] == "nccl_adasum"
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
    choose = 'os.environ["FAKE_NCCL_VERSION"] = "21805" if os.environ["RUEDA_RANK"] == "1" else "23004"\n'
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
    assert "has NCCL 2.30.4 but rank 1" in results[0].output
    assert "has NCCL 2.18.5" in results[0].output


def test_a_rank_that_sees_no_gpu_may_join_and_the_others_go_through_host_memory():
    hide = 'if os.environ["RUEDA_RANK"] == "2":\n    os.environ["CUDA_VISIBLE_DEVICES"] = ""\n'
    start = START.replace("hvd.init()", hide + "hvd.init()").split("driver = ")[0]
    results = run(
        """
if hvd.rank() < 2:
    driver = fake_gpu.Driver(hvd.rank())
    array = fake_gpu.array(driver, np.full(5000, 1 + hvd.rank()), driver.stream())
    handle = submit(_core.ALLREDUCE, array, "sum", array.address)
    assert _core.wait(handle, 30.0) == _core.OK, _core.last_error()
    assert (fake_gpu.read(driver, array) == 3).all()
hvd.join()
""",
        start,
    )
    assert_all_succeed(results)
    assert "rank 2 cannot use NCCL: this process sees no GPU" in results[0].output, results[0].output


def test_the_version_is_known_before_init_and_afterwards():
    start = START.replace("hvd.init()", "assert hvd.nccl_built() == 23004\nhvd.init()")
    assert_all_succeed(run("assert hvd.nccl_built() == 23004", start, ranks=2))
    start = START.replace("hvd.init()", "assert hvd.nccl_built() == 0\nhvd.init()")
    assert_all_succeed(run("assert hvd.nccl_built() == 0", start, ranks=2, RUEDA_GPU_OPERATIONS="staged"))


def test_the_version_is_that_of_the_library_whether_or_not_a_gpu_is_visible():
    start = "import rueda.numpy as hvd\nassert hvd.nccl_built() == 23004\nhvd.init()\n"
    assert_all_succeed(run("assert hvd.nccl_built() == 23004", start, ranks=2, CUDA_VISIBLE_DEVICES=""))


def test_why_a_job_does_without_nccl_is_said_once_by_each_process():
    results = run(
        """
hvd.shutdown()
hvd.init()
assert json.loads(_core.describe())["device"] == {"backend": "staged"}
""",
        ranks=2,
        RUEDA_GPU_OPERATIONS="",
        RUEDA_NCCL_LIBRARY="/nowhere/libnccl.so.2",
    )
    assert_all_succeed(results)
    assert [one.output.count("GPU tensors do not go through nccl") for one in results] == [1, 0]


@pytest.mark.parametrize(
    "library, why",
    [
        ("/nowhere/libnccl.so.2", "cannot be loaded"),
        ("old", "is NCCL 2.17.3, and rueda needs 2.18.0 or later"),
    ],
)
def test_a_library_that_is_asked_for_and_cannot_be_used_ends_init_on_all_ranks(library, why):
    start = START.split("hvd.init()")[0]
    results = run(
        f"""
try:
    hvd.init()
    raise SystemExit("init went on")
except Exception as error:
    assert {why!r} in str(error) and "RUEDA_GPU_OPERATIONS=nccl" in str(error), str(error)
""",
        start,
        ranks=2,
        **({"FAKE_NCCL_VERSION": "21703"} if library == "old" else {"RUEDA_NCCL_LIBRARY": library}),
    )
    assert_all_succeed(results)


def test_mpi_for_gpus_needs_mpi_for_host_memory():
    start = START.split("hvd.init()")[0]
    results = run(
        """
try:
    hvd.init()
    raise SystemExit("init went on")
except Exception as error:
    assert "RUEDA_GPU_OPERATIONS=mpi cannot be used" in str(error), str(error)
    assert "set RUEDA_CPU_OPERATIONS=mpi" in str(error), str(error)
""",
        start,
        ranks=2,
        RUEDA_GPU_OPERATIONS="MPI",
    )
    assert_all_succeed(results)


@pytest.mark.parametrize(
    "variable, value, sentence",
    [
        ("RUEDA_GPU_OPERATIONS", "staged", "rank 1 has RUEDA_GPU_OPERATIONS=staged but rank 0 has nccl"),
        ("RUEDA_DETERMINISM", "bitwise", "rank 1 has RUEDA_DETERMINISM=bitwise but rank 0 has hosts"),
    ],
)
def test_settings_that_differ_end_init_on_all_ranks(variable, value, sentence):
    start = START.split("hvd.init()")[0]
    body = f"""
if os.environ["RUEDA_RANK"] == "1":
    os.environ[{variable!r}] = {value!r}
try:
    hvd.init()
    raise SystemExit("init went on")
except Exception as error:
    assert {sentence!r} in str(error) and "set it alike on all ranks" in str(error), str(error)
"""
    assert_all_succeed(run(body, start, ranks=3))
