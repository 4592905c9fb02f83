"""Whatever is killed, nothing of a job outlives it: every probe looks for its processes in /proc."""

import os
import pathlib
import signal

import pytest
from harness import library
from launch_support import (
    GONE_S,
    HIDING_CHILD,
    PYTHON,
    ROOT,
    RUEDA,
    Run,
    assert_all_gone,
    name_of,
    parent_of,
    run,
)
from ports import free_ports

pytestmark = pytest.mark.skipif(not os.path.exists(RUEDA), reason=f"{RUEDA} is not built")


def start_hiding_job(*arguments):
    """Two ranks, each with a grandchild in a session of its own that ignores SIGTERM."""
    job = Run("-np", 2, *arguments, PYTHON, "-c", HIDING_CHILD)
    job.read_until(2, lambda line: "hidden" in line)
    assert len(job.processes()) == 1 + 2 + 2 + 2  # launcher; guardian and worker; ranks; hidden children
    return job


def test_killed_launcher_takes_everything_along():
    job = start_hiding_job()
    os.kill(job.process.pid, signal.SIGKILL)
    job.process.communicate(timeout=GONE_S)
    job.assert_gone()


@pytest.mark.parametrize("name", ["rueda-agent", "rueda-guardian"])
def test_killed_half_of_an_agent_ends_the_job(name):
    job = start_hiding_job("--grace", "0.5")
    [victim] = job.agents(name)
    os.kill(victim, signal.SIGKILL)
    others = set(job.processes()) - {job.process.pid}
    assert_all_gone(others)
    status, _, err = job.finish()
    assert status != 0 and "was lost with its host" in err
    job.assert_gone()


def test_killed_agent_both_halves_at_once_leaves_nothing():
    job = start_hiding_job()
    victims = job.agents("rueda-guardian") + job.agents("rueda-agent")
    assert len(victims) == 2
    left = private_dir_of(job)
    assert (left / "secret").exists()
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    status, _, err = job.finish()
    assert status != 0 and "was lost with its host" in err
    job.assert_gone()
    assert not left.exists()


def test_killed_launcher_and_worker_leave_the_guardian_to_clean_up():
    job = start_hiding_job()
    [worker] = job.agents("rueda-agent")
    os.kill(job.process.pid, signal.SIGKILL)
    os.kill(worker, signal.SIGKILL)
    job.process.communicate(timeout=GONE_S)
    job.assert_gone()


def private_dir_of(job):
    """The directory in which the agent of a job keeps its files."""
    agents = job.agents("rueda-guardian") + job.agents("rueda-agent")
    rank = next(pid for pid in job.processes() if parent_of(pid) in agents and pid not in agents)
    return next(
        pathlib.Path(entry.partition("=")[2]).parent
        for entry in pathlib.Path(f"/proc/{rank}/environ").read_text().split("\0")
        if entry.startswith("RUEDA_SECRET_FILE=")
    )


def test_ranks_themselves_die_even_if_all_of_rueda_is_killed_at_once(tmp_path):
    """Beyond ranks there is nobody left to do anything: a hidden grandchild is then not covered, and the
    directory with the secret is removed by the next agent of the same user, a minute later.
    """
    waiting = ["-np", 2, PYTHON, "-c", "import time; print('up', flush=True); time.sleep(300)"]
    job, other = (Run(*waiting, env={"TMPDIR": str(tmp_path)}) for _ in range(2))
    for each in (job, other):
        each.read_until(2, lambda line: "up" in line)
    left, used = private_dir_of(job), private_dir_of(other)
    mine = tmp_path / "rueda-agent-output"  # looks like one, but somebody else's
    mine.mkdir(mode=0o700)
    (mine / "results").touch()
    everybody = [job.process.pid, *job.agents("rueda-guardian"), *job.agents("rueda-agent")]
    for pid in everybody:  # nobody may act on the others' deaths
        os.kill(pid, signal.SIGSTOP)
    for pid in reversed(everybody):  # the kernel continues a stopped process group whose parent dies
        os.kill(pid, signal.SIGKILL)
    job.process.communicate(timeout=GONE_S)
    job.assert_gone()
    os.utime(left)  # a busy machine may have taken a minute until here
    run("-np", 1, "true", env={"TMPDIR": str(tmp_path)})
    assert left.exists()  # an agent at its very start has no lock yet
    for folder in (left, used, mine):
        os.utime(folder, (0, 0))
    run("-np", 1, "true", env={"TMPDIR": str(tmp_path)})
    assert sorted(tmp_path.iterdir()) == sorted([used, mine])
    other.process.send_signal(signal.SIGTERM)
    other.finish()
    other.assert_gone()
    assert list(tmp_path.iterdir()) == [mine]


