"""One training script, every way to start it: the same world, the same sums."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import launch_support
import pytest
import slurm_support
from harness import library
from meet_by import free_port
from robust_support import Jobs, make_jobs

__all__ = ["make_jobs"]  # the fixture `jobs`

RANKS = 4
LIMIT_S = 90

BODY = """
hvd.init()
summed = hvd.allreduce(torch.full((1000,), hvd.rank() + 1.0), op=hvd.Sum)
gathered = hvd.allgather(torch.tensor([hvd.rank()]))
facts = {name: getattr(hvd, name)() for name in
         ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")}
facts |= {"sum": summed.unique().tolist(), "gathered": gathered.tolist()}
print("FACTS " + json.dumps(facts), flush=True)
hvd.shutdown()
"""
SCRIPT = "import json\nimport torch\nimport rueda.torch as hvd\n" + BODY


def expected(hosts: int) -> List[Dict[str, Any]]:
    per_host = RANKS // hosts
    return [
        {
            "rank": rank,
            "size": RANKS,
            "local_rank": rank % per_host,
            "local_size": per_host,
            "cross_rank": rank // per_host,
            "cross_size": hosts,
            "sum": [RANKS * (RANKS + 1) / 2],
            "gathered": list(range(RANKS)),
        }
        for rank in range(RANKS)
    ]


def assert_world(output: str, hosts: int) -> None:
    found = [json.loads(text) for text in re.findall(r"FACTS (\{.*?\})", output)]
    assert sorted(found, key=lambda facts: facts["rank"]) == expected(hosts), output


@pytest.fixture(name="script")
def make_script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def environment(scratch: Path) -> Dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("RUEDA_", "HOROVOD_", "OMPI_", "PMI"))}
    return {
        **clean,
        "PYTHONPATH": str(launch_support.ROOT / "python"),
        "RUEDA_LIBRARY": library(),
        "OMP_NUM_THREADS": "1",
        "XDG_CONFIG_HOME": str(scratch),  # the user's key must not land in a real home
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


def run_to_end(command: List[str], variables: Dict[str, str]) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    ended = subprocess.run(
        ["timeout", "-k", "5", str(LIMIT_S), *command],
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert ended.returncode == 0, f"{command} ended with {ended.returncode}\n{ended.stdout}"
    return ended.stdout


@pytest.mark.parametrize("store", ["file", "tcp"])
def test_by_hand(jobs: Jobs, store: str) -> None:
    url = "file://$FOLDER/store" if store == "file" else f"tcp://127.0.0.1:{free_port()}"
    job = jobs.start(RANKS, BODY, environment={"RUEDA_STORE": url})
    job.assert_ended_well()
    assert_world("\n".join(job.output(rank) for rank in range(RANKS)), hosts=1)


def test_rueda_run(script: Path, tmp_path: Path) -> None:
    status, out, errors = launch_support.run(
        *("-np", RANKS, sys.executable, script), env=environment(tmp_path), timeout=LIMIT_S
    )
    assert status == 0, errors
    assert_world(out, hosts=1)


def test_torchrun(script: Path, tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    assert_world(run_to_end([*torchrun, str(script)], environment(tmp_path)), hosts=1)


def test_mpirun_of_open_mpi(script: Path, tmp_path: Path) -> None:
    command = ["mpirun.openmpi", "--oversubscribe", "-np", str(RANKS), sys.executable, str(script)]
    assert_world(run_to_end(command, environment(tmp_path)), hosts=1)


def test_mpirun_of_mpich(script: Path, tmp_path: Path) -> None:
    command = ["mpirun.mpich", "-n", str(RANKS), sys.executable, str(script)]
    assert_world(run_to_end(command, environment(tmp_path)), hosts=1)


@pytest.fixture(scope="module", name="slurm")
def make_slurm() -> Iterator[slurm_support.Slurm]:
    reason: Optional[str] = slurm_support.why_not()
    if reason:
        pytest.skip(reason)
    made = slurm_support.Slurm()
    yield made
    made.stop()


@pytest.mark.parametrize("mpi", ["none", "pmi2", "pmix"])
def test_srun_on_two_nodes(slurm: slurm_support.Slurm, script: Path, tmp_path: Path, mpi: str) -> None:
    if not slurm.has_mpi(mpi):
        pytest.skip(f"this Slurm has no plug-in for --mpi={mpi}")
    command = [
        "srun",
        "-N2",
        f"-n{RANKS}",
        "--ntasks-per-node=2",
        f"--mpi={mpi}",
        sys.executable,
        str(script),
    ]
    output = run_to_end(command, environment(tmp_path) | {"SLURM_CONF": slurm.environment["SLURM_CONF"]})
    assert_world(output, hosts=2)
