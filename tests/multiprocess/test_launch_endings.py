"""`rueda run` on one machine: how a job ends, by itself, by a failure or by a signal. Plain programs."""

import os
import re
import signal
import time

import pytest
from harness import library
from launch_support import PYTHON, ROOT, RUEDA, Run, run

pytestmark = pytest.mark.skipif(not os.path.exists(RUEDA), reason=f"{RUEDA} is not built")


def test_first_failure_is_named_with_its_last_words():
    script = "import os,sys,time\nif os.environ['RANK'] == '2': sys.exit('the disk is full')\ntime.sleep(60)"
    status, _, err = run("-np", 3, "--grace", 1, PYTHON, "-c", script)
    assert status == 1
    assert re.search(r"the job failed: rank 2 on localhost \(pid \d+\) exited with code 1", err)
    assert "  | the disk is full" in err
    assert "ranks 0, 1: stopped by rueda (SIGTERM)" in err


# A rank can wait until the launcher has seen the end of another one.
TELL_WHO_I_AM = """
import os, sys, time
rank, folder = os.environ["RANK"], os.environ["FOLDER"]
with open(f"{folder}/new.{rank}", "w") as mine:
    mine.write(str(os.getpid()))
os.rename(f"{folder}/new.{rank}", f"{folder}/pid.{rank}")
def await_end_of(other):
    end = time.monotonic() + 60
    while not os.path.exists(f"{folder}/pid.{other}") and time.monotonic() < end:
        time.sleep(0.01)
    pid = open(f"{folder}/pid.{other}").read()
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < end:
        time.sleep(0.01)
"""


def test_ranks_that_notice_may_end_by_themselves_and_are_not_blamed(tmp_path):
    script = TELL_WHO_I_AM + "if rank == '0': os.abort()\nawait_end_of('0')\nsys.exit('rank 0 is dead')"
    status, _, err = run("-np", 2, PYTHON, "-c", script, env={"FOLDER": str(tmp_path)})
    assert status == 128 + signal.SIGABRT
    assert "rank 0 on localhost" in err and "was killed by SIGABRT" in err
    assert "[1 localhost] rank 0 is dead" in err and "rank 1: exited with code 1" in err


def test_a_rank_that_ignores_sigterm_is_killed_after_the_grace():
    script = "trap '' TERM; [ $RANK = 1 ] && exit 4; while :; do sleep 1; done"
    status, _, err = run("-np", 2, "--grace", 0.3, "sh", "-c", script)
    assert status == 4 and "stopped by rueda (SIGKILL)" in err


WITH_RUEDA = {
    "PYTHONPATH": str(ROOT / "python"),
    "RUEDA_LIBRARY": library(),
    "RUEDA_START_TIMEOUT": "300",  # longer than a test may take
}
BEFORE_INIT = """
import os, sys
if os.environ["RANK"] == "{rank}": {act}
import rueda.numpy as hvd
hvd.init()
"""


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_in_init_do_not_wait_for_one_that_ended_without_init(rank):
    script = BEFORE_INIT.format(rank=rank, act="sys.exit(0)")
    status, _, err = run("-np", 3, PYTHON, "-c", script, env=WITH_RUEDA)
    assert status == 1
    named = re.findall(
        rf"rank {rank} on localhost \(pid \d+\) exited with code 0, so it does not take part ", err
    )
    assert len(named) >= 2, err  # on both ranks
    assert f"rank {rank}: ended well" in err


def test_ranks_in_init_end_with_the_one_that_raised_before_and_are_not_blamed():
    script = BEFORE_INIT.format(rank=1, act="raise ImportError('no tyop')")
    status, _, err = run("-np", 3, PYTHON, "-c", script, env=WITH_RUEDA)
    assert status == 1
    assert re.search(r"the job failed: rank 1 on localhost \(pid \d+\) exited with code 1", err)
    assert "  | ImportError: no tyop" in err
    assert "exited with code 1, so it does not take part in this init; " in err
    assert "ranks 0, 2: exited with code 1" in err, "they had not to be stopped"


def test_sigkill_is_explained():
    status, _, err = run("-np", 1, "sh", "-c", "kill -9 $$")
    assert status == 137 and "SIGKILL" in err and "out-of-memory killer" in err


@pytest.mark.parametrize(
    "command, code, sentence",
    [
        (["no-such-command"], 127, "command not found: no-such-command"),
        (["/no/such/command"], 127, "command not found: /no/such/command"),
        (["/etc/passwd"], 126, "cannot execute /etc/passwd"),
        (["np1.py"], 127, "command not found: np1.py is in no directory of PATH; write python np1.py"),
        ([__file__], 126, f"cannot execute {__file__}: Permission denied; write python {__file__}"),
    ],
)
def test_commands_that_cannot_run_have_the_status_of_a_shell(command, code, sentence):
    status, _, err = run("-np", 2, *command)
    assert status == code and sentence in err


