#!/usr/bin/env python3
"""Runs the tests several times beside processes that keep the machine busy, and prints a table of the runs.

    .venv/bin/python tools/busy_tests.py                                       # all tests, ten times: hours
    .venv/bin/python tools/busy_tests.py --runs 3 tests/multiprocess/test_status.py -k hangs   # for pytest

A run is: the C++ test programs of build/release and then pytest, which three processes share on two cores,
beside the busy processes; at last, without them, the tests that measure the clock (the marker ``alone``;
``Alone`` in the name of a C++ suite). One of those that fails runs once more and counts as flaky if it then
passes. With arguments for pytest there is no C++. Logs and reports lie in build/busy/. Ctrl-C and SIGTERM
end what runs. The exit status is 1 if a test failed or was flaky, 2 if none ran or pytest refuses its
arguments.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Iterator, List

from check_results import Tally, died, read_report
from cpp_tests import ALONE
from run_command import ROOT, describe_exit, end_all, run
from run_tests import SHARED, build_release, put_this_python_in_path, raise_signal

PART_LIMIT_S = 3 * 3600
# Exit statuses of pytest.
REFUSED = 4  # its arguments
NOTHING = 5  # no test was selected
# Uses one core until its time is over or the process that has started it has ended.
BUSY = """
import os, sys, time
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end and os.getppid() == int(sys.argv[2]):
    sum(range(100_000))
"""


class Refused(Exception):
    """What pytest says of its arguments."""


@dataclass
class Outcome:
    """Of some tests. The names are those of the reports."""

    passed: int = 0
    failed: List[str] = field(default_factory=list)
    flaky: List[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.flaky += other.flaky


@contextlib.contextmanager
def busy_processes(count: int, seconds: float) -> Iterator[None]:
    """They end with this context, and by themselves after the seconds."""
    command = [sys.executable, "-S", "-c", BUSY, str(seconds), str(os.getpid())]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def run_part(command: List[str], report: Path) -> Outcome:
    """Runs tests that write this report. A program that ends otherwise counts as one failed test."""
    with report.with_suffix(".log").open("w") as log:
        status = run(command, PART_LIMIT_S, output=log)
    if status == REFUSED:
        said = report.with_suffix(".log").read_text(errors="replace")
        raise Refused([said, *(line for line in said.splitlines() if "error: " in line.lower())][-1])
    found = read_report(report)
    if died(report, 0 if status == NOTHING else status):
        program = report.stem.partition(".")[2]  # the same beside others, alone and again
        found.failed.append(f"{program} {describe_exit(status)}")
    return Outcome(len(found.passed), found.failed)


def run_once(folder: Path, part: str, arguments: List[str], are_alone: bool, more: List[str]) -> Outcome:
    """Those tests that must be alone, or the others. arguments: of pytest; if there are any, no C++."""
    found = Outcome()
    if not arguments:
        for program in (ROOT / "build" / "release" / "tests.txt").read_text().split():
            report = folder / f"{part}.{Path(program).name}.xml"
            options = [f"--gtest_filter={'' if are_alone else '-'}{ALONE}", f"--gtest_output=xml:{report}"]
            found.add(run_part([program, "--gtest_brief=1", *options], report))
    report = folder / f"{part}.pytest.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(ROOT / "pyproject.toml")]
    command += [*(["-m", "alone"] if are_alone else SHARED), f"--junitxml={report}"]
    found.add(run_part([*command, *more, *arguments], report))
    return found


def run_all(folder: Path, busy: int, arguments: List[str]) -> Outcome:
    folder.mkdir(parents=True)
    with busy_processes(busy, 2 * PART_LIMIT_S):
        found = run_once(folder, "beside", arguments, are_alone=False, more=[])
    alone = run_once(folder, "alone", arguments, are_alone=True, more=[])
    if alone.failed:
        failures = ["--last-failed", "--last-failed-no-failures=none"]
        again = run_once(folder, "again", arguments, are_alone=True, more=failures)
        alone.flaky = [name for name in alone.failed if name not in again.failed]
        alone.failed = again.failed
    found.add(alone)
    return found


def is_ours(folder: Path) -> bool:
    """Whether there is nothing in this place but what an earlier call has left."""
    if folder.is_symlink() or not folder.is_dir():
        return not os.path.lexists(folder)
    return all(re.fullmatch(r"run-\d+", entry.name) for entry in folder.iterdir())


def main() -> int:
    # A shell lets what it starts in the background ignore Ctrl-C, and so would the ranks of the tests.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, raise_signal)
    try:
        return run_as_told()
    except Refused as said:
        print(f"busy_tests.py: pytest refuses its arguments: {said}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        end_all(signal.SIGKILL)
        print(
            f"stopped by {signal.Signals(stop.args[0]).name}; what runs is ended", file=sys.stderr, flush=True
        )
        return 128 + int(stop.args[0])


def run_as_told() -> int:
    """By the command line."""
    parser = argparse.ArgumentParser(description="the tests, several times, on a machine that is kept busy")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--busy", type=int, default=4, help="processes that use a core each")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "busy", help="a folder for logs")
    options, arguments = parser.parse_known_args()
    if options.runs < 1:
        parser.error(f"--runs {options.runs} would test nothing; 1 or more")
    if options.busy < 1:
        parser.error(f"--busy {options.busy} would keep nothing busy; 1 or more")
    if importlib.util.find_spec("pytest") is None:
        parser.error("this Python has no pytest; run make setup, then .venv/bin/python tools/busy_tests.py")
    if not is_ours(options.out):
        parser.error(f"--out {options.out} would be deleted and is not of an earlier call; name a new folder")
    shutil.rmtree(options.out, ignore_errors=True)
    os.environ["RUEDA_TEST_THOROUGH"] = "1"  # tests/conftest.py
    put_this_python_in_path()
    if not arguments:
        built = Tally()
        build_release(built)
        if built.failures:
            parser.error("\n".join([*built.failures, *built.details]))
    everything: Dict[int, Outcome] = {}
    print("| run | passed | failed | flaky | seconds |\n|---|---|---|---|---|", flush=True)
    for number in range(1, options.runs + 1):
        began = time.monotonic()
        found = everything[number] = run_all(options.out.resolve() / f"run-{number}", options.busy, arguments)
        if not (found.passed or found.failed or found.flaky):
            parser.error(f"no test ran: {' '.join(arguments)} selects none, or all are skipped")
        numbers = [number, found.passed, len(found.failed), len(found.flaky), round(time.monotonic() - began)]
        print("| " + " | ".join(map(str, numbers)) + " |", flush=True)
    for number, found in everything.items():
        for word, names in (("FAILED", found.failed), ("FLAKY", found.flaky)):
            for name in names:
                print(f"{word} in run {number}: {name}")
    return 1 if any(found.failed or found.flaky for found in everything.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
