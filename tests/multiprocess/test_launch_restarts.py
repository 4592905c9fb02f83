"""`rueda run --max-restarts`: which jobs are started again, what is said, and what the ranks find."""

import os
import pathlib
import re
import signal

import pytest
from launch_support import PYTHON, RUEDA, Run, run
from robust_support import wait_until

pytestmark = pytest.mark.skipif(not os.path.exists(RUEDA), reason=f"{RUEDA} is not built")

AT_ONCE = ("--restart-pause", 0)

# Fails until it has been started again often enough.
SCRIPT = (
    "import os, sys\ncount = int(os.environ['RUEDA_RESTART_COUNT'])\n"
    "print('try', count, 'of rank', os.environ['RANK'], flush=True)\n"
    "if os.environ['RANK'] == '1' and count < {bad}: sys.exit(40 + count)"
)


def test_a_failed_job_is_started_again_until_it_ends_well():
    status, out, err = run("-np", 2, "--max-restarts", 3, *AT_ONCE, PYTHON, "-c", SCRIPT.format(bad=2))
    assert status == 0, err
    for count in range(3):
        for rank in range(2):
            # Rank 0 may have been stopped before it could say so.
            assert f"try {count} of rank {rank}" in out or rank == 0, out
    codes = re.findall(r"the job failed: rank 1 .*exited with code (\d+)", err)
    assert codes == ["40", "41"], err
    assert "rueda: the job ended with exit status 40 and is started again (restart 1 of 3)" in err
    assert "rueda: the job ended with exit status 41 and is started again (restart 2 of 3)" in err
    assert "rueda: the job was started 3 times; exit statuses: 40, 41, 0" in err


def test_the_last_try_gives_the_exit_status():
    status, out, err = run("-np", 2, "--max-restarts", 1, *AT_ONCE, PYTHON, "-c", SCRIPT.format(bad=9))
    assert status == 41 and "try 2" not in out
    assert "rueda: the job was started 2 times; exit statuses: 40, 41" in err


def test_without_the_option_a_job_is_started_once():
    status, out, err = run("-np", 2, PYTHON, "-c", SCRIPT.format(bad=9))
    assert status == 40 and "try 1" not in out
    assert "started" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_job_that_is_stopped_by_a_signal_is_not_started_again(number):
    script = "import time; print('up', flush=True); time.sleep(300)"
    job = Run("-np", 2, "--max-restarts", 3, PYTHON, "-c", script)
    job.read_until(2, lambda line: "up" in line)
    job.process.send_signal(number)
    status, _, err = job.finish()
    assert status == 128 + number and "started again" not in err, err


def blocks(pid, number):
    """Whether the process reads this signal when it wants to."""
    [mask] = re.findall(r"^SigBlk:\s+(\w+)$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(mask, 16) >> (number - 1) & 1 == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_pause_before_the_next_try(number):
    job = Run("-np", 1, "--max-restarts", 3, "--restart-pause", 600, "sh", "-c", "exit 7")
    while "is started again in 600 s (restart 1 of 3)" not in (line := job.process.stderr.readline()):
        assert line, "rueda run ended"
    wait_until(lambda: blocks(job.process.pid, number), 30, "the pause")
    job.process.send_signal(number)
    status, _, err = job.finish()
    assert status == 128 + number and "exit code" not in err, err
    assert f"rueda: {number.name} came before the job was started again" in err
    job.assert_gone()


def test_the_next_try_comes_after_a_pause_that_is_told():
    status, out, err = run(
        "-np", 2, "--max-restarts", 1, "--restart-pause", 0.2, PYTHON, "-c", SCRIPT.format(bad=1)
    )
    assert status == 0 and "is started again in 0.2 s (restart 1 of 1)" in err, err
    assert "try 1 of rank 1" in out


def test_a_command_that_is_not_there_is_looked_for_once():
    status, _, err = run("-np", 2, "--max-restarts", 3, "./no-such-program")
    assert status == 127 and "started again" not in err, err


def test_each_try_has_logs_of_its_own(tmp_path):
    logs = tmp_path / "logs"
    limits = ("--max-restarts", 1, *AT_ONCE, "--log-dir", logs)
    status, _, err = run("-np", 2, *limits, PYTHON, "-c", SCRIPT.format(bad=1))
    assert status == 0, err
    assert "try 0" in (logs / "earlier-1" / "rank-0001.out").read_text()
    assert "try 1" in (logs / "rank-0001.out").read_text()


def test_a_file_may_say_it(tmp_path: pathlib.Path):
    file = tmp_path / "settings.yaml"
    file.write_text("max_restarts: 1\n")
    status, _, err = run("-np", 2, "--config-file", file, *AT_ONCE, PYTHON, "-c", SCRIPT.format(bad=1))
    assert status == 0 and "exit statuses: 40, 0" in err, err


@pytest.mark.parametrize("bad", ["-1", "often"])
def test_a_number_that_is_none_is_refused(bad):
    status, _, err = run("-np", 1, f"--max-restarts={bad}", "true")
    assert status == 2 and "--max-restarts" in err, err
