"""Runs the C++ test programs of a build tree for ``run_tests.py``."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Dict, List, Optional, Tuple

from check_results import TIMES, Tally, died, read_report, repeat
from run_command import ROOT, run

BUILD = ROOT / "build"

# LeakSanitizer is a part of AddressSanitizer and writes where that one does.
SANITIZER_OPTIONS = ("ASAN_OPTIONS", "TSAN_OPTIONS")
FOR_ALL_SANITIZERS = "allocator_may_return_null=1:handle_abort=1"  # abort() shows its stack
# Where the thread-local memory of a library loaded by dlopen begins 16 bytes into a page by chance,
# AddressSanitizer takes what stands before it for a size, and LeakSanitizer dies of that.
NO_GUESSES = "intercept_tls_get_addr=0"
ALONE = "*Alone.*"  # suites that measure the clock
SHARDS = {"runtime_test": 4}  # programs that run for minutes, in so many parts
LIMIT_S = 900


@dataclass
class Suite:
    """The test programs of one preset, and how they run there."""

    preset: str
    environment: Dict[str, str] = field(default_factory=dict)
    left_out: str = ""  # a filter of googletest
    programs_left_out: Tuple[str, ...] = ()
    _failed: List[Attempt] = field(default_factory=list)

    def programs(self) -> List[Path]:
        """Of a configured build tree."""
        listed = (BUILD / self.preset / "tests.txt").read_text().split()
        return [Path(name) for name in listed if Path(name).name not in self.programs_left_out]

    def run(self, tally: Tally, machine_is_free: threading.Event) -> None:
        """All tests but those that measure the clock: one program at a time, two while the machine is free.
        What fails waits for run_alone to be repeated and counted."""
        left_out = ":".join(part for part in (self.left_out, ALONE) if part)
        waiting: SimpleQueue[Attempt] = SimpleQueue()
        for program in self.programs():
            shards = SHARDS.get(program.name, 1)
            for shard in range(shards):
                waiting.put(Attempt(self, program, "", f"-{left_out}", shard, shards))
        done: List[Attempt] = []
        both = [threading.Thread(target=work, args=(waiting, done, free)) for free in (None, machine_is_free)]
        for worker in both:
            worker.start()
        for worker in both:
            worker.join()
        for attempt in done:
            if read_report(attempt.report).failed:
                self._failed.append(attempt)
            else:
                attempt.count(tally, times=0)

    def run_alone(self, tally: Tally) -> None:
        """What failed beside others, and the tests that measure the clock."""
        for attempt in self._failed:
            attempt.count(tally, TIMES)
        left_out = f":-{self.left_out}" if self.left_out else ""
        for program in self.programs():
            if not program.exists():
                continue  # it was not built, and that has been counted
            attempt = Attempt(self, program, ".alone", ALONE + left_out).run()
            if died(attempt.report, attempt.status) or not attempt.is_empty():
                attempt.count(tally, times=1)


def work(waiting: SimpleQueue[Attempt], done: List[Attempt], start: Optional[threading.Event]) -> None:
    """Runs what is waiting, once it may start."""
    while True:
        if start and not start.wait(timeout=1.0):
            if waiting.empty():
                return
            continue
        try:
            attempt = waiting.get_nowait()
        except Empty:
            return
        done.append(attempt.run())


class Attempt:
    """One run of one program, or of one of its shards."""

    def __init__(
        self, suite: Suite, program: Path, suffix: str, tests: str, shard: int = 0, shards: int = 1
    ) -> None:
        self._suite = suite
        self._program = program
        self._tests = tests
        self._env = {"GTEST_SHARD_INDEX": str(shard), "GTEST_TOTAL_SHARDS": str(shards)} if shards > 1 else {}
        self._suffix = f".{shard}{suffix}" if shards > 1 else suffix
        self._label = f"{suite.preset}/{program.name}"
        self.report = self._file("xml")
        self.status = 0

    def run(self) -> Attempt:
        for old in (self.report, *self._find_findings()):
            old.unlink(missing_ok=True)
        started = time.monotonic()
        command = [str(self._program), f"--gtest_output=xml:{self.report}", f"--gtest_filter={self._tests}"]
        if self._suite.preset == "tsan":  # its shadow memory does not fit every address layout
            command = ["setarch", "-R", *command]
        env = {**self._suite.environment, **self._env}
        findings = self._file("findings")
        env.update({k: f"{env[k]}:log_path={findings}" for k in SANITIZER_OPTIONS if k in env})
        with self._file("log").open("w") as output:
            self.status = run(command, limit_s=LIMIT_S, env=env, output=output)
        if self.status != 0 or not self.is_empty():  # few programs have tests that must be alone
            print(f"  {self._label}{self._suffix}: {time.monotonic() - started:.1f} s", flush=True)
        return self

    def is_empty(self) -> bool:
        """Whether it had no test to run."""
        found = read_report(self.report)
        return not (found.passed or found.failed or found.skipped)

    def count(self, tally: Tally, times: int) -> None:
        """Repeats what failed so often, with nothing beside it, and counts."""
        failures = len(tally.failures) + len(tally.flaky)
        repeated = repeat(self.report, times, self._again)
        tally.add_report(self._label, self.report, self.status, repeated)
        if len(tally.failures) + len(tally.flaky) > failures:
            tally.details += [f"{self._label}: {read_head(file)}" for file in self._find_findings()]
            log = read_failures(self._file("log"), self.status)
            tally.details.append(f"{self._label}: {log}")

    def _again(self, failed: List[str], number: int) -> Path:
        suffix = f"{self._suffix}.repeated-{number}"
        attempt = Attempt(self._suite, self._program, suffix, ":".join(failed)).run()
        if died(attempt.report, attempt.status):
            attempt.report.unlink(missing_ok=True)  # what it says counts for nothing
        return attempt.report

    def _file(self, ending: str) -> Path:
        return BUILD / self._suite.preset / f"{self._program.name}{self._suffix}.{ending}"

    def _find_findings(self) -> List[Path]:
        """What a sanitizer wrote: one file per process."""
        findings = self._file("findings")
        return sorted(findings.parent.glob(f"{findings.name}.*"))


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
