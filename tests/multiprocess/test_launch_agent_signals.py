"""Signals that reach agents and not `rueda run`, as schedulers send them: to the first process of a host."""

import os
import re
import signal
import subprocess
import time

import pytest
import slurm_support
from launch_support import PYTHON, RUEDA, Run

pytestmark = pytest.mark.skipif(not os.path.exists(RUEDA), reason=f"{RUEDA} is not built")

# Says which signals it gets, goes on after those that inform, and takes a second to end.
TRAP = """
import os, signal, sys, time
def handler(number, frame):
    print("got", signal.Signals(number).name, flush=True)
    if number in (signal.SIGINT, signal.SIGTERM):
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            time.sleep(0.05)
        print("x" * 300_000, "saved", flush=True)
        sys.exit(0)
for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGXCPU"):
    signal.signal(getattr(signal, name), handler)
print("ready", flush=True)
end = time.monotonic() + 120
while time.monotonic() < end:
    time.sleep(0.05)
"""


def signalled(output):
    """Who got what, without the words in between."""
    return sorted(
        re.findall(r"^\[(\d) \S+\] (got \w+|x+ saved)$", output, re.MULTILINE), key=lambda pair: pair[0]
    )


@pytest.mark.parametrize("target", ["rueda-guardian", "rueda-agent"])
def test_signals_to_an_agent_reach_its_ranks_once(target):
    job = Run("-np", 2, "--grace", 20, PYTHON, "-c", TRAP)
    job.read_until(2, lambda line: "ready" in line)
    [agent] = job.agents(target)
    for name in ("SIGUSR1", "SIGUSR2", "SIGXCPU", "SIGUSR1"):
        os.kill(agent, getattr(signal, name))
        lines = job.read_until(2, lambda line: "got" in line)
        assert sorted(lines) == [f"[{rank} localhost] got {name}\n" for rank in range(2)]
    os.kill(agent, signal.SIGTERM)
    status, out, err = job.finish()
    assert status == 143 and "rueda: the job was stopped by SIGTERM\n  ranks 0, 1: ended well\n" in err, err
    assert "rueda: SIGTERM came to the agent of localhost, as from a scheduler that ends the job; " in err
    assert "the ranks have 20 s to end" in err
    assert [(rank, what[-9:]) for rank, what in signalled(out)] == [
        (rank, word) for rank in "01" for word in ("t SIGTERM"[-9:], "xxx saved")
    ], out[:2000]
    job.assert_gone()


def test_a_signal_to_both_processes_of_an_agent_reaches_its_ranks_once():
    """As from a launcher that signals what it has started, and then all that it finds below."""
    job = Run("-np", 2, "--grace", 20, PYTHON, "-c", TRAP)
    job.read_until(2, lambda line: "ready" in line)
    agents = [job.agents(name)[0] for name in ("rueda-agent", "rueda-guardian")]
    for name in ("SIGUSR1", "SIGUSR2", "SIGUSR1", "SIGXCPU"):
        for agent in agents:
            os.kill(agent, getattr(signal, name))
        lines = job.read_until(2, lambda line: "got" in line)
        assert sorted(lines) == [f"[{rank} localhost] got {name}\n" for rank in range(2)]
    for agent in agents:
        os.kill(agent, signal.SIGTERM)
    status, out, _ = job.finish()
    assert status == 143 and out.count("got") == out.count("got SIGTERM") == 2, out[:2000]


def test_sigint_to_an_agent_ends_the_job_as_ctrl_c_does():
    job = Run("-np", 2, "--grace", 20, PYTHON, "-c", TRAP)
    job.read_until(2, lambda line: "ready" in line)
    os.kill(job.agents("rueda-guardian")[0], signal.SIGINT)
    status, out, _ = job.finish()
    assert status == 130
    assert out.count("got SIGINT") == 2 and out.count("saved") == 2 and "SIGTERM" not in out


def test_ranks_that_ignore_what_an_agent_got_are_killed_after_the_grace():
    job = Run("-np", 2, "--grace", 0.3, "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done")
    job.read_until(2, lambda line: "ready" in line)
    os.kill(job.agents("rueda-guardian")[0], signal.SIGTERM)
    status, _, err = job.finish()
    assert status == 143 and "ranks 0, 1: stopped by rueda (SIGKILL)" in err
    job.assert_gone()


