"""Elastic jobs on several hosts: a host is cut off, comes back, or is taken away."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import boxes
import pytest
from harness import PATIENCE, library
from launch_support import PYTHON, ROOT, RUEDA, name_of
from virtual_hosts import virtual_hosts

PROGRAM = pathlib.Path(__file__).with_name("elastic_program.py")
LIMIT_S = 120 * PATIENCE


class Job:
    """A job that runs. Its rank 0 writes a file when view 1 begins."""

    def __init__(self, words, environment, folder, *options, end=(2, 20)):
        self._began = folder / "began"
        self._output = folder / "output"
        variables = {
            **environment,
            "PYTHONPATH": str(ROOT / "python"),
            "RUEDA_LIBRARY": library(),
            "OMP_NUM_THREADS": "1",
            "RUEDA_PEER_TIMEOUT_SECONDS": "4",
            "TEST_HOSTS_FILE": str(self._began),
            "TEST_HOSTS": json.dumps({"1": "x"}),
            "TEST_END": json.dumps(end),
            "TEST_PAUSE_S": "0.01",
        }
        command = [RUEDA, "run", "--no-prefix", "--elastic-timeout", "60", *options, PYTHON, str(PROGRAM)]
        with open(self._output, "wb") as output:
            self.process = subprocess.Popen(
                [*words, *command],
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
            )

    def text(self):
        return self._output.read_text(errors="replace")

    def all(self, what):
        said = [json.loads(line) for line in self.text().splitlines() if line.startswith('{"uid"')]
        return [one for one in said if one["what"] == what]

    def until(self, holds, what):
        deadline = time.monotonic() + LIMIT_S
        while not holds():
            assert self.process.poll() is None, f"ended before {what}\n{self.text()}"
            assert time.monotonic() < deadline, f"no {what} within {LIMIT_S} s\n{self.text()}"
            time.sleep(0.02)

    def await_start(self):
        self.until(self._began.exists, "start")

    def await_words(self, pattern):
        self.until(lambda: re.search(pattern, self.text()), pattern)

    def assert_ends_well(self):
        try:
            assert self.process.wait(LIMIT_S) == 0, self.text()
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end\n{self.text()}") from None
        ends = self.all("end")
        assert len({(one["commit"], one["total"]) for one in ends}) == 1, self.text()
        oldest = max(ends, key=lambda one: len(one["spans"]))
        assert oldest["total"] == sum(size * (to - since) for _, size, since, to in oldest["spans"])

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(LIMIT_S)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(LIMIT_S)


@contextlib.contextmanager
def started(*arguments, **settings):
    job = Job(*arguments, **settings)
    try:
        job.await_start()
        yield job
    finally:
        job.stop()


@contextlib.contextmanager
def on_virtual_hosts(folder, names, *options, **settings):
    """The launcher has a host of its own, and its "ssh" needs no network."""
    (folder / "hosts").mkdir()
    with contextlib.ExitStack() as undo:
        hosts = undo.enter_context(virtual_hosts(folder / "hosts", names, "1gbit"))
        job = started(hosts.words(), hosts.environment(), folder, *options, **settings)
        yield hosts, undo.enter_context(job)


def processes_on(hosts, name, called):
    words = ["ip", "netns", "pids", hosts.space(name)]
    listed = subprocess.run(words, capture_output=True, text=True, check=True)
    return [pid for pid in map(int, listed.stdout.split()) if name_of(pid) == called]


@pytest.fixture(autouse=True)
def need_binary():
    if not os.path.exists(RUEDA):
        pytest.skip(f"{RUEDA} is not built")


def test_hosts_go_on_without_rank_0_when_its_host_is_cut_off_from_them(tmp_path):
    options = ["-np", "3", "--min-np", "2", "-H", "a:1,b:1,c:1"]
    with on_virtual_hosts(tmp_path, ["a", "b", "c"], *options) as (hosts, job):
        hosts.cut("a", "b")
        hosts.cut("a", "c")
        job.assert_ends_well()
        assert {(one["uid"], one["number"], one["rank"]) for one in job.all("view")} == {
            ("b:0#0", 2, 0),
            ("c:0#0", 2, 1),
        }
        (refused,) = job.all("refused")
        assert refused["uid"] == "a:0#0"
        assert refused["text"] == (
            "this process was excluded from view 2 of the job, because its host cannot reach those of the "
            "others; it has to end."
        )
        assert "rank 0 on a" in job.text()
        assert "exited with code 75" in job.text()


def test_a_job_that_begins_on_one_host_spreads_to_another_one(tmp_path):
    options = ["-np", "1", "--min-np", "1", "--max-np", "2", "-H", "a:1,b:1"]
    with on_virtual_hosts(tmp_path, ["a", "b"], *options, end=[2, 20, 2]) as (_, job):
        job.assert_ends_well()
        assert {one["uid"] for one in job.all("end")} == {"a:0#0", "b:0#0"}


def test_a_job_that_begins_beside_its_launcher_spreads_to_a_host_that_its_script_finds(tmp_path):
    script = tmp_path / "find.sh"
    script.write_text(f"echo localhost:1; if test -e {tmp_path}/began; then echo a:1; fi")
    options = ["-np", "1", "--min-np", "1", "--host-discovery-script", f"sh {script}"]
    with on_virtual_hosts(tmp_path, ["a"], *options, end=[2, 20, 2]) as (_, job):
        job.assert_ends_well()
        assert {one["uid"] for one in job.all("end")} == {"localhost:0#0", "a:0#0"}


def test_a_host_that_its_scheduler_takes_away_leaves_at_a_commit_without_an_error(tmp_path):
    options = ["-np", "2", "--min-np", "1", "-H", "a:1,b:1,c:1"]
    # On a busy machine the process on c may be there when that on b leaves, and views 2 and 3 are one.
    with on_virtual_hosts(tmp_path, ["a", "b", "c"], *options, end=[2, 20, 2]) as (hosts, job):
        (guardian,) = processes_on(hosts, "b", "rueda-guardian")
        os.kill(guardian, signal.SIGTERM)
        job.assert_ends_well()
        assert "SIGTERM came to the agent of b; its processes leave at the next commit" in job.text()
        assert job.all("error") == []
        interrupts = job.all("interrupt")
        assert [one["uid"] for one in interrupts if one["leave"]] == ["b:0#0"]
        newest = max(one["number"] for one in job.all("view"))
        last = [one for one in job.all("view") if one["number"] == newest]
        assert {one["uid"] for one in last} == {"a:0#0", "c:0#0"}
        assert processes_on(hosts, "b", "rueda-guardian") == []


def test_a_host_whose_link_is_down_is_left_out_and_comes_back(tmp_path):
    if reason := boxes.why_not():
        pytest.skip(reason)
    (tmp_path / "boxes").mkdir()
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("RUEDA_", "HOROVOD_"))}
    options = ["-np", "4", "--min-np", "2", "-H", "a:2,b:2", "--agent-timeout", "8"]
    there = {"PYTHONPATH": str(ROOT / "python"), "RUEDA_LIBRARY": library()}
    with contextlib.ExitStack() as undo:
        made = undo.enter_context(boxes.boxes(tmp_path / "boxes", there))
        job = undo.enter_context(started(made.command("a"), clean, tmp_path, *options, end=[3, 20, 4]))
        cable = made.command("b", "ip", "link", "set", "cable-b")
        subprocess.run([*cable, "down"], check=True)
        job.await_words("rueda: view 2 has 2 ranks; gone: b:0#0, b:1#0")
        job.await_words("host b cannot be used: b cannot be reached: nothing was heard from its agent")
        subprocess.run([*cable, "up"], check=True)
        job.assert_ends_well()
        ends = {one["uid"] for one in job.all("end")}
        assert ends == {"a:0#0", "a:1#0", "b:0#1", "b:1#1"}, job.text()
