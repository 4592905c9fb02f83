"""The program and the replay of tests/punish: a disturbed job has the bits of one that is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import CASE_LIMIT_S, ROOT, assert_all_succeed, library
from launch_support import RUEDA
from nursery import Imports, fork, launch

sys.path.insert(0, str(ROOT / "tests/punish"))

import history
import replay
from history import Broken

BITWISE = {"RUEDA_DETERMINISM": "bitwise", "PUNISH": str(ROOT / "tests/punish")}
PROGRAM = """
import os, sys
sys.path.insert(0, os.environ["PUNISH"])
import program
"""


def start(script, folder, output, environment):
    return fork(script, folder, output, environment, Imports(("rueda.numpy", "pytest", "cloudpickle")))


def by_ranks(ranks: int, arguments: list) -> None:
    """A job of this many ranks that nobody disturbs."""
    assert_all_succeed(launch(ranks, PROGRAM + f"program.main({arguments!r})", BITWISE, start=start))


@pytest.mark.parametrize("victim", [0, 1])
def test_a_job_that_loses_and_gains_ranks_has_the_bits_of_an_undisturbed_one(
    victim: int, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    disturbed = f"""
from elastic_support import FileMembership
FileMembership([0, 1, 2]).use().plan = {{1: (9, ())}}
program.main(["--log", {str(log)!r}, "--steps", "40", "--die-at", "25:{victim}"])
"""
    finished = launch(4, PROGRAM + disturbed, BITWISE, start=start)
    assert finished[victim].status == -9, finished[victim].output
    del finished[victim]
    assert_all_succeed(finished)
    sizes = [one.size for one in history.history_of(history.read(log))]
    assert set(sizes) == {3, 4} and sizes[0] == sizes[-1] == 3 and sizes[15] == 4
    assert replay.compare(log, tmp_path, by_ranks) == "equal: 40 commits, 3 views"


def test_a_job_of_rueda_run_has_the_bits_of_an_undisturbed_one(tmp_path: Path) -> None:
    if "--spares" not in subprocess.run([RUEDA, "run", "--help"], capture_output=True, text=True).stdout:
        pytest.skip("this rueda run starts no elastic jobs")
    program = [sys.executable, str(ROOT / "tests/punish/program.py")]
    deaths = [word for one in ("60:1", "61:0", "500:0", "900:2") for word in ("--die-at", one)]
    command = [RUEDA, "run", "-np", "4", "--min-np", "2", "--elastic-timeout", "60", *program]
    command += ["--log", str(tmp_path / "log"), "--steps", "2000", *deaths]
    variables = {"PYTHONPATH": str(ROOT / "python"), "RUEDA_LIBRARY": library(), "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **BITWISE, **variables}
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=CASE_LIMIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert replay.compare(tmp_path / "log", tmp_path, by_ranks).startswith("equal: 2000 commits")


def test_a_state_that_is_one_bit_off_is_found(tmp_path: Path) -> None:
    log = tmp_path / "log"
    by_ranks(2, ["--log", str(log), "--steps", "6"])
    path = next(log.glob("*.jsonl"))
    lines = path.read_text().splitlines()
    for other in log.glob("*.jsonl"):
        other.write_text("\n".join(lines).replace(lines[3], lines[3].replace('"digest": "', '"digest": "f')))
    with pytest.raises(Broken, match=r"^Step 4, by 2 ranks in view 1, differs in the replay"):
        replay.compare(log, tmp_path, by_ranks)
