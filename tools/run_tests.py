"""Runs the checks of the repository; ``make test`` calls it, and ``make test-all`` with ``--thorough``.

The release build comes first. Then two lanes run side by side: the Python tests, shared by a few
processes, and everything else: C++ tests, lint, sanitizers. What measures the clock
(tests with the marker ``alone``, C++ suites with ``Alone`` in their names) comes last, with nothing beside
it, and once more if it fails. Another test that fails runs then too, five times: if it passes each
time, it is printed as FLAKY and does not fail the whole.

At the end come the failures, the reasons of skips and the time of each stage; the last line is
``N passed, N failed, N skipped``. The exit status is 1 if anything failed. ``--only STAGE[,STAGE]`` runs some
stages. Without it, the names of all checks that passed are then in build/checks.txt. Ctrl-C and SIGTERM end
what runs.

C++ tests of what runs in a user's job are run under AddressSanitizer, those of the rest of the command in
the release build, and in both what optimization could break. ``--thorough`` runs all of them in both, also
the tests in Python that have this marker, and the stage ``portable``. ``--only cpp`` runs all in the release
build.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
import zipfile
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import build_wheel
from check_results import TIMES, Tally, print_end
from cpp_tests import FOR_ALL_SANITIZERS, NO_GUESSES, Suite
from python_tests import PythonTests
from run_command import ROOT, end_all, run

BUILD = ROOT / "build"
PYTHON_FOLDERS = ["python", "compat", "tools", "tests", "examples", "bench"]
SHIPPED = ["python", "compat"]  # for every Python from 3.9
PYTHON_TESTS = ["tests/python", "tests/multiprocess", "tests/gpu", "tests/regress"]
JOBS = str(os.cpu_count() or 1)


def run_quietly(tally: Tally, name: str, command: List[str], limit_s: float) -> bool:
    """One check with its output in a file, of which the end is shown if it fails."""
    if shutil.which(command[0]) is None:
        tally.note(name, False, f"there is no command {command[0]} here; run make setup first")
        return False
    log = BUILD / "logs" / f"{name.replace(' ', '-').replace('/', '-')}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        status = run(command, limit_s, output=output)
    tally.note(name, status == 0, f"run: {' '.join(command[:6])}")
    if status != 0:
        tally.details.append(f"{name}: {read_tail(log)}")
    return status == 0


def read_tail(path: Path, lines: int = 60) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


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
        run_quietly(tally, name, command, limit_s=300)


def configure(tally: Tally, preset: str) -> bool:
    """Configures a preset with its tests."""
    cmake = build_wheel.find_cmake() or "cmake"
    command = [cmake, "--preset", preset, "-DRUEDA_BUILD_TESTS=ON", "--log-level=WARNING"]
    return run_quietly(tally, f"configure {preset}", command, limit_s=120)


def build(tally: Tally, preset: str, targets: List[str]) -> bool:
    """Builds targets of a configured preset."""
    cmake = build_wheel.find_cmake() or "cmake"
    command = [cmake, "--build", str(BUILD / preset), "-j", JOBS, "--target", *targets]
    started = time.monotonic()
    is_built = run_quietly(tally, f"build {preset}", command, limit_s=3600)
    tally.times.append((f"  build {preset}", time.monotonic() - started))
    return is_built


# Random programs to run, and their largest tensors: with a sanitizer each takes ten times as long.
FEWER_PROGRAMS = {"RUEDA_TEST_PROGRAMS": "2", "RUEDA_TEST_MOST_ROWS": "9000"}


def tests_of(modules: str) -> Tuple[str, ...]:
    return tuple(f"{module}_test" for module in modules.split())


# What no process of a user's job runs.
COMMAND = tests_of("bench command_fuzz doctor observe preflight simulate timeline workload")
# Neither optimization nor the instruction set changes it: AddressSanitizer alone is enough.
NOT_OPTIMIZED = tests_of("base control fuzz launch members membership runtime status store trace transport")
# What ThreadSanitizer never runs: one thread computes in them.
ONE_THREAD = tests_of(
    "bench command_fuzz control doctor fuzz kernels membership preflight schedule simulate workload"
)
ONE_THREAD_IN_BACKEND = "EncodedCalls.*:*.reduces_every_type_as_defined/*:*for_every_size_place_and_type*"
NOT_COMPILED = "CudaKernelsText.*"  # what clang has made for CUDA devices is one text in all builds
RELEASE = Suite("release")
ASAN = Suite(
    "asan",
    {
        "ASAN_OPTIONS": f"detect_stack_use_after_return=1:{NO_GUESSES}:{FOR_ALL_SANITIZERS}",
        "LSAN_OPTIONS": f"suppressions={ROOT / 'tools/lsan.supp'}:print_suppressions=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        **FEWER_PROGRAMS,
    },
    left_out=NOT_COMPILED,
)
TSAN = Suite(
    "tsan",
    {
        "TSAN_OPTIONS": f"halt_on_error=0:{NO_GUESSES}:{FOR_ALL_SANITIZERS}"
        f":suppressions={ROOT / 'tools/tsan.supp'}",
        **FEWER_PROGRAMS,
        "RUEDA_TEST_PROGRAMS": "1",
        # As without it, and no memory of System V either (tests/conformance/ucx_here.h).
        "UCX_TLS": "^tcp,sysv",
    },
    # What one thread computes, and whether settings keep the bits, does not depend on races. ThreadSanitizer
    # holds signals back while a thread waits in the kernel, so such a thread never shows its stack.
    left_out=f"{ONE_THREAD_IN_BACKEND}:*Bits.*:NativeStacks.*:{NOT_COMPILED}",
    programs_left_out=ONE_THREAD,
)


python_is_done = threading.Event()


def build_release(tally: Tally) -> None:
    """What is shipped, what tests in Python start, and C++ tests."""
    if configure(tally, "release"):
        programs = [program.name for program in RELEASE.programs()]
        build(tally, "release", [*build_wheel.TARGETS, "rueda_test_helpers", *programs])


def cpp(tally: Tally) -> None:
    """C++ tests with the code that is shipped."""
    RELEASE.run(tally, python_is_done)


def asan(tally: Tally) -> None:
    """The C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer."""
    if configure(tally, "asan") and build(tally, "asan", [program.name for program in ASAN.programs()]):
        ASAN.run(tally, python_is_done)


def tsan(tally: Tally) -> None:
    """The C++ tests under ThreadSanitizer."""
    if configure(tally, "tsan") and build(tally, "tsan", [program.name for program in TSAN.programs()]):
        TSAN.run(tally, python_is_done)


# For pytest: as many processes as keep the cores busy, because tests often wait.
SHARED = ["-n", str(int(JOBS) + 1), "--dist", "loadscope", "-m", "not alone"]
PYTHON = PythonTests(
    BUILD / "pytest.xml",
    [*SHARED, *PYTHON_TESTS],
    limit_s=4500,
)


def python(tally: Tally) -> None:
    """Python, several processes, regressions, the wheel."""
    PYTHON.run()


def python_alone(tally: Tally) -> None:
    """What failed beside others, and the tests in Python that measure the clock."""
    PYTHON.count(tally, TIMES)
    alone = PythonTests(BUILD / "pytest-alone.xml", ["-m", "alone", *PYTHON_TESTS], limit_s=1200)
    alone.run().count(tally, times=1)


# What a library of another compiler could break: the arithmetic, and TensorFlow's callbacks.
WITH_THE_PORTABLE_LIBRARY = [
    "tests/multiprocess/test_numpy_collectives.py",
    "tests/multiprocess/test_tensorflow_collectives.py",
]


def portable(tally: Tally) -> None:
    """The wheel for older Linux: its symbols, its bits, and some tests with its library."""
    folder = BUILD / "portable-wheel"
    shutil.rmtree(folder, ignore_errors=True)
    tool = [sys.executable, "tools/build_wheels.py", "--quick"]  # the command was proved by the other stages
    command = [*tool, "--machine", platform.machine(), str(folder)]
    name = "portable wheel: auditwheel agrees with its tag, and it gives the bits of this build"
    if not run_quietly(tally, name, command, limit_s=1800):
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
    tests = ["tests/portable", *WITH_THE_PORTABLE_LIBRARY]
    PythonTests(BUILD / "portable.xml", tests, limit_s=900, env=env).run().count(tally, times=0)


STAGES: Dict[str, Callable[[Tally], None]] = {
    "cpp": cpp,
    "lint": lint,
    "python": python,
    "portable": portable,
    "asan": asan,
    "tsan": tsan,
}
ALONE: Dict[str, Callable[[Tally], None]] = {
    "cpp": RELEASE.run_alone,
    "python": python_alone,
    "asan": ASAN.run_alone,
    "tsan": TSAN.run_alone,
}


def run_stage(tally: Tally, name: str, stage: Callable[[Tally], None]) -> None:
    """A fault of a stage itself is a failure like others."""
    started, place = time.monotonic(), len(tally.times)
    print(f"=== {name} begins", flush=True)
    try:
        stage(tally)
    except Exception:
        tally.failures.append(f"{name}: the stage itself failed")
        tally.details.append(traceback.format_exc())
    tally.times.insert(place, (name, time.monotonic() - started))
    print(f"=== {name}: {time.monotonic() - started:.0f} s", flush=True)


class Lane(threading.Thread):
    """A thread for stages that run one after the other."""

    def __init__(self, stages: Dict[str, Callable[[Tally], None]]) -> None:
        super().__init__(daemon=True)
        self.tally = Tally()
        self._stages = stages

    def run(self) -> None:
        for name, stage in self._stages.items():
            run_stage(self.tally, name, stage)


ENDING_S = 10.0  # for pytest and its tests to end what they have started


def raise_signal(number: int, frame: object) -> None:
    """A second one must not disturb the end."""
    for other in (signal.SIGINT, signal.SIGTERM):
        signal.signal(other, signal.SIG_IGN)
    raise KeyboardInterrupt(number)


class Lanes:
    """All lanes of this run. Main thread only: a signal interrupts it while the others wait for programs."""

    def __init__(self) -> None:
        self.tally = Tally()
        self._started: List[Lane] = []

    def run(self, *lanes: Lane) -> None:
        """Side by side. The first of two is Python's."""
        for lane in lanes:
            self._started.append(lane)
            lane.start()
        for lane in lanes:
            lane.join()
            if len(lanes) > 1:
                python_is_done.set()
        for lane in lanes:
            self.tally.add(lane.tally)

    def end(self) -> None:
        """Whatever still runs ends: pytest as by Ctrl-C, and after a while by force."""
        for number in (signal.SIGINT, signal.SIGKILL):
            end_all(number)
            end = time.monotonic() + ENDING_S
            for lane in self._started:
                if lane.is_alive():
                    lane.join(max(0.0, end - time.monotonic()))


