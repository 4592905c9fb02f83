"""Jobs of Slurm as users write them, on four nodes: salloc, sbatch, components, a lost node."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path
from typing import Dict, List

import pytest
import slurm_support
from harness import CASE_LIMIT_S
from launch_support import PYTHON, RUEDA
from slurm_support import make_slurm
from test_launchers import (
    BODY,
    IMPORTS,
    assert_world,
    documented_script,
    environment,
    run_to_end,
    with_programs,
)

__all__ = ["make_slurm"]  # the fixture `slurm`

LIMIT_S = CASE_LIMIT_S


@pytest.fixture(name="variables")
def make_variables(slurm: slurm_support.Slurm, tmp_path: Path) -> Dict[str, str]:
    (tmp_path / "tmp").mkdir()
    return environment(tmp_path) | {"SLURM_CONF": slurm.environment["SLURM_CONF"]}


@pytest.fixture(name="script")
def make_script(tmp_path: Path) -> str:
    (tmp_path / "train.py").write_text(IMPORTS + BODY)
    return str(tmp_path / "train.py")


def batch_file(folder: Path, options: List[str], command: str) -> str:
    lines = ["#!/bin/sh", *(f"#SBATCH {option}" for option in options), command]
    path = folder / "job.sh"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def sbatch(folder: Path, variables: Dict[str, str], options: List[str], command: str) -> str:
    """The output of a batch job that ends well. (`sbatch --wait` asks only every ten seconds.)"""
    log = folder / "log"
    path = batch_file(folder, [f"-o {log}", *options], f"{command}\necho ended with $?")
    run_to_end(["sbatch", path], variables)
    await_text(log, "ended with ")
    assert "ended with 0" in log.read_text(), log.read_text()
    return log.read_text()


def await_text(path: Path, text: str, count: int = 1) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not path.exists() or path.read_text().count(text) < count:
        assert time.monotonic() < deadline, path.read_text() if path.exists() else f"no {path}"
        time.sleep(0.05)


@pytest.mark.parametrize("way", ["salloc", "sbatch"])
def test_rueda_run_on_four_nodes(way: str, script: str, variables: Dict[str, str], tmp_path: Path) -> None:
    if way == "salloc":
        output = run_to_end(["salloc", "-N4", "-n4", RUEDA, "run", PYTHON, script], variables)
    else:
        output = sbatch(tmp_path, variables, ["-N4 -n4"], f"{RUEDA} run {PYTHON} {script}")
    assert_world(output, hosts=4)


def test_documented_script(script: str, variables: Dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(documented_script("slurm"))
    command = [
        "sbatch",
        f"--output={tmp_path}/log",
        f"--chdir={Path(script).parent}",
        str(tmp_path / "job.sh"),
    ]
    run_to_end(command, with_programs(tmp_path, variables))
    await_text(tmp_path / "log", "FACTS", count=4)
    assert_world((tmp_path / "log").read_text(), hosts=2)


COMPONENTS = ["-N1 -n2", "hetjob", "-N1 -n2"]


@pytest.mark.parametrize("launcher", [f"{RUEDA} run", "srun --het-group=0,1"])
def test_components_of_a_heterogeneous_job_are_one_world(
    launcher: str, script: str, variables: Dict[str, str], tmp_path: Path
) -> None:
    output = sbatch(tmp_path, variables, COMPONENTS, f"{launcher} {PYTHON} {script}")
    assert_world(output, hosts=2)


LONG = """
import time
import numpy as np
import rueda.numpy as hvd
hvd.init()
print(f"rank {hvd.rank()} of {hvd.size()}", flush=True)
end = time.monotonic() + 60
while time.monotonic() < end:
    hvd.allreduce(np.ones(3))
    time.sleep(0.05)
"""


def test_a_node_that_goes_down_is_named(
    slurm: slurm_support.Slurm, variables: Dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(LONG)
    with open(tmp_path / "log", "wb") as log:
        job = subprocess.Popen(
            [
                "timeout",
                "60",
                "salloc",
                "--no-kill",
                "-N2",
                "-n2",
                RUEDA,
                "run",
                PYTHON,
                tmp_path / "train.py",
            ],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    await_text(tmp_path / "log", " of 2", count=2)
    lost = re.findall(r"\[1 (n\d)\]", (tmp_path / "log").read_text())[0]
    down = ["scontrol", "update", f"nodename={lost}", "state=down", "reason=test"]
    run_to_end(down, variables)
    status = job.wait(LIMIT_S)
    output = (tmp_path / "log").read_text()
    assert status == 1 and f"rank 1 on {lost}" in output and f"Node failure on {lost}" in output, output
    assert "was lost with its host" in output, output
