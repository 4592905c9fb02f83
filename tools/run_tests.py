"""Runs every check of the repository; ``make test`` calls it.

Each stage streams its output. At the end come the failures and the reasons of skips; the last line is
``N passed, N failed, N skipped``. The exit status is 1 if anything failed. ``--only STAGE[,STAGE]``
runs some stages.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
import zipfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Callable, Dict, List, Optional, Tuple

import build_wheel

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PYTHON_FOLDERS = ["python", "compat", "tools", "tests", "examples", "bench"]
SHIPPED = ["python", "compat"]  # for every Python from 3.9
JOBS = str(os.cpu_count() or 1)


@dataclass
class Tally:
    """The results so far."""

    passed: int = 0
    failures: List[str] = field(default_factory=list)
    skips: List[Tuple[str, str]] = field(default_factory=list)  # (test, reason)
    details: List[str] = field(default_factory=list)  # of failures: printed at the end
    parts: List[Tuple[str, float]] = field(default_factory=list)  # (what took time, seconds)

    def note(self, name: str, is_ok: bool, why: str = "") -> None:
        """One check that is not part of a test program."""
        print(f"  {'ok  ' if is_ok else 'FAIL'} {name}", flush=True)
        if is_ok:
            self.passed += 1
        else:
            self.failures.append(f"{name}: {why}" if why else name)

    def add_report(self, label: str, report: Path, status: int) -> None:
        """Counts a JUnit report (googletest and pytest write the same). A run that died is a failure."""
        failed = 0
        if report.exists():
            for case in ElementTree.parse(report).getroot().iter("testcase"):
                name = f"{label}: {case.get('classname')}.{case.get('name')}"
                skipped = case.find("skipped")
                if case.find("failure") is not None or case.find("error") is not None:
                    failed += 1
                    self.failures.append(name)
                elif skipped is not None or case.get("result") == "skipped":
                    message = (skipped.get("message") if skipped is not None else None) or "no reason given"
                    if skipped is not None and skipped.text and message == "collection skipped":
                        message = skipped.text  # of a whole file
                    self.skips.append((name, " ".join(message.split())))
                elif case.get("status") != "notrun":
                    self.passed += 1
        if status not in (0, 1) or (status == 1 and not failed) or not report.exists():
            self.failures.append(f"{label}: {describe_exit(status)}")


def describe_exit(status: int) -> str:
    if status == TIMED_OUT:
        return "ran past its time limit and was killed"
    if status < 0:
        return f"killed by signal {signal.Signals(-status).name}"
    return f"ended with exit status {status} although no test failed"


TIMED_OUT = 1 << 16


def run(
    command: List[str],
    limit_s: float,
    env: Optional[Dict[str, str]] = None,
    output: Optional[IO[str]] = None,
) -> int:
    """Streams the output, or writes it to a file; returns exit status, -signal, or TIMED_OUT (then all its
    processes are killed)."""
    full_env = {**os.environ, **(env or {})}
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=full_env,
        start_new_session=True,
    )
    try:
        return process.wait(timeout=limit_s)
    except subprocess.TimeoutExpired:
        return TIMED_OUT
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


# ---- stages ----


def lint(tally: Tally) -> None:
    """House rules, formatting, types."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.h", "*.hpp", "*.cc", "*.cpp"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    cpp_files = [name for name in listed.stdout.split() if (ROOT / name).exists()]
    folders = [name for name in PYTHON_FOLDERS if any((ROOT / name).rglob("*.py"))]
    library = BUILD / "release" / "librueda.so"
    checks = {
        "tidy": [sys.executable, "tools/tidy", *(["--library", str(library)] if library.exists() else [])],
        "ruff check": ["ruff", "check", "-q", *folders],
        "ruff format": ["ruff", "format", "--check", *folders],
        "vermin": ["vermin", "-q", "--no-tips", "--eval-annotations", "-t=3.9-", "--violations", *SHIPPED],
        "clang-format": ["clang-format", "--dry-run", "-Werror", *cpp_files],
        "mypy": ["mypy"],
    }
    for name, command in checks.items():
        tally.note(name, run(command, limit_s=300) == 0, f"run: {' '.join(command[:4])}")


def configure(tally: Tally, preset: str) -> bool:
    """Configures a preset with its tests."""
    cmake = build_wheel.find_cmake() or "cmake"
    command = [cmake, "--preset", preset, "-DRUEDA_BUILD_TESTS=ON", "--log-level=WARNING"]
    is_configured = run(command, limit_s=120) == 0
    tally.note(f"configure {preset}", is_configured)
    return is_configured


