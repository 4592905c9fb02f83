"""The space of Hydra and of srun --mpi=pmi2: closed by a program in between, and shared with MPI itself."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import mpi_support
import pytest
import slurm_support
from mpi_support import Mpi
from slurm_support import make_slurm

__all__ = ["make_slurm"]  # the fixture `slurm`

HYDRA = [one for one in mpi_support.ALL if one.family == "hydra"]

WRAPPER = "import subprocess, sys\nsys.exit(subprocess.run([sys.executable, *sys.argv[1:]]).returncode)\n"
NUMBERED = """
import rueda.numpy as hvd
hvd.init()
print("TOLD", hvd.allgather(np.array([int(sys.argv[1])])).tolist(), flush=True)
"""


@pytest.mark.parametrize("mpi", HYDRA, ids=lambda mpi: mpi.name)
def test_jobs_behind_a_program_that_closes_descriptors_stay_apart(mpi: Mpi, tmp_path: Path) -> None:
    """Without the connection to Hydra a job has no name: two at once on a host met each other."""
    (tmp_path / "wrapper.py").write_text(WRAPPER)
    script = mpi_support.write_script(tmp_path, NUMBERED)[1]
    variables = mpi_support.environment(tmp_path, RUEDA_CPU_OPERATIONS="native", RUEDA_START_TIMEOUT="30")
    start = [mpi.launcher(), "-n", "2", sys.executable, str(tmp_path / "wrapper.py"), script]
    jobs = [
        subprocess.Popen(
            ["timeout", "-k", "5", str(mpi_support.LIMIT_S), *start, number],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in ("7", "8")
    ]
    for number, output in zip("78", [job.communicate()[0] for job in jobs]):
        assert re.findall(r"\d, \d", output) == [f"{number}, {number}"] * 2, output
    assert [job.returncode for job in jobs] == [0, 0]


SHARES = """
from mpi4py import MPI
import rueda.numpy as hvd
for _ in range(2):
    hvd.init()
    assert (hvd.rank(), hvd.size()) == (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size) and hvd.size() == 2
    assert hvd.allgather(np.array([hvd.rank()])).tolist() == [0, 1]
    hvd.shutdown()
    assert MPI.COMM_WORLD.allreduce(1) == 2
print("FINE", flush=True)
"""


@pytest.mark.parametrize("operations", ["native", "mpi"])
@pytest.mark.parametrize("name", ["mpich-5", "intel"])
def test_rueda_and_mpi_of_the_program_share_the_space_of_srun(
    slurm: slurm_support.Slurm, name: str, operations: str, tmp_path: Path
) -> None:
    mpi = next(one for one in HYDRA if one.name == name)
    mpi.launcher()  # skips where this MPI is not here
    variables = mpi_support.environment(tmp_path, RUEDA_CPU_OPERATIONS=operations)
    variables |= {"SLURM_CONF": slurm.environment["SLURM_CONF"]}
    command = ["srun", "-N1", "-n2", "--mpi=pmi2", *mpi_support.write_script(tmp_path, SHARES)]
    output = mpi_support.run_well(command, mpi_support.with_mpi4py(variables, mpi))
    assert output.count("FINE") == 2, output
