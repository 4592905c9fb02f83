"""Planted faults: rank 0 says on stderr what is wrong and with which rank, while it happens."""

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Callable, Iterator, List, Optional

import pytest
from robust_support import LIMIT_S, Job, Jobs, make_jobs, wait_until

__all__ = ["make_jobs"]  # the fixture `jobs`

# Shorter than the default, so that the test is short, and longer than a rank waits for a core. What a judge
# says after which time, control_judge_test claims.
TIMES = {"RUEDA_VERDICT_SECONDS": "4", "RUEDA_CHECK_NUMBERS": "1"}
AT_ONCE = 4  # jobs, of three ranks each

# Every rank trains until the fault; `fault()` is what the victim does then.
PROGRAM = """
hvd.init()
is_victim = hvd.rank() == VICTIM
def step(value=1.0):
    for name in ("first", "second"):
        hvd.allreduce(torch.full((64,), value), name=name)
def stay_away(wait=lambda: time.sleep(0.01)):
    while not os.path.exists("over"):
        wait()
def batches():
    stay_away()
    yield None
for _ in range(30):  # long enough for a learned plan
    step()
say("ready")
await_file("begin")
try:
    {fault}
    for _ in range(10):
        step()
    await_file("end")
    say("done")
except hvd.HorovodInternalError as error:
    say("failed", text=str(error))
"""

BUSY = "stay_away(lambda: sum(range(20000)))"
OTHER_ORDER = """
    names = ("third", "fourth") if is_victim else ("fourth", "third")
    for name in names:
        hvd.allreduce(torch.ones(8), name=name)
"""
OTHER_SHAPE = 'hvd.allreduce(torch.ones(3 if is_victim else 4), name="odd")'
OTHER_TYPE = 'hvd.allreduce(torch.ones(4, dtype=torch.float64 if is_victim else torch.float32), name="odd")'
OTHER_OPERATION = 'hvd.allreduce(torch.ones(4), op=hvd.Sum if is_victim else hvd.Max, name="odd")'
OTHER_NAME = """
    hvd.allreduce(torch.ones(4), name="mine" if is_victim else "ours")
"""


def stop(job: Job, victim: int) -> None:
    job.kill(victim, signal.SIGSTOP)


def kill(job: Job, victim: int) -> None:
    job.kill(victim)


libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
ATTACH, DETACH = 16, 17


def attach(job: Job, victim: int) -> None:
    if libc.ptrace(ATTACH, job.pids[victim], None, None) != 0:
        pytest.skip(f"this machine allows no debugger: {os.strerror(ctypes.get_errno())}")


@dataclass(frozen=True)
class Planted:
    name: str
    says: str  # the class that must be said
    fault: str = "pass"  # what all ranks run when the fault begins
    act: Optional[Callable[[Job, int], None]] = None  # what is done to the victim
    tensor: str = ""  # named by the verdict


MATRIX = [
    Planted("missing", "missing", "if is_victim: stay_away()", tensor="first"),
    Planted("compute", "late in compute", f"if is_victim: {BUSY}", tensor="first"),
    Planted("input", "late in input", "if is_victim: list(hvd.timed_input(batches()))", tensor="first"),
    Planted("order", "opposite order", OTHER_ORDER, tensor="fourth"),
    Planted("name", "opposite order", OTHER_NAME, tensor="ours"),
    Planted("shape", "mismatch", OTHER_SHAPE, tensor="odd"),
    Planted("type", "mismatch", OTHER_TYPE, tensor="odd"),
    Planted("operation", "mismatch", OTHER_OPERATION, tensor="odd"),
    Planted("numbers", "NaN or infinity", 'step(float("nan") if is_victim else 1.0)', tensor="first"),
    Planted("stopped", "stopped", act=stop),
    Planted("debugger", "in a debugger", act=attach),
    Planted("dead", "dead", "await_file('never')", act=kill),
]
# Every verdict names the host and the process.
VERDICT = re.compile(r"Verdict: ([^:]+): rank (\d+) \(host [^,)]+, pid \d+\)(.*)")
IS_OVER = re.compile(r" goes on after | again, after ")


