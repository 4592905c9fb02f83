"""tools/test_matrix.py: what counts as a passed cell."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import test_matrix as driver

REPORT = """<testsuites><testsuite>
<testcase name="good"/><testcase name="better"/>
<testcase name="bad"><failure message="no"/></testcase>
<testcase name="left"><skipped message="there is no  jax"/></testcase>
</testsuite></testsuites>"""
CELL = driver.Cell(("jax==0.0.1",), ("tests/multiprocess/test_jax_*.py",))


def read(tmp_path, text, status):
    outcome, report = driver.Outcome(CELL), tmp_path / "report.xml"
    if text:
        report.write_text(text)
    driver.read_report(outcome, report, status)
    return outcome


def test_failures_and_reasons_of_skips_stand_in_the_row(tmp_path):
    row = read(tmp_path, REPORT, 1).row()
    assert "| FAILED | 2 / 1 / 1 |" in row and "failed: bad" in row and "1 skipped: there is no jax" in row
    good = read(tmp_path, REPORT.replace('<failure message="no"/>', ""), 0)
    assert good.is_ok and good.row().startswith("| jax 0.0.1 | passed | 3 / 0 / 1 |")


@pytest.mark.parametrize(
    ("text", "status", "why"),
    [
        ("", 2, "exit status 2"),
        ("", -9, "SIGKILL"),
        (
            REPORT.replace('<failure message="no"/>', ""),
            driver.run_command.TIMED_OUT,
            "past its time limit",
        ),
        ("<testsuites/>", 0, "no test ran"),
    ],
)
def test_a_run_that_ends_otherwise_is_a_failure_with_its_reason(tmp_path, text, status, why):
    outcome = read(tmp_path, text, status)
    assert not outcome.is_ok and why in outcome.row()


def test_an_environment_that_cannot_be_made_fails_its_cell(tmp_path, monkeypatch):
    def refuse(command, **options):
        text = "" if "venv" in command else "ERROR: No matching distribution found for jax==0.0.1\n"
        return subprocess.CompletedProcess(command, 1 if text else 0, "", text)

    monkeypatch.setenv("RUEDA_CACHE", str(tmp_path))
    monkeypatch.setattr(driver.subprocess, "run", refuse)
    outcome = driver.run_cell(CELL, 0, "/nowhere/librueda.so")
    assert not outcome.is_ok and "No matching distribution found for jax==0.0.1" in outcome.row()
