"""Starts several copies of a program, each of which is to meet the others, by hand or under a launcher."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, List

import pytest
from harness import CASE_LIMIT_S
from ports import free_port

RANKS = 4

LAUNCHERS: Dict[str, List[str]] = {  # a program comes behind
    "openmpi": ["mpirun.openmpi", "--oversubscribe", "-np", str(RANKS)],
    "mpich": ["mpirun.mpich", "-n", str(RANKS)],
    "mpich-port": ["mpirun.mpich", "-pmi-port", "-n", str(RANKS)],
    "torchrun": ["torchrun", "--standalone", f"--nproc-per-node={RANKS}", "--no-python"],
}
BY_HAND = ["file", "tcp", "seed"]


def start_by_launcher(program: Path, how: str, folder: Path) -> str:
    """What all ranks have printed; fails unless they ended well."""
    environment = _environment(folder)
    command = LAUNCHERS[how]
    if shutil.which(command[0], path=environment["PATH"]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(
        [*command, str(program)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=CASE_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def start_by_hand(program: Path, how: str, folder: Path) -> str:
    """The same. how: by which variables the ranks find one another."""
    shared = {
        "file": {"RUEDA_STORE": f"file://{folder}/store"},
        "tcp": {"RUEDA_STORE": f"tcp://127.0.0.1:{free_port()}"},
        "seed": {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())},
    }[how]
    names = ("RANK", "WORLD_SIZE") if how == "seed" else ("RUEDA_RANK", "RUEDA_SIZE")
    ranks = [
        subprocess.Popen(
            [str(program)],
            env={**_environment(folder), **shared, names[0]: str(rank), names[1]: str(RANKS)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(RANKS)
    ]
    try:
        output = "".join(rank.communicate(timeout=CASE_LIMIT_S)[0] for rank in ranks)
    finally:
        for one in ranks:
            one.kill()
            one.wait()
    assert [rank.returncode for rank in ranks] == [0] * RANKS, output
    return output


def _environment(folder: Path) -> Dict[str, str]:
    private = ("RUEDA_", "HOROVOD_", "OMPI_", "PMI", "SLURM_")
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(private)},
        "XDG_CONFIG_HOME": str(folder),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
