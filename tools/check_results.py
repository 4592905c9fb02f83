"""What the checks of ``run_tests.py`` found: JUnit reports are counted here, and the summary is printed."""

from __future__ import annotations

import re
import textwrap
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from run_command import describe_exit


@dataclass
class Report:
    """What a JUnit report says; googletest and pytest write the same."""

    passed: List[str] = field(default_factory=list)
    failed: List[str] = field(default_factory=list)
    skipped: List[Tuple[str, str]] = field(default_factory=list)  # (test, reason)
    why: Dict[str, str] = field(default_factory=dict)  # of the tests that failed
    seconds: Dict[str, float] = field(default_factory=dict)
    is_whole: bool = True


def read_report(report: Path) -> Report:
    """A run that died may leave none or half of one, which is like an empty one."""
    found = Report()
    try:
        cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return Report(is_whole=False)
    for case in cases:
        # Where several processes share the tests, a name ends in the group that stayed together.
        name = re.sub("@[^]]*$", "", case.get("name") or "")
        if (group := case.get("classname")) is not None:
            name = f"{group}.{name}"
        found.seconds[name] = float(case.get("time") or 0)
        skipped = case.find("skipped")
        failures = [part for part in case if part.tag in ("failure", "error")]
        if failures:
            found.failed.append(name)
            found.why[name] = failures[0].text or failures[0].get("message") or ""
        elif skipped is not None or case.get("result") == "skipped":
            message = (skipped.get("message") if skipped is not None else None) or "no reason given"
            if skipped is not None and skipped.text and message == "collection skipped":
                message = skipped.text  # of a whole file
            found.skipped.append((name, " ".join(message.split())))
        elif case.get("status") != "notrun":
            found.passed.append(name)
    return found


def died(report: Path, status: int) -> bool:
    """Whether a run ended otherwise than by its tests' results."""
    found = read_report(report)
    return status not in (0, 1) or not found.is_whole or (status == 1 and not found.failed)


@dataclass
class Tally:
    """The results of the stages that one thread runs."""

    passed: List[str] = field(default_factory=list)
    failures: List[str] = field(default_factory=list)
    flaky: List[str] = field(default_factory=list)  # failed once and passed whenever repeated
    why_flaky: Dict[str, str] = field(default_factory=dict)  # what the first run said
    repeated_s: Dict[str, List[float]] = field(default_factory=dict)  # of the flaky ones, when they passed
    skips: List[Tuple[str, str]] = field(default_factory=list)  # (test, reason)
    details: List[str] = field(default_factory=list)  # of failures: printed at the end
    times: List[Tuple[str, float]] = field(default_factory=list)  # (what took time, seconds)

    def note(self, name: str, is_ok: bool, why: str = "") -> None:
        """One check that is not part of a test program."""
        print(f"  {'ok  ' if is_ok else 'FAIL'} {name}", flush=True)
        if is_ok:
            self.passed.append(name)
        else:
            self.failures.append(f"{name}: {why}" if why else name)

    def add_report(
        self,
        label: str,
        report: Path,
        status: int,
        repeated: Sequence[Path] = (),
        printed: Optional[Dict[str, str]] = None,
    ) -> None:
        """Counts a report. repeated: those of later runs of what failed in it; what passed in each is flaky.
        printed: the output of tests that failed, if it says more than the report. A run that died is a
        failure."""
        found = read_report(report)
        if died(report, status):
            self.failures.append(f"{label}: {describe_exit(status)}")
        again = [read_report(later) for later in repeated]
        flaky = [name for name in found.failed if again and all(name in later.passed for later in again)]
        self.flaky += [f"{label}: {name}" for name in flaky]
        why = {**found.why, **(printed or {})}
        self.why_flaky.update({f"{label}: {name}": why[name] for name in flaky})
        self.repeated_s.update({f"{label}: {name}": [run.seconds[name] for run in again] for name in flaky})
        self.passed += [f"{label}: {name}" for name in (*found.passed, *flaky)]
        self.failures += [f"{label}: {name}" for name in found.failed if name not in flaky]
        self.skips += [(f"{label}: {name}", why) for name, why in found.skipped]

    def add(self, other: Tally) -> None:
        self.passed += other.passed
        self.failures += other.failures
        self.flaky += other.flaky
        self.why_flaky.update(other.why_flaky)
        self.repeated_s.update(other.repeated_s)
        self.skips += other.skips
        self.details += other.details
        self.times += other.times


# A test that fails beside others passes this often by itself, or it has failed. A wrong result of one run in
# three would get through once in eight times.
TIMES = 5
MOST = 15  # a machine that stands still fails several; more is no accident


def repeat(report: Path, times: int, again: Callable[[List[str], int], Path]) -> List[Path]:
    """Repeats what failed in a report until it fails again, and returns the reports. again: runs the tests
    with these names as the run with this number."""
    failed = read_report(report).failed
    reports: List[Path] = []
    while 0 < len(failed) <= MOST and len(reports) < times:
        reports.append(again(failed, len(reports) + 1))
        if not set(failed) <= set(read_report(reports[-1]).passed):
            break
    return reports


def read_last(text: str, lines: int = 60) -> str:
    """The end of what a test said: there pytest and googletest tell what was wrong."""
    parts = text.strip().splitlines()
    return "\n".join([f"({len(parts) - lines} lines before)"] * (len(parts) > lines) + parts[-lines:])


def print_end(tally: Tally, seconds: float) -> None:
    """The summary; its last line counts the tests."""
    reasons: Dict[Tuple[str, str], int] = Counter(
        (why, re.split(r"[:.]", name)[0]) for name, why in tally.skips
    )
    for (reason, label), count in reasons.items():
        print(f"SKIPPED {count} of {label}: {reason}")
    for name in tally.flaky:
        took = ", ".join(f"{run_s:.1f}" for run_s in tally.repeated_s.get(name, []))
        print(f"FLAKY {name}: failed once, passed whenever it was repeated ({took} s). The first time:")
        print(textwrap.indent(read_last(tally.why_flaky.get(name, "")), "    "))
    for text in tally.details:  # close to the end: some readers of a log see no more
        print(text)
    for name in tally.failures:
        print(f"FAILED {name}")
    for name, part_seconds in [*tally.times, ("everything", seconds)]:
        print(f"{name:<24}{part_seconds:>7.0f} s")
    print(f"{len(tally.flaky)} flaky")
    counts = f"{len(tally.passed)} passed, {len(tally.failures)} failed, {len(tally.skips)} skipped"
    print(counts, flush=True)
