"""tools/busy_tests.py: what it counts, and that its busy processes end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import children_of, is_alive

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
        (["--busy", "0"], "--busy 0 would keep nothing busy"),
        (["-k", "nonsense"], "no test ran"),
        (["--no-such-option"], "error: unrecognized arguments: --no-such-option"),
        (["no_such_file.py"], "file or directory not found: no_such_file.py"),
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_tests_and_the_busy_processes(tmp_path: Path, number: signal.Signals) -> None:
    file = tmp_path / "test_them.py"
    file.write_text(
        f"import time\ndef test_waits():\n    open({str(tmp_path / 'began')!r}, 'w')\n    time.sleep(300)"
    )
    command = [sys.executable, str(ROOT / "tools/busy_tests.py"), "--busy", "1", f"--out={tmp_path / 'out'}"]
    command += ["-o", f"cache_dir={tmp_path / 'cache'}", str(file)]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 90.0
    while not (tmp_path / "began").exists():
        assert run.poll() is None and time.monotonic() < end
        time.sleep(0.05)
    started = children_of(run.pid)
    run.send_signal(number)
    _, said = run.communicate(timeout=120)
    assert run.returncode == 128 + number and f"stopped by {number.name}; what runs is ended" in said
    assert len(started) == 2 and not any(is_alive(pid) for pid in started)


def test_busy_processes_end_with_their_context() -> None:
    before = set(children_of(os.getpid()))
    with busy_tests.busy_processes(2, 60.0):
        assert len(set(children_of(os.getpid())) - before) == 2
    assert not set(children_of(os.getpid())) - before
