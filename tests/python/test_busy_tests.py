"""tools/busy_tests.py: what it counts, and that its busy processes end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import busy_tests  # noqa: E402 (found in tools)

TESTS = """
import os
import pytest

def test_passes(): pass
def test_fails(): assert False
def test_is_skipped(): pytest.skip("here")
@pytest.mark.alone
def test_measures():
    is_first = not os.path.exists({mark!r})
    open({mark!r}, "w").close()
    assert not is_first
"""


def test_a_run_counts_what_passed_and_what_failed_and_repeats_what_measures_the_clock(tmp_path: Path) -> None:
    file = tmp_path / "test_them.py"
    file.write_text(TESTS.format(mark=str(tmp_path / "mark")))
    command = [sys.executable, str(ROOT / "tools/busy_tests.py"), "--runs", "2", "--busy", "1"]
    command += [f"--out={tmp_path / 'out'}", "-o", f"cache_dir={tmp_path / 'cache'}", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    rows = [line.split("|")[1:5] for line in done.stdout.splitlines() if line.startswith("| ")][1:]
    assert [[int(cell) for cell in row] for row in rows] == [[1, 1, 1, 1], [2, 2, 1, 0]], done.stdout
    assert "FLAKY in run 1: .test_measures" in done.stdout and done.returncode == 1
    assert done.stdout.count("FAILED in run ") == 2
    assert "assert False" in (tmp_path / "out/run-2/beside.pytest.log").read_text()


def test_a_call_that_tests_nothing_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "test_them.py"
    file.write_text("def test_passes(): pass")
    for options, why in (
        (["--runs", "0"], "--runs 0 would test nothing"),
        (["--runs", "-3"], "--runs -3 would test nothing"),
        (["-k", "nonsense"], "no test ran"),
    ):
        command = [sys.executable, str(ROOT / "tools/busy_tests.py"), "--busy", "1", *options]
        command += [f"--out={tmp_path / 'out'}", "-o", f"cache_dir={tmp_path / 'cache'}", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 2 and why in done.stderr, done


def test_a_folder_of_others_is_not_deleted(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("mine")
    command = [sys.executable, str(ROOT / "tools/busy_tests.py"), "--out", str(tmp_path), "-k", "nonsense"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2 and f"--out {tmp_path} would be deleted" in done.stderr
    assert kept.read_text() == "mine"


def test_busy_processes_end_with_their_context() -> None:
    before = set(children())
    with busy_tests.busy_processes(2, 60.0):
        assert len(set(children()) - before) == 2
    assert not set(children()) - before


def children() -> list[int]:
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(pid) for pid in listed.split()]
