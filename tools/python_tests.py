"""Runs pytest for ``run_tests.py``."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List

from check_results import Tally, died, repeat
from run_command import ROOT, run

PYTEST = [sys.executable, "-m", "pytest", "-q", "--durations=10"]


@dataclass
class PythonTests:
    """Some tests in Python, and how they run."""

    report: Path
    arguments: List[str]
    limit_s: float
    env: Dict[str, str] = field(default_factory=dict)
    status: int = 0

    def run(self) -> PythonTests:
        self.status = self._run(self.report, self.arguments, self.limit_s)
        return self

    def count(self, tally: Tally, times: int) -> None:
        """Repeats what failed so often, with nothing beside it, and counts."""
        tally.add_report(self.report.stem, self.report, self.status, repeat(self.report, times, self._again))

    def _again(self, failed: List[str], number: int) -> Path:
        report = self.report.with_suffix(f".repeated-{number}.xml")
        status = self._run(report, [find_test(name) for name in failed], limit_s=900)
        if died(report, status):
            report.unlink(missing_ok=True)  # what it says counts for nothing
        return report

    def _run(self, report: Path, arguments: List[str], limit_s: float) -> int:
        report.unlink(missing_ok=True)
        return run([*PYTEST, *arguments, f"--junitxml={report}"], limit_s, env=self.env)


def find_test(name: str) -> str:
    """What pytest calls the test that a report calls so: ``tests.python.test_x.test_y[1]`` is
    ``tests/python/test_x.py::test_y[1]``. What is no test comes back as it is, and pytest will refuse it."""
    path, bracket, case = name.partition("[")
    parts = path.split(".")
    for end in range(len(parts) - 1, 0, -1):
        file = Path(*parts[:end]).with_suffix(".py")
        if (ROOT / file).is_file():
            return "::".join([str(file), *parts[end:]]) + bracket + case
    return name
