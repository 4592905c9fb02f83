"""Elastic jobs without a launcher (RUEDA_ELASTIC=members): the members of the last view decide the next one,
and nobody's death ends the others, rank 0's neither."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from harness import PATIENCE, library
from ports import free_port
from robust_attack import Attack

PROGRAM = pathlib.Path(__file__).with_name("elastic_program.py")
PYTHON_PATH = str(PROGRAM.parents[2] / "python")
LIMIT_S = 90.0 * PATIENCE
REFUSED = "can be reached from this process"


SCRIPT = """
import json, os
from elastic_sums import train
named = ("rank", "size", "local_rank", "uid", "exact")
print(json.dumps({"what": "end", **dict(zip(named, train(20, 3, doomed=("r0", 5), grown=3)))}), flush=True)
"""


class Member:
    """A process that was started by hand."""

    def __init__(self, job, name, variables):
        self.name, self.out_path = name, job.folder / f"{name}.out"
        self.err_path = job.folder / f"{name}.err"
        with self.out_path.open("w") as out, self.err_path.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, job.program], stdout=out, stderr=err, env={**job.variables, **variables}
            )

    @property
    def said(self):
        # The last line may be cut off while the process runs.
        lines = self.out_path.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def all(self, what):
        return [one for one in self.said if one["what"] == what]

    def views(self):
        return {one["number"]: one for one in self.all("view")}

    def finish(self):
        assert self.process.wait(LIMIT_S) is not None
        return self.process.returncode

    def send(self, number):
        self.process.send_signal(number)


class Job:
    """Ranks r0, r1, … of one job, whose processes are ended at the end."""

    def __init__(self, folder, size, actions=None, end=(2, 20), hosts=None, env=None, program=PROGRAM):
        self.folder, self.members, self.program = folder, [], program
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("RUEDA_", "HOROVOD_"))}
        secret = folder / "secret"
        secret.write_bytes(os.urandom(32))
        secret.chmod(0o600)
        self.variables = {
            **clean,
            "RUEDA_LIBRARY": library(),
            "PYTHONPATH": PYTHON_PATH,
            "OMP_NUM_THREADS": "1",
            "RUEDA_ELASTIC": "members",
            "RUEDA_STORE": f"tcp://127.0.0.1:{free_port()}",
            "RUEDA_SECRET_FILE": str(secret),
            "RUEDA_START_TIMEOUT": "60",
            "TEST_ACTIONS": json.dumps(actions or {}),
            "TEST_END": json.dumps(end),
            **(env or {}),
        }
        for rank in range(size):
            host = {} if hosts is None else {"RUEDA_HOSTNAME": hosts[rank]}
            self.add(f"r{rank}", RUEDA_RANK=str(rank), RUEDA_SIZE=str(size), **host)

    def add(self, name, **variables):
        member = Member(self, name, {"RUEDA_ELASTIC_UID": name, **variables})
        self.members.append(member)
        return member

    def __getitem__(self, rank):
        return self.members[rank]

    def text(self):
        return "\n".join(
            f"--- {one.name}: {one.process.poll()}\n{one.out_path.read_text()}{one.err_path.read_text()}"
            for one in self.members
        )

    def await_that(self, claim):
        deadline = time.monotonic() + LIMIT_S
        while not claim():
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.05)


@pytest.fixture
def job(tmp_path):
    made = []

    def make(*arguments, **settings):
        made.append(Job(tmp_path, *arguments, **settings))
        return made[-1]

    yield make
    for one in made:
        for member in one.members:
            if member.process.poll() is None:
                member.process.kill()
            member.process.wait()


def killed(name, commit, where="step"):
    return {name: {"kill_at": commit, "while": where}}


def stopped(name, commit):
    return {name: {"kill_at": commit, "while": "step", "signal": "SIGSTOP"}}


def assert_exact(members):
    """All ended with one sum: that of the steps as the one that has seen all views counts them."""
    ends = [one.all("end")[0] for one in members]
    assert len({(one["commit"], one["total"], one["size"]) for one in ends}) == 1, ends
    assert len(ends) == ends[0]["size"], ends
    oldest = max(ends, key=lambda one: len(one["spans"]))
    assert oldest["total"] == sum(size * (after - before) for _, size, before, after in oldest["spans"])


@pytest.mark.parametrize("where", ["step", "allreduce"])
def test_the_survivors_of_rank_0_go_on_without_a_launcher(job, where):
    run = job(3, actions=killed("r0", 5, where))
    survivors = run.members[1:]
    assert [one.finish() for one in survivors] == [0, 0], run.text()
    assert [one.views()[2]["rank"] for one in survivors] == [0, 1]
    assert len({one.views()[2]["commit"] for one in survivors}) == 1
    assert all(one.views()[2]["size"] == 2 and len(one.views()[2]["lost"]) == 1 for one in survivors)
    assert_exact(survivors)


def test_a_script_with_elastic_run_loses_rank_0_and_takes_in_another_process(job, tmp_path):
    script = tmp_path / "sums.py"
    script.write_text(SCRIPT)
    run = job(3, program=script, env={"PYTHONPATH": os.pathsep.join([PYTHON_PATH, str(PROGRAM.parent)])})
    assert run[0].finish() == -signal.SIGKILL
    joiner = run.add("joiner", RUEDA_JOINER="1")
    members = [*run.members[1:3], joiner]
    assert [one.finish() for one in members] == [0, 0, 0], run.text()
    ends = [one.all("end")[0] for one in members]
    assert [(one["rank"], one["size"], one["local_rank"]) for one in ends] == [
        (0, 3, 0),
        (1, 3, 1),
        (2, 3, 2),
    ]
    assert all(one["exact"] for one in ends)


def test_one_of_two_goes_on_alone_when_its_neighbour_has_ended_for_certain(job):
    run = job(2, actions=killed("r0", 5))
    assert run[1].finish() == 0, run.text()
    assert (run[1].views()[2]["rank"], run[1].views()[2]["size"]) == (0, 1)
    assert_exact([run[1]])


def test_a_process_joins_after_the_death_of_rank_0_at_a_commit(job):
    run = job(3, actions=killed("r0", 5), end=(3, 20, 3), env={"TEST_PAUSE_S": "0.01"})
    run.await_that(lambda: all(2 in one.views() for one in run.members[1:]))
    joiner = run.add("joiner", RUEDA_JOINER="1")
    members = [*run.members[1:3], joiner]
    assert [one.finish() for one in members] == [0, 0, 0], run.text()
    assert [one.views()[3]["rank"] for one in members] == [0, 1, 2]
    assert all(one.views()[3]["joined"] == [2] and one.views()[3]["lost"] == [] for one in members)
    interrupts = [one.all("interrupt") for one in run.members[1:3]]
    assert len({one[0]["commit"] for one in interrupts}) == 1, "they left at one commit, and no step was lost"
    assert_exact(members)


def test_a_minority_says_so_and_ends_while_the_majority_goes_on(job):
    """Hosts by name alone, so no process may end another, and one that is stopped looks like one that is cut
    off."""
    actions = {**stopped("r1", 5), **stopped("r2", 5)}
    run = job(3, actions=actions, hosts=["a", "b", "c"], env={"RUEDA_PEER_TIMEOUT_SECONDS": "4"})
    assert run[0].finish() == 75, run.text()
    assert REFUSED in run[0].all("refused")[0]["text"], run.text()
    assert "only 1 of the 3 members of view 1" in run[0].all("refused")[0]["text"]
    for one in run.members[1:]:
        one.send(signal.SIGCONT)
    assert [one.finish() for one in run.members[1:]] == [0, 0], run.text()
    assert [one.views()[2]["rank"] for one in run.members[1:]] == [0, 1]
    assert_exact(run.members[1:])


def test_two_hosts_cannot_tell_a_death_from_a_cut_so_neither_goes_on_alone(job):
    run = job(2, actions=killed("r0", 5), hosts=["a", "b"])
    assert run[1].finish() == 75, run.text()
    assert REFUSED in run[1].all("refused")[0]["text"]
    assert run[1].views() == {}


def test_a_neighbour_that_says_nothing_is_ended_before_the_others_go_on(job):
    run = job(3, actions=stopped("r1", 5), env={"RUEDA_PEER_TIMEOUT_SECONDS": "4"})
    assert [run[0].finish(), run[2].finish()] == [0, 0], run.text()
    assert run[1].finish() == -signal.SIGKILL
    assert_exact([run[0], run[2]])


def test_rank_0_and_its_successor_die_one_after_the_other(job):
    actions = {**killed("r0", 5), **killed("r1", 0, "init")}
    run = job(5, actions=actions, end=(3, 20))
    survivors = run.members[2:]
    assert [one.finish() for one in survivors] == [0, 0, 0], run.text()
    last = [max(one.views().values(), key=lambda view: view["number"]) for one in survivors]
    assert [one["rank"] for one in last] == [0, 1, 2]
    assert_exact(survivors)


def test_a_process_with_another_model_is_told_so_and_the_others_go_on(job):
    actions = {"stranger": {"kill_at": 10**9, "digest": "another"}}
    # The members train on for seconds after they have refused it: it looks for the answer twice a second.
    run = job(2, actions=actions, env={"TEST_PAUSE_S": "0.02"}, end=(2, 200))
    stranger = run.add("stranger", RUEDA_JOINER="1")
    assert stranger.finish() == 75, run.text()
    assert "cannot join the job" in stranger.all("refused")[0]["text"]
    assert [one.finish() for one in run.members[:2]] == [0, 0], run.text()


def test_a_process_with_another_secret_says_so_at_once_and_the_others_go_on(job):
    run = job(3, actions=killed("r0", 5), env={"TEST_PAUSE_S": "0.02"}, end=(2, 200))
    secret = run.folder / "another"
    secret.write_bytes(os.urandom(32))
    secret.chmod(0o600)
    more = {"RUEDA_SECRET_FILE": str(secret), "RUEDA_ELASTIC_TIMEOUT": "3"}
    run.await_that(lambda: all(2 in one.views() for one in run.members[1:]))
    stranger = run.add("stranger", RUEDA_JOINER="1", **more)
    assert stranger.finish() == 75, run.text()
    said = stranger.err_path.read_text()
    assert said.count("It looks for members of this job until the time is up.") == 1, said
    assert "secret" in said
    assert [one.finish() for one in run.members[1:3]] == [0, 0], run.text()
    assert all(sorted(one.views()) == [2] for one in run.members[1:3]), run.text()


def test_a_process_with_another_model_stops_nobody_once_the_members_have_said_what_theirs_is(job):
    actions = {**killed("r0", 5), "stranger": {"kill_at": 10**9, "digest": "another"}}
    run = job(3, actions=actions, end=(3, 20, 3), env={"TEST_PAUSE_S": "0.01"})
    run.await_that(lambda: all(2 in one.views() for one in run.members[1:3]))
    stranger = run.add("stranger", RUEDA_JOINER="1")
    assert stranger.finish() == 75, run.text()
    assert "names, shapes or types of its state differ" in stranger.all("refused")[0]["text"]
    joiner = run.add("joiner", RUEDA_JOINER="1")
    members = [*run.members[1:3], joiner]
    assert [one.finish() for one in members] == [0, 0, 0], run.text()
    for one in run.members[1:3]:
        assert sorted(one.views()) == [2, 3] and one.views()[3]["joined"] == [2], run.text()
        assert len(one.all("error")) == 1, "that of the death of rank 0"
        assert len(one.all("interrupt")) == 1, "that of the process that was admitted"
    assert_exact(members)


def test_members_and_a_process_that_joins_go_on_under_garbage(job):
    run = job(3, actions=killed("r0", 5), env={"TEST_PAUSE_S": "0.01"}, end=(3, 50, 3))
    attack = Attack([one.process.pid for one in run.members], [], 20261129)
    try:
        run.await_that(lambda: all(2 in one.views() for one in run.members[1:]))
        thrown = sum(attack.kinds.values())
        run.await_that(lambda: sum(attack.kinds.values()) > thrown + 200)
        members = [*run.members[1:], run.add("joiner", RUEDA_JOINER="1")]
        assert [one.finish() for one in members] == [0, 0, 0], run.text()
    finally:
        attack.stop()
    assert attack.targets["tcp"] > 200, attack.targets
    assert_exact(members)