def test_killed_rank_ends_the_job_with_its_hidden_children():
    job = start_hiding_job("--grace", "0.5")
    [worker] = job.agents("rueda-agent")
    rank = next(pid for pid in job.processes() if parent_of(pid) == worker)
    os.kill(rank, signal.SIGKILL)
    status, _, err = job.finish()
    assert status == 137 and f"(pid {rank}) was killed by SIGKILL" in err
    job.assert_gone()


def test_killed_ranks_leave_neither_socket_nor_token(folder):
    program = (
        "import os, signal, time, rueda.numpy as hvd\nhvd.init()\nprint('up', flush=True)\ntime.sleep(300)"
    )
    environment = {
        "PYTHONPATH": str(ROOT / "python"),
        "RUEDA_LIBRARY": library(),
        "XDG_RUNTIME_DIR": str(folder),
    }
    port = free_ports(2)
    options = ("-np", 2, "--no-prefix", "--metrics-port", port)
    job = Run(*options, PYTHON, "-c", program, env=environment)
    job.read_until(2, lambda line: line == "up\n")
    [worker] = job.agents("rueda-agent")
    ranks = [pid for pid in job.processes() if parent_of(pid) == worker]
    assert len(list((folder / "rueda").glob("*.sock"))) == 2
    assert (folder / f"rueda/metrics-{port}.token").exists()
    for number in (signal.SIGSTOP, signal.SIGKILL):  # none of them tidies up after the other
        for pid in ranks:
            os.kill(pid, number)
    assert job.finish()[0] == 137
    job.assert_gone()
    assert list((folder / "rueda").iterdir()) == []


def test_stopped_ranks_are_ended_too():
    job = start_hiding_job("--grace", "0.5")
    [worker] = job.agents("rueda-agent")
    ranks = [pid for pid in job.processes() if parent_of(pid) == worker and name_of(pid).startswith("python")]
    for pid in ranks:
        os.kill(pid, signal.SIGSTOP)
    job.process.send_signal(signal.SIGTERM)
    assert job.finish()[0] == 143
    job.assert_gone()


def test_stopped_agent_does_not_hang_an_impatient_user():
    job = start_hiding_job("--grace", "0.2")
    [worker] = job.agents("rueda-agent")
    os.kill(worker, signal.SIGSTOP)
    job.process.send_signal(signal.SIGTERM)
    assert job.finish()[0] == 143
    job.assert_gone()


def test_daemon_left_by_ranks_that_ended_well_is_swept_up():
    script = (
        "import os,signal,sys,time\n"
        "r, w = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    os.write(w, b'.')\n"
        "    time.sleep(300)\n"
        "os.read(r, 1)\n"
    )
    status, _, err = run("-np", 2, PYTHON, "-c", script)
    assert (status, err) == (0, "")


def test_fifty_quick_runs_leave_no_process_and_no_file(tmp_path):
    """In a TMPDIR of its own: other jobs of this machine come and go in /tmp."""
    jobs = []
    for _ in range(50):
        job = Run("-np", 2, "sh", "-c", "exit $((RANK * 3))", env={"TMPDIR": str(tmp_path)})
        assert job.finish()[0] == 3
        jobs.append(job)
    for job in jobs[::10] + jobs[-1:]:
        job.assert_gone()
    assert os.listdir(tmp_path) == []
