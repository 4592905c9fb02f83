"""Collectives through real MPIs: every library starts its own ranks, and the results are those of rueda."""

import functools
import json
import os
import random
import re
import sys
import time
from pathlib import Path

import fake_gpu
import launch_support
import mpi_support
import pytest
from harness import ROOT
from mpi_support import ALL, PYPI, STANDARD_ABI, Mpi

PROGRAMS = ROOT / "build" / "release" / "mpi_programs"
OPEN_MPI_4, MPICH_4 = ALL[:2]
MPICH_5 = next(mpi for mpi in PYPI if mpi.name == "mpich-5")


def name_of(mpi: Mpi) -> str:
    return mpi.name


@pytest.fixture(name="script")
def make_script(tmp_path: Path):
    """Writes a Python script and returns the command that runs it."""
    return functools.partial(mpi_support.write_script, tmp_path)


def run_programs(mpi: Mpi, ranks: int, programs: int, folder: Path) -> None:
    if not PROGRAMS.exists():
        pytest.skip("mpi_programs is not built")
    seed = random.randrange(1, 10**9)
    print(f"to repeat this: RUEDA_TEST_SEED={seed}")
    variables = {
        "RUEDA_TEST_RANKS": str(ranks),
        "RUEDA_TEST_PROGRAMS": str(programs),
        "RUEDA_TEST_SEED": str(seed),
    }
    if mpi.file:
        variables["RUEDA_MPI_LIBRARY"] = str(mpi.library())
    output = mpi_support.run_well(
        [*mpi.command(ranks), str(PROGRAMS), "--gtest_color=no"], mpi_support.environment(folder, **variables)
    )
    # Lines of several ranks may be mixed, but not within what is written at once. The status was 0 for all.
    assert output.count("[  PASSED  ]") == ranks, output


@pytest.mark.parametrize("mpi", ALL, ids=name_of)
def test_random_programs_give_the_documented_values(mpi: Mpi, tmp_path: Path) -> None:
    run_programs(mpi, 3, 2 if os.environ.get("RUEDA_TEST_THOROUGH") else 1, tmp_path)


@pytest.mark.parametrize("mpi", STANDARD_ABI, ids=name_of)
def test_the_standard_abi_is_spoken(mpi: Mpi, tmp_path: Path) -> None:
    run_programs(mpi, 2, 1, tmp_path)


JOB = """
import rueda.numpy as hvd
from rueda import _core
timeline = sys.argv[1]
for round in range(2):
    assert not hvd.mpi_enabled()
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    about = json.loads(_core.describe())
    assert hvd.mpi_enabled() and hvd.mpi_threads_supported() and not hvd.mpi_built()
    assert about["mpi"]["runs_collectives"] and about["mpi"]["is_initialized_here"]
    if round == 0:
        hvd.start_timeline(timeline)
    ones = np.ones(10, np.float16)
    assert (hvd.allreduce(ones, op=hvd.Average, name="half") == 1).all()
    assert hvd.allgather(np.full((rank + 1, 2), rank), name="rows").shape == (size * (size + 1) // 2, 2)
    assert (hvd.broadcast(np.full(5, float(rank)), 1, name="from one") == 1).all()
    if round == 0:
        hvd.stop_timeline()
    # Adasum is rueda's own, also beside MPI.
    vector = hvd.allreduce(np.full(4, 2.0), op=hvd.Adasum, name="adasum")
    assert np.allclose(vector, 2.0) and json.loads(_core.describe())["last_algorithm"] != "mpi"
    hvd.shutdown()
print("ABOUT " + json.dumps(about["mpi"]), flush=True)
"""


@pytest.mark.parametrize("mpi", ALL, ids=name_of)
def test_a_job_uses_the_mpi_that_started_it(mpi: Mpi, script, tmp_path: Path) -> None:
    timeline = tmp_path / "timeline.json"
    output = mpi_support.run_well(
        [*mpi.command(2), *script(JOB), str(timeline)], mpi_support.environment(tmp_path)
    )
    abouts = [json.loads(text) for text in re.findall(r"ABOUT (\{.*?\})", output)]
    assert len(abouts) == 2 and all(about["library"].startswith(mpi.version) for about in abouts), output
    names = {event.get("name") for event in json.loads(timeline.read_text())}
    assert {"MPI_ALLREDUCE", "MPI_ALLGATHER", "MPI_BCAST"} <= names


