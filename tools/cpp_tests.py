"""Runs the C++ test programs of a build tree for ``run_tests.py``."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from check_results import Tally, read_report
from run_command import ROOT, run

BUILD = ROOT / "build"

# LeakSanitizer is a part of AddressSanitizer and writes where that one does.
SANITIZER_OPTIONS = ("ASAN_OPTIONS", "TSAN_OPTIONS")
FOR_ALL_SANITIZERS = "allocator_may_return_null=1:handle_abort=1"  # abort() shows its stack
# Where the thread-local memory of a library loaded by dlopen begins 16 bytes into a page by chance,
# AddressSanitizer takes what stands before it for a size, and LeakSanitizer dies of that.
NO_GUESSES = "intercept_tls_get_addr=0"
ALONE = "*Alone.*"  # suites that measure the clock
LIMIT_S = 900


@dataclass
class Suite:
    """The test programs of one preset, and how they run there."""

    preset: str
    environment: Dict[str, str] = field(default_factory=dict)
    left_out: str = ""  # a filter of googletest
    programs_left_out: Tuple[str, ...] = ()

    def programs(self) -> List[Path]:
        """Of a configured build tree."""
        listed = (BUILD / self.preset / "tests.txt").read_text().split()
        return [Path(name) for name in listed if Path(name).name not in self.programs_left_out]

    def run(self, tally: Tally) -> None:
        """All tests but those that measure the clock."""
        left_out = ":".join(part for part in (self.left_out, ALONE) if part)
        for program in self.programs():
            Attempt(self, program, "", f"-{left_out}").run().count(tally)

    def run_alone(self, tally: Tally) -> None:
        """Those that measure the clock. What fails is repeated once."""
        left_out = f":-{self.left_out}" if self.left_out else ""
        for program in self.programs():
            if not program.exists():
                continue  # it was not built, and that has been counted
            attempt = Attempt(self, program, ".alone", ALONE + left_out).run()
            found = read_report(attempt.report)
            if found.failed:
                again = Attempt(self, program, ".repeated", ":".join(found.failed)).run()
                attempt.count(tally, again.report)
            elif attempt.status != 0 or found.passed:
                attempt.count(tally)


class Attempt:
    """One run of one program."""

    def __init__(self, suite: Suite, program: Path, suffix: str, tests: str) -> None:
        self._suite = suite
        self._program = program
        self._tests = tests
        self._label = f"{suite.preset}/{program.name}"
        place = BUILD / suite.preset
        self.report = place / f"{program.name}{suffix}.xml"
        self._log = place / f"{program.name}{suffix}.log"
        self._findings = place / f"{program.name}{suffix}.findings"
        self.status = 0

    def run(self) -> Attempt:
        for old in (self.report, *self._find_findings()):
            old.unlink(missing_ok=True)
        started = time.monotonic()
        command = [str(self._program), f"--gtest_output=xml:{self.report}", f"--gtest_filter={self._tests}"]
        if self._suite.preset == "tsan":  # its shadow memory does not fit every address layout
            command = ["setarch", "-R", *command]
        env = dict(self._suite.environment)
        env.update({k: f"{env[k]}:log_path={self._findings}" for k in SANITIZER_OPTIONS if k in env})
        with self._log.open("w") as output:
            self.status = run(command, limit_s=LIMIT_S, env=env, output=output)
        if self.status != 0 or read_report(self.report).passed:  # few programs have tests that must be alone
            print(f"  {self._label}: {time.monotonic() - started:.1f} s", flush=True)
        return self

    def count(self, tally: Tally, repeated: Optional[Path] = None) -> None:
        failures = len(tally.failures) + len(tally.flaky)
        tally.add_report(self._label, self.report, self.status, repeated)
        if len(tally.failures) + len(tally.flaky) > failures:
            tally.details += [f"{self._label}: {read_head(file)}" for file in self._find_findings()]
            tally.details.append(f"{self._label}: {read_failures(self._log, self.status)}")

    def _find_findings(self) -> List[Path]:
        """What a sanitizer wrote: one file per process."""
        return sorted(self._findings.parent.glob(f"{self._findings.name}.*"))


def read_head(path: Path, lines: int = 40) -> str:
    """The first lines of a text file."""
    text = path.read_text(errors="replace").splitlines()
    return "\n".join(text[:lines] + ([f"({len(text) - lines} more lines)"] if len(text) > lines else []))


def read_failures(log: Path, status: int, lines: int = 60) -> str:
    """From the output of a test program: the tests that failed, and the end if it died."""
    text = log.read_text(errors="replace").splitlines()
    found: List[str] = []
    test: List[str] = []
    for line in text:
        test = [line] if line.startswith("[ RUN ") else [*test, line]
        if line.startswith("[  FAILED  ]") and "ms)" in line:
            found += test
    if status not in (0, 1):
        found += text[-lines:]  # its last test has no end
    return "\n".join(found[: 4 * lines])
