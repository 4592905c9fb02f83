"""Starts an elastic job and kills its ranks at random moments, from a seed.

    python tests/punish/punisher.py --faults 20 -- rueda run -np 4 --min-np 2 python tests/punish/program.py …

Each fault kills one living rank by SIGKILL, as long as enough would be left (--least). Prints what it did.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import time
import uuid
from pathlib import Path

MARK = "RUEDA_PUNISHED_JOB"


def ranks_of(mark: str) -> list[int]:
    """Processes of the job that run Python; the launcher and its agents do not."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        is_python = Path(os.fsdecode(words[0])).name.startswith("python")
        if is_python and f"{MARK}={mark}".encode() in environment:
            found.append(int(entry.name))
    return found


def punish(command: list[str], faults: int, seed: int, pauses: tuple[float, float], least: int) -> int:
    """The exit status of the job."""
    random_ = random.Random(seed)
    mark = uuid.uuid4().hex
    job = subprocess.Popen(command, env={**os.environ, MARK: mark})
    done = 0
    while job.poll() is None and done < faults:
        time.sleep(random_.uniform(*pauses))
        living = ranks_of(mark)
        if len(living) > least:
            victim = random_.choice(living)
            os.kill(victim, signal.SIGKILL)
            done += 1
            print(f"punisher: fault {done}: killed process {victim} of {len(living)}", flush=True)
    return job.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause", type=float, nargs=2, default=(0.5, 2.0), metavar=("LEAST", "MOST"))
    parser.add_argument("--least", type=int, default=2, help="ranks that must be left")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("the command that starts the job is missing: end with -- rueda run …")
    raise SystemExit(punish(command, options.faults, options.seed, tuple(options.pause), options.least))


if __name__ == "__main__":
    main()