TRAP = """
import os, signal, sys, time
def handler(number, frame):
    print('got', signal.Signals(number).name, flush=True)
    if number in (signal.SIGINT, signal.SIGTERM): sys.exit(0)
for name in ('SIGINT', 'SIGTERM', 'SIGUSR1', 'SIGUSR2'):
    signal.signal(getattr(signal, name), handler)
print('ready', flush=True)
while True: time.sleep(0.1)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_stop_signals_reach_every_rank_once(name):
    job = Run("-np", 2, PYTHON, "-c", TRAP)
    job.read_until(2, lambda line: "ready" in line)
    job.process.send_signal(getattr(signal, name))
    status, out, err = job.finish()
    assert status == 128 + getattr(signal, name)
    assert sorted(out.splitlines()) == [f"[{r} localhost] got {name}" for r in range(2)]
    assert f"stopped by {name}" in err
    job.assert_gone()


def test_a_stop_is_obeyed_while_ranks_are_being_started():
    job = Run("-np", 500, "sh", "-c", "echo up; exec sleep 300")
    job.read_until(1, lambda line: "up" in line)
    job.process.send_signal(signal.SIGTERM)
    status, _, err = job.finish()
    assert status == 143 and "-499: stopped by rueda before its start" in err and "SIGKILL" not in err
    job.assert_gone()


def test_user_signals_are_passed_on_and_end_nothing():
    job = Run("-np", 2, PYTHON, "-c", TRAP)
    job.read_until(2, lambda line: "ready" in line)
    job.process.send_signal(signal.SIGUSR1)
    job.read_until(2, lambda line: "got SIGUSR1" in line)
    job.process.send_signal(signal.SIGUSR2)
    job.read_until(2, lambda line: "got SIGUSR2" in line)
    job.process.send_signal(signal.SIGTERM)
    assert job.finish()[0] == 143
    job.assert_gone()


def test_second_interrupt_kills_now():
    hold = "trap '' INT TERM; echo ready; while :; do sleep 1; done"
    job = Run("-np", 2, "--grace", 300, "sh", "-c", hold)
    job.read_until(2, lambda line: "ready" in line)
    job.process.send_signal(signal.SIGINT)
    while "passed on to the ranks" not in job.process.stderr.readline():
        pass
    job.process.send_signal(signal.SIGINT)
    status, _, err = job.finish()
    assert status == 130 and "SIGKILL" in err
    job.assert_gone()


def test_blocked_terminal_does_not_stop_the_watch():
    """Nobody reads our stdout: the ranks wait, and the job can still be ended."""
    read, write = os.pipe()
    job = Run("-np", 1, "sh", "-c", "yes " + "x" * 1000, stdout=write)
    os.close(write)
    deadline = time.monotonic() + 60
    while len(job.processes()) < 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    job.process.send_signal(signal.SIGTERM)
    while [p for p in job.processes() if p != job.process.pid] and time.monotonic() < deadline:
        time.sleep(0.02)
    ranks_left = [p for p in job.processes() if p != job.process.pid]
    os.close(read)
    job.process.communicate(timeout=60)
    assert ranks_left == []
    job.assert_gone()


DISAGREE = (
    TELL_WHO_I_AM
    + """
import numpy, rueda.numpy as hvd
hvd.init()
odd = hvd.rank() == 1
try:
    hvd.allreduce(numpy.ones(4 if odd else 3), name="x")
except hvd.HorovodInternalError:
    if odd:
        for other in range(hvd.size()):
            if other != 1: await_end_of(other)
    raise
"""
)


def test_of_ranks_that_disagree_the_outnumbered_one_is_blamed(tmp_path):
    given = {**WITH_RUEDA, "FOLDER": str(tmp_path)}
    status, _, err = run("-np", 3, PYTHON, "-c", DISAGREE, env=given)
    assert status == 1
    assert re.search(
        r"the job failed: rank 1 on .* because it disagrees with most ranks about a tensor", err
    ), err


def test_of_two_ranks_that_disagree_none_is_blamed(tmp_path):
    given = {**WITH_RUEDA, "FOLDER": str(tmp_path)}
    status, _, err = run("-np", 2, PYTHON, "-c", DISAGREE, env=given)
    assert status == 1
    assert "the job failed: its ranks disagree about a tensor, and no side has more of them; rank 0 on" in err


STALL = """
import os, time
import numpy, rueda.numpy as hvd
hvd.init()
hvd.barrier()  # the others then come within seconds of one another
if hvd.rank() == 1: time.sleep(300)
hvd.allreduce(numpy.ones(3), name="x")
"""


STALL_IN_JOIN = """
import time
import numpy, rueda.numpy as hvd
hvd.init()
for _ in range(30): hvd.allreduce(numpy.ones(3), name="x")  # they become a plan
if hvd.rank() == 1: time.sleep(300)
hvd.join()
"""

# torch puts "[rank0]: " before each line of a traceback.
STALL_IN_TORCH = """
import time
import torch, torch.distributed as dist, rueda.torch.distributed
dist.init_process_group("rueda")
dist.barrier()
if dist.get_rank() == 1: time.sleep(300)
works = [dist.all_reduce(torch.ones(3), async_op=True) for _ in range(25)]
for work in works: work.wait()
"""


@pytest.mark.parametrize("script", [STALL, STALL_IN_JOIN, STALL_IN_TORCH], ids=["allreduce", "join", "torch"])
def test_a_rank_that_never_submits_is_blamed_for_the_stall(script):
    limits = {"RUEDA_STALL_CHECK_TIME_SECONDS": "1", "RUEDA_STALL_SHUTDOWN_TIME_SECONDS": "5"}
    status, _, err = run("-np", 3, "--grace", 1, PYTHON, "-c", script, env={**WITH_RUEDA, **limits})
    assert status == 1
    assert re.search(r"the job failed: rank 1 on .* never submitted what the other ranks waited for", err), (
        err
    )
