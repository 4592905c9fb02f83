"""Makes the steps of a job again in a job that nobody disturbs, and compares the states bit for bit."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from history import (
    Commit,
    Stretch,
    check_checkpoints,
    check_equal,
    check_samples,
    history_of,
    read,
    stretches_of,
)
from undisturbed import run_job

AGAIN = Path(__file__).resolve().parent / "again.py"
SAMPLES = 96  # as in program.py
LIMIT_S = 3600


def replay(stretches: list[Stretch], folder: Path, seed: int) -> list[Commit]:
    """The history of the same stretches."""
    wanted, out = folder / "stretches.json", folder / "again.jsonl"
    wanted.write_text(json.dumps([[one.last, one.size] for one in stretches]))
    ranks = max(one.size for one in stretches)
    program = [str(AGAIN), "--stretches", str(wanted), "--out", str(out), "--seed", str(seed)]
    # Ranks that are in no set of a long stretch wait for its end.
    run_job("replay", ranks, program, LIMIT_S, RUEDA_STALL_CHECK_DISABLE="1")
    records = [json.loads(line) for line in out.read_text().splitlines()]
    return [
        Commit(one["step"], 0, one["size"], one["digest"], one["epoch"], tuple(one["used"]))
        for one in records
    ]


def compare(log: Path, folder: Path, seed: int = 0) -> str:
    """One sentence about a job that left these records; raises Broken if it is not as it would have been."""
    records = read(log)
    history = history_of(records)
    check_checkpoints(history, records)
    return compare_history(history, folder, seed)


def compare_history(history: list[Commit], folder: Path, seed: int = 0) -> str:
    """The same of a history; raises Broken."""
    check_samples(history, SAMPLES)
    stretches = stretches_of(history)
    if not stretches:
        return "nothing was committed, so nothing is compared; the folder has what the job printed"
    check_equal(history, replay(stretches, folder, seed))
    return f"equal: {len(history)} commits, {len(stretches)} views"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, required=True, help="the folder that program.py wrote")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rueda-replay-") as folder:
        print(compare(options.log, Path(folder), options.seed))


if __name__ == "__main__":
    main()
