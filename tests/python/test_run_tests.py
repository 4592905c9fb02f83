"""tools/run_tests.py and its parts: what cannot be run is a failure, and a signal ends what runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import List

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import check_results  # noqa: E402 (found in tools)
import cpp_tests  # noqa: E402
import run_tests  # noqa: E402

# Reports $CASES as a test program of googletest does, beside a sanitizer's $FINDING. A repeated run passes.
PROGRAM = """#!/bin/sh
for word; do case "$word" in --gtest_output=*) report="${word#--gtest_output=xml:}" ;; esac; done
case "$report" in *.alone.*) echo "<testsuites/>" > "$report"; exit 0 ;; esac
if [ -e "$report.before" ] && [ -n "$ONLY_ONCE" ]; then FINDING=; STATUS=0; fi
touch "$report.before"
case "$report" in *repeated*) sed 's/<failure.*failure>//' "$CASES" > "$report"; exit 0 ;; esac
[ "$STATUS" -gt 1 ] || cat "$CASES" > "$report"
[ -z "$FINDING" ] || echo "$FINDING" > "${ASAN_OPTIONS##*log_path=}.77"
exit "$STATUS"
"""
PASSED = '<testsuites><testsuite><testcase classname="A" name="x"/></testsuite></testsuites>'
FAILED = PASSED.replace("/>", '><failure message="late"></failure></testcase>')


class Programs:
    """A build tree with test programs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "asan"
        self._folder.mkdir()

    def run(
        self,
        *names: str,
        cases: str = PASSED,
        status: int = 0,
        finding: str = "",
        only_once: bool = False,
    ) -> check_results.Tally:
        """names: those that end in "gone" are not there. only_once: finding and status are of the first
        run."""
        listed = [self._folder / name for name in names]
        (self._folder / "tests.txt").write_text("\n".join(map(str, listed)))
        for program in listed:
            if not program.name.endswith("gone"):
                program.write_text(PROGRAM)
                program.chmod(0o755)
        (self._folder / "cases.xml").write_text(cases)
        environment = {"CASES": str(self._folder / "cases.xml"), "FINDING": finding, "STATUS": str(status)}
        environment["ONLY_ONCE"] = "1" if only_once else ""
        suite = cpp_tests.Suite("asan", {**environment, "ASAN_OPTIONS": "exitcode=66"})
        tally, is_free = check_results.Tally(), threading.Event()
        is_free.set()
        suite.run(tally, is_free)
        suite.run_alone(tally)
        return tally


@pytest.fixture(name="programs")
def make_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    monkeypatch.setattr(cpp_tests, "BUILD", tmp_path)
    return Programs(tmp_path)


def test_a_program_that_cannot_be_started_is_a_failure_and_hides_no_other(programs: Programs) -> None:
    tally = programs.run("first_gone", "second_gone", "third")
    assert sorted(tally.failures) == [
        "asan/first_gone: could not be run",
        "asan/second_gone: could not be run",
    ]
    assert "asan/third: A.x" in tally.passed
    assert "No such file" in tally.details[0]


def test_a_finding_is_a_failure_whatever_the_program_says(programs: Programs) -> None:
    leak = "==7==ERROR: LeakSanitizer: detected memory leaks"
    tally = programs.run("one", finding=leak)
    assert tally.failures == ["asan/one: a sanitizer's finding, one.findings.77"]
    assert any(leak in text for text in tally.details)


def test_a_test_that_passes_when_repeated_does_not_excuse_a_finding(programs: Programs) -> None:
    tally = programs.run("one", cases=FAILED, status=1)
    assert tally.flaky == ["asan/one: A.x"] and not tally.failures
    tally = programs.run("one", cases=FAILED, status=1, finding="==7==ERROR: LeakSanitizer: leaks")
    assert tally.failures[0] == "asan/one: a sanitizer's finding, one.findings.77"


def test_a_program_that_died_shows_what_its_sanitizer_wrote_even_if_tests_expect_that(
    programs: Programs,
) -> None:
    last = "==77==ERROR: ThreadSanitizer: ABRT on unknown address 0x1"
    assert not programs.run("one", finding=last).details, "a child of a test that passed"
    tally = programs.run("one", finding=last, status=66)
    assert tally.failures == ["asan/one: ended with exit status 66 although no test failed"]
    assert any(last in text and "one.findings.77" in text for text in tally.details)


@pytest.mark.parametrize(
    "refused",
    [
        "==7==ERROR: ThreadSanitizer failed to allocate 0x1cfb000 (30388224) bytes at address f (errno: 12)",
        "==7==ERROR: ThreadSanitizer failed to allocate 0x4000 (16384) bytes of stack (error code: 12)",
    ],
)
def test_a_program_whose_sanitizer_got_no_memory_runs_once_more(programs: Programs, refused: str) -> None:
    tally = programs.run("one", finding=refused, status=66, only_once=True)
    assert tally.passed == ["asan/one: A.x"] and not tally.failures
    assert tally.flaky == ["asan/one: the program, without memory for its sanitizer"]
    assert refused in tally.why_flaky[tally.flaky[0]]
    tally = programs.run("two", finding=refused, status=66)
    assert not tally.flaky and tally.failures == [
        "asan/two: ended with exit status 66 although no test failed",
        "asan/two: a sanitizer's finding, two.findings.77",
    ]