@dataclass
class Case:
    planted: Planted
    victim: int
    job: Job
    began: float = 0.0
    first_at: float = 0.0
    # What was said first. Later a rank may see how the test ends another one.
    first: List[re.Match[str]] = field(default_factory=list)

    def verdicts(self) -> List[re.Match[str]]:
        lines = [line for rank in range(len(self.job.pids)) for line in self.job.output(rank).splitlines()]
        return [found for line in lines if (found := VERDICT.search(line)) and not IS_OVER.search(line)]

    def is_right(self) -> bool:
        if not self.first:
            return False
        kind, rank, text = self.first[0].groups()
        return (kind, int(rank)) == (self.planted.says, self.victim) and self.planted.tensor in text

    def describe(self) -> str:
        said = "; ".join(one.group(0) for one in self.first) or "nothing"
        return f"{self.planted.name} on rank {self.victim}, after {self.first_at - self.began:.1f} s: {said}"


def start(jobs: Jobs, planted: Planted, victim: int, transports: str, **more: str) -> Case:
    source = f"VICTIM = {victim}\n" + PROGRAM.replace("{fault}", planted.fault.strip())
    return Case(planted, victim, jobs.start(3, source, environment={**TIMES, **more}, transports=transports))


def plant(case: Case) -> None:
    for rank in range(3):
        case.job.await_said(rank, "ready")
    case.began = time.monotonic()
    if case.planted.act is not None:
        case.planted.act(case.job, case.victim)
    case.job.release("begin")


def await_verdicts(cases: List[Case]) -> None:
    deadline = time.monotonic() + LIMIT_S
    open_cases = list(cases)
    while open_cases and time.monotonic() < deadline:
        for case in list(open_cases):
            if said := case.verdicts():
                case.first, case.first_at = said, time.monotonic()
                open_cases.remove(case)
        time.sleep(0.02)


def end(case: Case) -> None:
    """Jobs whose ranks wait for one another do not end by themselves."""
    for rank in range(len(case.job.pids)):
        with contextlib.suppress(ProcessLookupError):
            case.job.kill(rank)
    case.job.wait()


@pytest.mark.parametrize("transports", ["shm,tcp", "tcp"])
def test_planted_faults_are_named_with_class_and_rank(jobs: Jobs, transports: str) -> None:
    wrong = []
    for first in range(0, len(MATRIX), AT_ONCE):
        some = MATRIX[first : first + AT_ONCE]
        cases = [start(jobs, planted, 1 + number % 2, transports) for number, planted in enumerate(some)]
        for case in cases:
            plant(case)
        await_verdicts(cases)
        for case in cases:
            if case.planted.act is attach:
                os.waitpid(case.job.pids[case.victim], 0x40000000)  # __WALL
                libc.ptrace(DETACH, case.job.pids[case.victim], None, None)
            if case.planted.act is stop:
                case.job.kill(case.victim, signal.SIGCONT)
            case.job.release("over")
        for case in cases:
            end(case)
        wrong += [case.describe() for case in cases if not case.is_right()]
    assert not wrong, "\n".join(wrong)


def test_a_late_rank_shows_where_it_is_and_rank_0_says_when_it_goes_on(jobs: Jobs) -> None:
    (late,) = [planted for planted in MATRIX if planted.name == "compute"]
    case = start(jobs, late, 2, "shm,tcp")
    plant(case)
    await_verdicts([case])
    wait_until(lambda: "which is here" in case.job.output(2), LIMIT_S, "the stacks of the late rank")
    wait_until(lambda: "  stay_away (" in case.job.output(2), LIMIT_S, "the function in which it is")
    assert "which is here" not in case.job.output(0) + case.job.output(1)
    case.job.release("over")
    over = re.compile(r"late in compute: rank 2 \(.*\) goes on after \d")
    wait_until(lambda: over.search(case.job.output(0)) is not None, LIMIT_S, "the end of the verdict")
    case.job.release("end")
    case.job.assert_ended_well()
    assert all(case.job.said(rank, "done") for rank in range(3)), case.job.everything()


LATE_IN_EACH_STEP = """
    for _ in range(4):
        if is_victim: time.sleep(6.5)
        step()
"""