ON_DEVICES = """
import rueda.numpy as hvd
import fake_gpu
from rueda import _core
hvd.init()
driver = fake_gpu.Driver()
stream = driver.stream()
for count in (0, 7, 100_000):
    array = fake_gpu.array(driver, np.full(count, hvd.rank() + 1), stream)
    assert (fake_gpu.read(driver, hvd.allreduce(array, op=hvd.Sum, name=f"sum {count}")) == 3).all()
about = json.loads(_core.describe())
assert about["last_algorithm"] == "mpi" and about["device"] == {"backend": "staged"}, about
"""


@fake_gpu.needed
def test_tensors_on_a_gpu_go_through_mpi_by_way_of_host_memory(script, tmp_path: Path) -> None:
    variables = {
        **mpi_support.environment(tmp_path),
        **fake_gpu.found_by_name(),
        "HOROVOD_GPU_OPERATIONS": "MPI",
        "RUEDA_STAGING_BYTES": "65536",
    }
    del variables["RUEDA_GPU_OPERATIONS"]
    variables["PYTHONPATH"] += f":{ROOT / 'tests/multiprocess'}"
    output = mpi_support.run_well([*OPEN_MPI_4.command(2), *script(ON_DEVICES)], variables)
    sentences = re.findall(r"GPU tensors go to MPI by way of host memory: Open MPI 4.*", output)
    assert len(sentences) == 1, output
    assert "does not say that it takes CUDA memory on rank 0" in sentences[0]


LOSS = """
import rueda.numpy as hvd
from rueda.errors import HorovodInternalError
hvd.init()
hvd_rank = hvd.rank()
data = np.ones(1 << 18, np.float32)
try:
    for step in range(1000):
        if step == 20 and hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        hvd.allreduce(data, name=f"gradient {step % 4}")
except HorovodInternalError as error:
    hvd.shutdown()
    news = open(os.environ["NEWS"] + str(hvd_rank), "w")  # mpirun may end before it has passed on the output
    print(f"NAMED {error}", file=news, flush=True)
    try:
        hvd.init()
    except ValueError as refused:
        print(f"REFUSED {refused}", file=news, flush=True)
    os.rename(news.name, news.name + ".complete")
"""


@pytest.mark.parametrize("mpi", ALL, ids=name_of)
def test_a_killed_rank_is_named_and_its_peers_end(mpi: Mpi, script, tmp_path: Path) -> None:
    # The peers, and the init that is refused, may not wait for this timeout: it is longer than the test.
    environment = mpi_support.environment(
        tmp_path, NEWS=str(tmp_path / "news"), RUEDA_START_TIMEOUT="400", RUEDA_PEER_TIMEOUT_SECONDS="400"
    )
    ended = mpi_support.run([*mpi.command(3, survives=True), *script(LOSS)], environment)
    for rank in (0, 2):
        news = tmp_path / f"news{rank}.complete"
        deadline = time.monotonic() + 60
        while not news.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert news.exists(), ended.stdout
        assert re.search(r"NAMED rank 1 \(host [^)]*\) was lost", news.read_text()), news.read_text()
        assert "MPI can neither cancel what was under way" in news.read_text()