def put_this_python_in_path() -> None:
    """So that its programs are found: cmake, ruff, rueda."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


def run_all(lanes: Lanes, wanted: List[str]) -> None:
    if {"cpp", "python"} & set(wanted):
        lanes.run(Lane({"release": build_release}))
    if lanes.tally.failures:  # what an older build does proves nothing
        left_out = [name for name in wanted if name in ("cpp", "python")]
        lanes.tally.failures.append(f"{' and '.join(left_out)}: left out, because the release build failed")
        wanted = [name for name in wanted if name not in left_out]
    in_python = {name: stage for name, stage in STAGES.items() if name == "python" and name in wanted}
    others = {name: STAGES[name] for name in wanted if name != "python"}
    lanes.run(Lane(in_python), Lane(others))
    lanes.run(Lane({f"{name} alone": stage for name, stage in ALONE.items() if name in wanted}))


def main() -> int:
    parser = argparse.ArgumentParser(description="the checks of the repository")
    parser.add_argument("--only", help=f"some of {','.join(STAGES)}")
    parser.add_argument("--thorough", action="store_true", help="also what others nearly prove, and portable")
    given = parser.parse_args()
    every_time = [name for name in STAGES if given.thorough or name != "portable"]
    wanted = every_time if given.only is None else [name.strip() for name in given.only.split(",")]
    if unknown := sorted(set(wanted) - set(STAGES)):
        named = ", ".join(name or "one without a name" for name in unknown)
        parser.error(f"--only: there is no such stage: {named}; choose from {', '.join(STAGES)}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, raise_signal)
    if given.thorough:
        os.environ["RUEDA_TEST_THOROUGH"] = "1"  # tests/conftest.py
    elif {"cpp", "asan"} <= set(wanted):
        RELEASE.programs_left_out = NOT_OPTIMIZED
        ASAN.programs_left_out = COMMAND
        # In those of the command few threads run, and in those of the launcher none.
        TSAN.programs_left_out = (*ONE_THREAD, *COMMAND, *tests_of("launch"))
    BUILD.mkdir(exist_ok=True)
    put_this_python_in_path()
    begin = time.monotonic()
    lanes = Lanes()
    try:
        run_all(lanes, wanted)
    except KeyboardInterrupt as stop:
        print(
            f"stopped by {signal.Signals(stop.args[0]).name}; what runs is ended", file=sys.stderr, flush=True
        )
        lanes.end()
        return 128 + int(stop.args[0])
    tally = lanes.tally
    if given.only is None:
        (BUILD / "checks.txt").write_text("".join(f"{name}\n" for name in sorted(tally.passed)))
    print_end(tally, time.monotonic() - begin)
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