def build(tally: Tally, preset: str, targets: List[str]) -> bool:
    """Builds targets of a configured preset."""
    cmake = build_wheel.find_cmake() or "cmake"
    command = [cmake, "--build", str(BUILD / preset), "-j", JOBS, "--target", *targets]
    started = time.monotonic()
    is_built = run(command, limit_s=1800) == 0
    tally.parts.append((f"  build {len(targets)} targets", time.monotonic() - started))
    tally.note(f"build {' '.join(targets)} ({preset})", is_built)
    return is_built


def test_programs(preset: str) -> List[str]:
    """Paths of the C++ test programs of a configured build tree."""
    return (BUILD / preset / "tests.txt").read_text().split()


def run_programs(
    tally: Tally, preset: str, env: Dict[str, str], arguments: List[str], programs: List[str]
) -> None:
    """C++ test programs of a build tree, one after the other."""
    for program in programs:
        label = f"{preset}/{Path(program).name}"
        report = BUILD / preset / f"{Path(program).name}.xml"
        findings = BUILD / preset / f"{Path(program).name}.findings"
        log = BUILD / preset / f"{Path(program).name}.log"
        for old in (report, *find_findings(findings)):
            old.unlink(missing_ok=True)
        started = time.monotonic()
        command = [program, f"--gtest_output=xml:{report}", *arguments]
        if preset == "tsan":  # its shadow memory does not fit every address layout
            command = ["setarch", "-R", *command]
        to_file = {name: f"{env[name]}:log_path={findings}" for name in SANITIZER_OPTIONS if name in env}
        failures = len(tally.failures)
        with log.open("w") as output:
            status = run(command, limit_s=900, env={**env, **to_file}, output=output)
        tally.add_report(label, report, status)
        if len(tally.failures) > failures:
            tally.details += [f"{label}: {read_head(file)}" for file in find_findings(findings)]
            tally.details.append(f"{label}: {read_failures(log, status)}")
        print(f"  {label}: {time.monotonic() - started:.1f} s", flush=True)


# LeakSanitizer is a part of AddressSanitizer and writes where that one does.
SANITIZER_OPTIONS = ("ASAN_OPTIONS", "TSAN_OPTIONS")
FOR_ALL_SANITIZERS = "allocator_may_return_null=1:handle_abort=1"  # abort() shows its stack
# Where the thread-local memory of a library loaded by dlopen begins 16 bytes into a page by chance,
# AddressSanitizer takes what stands before it for a size, and LeakSanitizer dies of that.
NO_GUESSES = "intercept_tls_get_addr=0"


def find_findings(path: Path) -> List[Path]:
    """What a sanitizer wrote: one file per process."""
    return sorted(path.parent.glob(f"{path.name}.*"))


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


# Random programs to run, and their largest tensors: with a sanitizer each takes ten times as long.
FEWER_PROGRAMS = {"RUEDA_TEST_PROGRAMS": "2", "RUEDA_TEST_MOST_ROWS": "9000"}


# Test programs that start no thread.
ONE_THREAD = tuple(
    f"{module}_test"
    for module in ("bench", "control", "doctor", "kernels", "launch", "memory", "preflight", "schedule")
)


def cpp(tally: Tally) -> None:
    """The C++ tests, and the shipped library."""
    if not configure(tally, "release"):
        return
    build(tally, "release", build_wheel.TARGETS)
    if build(tally, "release", ["rueda_tests"]):
        run_programs(tally, "release", {}, [], test_programs("release"))


def asan(tally: Tally) -> None:
    """The C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer."""
    if configure(tally, "asan") and build(tally, "asan", ["rueda_tests"]):
        env = {
            "ASAN_OPTIONS": f"detect_stack_use_after_return=1:{NO_GUESSES}:{FOR_ALL_SANITIZERS}",
            "LSAN_OPTIONS": f"suppressions={ROOT / 'tools/lsan.supp'}:print_suppressions=0",
            "UBSAN_OPTIONS": "print_stacktrace=1",
            **FEWER_PROGRAMS,
        }
        run_programs(tally, "asan", env, ["--gtest_filter=-*Slow*:*slow*"], test_programs("asan"))