COMMUNICATORS = """
from mpi4py import MPI
import rueda.numpy as hvd
world = MPI.COMM_WORLD
half = world.Split(world.rank % 2, -world.rank)  # the ranks in reverse order
runs_collectives = os.environ["RUEDA_CPU_OPERATIONS"] == "mpi"
for comm in (half, half, world, *([None] if runs_collectives else [])):
    hvd.init(comm=comm)
    expected = world if comm is None else comm
    assert (hvd.rank(), hvd.size()) == (expected.rank, expected.size)
    found = hvd.allgather(np.array([world.rank]), name="who").tolist()
    assert found == expected.allgather(world.rank), found
    assert hvd.mpi_enabled() is runs_collectives
    world.Barrier()  # the program's own messages do not meet ours
    hvd.shutdown()
alone = world.Split(0 if world.rank == 0 else MPI.UNDEFINED)
if world.rank == 0:
    hvd.init(comm=alone)
    assert hvd.size() == 1
    hvd.shutdown()
else:
    try:
        hvd.init(comm=alone)
    except ValueError as error:
        assert "not a member" in str(error)
even = world.Create_group(world.Get_group().Incl([0, 2]))
even_set = hvd.ProcessSet(even if world.rank % 2 == 0 else [0, 2])
hvd.init(comm=world, process_sets=[even_set])
assert even_set.ranks == [0, 2]
if even_set.included():
    assert hvd.allgather(np.array([world.rank]), process_set=even_set).tolist() == [0, 2]
world.Barrier()  # a rank that ends ends the operations of the others
print("FINE", flush=True)
"""


@pytest.mark.parametrize("operations", ["mpi", "native"])
@pytest.mark.parametrize("mpi", [OPEN_MPI_4, *PYPI], ids=name_of)
def test_init_takes_a_communicator_of_mpi4py(mpi: Mpi, operations: str, script, tmp_path: Path) -> None:
    variables = mpi_support.environment(tmp_path, RUEDA_CPU_OPERATIONS=operations)
    command = [*mpi.command(4), *script(COMMUNICATORS)]
    assert mpi_support.run_well(command, mpi_support.with_mpi4py(variables, mpi)).count("FINE") == 4


@pytest.mark.parametrize("mpi", [OPEN_MPI_4, *PYPI], ids=name_of)
def test_the_program_of_the_page_makes_two_jobs_of_one(mpi: Mpi, tmp_path: Path) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/mpi.md").read_text(), re.M | re.S)
    (tmp_path / "halves.py").write_text(block)
    variables = mpi_support.environment(tmp_path)
    del variables["RUEDA_CPU_OPERATIONS"]
    command = [*mpi.command(4), sys.executable, str(tmp_path / "halves.py")]
    told = mpi_support.run_well(command, mpi_support.with_mpi4py(variables, mpi))
    for rank in range(4):
        line = f"rank {rank} of MPI is rank {rank // 2} of 2, sum {2 + 2 * (rank % 2)}"
        assert line in told, told


BESIDE = """
from mpi4py import MPI
import numpy as np
import rueda.numpy as hvd
for _ in range(2):
    hvd.init()  # without a communicator: the ranks meet by themselves
    world = MPI.COMM_WORLD
    assert (hvd.rank(), hvd.size()) == (world.rank, world.size)
    assert hvd.allreduce(np.ones(3), op=hvd.Sum, name="x").tolist() == [world.size] * 3
    hvd.shutdown()
    assert world.allreduce(1) == world.size
print("FINE", flush=True)
"""


@pytest.mark.parametrize("mpi", [OPEN_MPI_4, *PYPI], ids=name_of)
def test_mpi_of_the_program_goes_on_beside_rueda_and_is_finalised(mpi: Mpi, script, tmp_path: Path) -> None:
    """MPICH's family asks the launcher in MPI_Finalize once more; rueda had ended that conversation."""
    variables = mpi_support.with_mpi4py(mpi_support.environment(tmp_path, RUEDA_CPU_OPERATIONS="native"), mpi)
    assert mpi_support.run_well([*mpi.command(2), *script(BESIDE)], variables).count("FINE") == 2


REFUSAL = """
import rueda.numpy as hvd
try:
    hvd.init()
except ValueError as error:
    print(f"REFUSED {error}", flush=True)
"""


def test_a_library_of_another_mpi_than_mpirun_is_refused(script, tmp_path: Path) -> None:
    for mpi, other, texts in [
        (OPEN_MPI_4, MPICH_5, ["mpirun of Open MPI started this process, but MPICH 5."]),
        (
            MPICH_5,
            OPEN_MPI_4,
            ["mpiexec of MPICH's family started", "of 2, but Open MPI 4.", "sees rank 0 of 1"],
        ),
    ]:
        file = str(other.library() or "libmpi.so.40")
        other.launcher()  # skips if it is not installed
        variables = mpi_support.environment(tmp_path, RUEDA_MPI_LIBRARY=file)
        output = mpi_support.run([*mpi.command(2), *script(REFUSAL)], variables).stdout
        for text in texts:
            assert output.count(text) == 2, output


