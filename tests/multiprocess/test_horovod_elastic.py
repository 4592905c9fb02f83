"""Elastic jobs through Horovod's launcher functions: `parse_args`, `_run_elastic`, `gloo_run_elastic` and
`horovod.run`, with a script that grows, shrinks, fails or is too slow. What they must do is what Horovod's
documentation says of elastic jobs.
"""

import json
import os
import sys
from pathlib import Path

import pytest
from elastic_sums import train
from harness import library
from launch_support import ROOT, RUEDA

import horovod
from horovod.runner import gloo_run, launch
from horovod.runner.elastic import constants, driver
from horovod.runner.elastic.discovery import FixedHosts, HostDiscovery, HostDiscoveryScript
from horovod.runner.elastic.settings import ElasticSettings
from horovod.runner.util.threads import in_thread

pytestmark = [
    pytest.mark.skipif(not os.path.exists(RUEDA), reason=f"{RUEDA} is not built"),
    pytest.mark.timeout(300),
]
# Trains until so many batches are done in a job of so many ranks; says each batch of rank 0, as JSON.
SCRIPT = """
import json, os, signal, sys, time
import numpy as np
import rueda.numpy as hvd
batches, size, log, doomed = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]
hvd.init()
state = hvd.elastic.NumpyState(batch=0, total=np.zeros(1))
until = time.monotonic() + 120

@hvd.elastic.run
def train(state):
    while state.batch < batches or hvd.size() != size:
        assert time.monotonic() < until
        if os.environ["RUEDA_ELASTIC_UID"] in doomed and state.batch == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        state.total += hvd.allreduce(np.ones(1), op=hvd.Sum, name="x") / hvd.size()
        if hvd.rank() == 0:
            with open(log, "a") as file:
                print(json.dumps([state.batch, hvd.size(), float(state.total[0])]), file=file)
        state.batch += 1
        state.commit()

train(state)
"""


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    monkeypatch.setenv("RUEDA_BIN", RUEDA)
    monkeypatch.setenv("RUEDA_LIBRARY", library())
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"))


class Job:
    """A script, the list of hosts that its discovery script prints, and what rank 0 has logged."""

    def __init__(self, folder: Path) -> None:
        self.script, self.log, self.hosts = folder / "train.py", folder / "log", folder / "hosts"
        self.script.write_text(SCRIPT)
        self.hosts.write_text("localhost:2\n")

    def words(self, batches, size, *doomed):
        return [sys.executable, *map(str, (self.script, batches, size, self.log)), *doomed]

    def run(self, flags, *words):
        named = [*flags, "--host-discovery-script", f"cat {self.hosts}", *self.words(*words)]
        launch._run_elastic(launch.parse_args(named))

    def sizes(self):
        """Of the job in each batch that was made; the sums are those of a job that lost nobody."""
        said = [json.loads(line) for line in self.log.read_text().splitlines()]
        assert all(total == batch + 1 for batch, _, total in said)
        return [size for _, size, _ in said]


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


def test_a_job_without_a_change_ends_with_the_size_of_its_beginning(job):
    job.run(["-np", "2", "--min-np", "2", "--max-np", "4"], 5, 2)
    assert job.sizes() == [2] * 5


def test_a_job_grows_when_the_script_prints_more_slots(job):
    def grow():
        while not job.log.exists():
            pass
        job.hosts.write_text("localhost:3\n")

    helper = in_thread(grow)
    job.run(["-np", "2", "--min-np", "2", "--max-np", "3"], 5, 3)
    helper.join()
    assert {*job.sizes()} >= {2}


def test_a_job_goes_on_with_less_ranks_when_the_script_prints_fewer_slots(job):
    def shrink():
        while not job.log.exists():
            pass
        job.hosts.write_text("localhost:1\n")

    helper = in_thread(shrink)
    job.run(["-np", "2", "--min-np", "1", "--max-np", "2"], 5, 1)
    helper.join()
    assert job.sizes()[0] == 2


def test_a_job_goes_on_when_a_rank_is_killed(job):
    job.run(["-np", "2", "--min-np", "1", "--max-np", "2"], 5, 2, "localhost:0#0")
    assert job.sizes()[-1] in (1, 2)


def test_a_job_whose_ranks_all_fail_is_an_error(job):
    with pytest.raises(RuntimeError, match="exited with non-zero status"):
        job.run(["-np", "2", "--min-np", "2", "--reset-limit", "2"], 5, 2, "localhost:0#0", "localhost:1#0")


def test_more_resets_than_the_limit_end_the_job_with_horovods_sentence(job, capfd):
    with pytest.raises(RuntimeError):
        job.run(["-np", "2", "--min-np", "1", "--reset-limit", "0"], 5, 2, "localhost:0#0")
    assert constants.RESET_LIMIT_EXCEEDED_MESSAGE.format(0) in capfd.readouterr().err


def test_too_few_slots_end_the_wait_when_the_driver_says_so(job, monkeypatch, capfd):
    monkeypatch.setattr(driver, "ELASTIC_TIMEOUT_SECS", 1)
    with pytest.raises(RuntimeError):
        job.run(["-np", "4", "--min-np", "4"], 5, 4)
    said = capfd.readouterr().err
    assert "Timed out waiting for minimum number of slots to become available." in said
    assert "enough resources to run at least 4 Horovod processes" in said


def test_a_script_that_fails_at_once_ends_the_job(job, capfd):
    job.hosts.unlink()
    with pytest.raises(RuntimeError):
        job.run(["-np", "2", "--min-np", "2"], 5, 2)
    assert "Failed to execute discovery script" in capfd.readouterr().err


def test_fixed_hosts_of_a_program_grow_a_job(job):
    hosts = FixedHosts({"localhost": 1})

    def grow():
        while not job.log.exists():
            pass
        hosts.set({"localhost": 2})

    helper = in_thread(grow)
    settings = ElasticSettings(discovery=hosts, min_num_proc=1, max_num_proc=2)
    gloo_run.gloo_run_elastic(settings, {}, job.words(5, 2))
    helper.join()
    assert job.sizes()[0] == 1


def test_a_script_of_a_program_finds_the_hosts(job):
    settings = ElasticSettings(
        discovery=HostDiscoveryScript(f"cat {job.hosts}", 1), num_proc=2, min_num_proc=1
    )
    gloo_run.gloo_run_elastic(settings, {}, job.words(3, 2))
    assert job.sizes() == [2] * 3


def test_what_a_discovery_raises_at_first_is_raised(job):
    class Broken(HostDiscovery):
        def find_available_hosts_and_slots(self):
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        gloo_run.gloo_run_elastic(ElasticSettings(discovery=Broken(), min_num_proc=1), {}, "true")
    with pytest.raises(TypeError, match="give a function to horovod"):
        gloo_run.gloo_run_elastic(ElasticSettings(min_num_proc=1), {}, print)


def test_horovod_run_takes_elastic_arguments():
    results = horovod.run(train, (5, 2), num_proc=2, min_num_proc=1, max_num_proc=2, reset_limit=3)
    assert [one[:2] for one in results] == [(0, 2), (1, 2)]
    with pytest.raises(ValueError, match="max_num_proc belongs to elastic jobs"):
        horovod.run(train, (5, 2), num_proc=2, max_num_proc=2)
