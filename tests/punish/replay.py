"""Runs the steps of a job again in jobs that nobody disturbs, and compares the states bit for bit."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from history import Commit, Stretch, check_equal, check_samples, history_of, read, stretches_of

PROGRAM = Path(__file__).resolve().parent / "program.py"
SAMPLES = 96  # as in program.py
LIMIT_S = 600

Runner = Callable[[int, list[str]], None]  # (ranks, arguments of program.py)


def by_rueda_run(ranks: int, arguments: list[str]) -> None:
    """One job of the launcher."""
    command = [os.environ.get("RUEDA_BIN", "rueda"), "run", "-np", str(ranks)]
    command += [sys.executable, str(PROGRAM), *arguments]
    environment = {**os.environ, "RUEDA_DETERMINISM": "bitwise"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"replay: {' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def replay(stretches: list[Stretch], folder: Path, run: Runner, seed: int) -> list[Commit]:
    """The history of the same stretches, each run by a job of its own from the state of the one before."""
    found: list[Commit] = []
    for number, stretch in enumerate(stretches):
        log, state = folder / f"log.{number}", folder / f"state.{number}.npz"
        arguments = [
            "--log",
            str(log),
            "--steps",
            str(stretch.last),
            "--seed",
            str(seed),
            "--keep",
            str(state),
        ]
        if number > 0:
            arguments += ["--load", str(folder / f"state.{number - 1}.npz")]
        run(stretch.size, arguments)
        found += _from(read(log), stretch.first)
    return found


def _from(records: list[dict], first: int) -> list[Commit]:
    shifted = [{**one, "step": one["step"] - first} for one in records]
    return [
        Commit(one.step + first, one.view, one.size, one.digest, one.epoch, one.used)
        for one in history_of(shifted)
    ]


def compare(log: Path, folder: Path, run: Runner = by_rueda_run, seed: int = 0) -> str:
    """One sentence about a job that left these records; raises Broken if it is not as it would have been."""
    history = history_of(read(log))
    check_samples(history, SAMPLES)
    stretches = stretches_of(history)
    check_equal(history, replay(stretches, folder, run, seed))
    return f"equal: {len(history)} commits, {len(stretches)} views"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, required=True, help="the folder that program.py wrote")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rueda-replay-") as folder:
        print(compare(options.log, Path(folder), seed=options.seed))


if __name__ == "__main__":
    main()