def tsan(tally: Tally) -> None:
    """The C++ tests under ThreadSanitizer."""
    if not configure(tally, "tsan"):
        return
    programs = [program for program in test_programs("tsan") if Path(program).name not in ONE_THREAD]
    if build(tally, "tsan", [Path(program).name for program in programs]):
        options = f"halt_on_error=0:{FOR_ALL_SANITIZERS}:suppressions={ROOT / 'tools/tsan.supp'}"
        env = {"TSAN_OPTIONS": options, **FEWER_PROGRAMS, "RUEDA_TEST_PROGRAMS": "1"}
        # Whether settings keep the bits does not depend on races. ThreadSanitizer holds signals back while a
        # thread waits in the kernel, so such a thread never shows its stack.
        left_out = "--gtest_filter=-*Slow*:*slow*:*Bits.*:NativeStacks.*"
        run_programs(tally, "tsan", env, [left_out], programs)


def python(tally: Tally) -> None:
    """Python, several processes, regressions, the wheel."""
    report = BUILD / "pytest.xml"
    report.unlink(missing_ok=True)
    folders = [
        name
        for name in ("tests/python", "tests/multiprocess", "tests/gpu", "tests/regress")
        if any((ROOT / name).glob("test_*.py"))
    ]
    command = [sys.executable, "-m", "pytest", "-v", "--durations=10", f"--junitxml={report}", *folders]
    status = run(command, limit_s=3600)
    tally.add_report("pytest", report, status)


# What a library of another compiler could break: the arithmetic, and TensorFlow's callbacks.
WITH_THE_PORTABLE_LIBRARY = [
    "tests/multiprocess/test_numpy_collectives.py",
    "tests/multiprocess/test_tensorflow_collectives.py",
]


def portable(tally: Tally) -> None:
    """The wheel for older Linux: its symbols, its bits, and some tests with its library."""
    folder = BUILD / "portable-wheel"
    shutil.rmtree(folder, ignore_errors=True)
    machine = platform.machine()
    command = [sys.executable, "tools/build_wheels.py", "--machine", machine, str(folder)]
    is_built = run(command, limit_s=1800) == 0
    tally.note(
        "portable wheel: auditwheel agrees with its tag, and it gives the bits of this build", is_built
    )
    if not is_built:
        return
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "unpacked")
    library = folder / "unpacked" / "rueda" / "lib" / "librueda.so"
    (source,) = folder.glob("*.tar.gz")
    env = {
        "RUEDA_PORTABLE_WHEEL": str(wheel),
        "RUEDA_SOURCE_DISTRIBUTION": str(source),
        "RUEDA_LIBRARY": str(library),
    }
    report = BUILD / "portable.xml"
    report.unlink(missing_ok=True)
    tests = ["tests/portable", *WITH_THE_PORTABLE_LIBRARY]
    status = run([sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *tests], limit_s=900, env=env)
    tally.add_report("portable", report, status)


STAGES: Dict[str, Callable[[Tally], None]] = {
    "cpp": cpp,
    "lint": lint,
    "python": python,
    "portable": portable,
    "asan": asan,
    "tsan": tsan,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="every check of the repository")
    parser.add_argument("--only", default=",".join(STAGES), help=f"some of {','.join(STAGES)}")
    wanted = parser.parse_args().only.split(",")
    unknown = set(wanted) - set(STAGES)
    if unknown:
        parser.error(f"unknown stage {', '.join(sorted(unknown))}; choose from {', '.join(STAGES)}")
    BUILD.mkdir(exist_ok=True)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    tally = Tally()
    begin = time.monotonic()
    for name in wanted:
        started, place = time.monotonic(), len(tally.parts)
        print(f"=== {name}: {STAGES[name].__doc__}", flush=True)
        STAGES[name](tally)
        tally.parts.insert(place, (name, time.monotonic() - started))
        print(f"=== {name}: {time.monotonic() - started:.0f} s", flush=True)
    print_end(tally, time.monotonic() - begin)
    return 1 if tally.failures else 0


def print_end(tally: Tally, seconds: float) -> None:
    for (reason, label), count in Counter(
        (why, re.split(r"[:.]", name)[0]) for name, why in tally.skips
    ).items():
        print(f"SKIPPED {count} of {label}: {reason}")
    for text in tally.details:
        print(text)
    for name in tally.failures:
        print(f"FAILED {name}")
    for name, part_seconds in [*tally.parts, ("everything", seconds)]:
        print(f"{name:<24}{part_seconds:>7.0f} s")
    print(f"{tally.passed} passed, {len(tally.failures)} failed, {len(tally.skips)} skipped", flush=True)


if __name__ == "__main__":
    sys.exit(main())
