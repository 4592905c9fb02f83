"""Agents that join an elastic job by themselves: `rueda agent --join`, and `rueda run --accept-agents`."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
from harness import PATIENCE, library
from launch_support import ROOT, RUEDA, assert_all_gone, marked_processes
from robust_attack import Attack
from robust_support import wait_until

PROGRAM = pathlib.Path(__file__).with_name("elastic_program.py")
LIMIT_S = 120 * PATIENCE
# What srun tells one of four tasks, and no process above it knows.
SLURM_STEP = {
    "SLURM_JOB_ID": "77",
    "SLURM_JOB_NODELIST": "n[1-4]",
    "SLURM_NTASKS": "4",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "n[1-4]",
    "SLURM_STEP_TASKS_PER_NODE": "1(x4)",
    "SLURM_LAUNCH_NODE_IPADDR": "192.0.2.1",
    "SLURM_SRUN_COMM_HOST": "192.0.2.1",
    "SLURM_LOCALID": "0",
}


class Process:
    """A command whose output goes to a file."""

    def __init__(self, mark, folder, name, *arguments, **variables):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("RUEDA_", "HOROVOD_"))}
        own = {
            "RUEDA_LIBRARY": library(),
            "PYTHONPATH": str(ROOT / "python"),
            "OMP_NUM_THREADS": "1",
            "TEST_PAUSE_S": "0.01",
            **variables,
        }
        self._file = folder / f"{name}.output"
        with open(self._file, "wb") as output:
            self.process = subprocess.Popen(
                [RUEDA, *map(str, arguments)],
                env={**clean, **own, **dict([mark.split("=")])},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
            )

    def text(self):
        return self._file.read_text(errors="replace")

    def await_words(self, pattern):
        deadline = time.monotonic() + LIMIT_S
        while not (found := re.search(pattern, self.text())):
            assert self.process.poll() is None and time.monotonic() < deadline, f"{pattern}\n{self.text()}"
            time.sleep(0.02)
        return found

    def end(self):
        try:
            return self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end\n{self.text()}") from None


class Stage:
    """A launcher that accepts agents, and the agents of a test."""

    def __init__(self, folder, *options, end):
        self.folder = folder
        self.secret = folder / "secret"
        self._mark = f"RUEDA_TEST_MARK={folder.name}-{os.getpid()}"
        self._agents = []
        where = ["--accept-agents", "127.0.0.1:0", "--secret-file", self.secret]
        command = ["run", "--no-prefix", "--elastic-timeout", "60", *where, *options, sys.executable, PROGRAM]
        self.launcher = Process(self._mark, folder, "launcher", *command, TEST_END=json.dumps(end))
        self.end = json.dumps(end)
        self.url = self.launcher.await_words(r"rueda agent --join (tcp://\S+)")[1]

    def agent(self, name, *options, secret=None, url=None, **variables):
        arguments = ["agent", "--join", url or self.url, "--secret-file", secret or self.secret]
        arguments += ["--name", name, *options]
        output = f"{name}-{len(self._agents)}"
        made = Process(self._mark, self.folder, output, *arguments, TEST_END=self.end, **variables)
        self._agents.append(made)
        return made

    def all(self, what):
        said = [json.loads(line) for line in self.launcher.text().splitlines() if line.startswith('{"uid"')]
        return [one for one in said if one["what"] == what]

    def assert_ends_well(self):
        assert self.launcher.end() == 0, self.launcher.text()
        ends = self.all("end")
        assert len({(one["commit"], one["total"]) for one in ends}) == 1, self.launcher.text()
        oldest = max(ends, key=lambda one: len(one["spans"]))
        assert oldest["total"] == sum(size * (to - since) for _, size, since, to in oldest["spans"])

    def close(self):
        for one in [self.launcher, *self._agents]:
            if one.process.poll() is None:
                one.process.send_signal(signal.SIGTERM)
        for one in [self.launcher, *self._agents]:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.process.wait(20)
            if one.process.poll() is None:
                one.process.kill()
                one.process.wait(20)
        assert_all_gone(marked_processes(self._mark))


@pytest.fixture(name="stage")
def make_stage(tmp_path):
    if not os.path.exists(RUEDA):
        pytest.skip(f"{RUEDA} is not built")
    with contextlib.ExitStack() as undo:

        def start(*options, end):
            one = Stage(tmp_path, *options, end=end)
            undo.callback(one.close)
            return one

        yield start


def test_an_agent_that_joins_brings_ranks_and_one_that_is_killed_takes_them_out(stage):
    job = stage("-np", 1, "--min-np", 1, "-H", "localhost:1", end=[4, 20, 2])
    first = job.agent("pod-1", "--slots", 2)
    job.launcher.await_words("host pod-1 joins with 2 slots")
    job.launcher.await_words(r"rueda: view \d has 3 ranks")
    for pid in marked_processes(job._mark):
        with contextlib.suppress(OSError):
            if pathlib.Path(f"/proc/{pid}/comm").read_text() == "rueda-agent\n" and is_below(
                pid, first.process.pid
            ):
                os.kill(pid, signal.SIGKILL)
    job.launcher.await_words(r"rueda: view \d has 1 rank; gone: pod-1:\d#0, pod-1")
    first.end()
    job.agent("pod-2")
    job.assert_ends_well()
    assert {one["uid"] for one in job.all("end")} == {"localhost:0#0", "pod-2:0#0"}


def is_below(pid, ancestor):
    while pid > 1:
        if pid == ancestor:
            return True
        pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def test_a_job_without_hosts_starts_when_agents_offer_enough_slots(stage):
    job = stage("-np", 3, "--min-np", 2, end=[1, 50])
    job.agent("pod-1", "--slots", 2)
    job.agent("pod-2")
    job.assert_ends_well()
    assert {one["uid"][:5] for one in job.all("end")} == {"pod-1", "pod-2"}
    assert all(one.end() == 0 for one in job._agents), [one.text() for one in job._agents]


def test_ranks_of_agents_in_a_slurm_step_take_the_places_that_the_launcher_gives(stage):
    job = stage("-np", 2, "--min-np", 2, end=[1, 20])
    job.agent("n2", **SLURM_STEP, SLURM_PROCID="2", SLURM_NODEID="2")
    job.agent("n3", **SLURM_STEP, SLURM_PROCID="3", SLURM_NODEID="3")
    job.assert_ends_well()
    assert {one["uid"] for one in job.all("end")} == {"n2:0#0", "n3:0#0"}


def test_an_agent_that_is_told_to_end_leaves_without_an_error(stage):
    job = stage("-np", 1, "--min-np", 1, "-H", "localhost:1", end=[3, 20])
    pod = job.agent("pod-1")
    job.launcher.await_words("rueda: view 2 has 2 ranks")
    pod.process.send_signal(signal.SIGTERM)
    job.assert_ends_well()
    assert pod.end() == 0, pod.text()
    assert job.all("error") == []
    assert [one["uid"] for one in job.all("interrupt") if one["leave"]] == ["pod-1:0#0"]


def test_garbage_at_the_port_for_agents_stops_nobody(stage):
    job = stage("-np", 1, "--min-np", 1, "-H", "localhost:1", end=[2, 50])
    attack = Attack([job.launcher.process.pid], [], 20261129)
    try:
        wait_until(lambda: sum(attack.kinds.values()) >= 300, 100, "enough garbage")
        job.agent("pod-1")
        job.launcher.await_words("host pod-1 joins with 1 slot")
        job.assert_ends_well()
    finally:
        attack.stop()


def test_an_agent_that_cannot_join_is_told_why_and_the_job_goes_on(stage, tmp_path):
    job = stage("-np", 1, "--min-np", 1, "-H", "localhost:1", end=[2, 20])
    other = tmp_path / "other"
    other.write_text("ab" * 32)
    other.chmod(0o600)
    stranger = job.agent("pod-1", secret=other)
    assert stranger.end() == 1
    assert "its secret is another one; give the file that rueda run --accept-agents names" in stranger.text()
    job.agent("pod-1")
    job.launcher.await_words("host pod-1 joins with 1 slot")
    twin = job.agent("pod-1")
    assert twin.end() == 1
    assert "host pod-1 has an agent in this job already; name another one by --name" in twin.text()
    job.assert_ends_well()


def test_an_agent_of_a_job_that_is_not_there_says_so(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("ab" * 32)
    secret.chmod(0o600)
    for url, sentence, status in (
        ("tcp://127.0.0.1:1", "is the job running, and does it accept agents?", 1),
        ("127.0.0.1", "--join 127.0.0.1 is refused: give what rueda run --accept-agents prints", 1),
    ):
        done = subprocess.run(
            [RUEDA, "agent", "--join", url, "--secret-file", secret, "--timeout", "0"],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert (done.returncode, sentence in done.stderr) == (status, True), done.stderr


def test_accepting_agents_needs_a_secret_and_an_address(tmp_path):
    secret = str(tmp_path / "secret")
    for options, sentence in (
        (["--accept-agents", "0"], "--accept-agents needs --secret-file"),
        (
            ["--accept-agents", "x:y", "--secret-file", secret],
            "--accept-agents x:y is refused: give an address",
        ),
    ):
        done = subprocess.run(
            [RUEDA, "run", "-np", "1", *options, "true"],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert done.returncode != 0 and sentence in done.stderr, done.stderr