@pytest.mark.parametrize(
    ("text", "is_finding"),
    [
        ("==7==ERROR: AddressSanitizer: ABRT on unknown address 0x1\n    #0 0x7f in raise", False),
        ("==7==WARNING: AddressSanitizer failed to allocate 0x4000000000000000 bytes", False),
        (
            "==7==ThreadSanitizer: starting new threads after multi-threaded fork is not supported. Dying",
            False,
        ),
        ("==7==ERROR: LeakSanitizer: detected memory leaks", True),
        # It has no memory for itself, and ends the program.
        ("==7==ERROR: ThreadSanitizer failed to allocate 0x4000 (16384) bytes at 0x7 (errno: 12)", True),
        ("WARNING: ThreadSanitizer: data race (pid=7)\nSUMMARY: ThreadSanitizer: data race a.cc:1", True),
        ("src/a.cc:3:4: runtime error: signed integer overflow", True),
        ("==7==ERROR: AddressSanitizer: ABRT on x\n==7==ERROR: LeakSanitizer: detected", True),
        ("nothing known", True),
    ],
)
def test_what_tests_expect_a_sanitizer_to_say_is_no_finding(text: str, is_finding: bool) -> None:
    assert cpp_tests.is_finding(text) == is_finding


def test_the_log_tells_what_each_failed_test_has_printed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "[ RUN      ] A.good\n[       OK ] A.good (1 ms)\n"
        "[ RUN      ] A/B.x/0\na.cc:3: Failure\n[  FAILED  ] A/B.x/0, where GetParam() = 1 (2 ms)\n"
    )
    assert list(cpp_tests.read_failures(log)) == ["A/B.x/0"]
    assert "a.cc:3: Failure" in cpp_tests.read_failures(log)["A/B.x/0"]


# ---- the whole ----

STAGES = """
import sys
from pathlib import Path
sys.path.insert(0, "tools")
import run_command, run_tests
folder, builds = Path(sys.argv[1]), sys.argv[2] == "builds"
run_tests.BUILD = folder
run_tests.build_release = lambda tally: tally.note("build release", builds)
def wait(tally):
    # The child has a process group of its own, as the commands of ninja have.
    run_command.run(["bash", "-c", f"exec 7> {folder}/held; set -m; sleep 300 & wait"], 600.0)
for name in run_tests.STAGES:
    run_tests.STAGES[name] = lambda tally, name=name: tally.note(f"stage {name}", True)
run_tests.ALONE.clear()
if builds:
    run_tests.STAGES["python"] = run_tests.STAGES["lint"] = wait
sys.argv[1:] = ["--only", "python,lint,cpp"]
sys.exit(run_tests.main())
"""


def run_stages(folder: Path, how: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", STAGES, str(folder), how]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_that_runs(tmp_path: Path, number: signal.Signals) -> None:
    run = run_stages(tmp_path, "builds")
    end = time.monotonic() + 90.0
    while len(holders(tmp_path / "held")) < 4:  # two shells, each with its child
        assert run.poll() is None and time.monotonic() < end
        time.sleep(0.05)
    run.send_signal(number)
    output, _ = run.communicate(timeout=120)
    assert run.returncode == 128 + number and f"stopped by {number.name}" in output
    assert holders(tmp_path / "held") == []


def holders(path: Path) -> List[str]:
    """The processes that have this file open."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/fd/7") == str(path):
                found.append(pid)
        except OSError:
            continue  # it has ended, or has no such descriptor
    return found


@pytest.mark.parametrize("only", ["", "cpp,,lint", "cpp,lnit"])
def test_a_stage_that_is_none_is_refused(only: str) -> None:
    command = [sys.executable, str(ROOT / "tools/run_tests.py"), "--only", only]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    named = "lnit" if "lnit" in only else "one without a name"
    assert done.returncode == 2 and f"there is no such stage: {named}; choose from cpp" in done.stderr


@pytest.mark.parametrize("suite", [run_tests.ASAN, run_tests.TSAN], ids=lambda suite: suite.preset)
def test_no_sanitizer_guesses_where_thread_local_memory_lies(suite: cpp_tests.Suite) -> None:
    options = suite.environment[f"{suite.preset.upper()}_OPTIONS"]
    assert "intercept_tls_get_addr=0" in options.split(":")


def test_a_command_that_is_not_here_is_a_failure_that_says_what_to_do() -> None:
    tally = check_results.Tally()
    assert not run_tests.run_quietly(tally, "lint", ["no-such-command"], 1.0)
    assert tally.failures == ["lint: there is no command no-such-command here; run make setup first"]


def test_without_a_release_build_no_tests_of_it_run(tmp_path: Path) -> None:
    run = run_stages(tmp_path, "fails")
    output, _ = run.communicate(timeout=120)
    assert run.returncode == 1
    assert "FAILED python and cpp: left out, because the release build failed" in output
    assert "stage lint" in output and "stage python" not in output and "stage cpp" not in output
    assert output.splitlines()[-1] == "1 passed, 2 failed, 0 skipped"