def test_rueda_run_without_its_option_for_mpi_names_it(script, tmp_path: Path) -> None:
    command = [launch_support.RUEDA, "run", "-np", "2", *script("import rueda.numpy as hvd\nhvd.init()\n")]
    MPICH_4.launcher()  # skips if it is not installed
    variables = mpi_support.environment(tmp_path, RUEDA_MPI_LIBRARY="libmpich.so.12")
    output = mpi_support.run(command, variables).stdout
    assert "start the ranks with rueda run --mpi, or with the mpirun of MPICH 4." in output, output


def test_a_low_thread_level_of_the_program_is_refused(script, tmp_path: Path) -> None:
    start = "import mpi4py\nmpi4py.rc.thread_level = 'funneled'\nfrom mpi4py import MPI\n"
    variables = mpi_support.with_mpi4py(mpi_support.environment(tmp_path), MPICH_5)
    output = mpi_support.run_well([*MPICH_5.command(2), *script(start + REFUSAL)], variables)
    assert output.count("MPI_THREAD_FUNNELED, but several threads of the engine call MPI") == 2, output


def test_settings_that_mpi_cannot_keep_are_refused(script, tmp_path: Path) -> None:
    for setting, value in [("RUEDA_DETERMINISM", "bitwise"), ("RUEDA_ALGORITHM", "ring")]:
        variables = mpi_support.environment(tmp_path, **{setting: value})
        output = mpi_support.run([*OPEN_MPI_4.command(2), *script(REFUSAL)], variables).stdout
        assert output.count(f"{setting}={value} cannot be kept with RUEDA_CPU_OPERATIONS=mpi") == 2, output


ONE_HAS_IT = """
import rueda.numpy as hvd
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"])
if rank != int(sys.argv[1]):
    del os.environ["RUEDA_CPU_OPERATIONS"]
hvd.init()
"""


# MPI_Init of Open MPI ends the process by itself when it does not understand what a rank without MPI has put.
@pytest.mark.parametrize("with_mpi", [0, 1])
@pytest.mark.parametrize("mpi", ALL[:2], ids=name_of)
def test_a_setting_that_reached_one_rank_only_ends_the_job(
    mpi: Mpi, with_mpi, script, tmp_path: Path
) -> None:
    variables = mpi_support.environment(tmp_path, RUEDA_START_TIMEOUT="10")
    ended = mpi_support.run([*mpi.command(2), *script(ONE_HAS_IT), str(with_mpi)], variables)
    assert ended.returncode not in (0, 124, 137), ended  # not killed at the limit of time
    if mpi.family == "hydra":
        assert "set RUEDA_CPU_OPERATIONS=mpi on all ranks" in ended.stdout, ended.stdout


@pytest.mark.parametrize("mpi", ALL, ids=name_of)
def test_rueda_run_starts_ranks_through_mpirun(mpi: Mpi, script, tmp_path: Path) -> None:
    program = mpi.launcher()
    if mpi.name == "intel":
        program += ".hydra"  # its mpiexec is a script that looks for this one in PATH
    body = """
import rueda.numpy as hvd
hvd.init()
print(f"RANK {hvd.rank()} of {hvd.size()} {hvd.mpi_enabled()} {os.environ['RUEDA_CYCLE_TIME']}", flush=True)
"""
    variables = mpi_support.environment(tmp_path)
    del variables["RUEDA_CPU_OPERATIONS"]
    command = [launch_support.RUEDA, "run", "--mpi", "--mpirun", program, "--cycle-time-ms=2", "-np", "3"]
    output = mpi_support.run_well([*command, "--log-dir", "logs", *script(body)], variables)
    for rank in range(3):
        assert f"RANK {rank} of 3 True 2" in output, output
    assert "--log-dir has no effect with --mpi" in output
