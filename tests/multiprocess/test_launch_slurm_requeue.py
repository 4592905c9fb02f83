"""A batch job of Slurm that is requeued while it trains goes on from its checkpoint, with new processes."""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path
from typing import Dict, Iterator, List, Set

import pytest
import slurm_support
from harness import CASE_LIMIT_S
from launch_support import PYTHON, RUEDA
from test_launch_slurm_jobs import await_text, batch_file
from test_launchers import environment, run_to_end

# A requeued job waits until credentials of its first start have expired (cred_expire), and then for the main
# loop of the scheduler (sched_interval): by default 120 and 60 s.
CREDENTIAL_S = 15

# Counts steps in a checkpoint of rank 0. The first run goes on until it is requeued, the second makes
# five steps.
TRAINING = """
import os, pathlib, sys, time
import numpy as np
import rueda.numpy as hvd
folder, restarts = pathlib.Path(sys.argv[1]), os.environ.get("SLURM_RESTART_COUNT", "0")
hvd.init()
saved = folder / "checkpoint"
first = hvd.broadcast(np.array([int(saved.read_text()) if saved.exists() else 0]), 0)[0]
print(f"rank {hvd.rank()} of {hvd.size()}, restarts {restarts}, from step {first}", flush=True)
end = time.monotonic() + 60
step = first
while time.monotonic() < end and (restarts == "0" or step < first + 5):
    step += int(hvd.allreduce(np.ones(1), op=hvd.Sum)[0]) // hvd.size()
    if hvd.rank() == 0:
        part = folder / "checkpoint.part"
        part.write_text(str(step))
        part.replace(saved)
    time.sleep(0.05)
print(f"done, restarts {restarts}", flush=True)
hvd.shutdown()
"""


@pytest.fixture(scope="module", name="slurm")
def make_slurm() -> Iterator[slurm_support.Slurm]:
    reason = slurm_support.why_not()
    if reason:
        pytest.skip(reason)
    made = slurm_support.Slurm(nodes=2, credential_s=CREDENTIAL_S)
    yield made
    made.stop()


def first_steps(log: Path, restarts: int) -> List[int]:
    """The steps from which the ranks of a start went on."""
    return [int(step) for step in re.findall(rf"restarts {restarts}, from step (\d+)", log.read_text())]


def processes_of(folder: Path) -> Set[int]:
    """Those whose command line names the folder: launchers and ranks."""
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                found.add(int(entry.name))
    return found


def await_checkpoint(path: Path, step: int) -> None:
    deadline = time.monotonic() + CASE_LIMIT_S
    while not path.exists() or int(path.read_text()) < step:
        assert time.monotonic() < deadline, f"no step {step} in {path}"
        time.sleep(0.05)


def test_a_requeued_job_goes_on_from_its_checkpoint(slurm: slurm_support.Slurm, tmp_path: Path) -> None:
    """One job of `rueda run` and one of `srun`, at the same time, because Slurm lets them wait."""
    (tmp_path / "tmp").mkdir()
    variables = environment(tmp_path) | {"SLURM_CONF": slurm.environment["SLURM_CONF"]}
    (tmp_path / "train.py").write_text(TRAINING)
    jobs: Dict[str, Path] = {}  # its id and its folder
    for name, launcher in {"with_rueda_run": f"{RUEDA} run", "with_srun": "srun"}.items():
        folder = tmp_path / name
        folder.mkdir()
        options = [f"-o {folder}/log", "--open-mode=append", "--requeue", "-N2 -n2"]
        script = batch_file(folder, options, f"{launcher} {PYTHON} {tmp_path}/train.py {folder}")
        jobs[run_to_end(["sbatch", "--parsable", script], variables).strip()] = folder
    of_first: Dict[Path, Set[int]] = {}
    for job, folder in jobs.items():
        await_text(folder / "log", "restarts 0, from step 0", count=2)
        await_checkpoint(folder / "checkpoint", 3)
        of_first[folder] = processes_of(folder)
        run_to_end(["scontrol", "requeue", job], variables)
    for folder, pids in of_first.items():
        await_text(folder / "log", "restarts 1, from", count=2)
        left = pids & processes_of(folder)
        assert len(pids) >= 3 and not left, f"of the first run: {left} of {pids}"
        steps = first_steps(folder / "log", restarts=1)
        assert steps[0] == steps[1] >= 3, (folder / "log").read_text()
        await_text(folder / "log", "done, restarts 1", count=2)
