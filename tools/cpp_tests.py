"""Runs the C++ test programs of a build tree for ``run_tests.py``."""

from __future__ import annotations

import re
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Dict, List, Optional, Tuple

from check_results import TIMES, Tally, died, read_last, read_report, repeat
from run_command import ROOT, run

BUILD = ROOT / "build"

# LeakSanitizer is a part of AddressSanitizer and writes where that one does.
SANITIZER_OPTIONS = ("ASAN_OPTIONS", "TSAN_OPTIONS")
# abort() shows its stack. A finding does not end a program as a failed test does, with status 1.
FOR_ALL_SANITIZERS = "allocator_may_return_null=1:handle_abort=1:exitcode=66"
# What they write about the children of passing tests: an abort that is expected, a request for memory that is
# refused, and a thread that a forked child may not start. The end of the program itself is counted anyway.
EXPECTED = re.compile(
    r"Sanitizer: ABRT |Sanitizer can not provide|WARNING: \w+Sanitizer failed to allocate"
    r"|after multi-threaded fork"
)
# What it writes before it ends the program where the kernel refuses memory that it needs for itself. That
# says nothing about the code.
REFUSED = re.compile(
    r"^==\d+==ERROR: \w+Sanitizer failed to allocate .*\((?:errno|error code): 12\)$", re.MULTILINE
)
# Where the thread-local memory of a library loaded by dlopen begins 16 bytes into a page by chance,
# as that of our stand-ins for CUDA and NCCL, sanitizers take what stands before it for its start and size.
# LeakSanitizer dies of that. So does ThreadSanitizer, if these are a small number and an address: it asks the
# kernel for hundreds of TB, "(errno: 12)".
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
    _has_run: bool = False

    def programs(self) -> List[Path]:
        """Of a configured build tree."""
        listed = (BUILD / self.preset / "tests.txt").read_text().split()
        return [Path(name) for name in listed if Path(name).name not in self.programs_left_out]

    def run(self, tally: Tally, machine_is_free: threading.Event) -> None:
        """All tests but those that measure the clock: two programs at a time, because they often wait, and
        three while the machine is free. What fails waits for run_alone to be repeated and counted."""
        self._has_run = True
        left_out = ":".join(part for part in (self.left_out, ALONE) if part)
        waiting: SimpleQueue[Attempt] = SimpleQueue()
        for program in self.programs():
            shards = SHARDS.get(program.name, 1)
            for shard in range(shards):
                waiting.put(Attempt(self, program, "", f"-{left_out}", shard, shards))
        done: List[Attempt] = []
        planned = waiting.qsize()
        starts = (None, None, machine_is_free)
        workers = [threading.Thread(target=work, args=(waiting, done, start)) for start in starts]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if len(done) != planned:
            tally.failures.append(f"{self.preset}: {planned - len(done)} of {planned} runs were not made")
        for attempt in done:
            if not attempt.fault and read_report(attempt.report).failed:
                self._failed.append(attempt)
            else:
                attempt.count(tally, times=0)

    def run_alone(self, tally: Tally) -> None:
        """What failed beside others, and the tests that measure the clock."""
        if not self._has_run:
            return  # the build has failed, and that has been counted
        for attempt in self._failed:
            attempt.count(tally, TIMES)
        left_out = f":-{self.left_out}" if self.left_out else ""
        for program in self.programs():
            if not program.exists():
                continue  # that has been counted
            attempt = Attempt(self, program, ".alone", ALONE + left_out).run()
            if attempt.fault or attempt.died() or not attempt.is_empty():
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
        self._took_s = 0.0
        self.fault = ""  # why there was no run
        self._refused = ""  # what the sanitizer of an earlier run wrote that got no memory

    def run(self) -> Attempt:
        """Once more if the sanitizer gets no memory for itself. A fault of the attempt itself is kept for
        count: a thread would only print it."""
        try:
            self._run()
            self._refused = "\n".join(map(read_head, self._find_refused()))
            if self._refused:
                self._run()
        except Exception:
            self.fault = traceback.format_exc()
        return self

    def _run(self) -> None:
        for old in (self.report, *self._find_written()):
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
        self._took_s = time.monotonic() - started
        if self.status != 0 or not self.is_empty():  # few programs have tests that must be alone
            print(f"  {self._label}{self._suffix}: {self._took_s:.1f} s", flush=True)

    def died(self) -> bool:
        return died(self.report, self.status)

    def is_empty(self) -> bool:
        """Whether it had no test to run."""
        found = read_report(self.report)
        return not (found.passed or found.failed or found.skipped)

    def count(self, tally: Tally, times: int) -> None:
        """Repeats what failed so often, with nothing beside it, and counts."""
        if self.fault:
            tally.failures.append(f"{self._label}{self._suffix}: could not be run")
            tally.details.append(self.fault)
            return
        if self._refused and not self.died():
            name = f"{self._label}{self._suffix}: the program, without memory for its sanitizer"
            tally.flaky.append(name)
            tally.why_flaky[name] = self._refused
            tally.repeated_s[name] = [self._took_s]
        failures = len(tally.failures)
        findings = self._find_findings()
        # The last words of a program that died may be of a kind that tests expect of their children.
        shown = self._find_written() if self.died() else findings
        tests = read_failures(self._file("log"))
        repeated = repeat(self.report, times, self._again)
        tally.add_report(self._label, self.report, self.status, repeated, tests)
        if len(tally.failures) > failures:
            end = read_end(self._file("log"), self.status)
            log = "\n".join([*map(read_last, tests.values()), *end])
            tally.details.append(f"{self._label}: {log}")
        for path in shown:
            tally.details.append(f"{self._label}: {path.name}\n{read_head(path)}")
        for finding in findings:
            tally.failures.append(f"{self._label}{self._suffix}: a sanitizer's finding, {finding.name}")

    def _again(self, failed: List[str], number: int) -> Path:
        suffix = f"{self._suffix}.repeated-{number}"
        attempt = Attempt(self._suite, self._program, suffix, ":".join(failed)).run()
        if attempt.fault or attempt.died() or attempt._find_findings():
            attempt.report.unlink(missing_ok=True)  # what it says counts for nothing
        return attempt.report

    def _file(self, ending: str) -> Path:
        return BUILD / self._suite.preset / f"{self._program.name}{self._suffix}.{ending}"

    def _find_findings(self) -> List[Path]:
        """What a sanitizer wrote and no test expects: one file per process."""
        return [path for path in self._find_written() if is_finding(path.read_text(errors="replace"))]

    def _find_refused(self) -> List[Path]:
        """Of a program that a sanitizer has ended for want of memory: what that one wrote."""
        if not self.died():
            return []
        return [path for path in self._find_written() if REFUSED.search(path.read_text(errors="replace"))]

    def _find_written(self) -> List[Path]:
        findings = self._file("findings")
        return sorted(findings.parent.glob(f"{findings.name}.*"))


def is_finding(text: str) -> bool:
    """Whether a file of a sanitizer says more than what tests expect."""
    said = [line for line in text.splitlines() if "Sanitizer" in line or "runtime error:" in line]
    return not said or not all(EXPECTED.search(line) for line in said)


def read_head(path: Path, lines: int = 40) -> str:
    """The first lines of a text file."""
    text = path.read_text(errors="replace").splitlines()
    return "\n".join(text[:lines] + ([f"({len(text) - lines} more lines)"] if len(text) > lines else []))


def read_failures(log: Path) -> Dict[str, str]:
    """From the output of a test program: what each test that failed has printed."""
    found: Dict[str, str] = {}
    test: List[str] = []
    for line in log.read_text(errors="replace").splitlines():
        test = [line] if line.startswith("[ RUN ") else [*test, line]
        if line.startswith("[  FAILED  ]") and "ms)" in line:
            found[test[0].split()[-1]] = "\n".join(test)
    return found


def read_end(log: Path, status: int, lines: int = 60) -> List[str]:
    """The last lines of a program that died: its last test has no end."""
    return [] if status in (0, 1) else log.read_text(errors="replace").splitlines()[-lines:]