def test_ranks_keep_their_grace_if_the_launcher_ends_before_them(tmp_path):
    """As in a batch job, when Slurm kills what is left of the script."""
    script = (
        f"trap 'sleep 2; touch {tmp_path}/saved.$RANK; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
    )
    job = Run("-np", 2, "--grace", 30, "sh", "-c", script)
    job.read_until(2, lambda line: "ready" in line)
    os.kill(job.agents("rueda-guardian")[0], signal.SIGTERM)
    while "SIGTERM came to the agent" not in job.process.stderr.readline():
        pass
    job.process.kill()
    job.process.communicate(timeout=90)
    job.assert_gone()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["saved.0", "saved.1"]


@pytest.fixture(scope="module", name="slurm")
def make_slurm():
    if reason := slurm_support.why_not():
        pytest.skip(reason)
    made = slurm_support.Slurm(nodes=2, kill_wait_s=30)
    yield made
    made.stop()


class SlurmJob:
    """A job of two ranks on two nodes, whose output goes to a file."""

    def __init__(self, slurm, folder, way, *options):
        (folder / "rank.py").write_text(TRAP)
        self._log = folder / "log"
        self._slurm = slurm
        command = [RUEDA, "run", *options, PYTHON, str(folder / "rank.py")]
        if way == "sbatch":
            (folder / "job.sh").write_text(f"#!/bin/sh\nexec {' '.join(command)}\n")
            command = [str(folder / "job.sh")]
            way_options = ["-o", str(self._log)]
        else:
            way_options = ["--no-shell"]
        self._holder = None
        started = self.ask(way, "-N2", "-n2", *way_options, *(command if way == "sbatch" else []))
        self.id = re.findall(r"(?:job|allocation) (\d+)", started)[0]
        if way == "salloc":
            variables = {
                "SLURM_JOB_ID": self.id,
                "SLURM_JOB_NODELIST": "n[1-2]",
                "SLURM_TASKS_PER_NODE": "1(x2)",
                "SLURM_JOB_CPUS_PER_NODE": "1(x2)",
            }
            with open(self._log, "wb") as log:
                self._holder = subprocess.Popen(
                    ["timeout", "-k", "5", "100", *command],
                    env=slurm.environment | variables,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
        self.await_text("ready", 2)

    def ask(self, *command):
        done = subprocess.run(
            ["timeout", "30", *command],
            env=self._slurm.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.stdout

    def output(self):
        return self._log.read_text() if self._log.exists() else ""

    def await_text(self, text, count):
        deadline = time.monotonic() + 60
        while self.output().count(text) < count:
            assert time.monotonic() < deadline, self.output()[:5000]
            time.sleep(0.05)

    def await_end(self):
        """The exit status of `rueda run`, as far as it can be told."""
        if self._holder:
            return self._holder.wait(60)
        deadline = time.monotonic() + 60
        while self.ask("squeue", "-h", "-j", self.id, "-o", "%T").strip() in ("RUNNING", "COMPLETING"):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        return None

    def close(self):
        self.ask("scancel", "-s", "KILL", self.id)
        self.ask("scancel", self.id)
        if self._holder and self._holder.poll() is None:
            self._holder.terminate()
            self._holder.wait(30)


@pytest.fixture(name="start")
def make_start(slurm, tmp_path):
    jobs = []

    def start(*arguments):
        jobs.append(SlurmJob(slurm, tmp_path, *arguments))
        return jobs[-1]

    yield start
    for job in jobs:
        job.close()


@pytest.mark.parametrize("way", ["salloc", "sbatch"])
def test_scancel_with_a_signal_reaches_every_rank_once(start, way):
    job = start(way)
    for count, name in enumerate(("USR1", "USR2", "USR1"), start=1):
        job.ask("scancel", "-s", name, job.id)
        job.await_text("got SIG", 2 * count)
    expected = [(rank, f"got SIG{name}") for rank in "01" for name in ("USR1", "USR2", "USR1")]
    assert signalled(job.output()) == expected, job.output()
    assert "killed" not in job.output()


@pytest.mark.parametrize("way", ["salloc", "sbatch"])
def test_scancel_waits_for_handlers_and_passes_on_what_they_print(start, way):
    job = start(way, "--grace", "20")
    job.ask("scancel", job.id)
    status = job.await_end()
    output = job.output()
    # On a busy machine Slurm's signal and the one that is passed on may both reach a rank.
    assert list(dict.fromkeys((rank, what[:3]) for rank, what in signalled(output))) == [
        ("0", "got"),
        ("0", "xxx"),
        ("1", "got"),
        ("1", "xxx"),
    ], output[:5000]
    assert "rueda: the job was stopped by SIGTERM" in output and "SIGKILL" not in output
    assert status in (None, 143)