def test_a_rank_that_is_late_in_each_step_is_said_once_and_once_more_when_it_is_over(jobs: Jobs) -> None:
    late = Planted("steady", "missing", LATE_IN_EACH_STEP, tensor="first")
    case = start(jobs, late, 1, "shm,tcp")
    plant(case)
    over = re.compile(r"rank 1 \(.*\) is no longer late: others have waited for it [2-4] times in \d+\.\d s")
    wait_until(lambda: over.search(case.job.output(0)) is not None, LIMIT_S, "the end of the verdict")
    case.job.release("end")
    case.job.assert_ended_well()
    lines = [line for line in case.job.output(0).splitlines() if "Verdict: " in line]
    assert len(lines) == 2, "\n".join(lines)
    assert case.job.output(1).count("which is here") == 1


@pytest.mark.parametrize("transports", ["shm,tcp", "tcp"])
def test_a_stopped_rank_0_is_named_by_another_rank(jobs: Jobs, transports: str) -> None:
    (stopped,) = [planted for planted in MATRIX if planted.name == "stopped"]
    case = start(jobs, stopped, 0, transports)
    plant(case)
    await_verdicts([case])
    case.job.kill(0, signal.SIGCONT)
    end(case)
    assert case.is_right(), case.describe()


@pytest.mark.parametrize("victim", [0, 1])
def test_a_stopped_rank_is_lost_as_stopped_and_not_as_silent(jobs: Jobs, victim: int) -> None:
    (stopped,) = [planted for planted in MATRIX if planted.name == "stopped"]
    case = start(jobs, stopped, victim, "tcp", RUEDA_PEER_TIMEOUT_SECONDS="5")
    plant(case)
    others = [rank for rank in range(3) if rank != victim]
    lost = f"rank {victim} \\(.*\\) was lost: its process was stopped by a signal \\(SIGSTOP or SIGTSTP\\)"
    for rank in others:
        failed = case.job.await_said(rank, "failed")
        assert re.search(lost, failed["text"]), failed
    last = re.compile(f"Verdict: stopped: {lost}")
    wait_until(lambda: last.search(case.job.output(others[0])) is not None, LIMIT_S, "the last line")
    case.job.kill(victim, signal.SIGCONT)
    failed = case.job.await_said(victim, "failed")  # it takes nobody for dead who has only gone without it
    assert re.search(lost, failed["text"]), failed
    end(case)


# Worlds one after the other in the same processes, and several such jobs side by side. Each world has a
# judge of its own, and lasts long enough for a verdict about a rank that waits for a core.
# RUEDA_CLEAN_RUNS=200 takes two minutes. control_judge_noise_test plays back what such worlds tell the judge.
RUNS = int(os.environ.get("RUEDA_CLEAN_RUNS", "24"))
SIDE_BY_SIDE = 8
WORLD_S = 4.0
CLEAN_TIMES = {"RUEDA_VERDICT_SECONDS": "3"}
CLEAN = f"""
for _ in range({max(1, -(-RUNS // SIDE_BY_SIDE))}):
    hvd.init()
    end = time.monotonic() + {WORLD_S}
    goes_on = True
    while goes_on:
        torch.ones(60, 60) @ torch.ones(60, 60)
        hvd.allreduce(torch.ones(1000), name="g")
        left = torch.tensor([float(time.monotonic() < end)])
        goes_on = hvd.allreduce(left, name="goes on", op=hvd.Sum).item() == 2
        time.sleep(0.02)
    hvd.shutdown()
"""


@contextlib.contextmanager
def overload() -> Iterator[None]:
    """Every core has four processes more that never sleep."""
    busy = "while True: pass"
    hogs = [subprocess.Popen([sys.executable, "-S", "-c", busy]) for _ in range(4 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


@pytest.mark.alone  # it overloads the machine, and claims that so much load, and no more, is excused
@pytest.mark.timeout(300 + RUNS)
def test_clean_runs_on_an_overloaded_machine_are_blamed_for_nothing(jobs: Jobs) -> None:
    source = f"say('ready')\nawait_file('begin', 120)\n{CLEAN}"
    runs = [jobs.start(2, source, environment=CLEAN_TIMES) for _ in range(SIDE_BY_SIDE)]
    for run in runs:  # each loads torch first, which takes minutes beside the others
        for rank in range(2):
            run.await_said(rank, "ready")
    with overload():
        for run in runs:
            run.release("begin")
        for run in runs:
            run.assert_ended_well(limit_s=120 + RUNS)
    assert not [run.everything() for run in runs if "Verdict" in run.everything()]
