"""Starts several copies of rendezvous_probe and expects every rank to meet all others.

    python meet_by.py PROBE openmpi|mpich|mpich-port|torchrun|file|tcp|seed

Exit code 77 (skipped) where the launcher is not installed.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

RANKS = 4
TIMEOUT_S = 90


def launcher_command(probe: str, how: str) -> list[str] | None:
    commands = {
        "openmpi": ["mpirun.openmpi", "--oversubscribe", "-np", str(RANKS), probe],
        "mpich": ["mpirun.mpich", "-n", str(RANKS), probe],
        "mpich-port": ["mpirun.mpich", "-pmi-port", "-n", str(RANKS), probe],
        "torchrun": ["torchrun", "--standalone", f"--nproc-per-node={RANKS}", "--no-python", probe],
    }
    return commands.get(how)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def by_hand(probe: str, how: str, environment: dict[str, str], scratch: str) -> str:
    shared = {
        "file": {"RUEDA_STORE": f"file://{scratch}/store"},
        "tcp": {"RUEDA_STORE": f"tcp://127.0.0.1:{free_port()}"},
        "seed": {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())},
    }[how]
    names = ("RANK", "WORLD_SIZE") if how == "seed" else ("RUEDA_RANK", "RUEDA_SIZE")
    ranks = [
        subprocess.Popen(
            [probe],
            env=environment | shared | {names[0]: str(rank), names[1]: str(RANKS)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    output = "".join(rank.communicate(timeout=TIMEOUT_S)[0] for rank in ranks)
    if any(rank.returncode != 0 for rank in ranks):
        sys.exit(f"exit codes {[rank.returncode for rank in ranks]}\n{output}")
    return output


def main() -> None:
    probe, how = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        environment = dict(os.environ, XDG_CONFIG_HOME=scratch)
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        beside_python = Path(sys.executable).parent
        environment["PATH"] = f"{beside_python}:{environment['PATH']}"
        command = launcher_command(probe, how)
        if command is None:
            output = by_hand(probe, how, environment, scratch)
        elif shutil.which(command[0], path=environment["PATH"]) is None:
            sys.exit(77)
        else:
            run = subprocess.run(
                command, env=environment, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S
            )
            output = run.stdout
            if run.returncode != 0:
                sys.exit(f"{command} ended with {run.returncode}\n{output}")
    ranks = sorted(int(rank) for rank in re.findall(rf"^rank (\d+) of {RANKS},", output, re.MULTILINE))
    if ranks != list(range(RANKS)):
        sys.exit(f"expected ranks 0 to {RANKS - 1}, saw {ranks}:\n{output}")
    print(output, end="")


if __name__ == "__main__":
    main()
