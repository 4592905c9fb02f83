"""`rueda run` over a tree of agents: seven hosts on loopback addresses, each machine starts two others.

h1 and h2 are started by the launcher, h3 and h5 by h1, h4 and h6 by h2, and h7 by h3.
"""

import os
import pathlib
import re
import signal
import socket

import pytest
from harness import library
from launch_support import (
    HIDING_CHILD,
    PYTHON,
    RUEDA,
    Run,
    assert_all_gone,
    name_of,
    parent_of,
    run,
)
from processes import children_of, state_of
from robust_support import wait_until
from ssh_hosts import IS_INSTALLED, ssh_hosts

pytestmark = [
    pytest.mark.skipif(not os.path.exists(RUEDA), reason=f"{RUEDA} is not built"),
    pytest.mark.skipif(not IS_INSTALLED, reason="OpenSSH is not installed"),
]
HOSTS = 7
ALL = ",".join(f"h{index}:1" for index in range(1, HOSTS + 1))


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    with ssh_hosts(tmp_path_factory.mktemp("tree"), HOSTS) as client:
        yield client


def tree(client, names=ALL):
    """Options for a job with one rank on each host."""
    return ["-np", names.count(":"), "-H", names, "-F", client, "--ssh-fan-out", 2]


def words_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


class Tree:
    """A job that runs, with the processes of each host."""

    def __init__(self, client, *command, options=(), names=ALL, env=None, hides=False):
        """Each rank says "up PID" once, and if it hides a child, "hidden PID"."""
        self.job = Run(*tree(client, names), *options, *command, env=env)
        said = self.job.read_until(names.count(":") * (2 if hides else 1), lambda line: True)
        self.hidden = [int(line.split()[-1]) for line in said if " hidden " in line]
        lines = [line for line in said if " up " in line]
        self.ranks = {line.split()[1].rstrip("]"): int(line.split()[-1]) for line in lines}
        self.workers = {host: parent_of(pid) for host, pid in self.ranks.items()}
        self.guardians = {host: parent_of(pid) for host, pid in self.workers.items()}
        self.ssh = {}
        for above in (self.job.process.pid, *self.workers.values()):
            for pid in children_of(above):
                if name_of(pid) == "ssh":
                    self.ssh[words_of(pid)[-3].decode()] = pid
        found = [
            *self.hidden,
            *self.ranks.values(),
            *self.workers.values(),
            *self.guardians.values(),
            *self.ssh.values(),
        ]
        self.processes = {*found, *self.job.processes()}
        assert len(self.ssh) == names.count(":"), self.ssh

    def finish(self):
        result = self.job.finish()
        assert_all_gone(self.processes)
        return result


UP = "echo up $$; "


def test_agents_start_agents(hosts):
    job = Tree(hosts, "sh", "-c", UP + "while :; do sleep 0.05; done")
    started = {
        host: sorted(words_of(pid)[-3].decode() for pid in children_of(worker) if name_of(pid) == "ssh")
        for host, worker in job.workers.items()
    }
    assert started == {
        "h1": ["h3", "h5"],
        "h2": ["h4", "h6"],
        "h3": ["h7"],
        "h4": [],
        "h5": [],
        "h6": [],
        "h7": [],
    }
    job.job.process.send_signal(signal.SIGTERM)
    assert job.finish()[0] == 143


def test_output_of_every_host_comes_whole_with_its_prefix(hosts):
    """A MiB of each rank, in lines, through up to three ssh."""
    script = (
        "import os, sys\n"
        "for line in range(16384): print(os.environ['RANK'], line, 'x' * 52)\n"
        "print('trouble of', os.environ['RANK'], file=sys.stderr)"
    )
    status, out, err = run(*tree(hosts), PYTHON, "-c", script)
    assert status == 0, err
    seen = {rank: 0 for rank in range(HOSTS)}
    for line in out.splitlines():
        prefix, _, rest = line.partition("] ")
        rank, number, _ = rest.split()
        assert prefix == f"[{rank} h{int(rank) + 1}" and int(number) == seen[int(rank)], line
        seen[int(rank)] += 1
    assert set(seen.values()) == {16384}
    assert sorted(line for line in err.splitlines() if "trouble" in line) == [
        f"[{rank} h{rank + 1}] trouble of {rank}" for rank in range(HOSTS)
    ]


@pytest.mark.parametrize("rank", [0, 6])
def test_exit_status_is_that_of_the_rank_wherever_it_runs(hosts, rank):
    script = f"[ $RANK = {rank} ] && {{ echo lost my disk >&2; exit 9; }}; sleep 60"
    status, _, err = run(*tree(hosts), "--grace", 1, "sh", "-c", script)
    assert status == 9
    assert f"rank {rank} on h{rank + 1}" in err and "  | lost my disk" in err


def test_host_in_the_middle_may_end_long_before_those_behind_it(hosts, tmp_path):
    job = Tree(
        hosts,
        "sh",
        "-c",
        UP + "[ $RANK = 0 ] || GO=$GO.late; while [ ! -e $GO ]; do sleep 0.05; done; echo over",
        env={"GO": str(tmp_path / "go")},
    )
    (tmp_path / "go").touch()
    assert_all_gone([job.ranks["h1"]])
    (tmp_path / "go.late").touch()
    status, out, err = job.finish()
    assert status == 0 and out.count("over") == HOSTS, err


def test_files_travel_to_every_host_and_back(hosts, tmp_path):
    """A job message of several MiB, through up to three ssh."""
    (tmp_path / "data").write_bytes(os.urandom(3_000_000))
    script = "cd $RUEDA_STAGE_DIR; cat stage > result.$RANK; echo $RANK >> result.$RANK"
    files = ["--stage-file", tmp_path / "data", "--collect-dir", tmp_path]
    status, _, err = run(*tree(hosts), *files, "sh", "-c", script)
    assert status == 0, err
    for rank in range(HOSTS):
        expected = (tmp_path / "data").read_bytes() + f"{rank}\n".encode()
        assert (tmp_path / f"result.{rank}").read_bytes() == expected


def test_ranks_of_all_hosts_reduce(hosts):
    script = (
        "import numpy, rueda.numpy as hvd\nhvd.init()\n"
        "print(int(hvd.allreduce(numpy.ones(4, numpy.float32), op=hvd.Sum)[0]), hvd.cross_size())"
    )
    python = str(pathlib.Path(__file__).resolve().parents[2] / "python")
    given = {"PYTHONPATH": python, "RUEDA_LIBRARY": library()}
    status, out, err = run(*tree(hosts), "--no-prefix", PYTHON, "-c", script, env=given)
    assert status == 0, err
    assert out.splitlines() == [f"{HOSTS} {HOSTS}"] * HOSTS


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupt_reaches_the_ranks_of_all_hosts(hosts, number, status):
    script = "trap 'echo caught; exit 0' INT TERM; " + UP + "while :; do sleep 0.1; done"
    job = Tree(hosts, "sh", "-c", script)
    job.job.process.send_signal(number)
    ended, out, _ = job.finish()
    assert ended == status and out.count("caught") == HOSTS


def test_what_a_scheduler_sends_to_a_leaf_reaches_the_ranks_of_all_once(hosts):
    script = (
        "import os, signal, time\n"
        "def handler(number, frame):\n"
        "    print('got', signal.Signals(number).name, flush=True)\n"
        "    if number == signal.SIGTERM: os._exit(0)\n"
        "signal.signal(signal.SIGUSR1, handler)\n"
        "signal.signal(signal.SIGTERM, handler)\n"
        "print('', 'up', os.getpid(), flush=True)\n"
        "end = time.monotonic() + 60\n"
        "while time.monotonic() < end: time.sleep(0.05)\n"
    )
    job = Tree(hosts, PYTHON, "-c", script, options=["--grace", 20])
    os.kill(job.guardians["h7"], signal.SIGUSR1)
    got = sorted(job.job.read_until(HOSTS, lambda line: "got" in line))
    assert got == [f"[{rank} h{rank + 1}] got SIGUSR1\n" for rank in range(HOSTS)]
    os.kill(job.guardians["h7"], signal.SIGTERM)
    status, out, err = job.finish()
    assert status == 143 and "rueda: SIGTERM came to the agent of h7, " in err, err
    assert sorted(out.splitlines()) == [f"[{rank} h{rank + 1}] got SIGTERM" for rank in range(HOSTS)]


def victim_of(job, victim):
    kind, _, host = victim.partition(" ")
    if kind == "launcher":
        return job.job.process.pid
    return {"agent": job.workers, "guardian": job.guardians, "ssh": job.ssh, "rank": job.ranks}[kind][host]


@pytest.mark.thorough("agent h1", "ssh h1", "ssh h3")
@pytest.mark.parametrize(
    "victim",
    ["launcher", "agent h1", "guardian h1", "ssh h1", "rank h1", "agent h3", "ssh h3", "agent h7", "ssh h7"],
)
def test_whoever_is_killed_nothing_is_left_on_any_host(hosts, victim):
    script = HIDING_CHILD.replace(
        "import os,signal,time\n", "import os,signal,time\nprint('', 'up', os.getpid(), flush=True)\n"
    )
    job = Tree(hosts, PYTHON, "-c", script, options=["--grace", "0.5"], hides=True)
    assert len(job.hidden) == HOSTS
    os.kill(victim_of(job, victim), signal.SIGKILL)
    if victim == "launcher":
        job.job.process.communicate(timeout=90)
        return assert_all_gone(job.processes)
    status, _, err = job.finish()
    assert status == 137 or status == 1, err
    headline = re.search(r"the job failed: rank (\d) on (h\d)", err)
    assert headline and headline[2] == victim.split()[1], err


def test_lost_host_takes_those_behind_it_and_is_the_headline(hosts):
    job = Tree(hosts, "sh", "-c", UP + "while :; do sleep 0.05; done")
    os.kill(job.workers["h1"], signal.SIGKILL)
    status, _, err = job.finish()
    assert status == 1
    headline = (
        r"the job failed: rank 0 on h1 \(pid \d+\) was lost with its host after [\d.]+ s: its agent was "
    )
    assert re.search(headline + "killed by SIGKILL", err), err
    behind = (
        "ranks 2, 4, 6: were lost with their hosts: it was reached through h1, which is lost: its agent was "
    )
    assert behind + "killed by SIGKILL" in err, err


def test_host_that_falls_silent_is_named_and_not_those_behind_it(hosts):
    """A stopped ssh is a cut cable. h3, h5 and h7 are silent as well then."""
    job = Tree(hosts, "sh", "-c", UP + "while :; do sleep 0.05; done", options=["--agent-timeout", 4])
    os.kill(job.ssh["h1"], signal.SIGSTOP)
    status, _, err = job.finish()
    assert status == 1
    headline = (
        r"the job failed: rank 0 on h1 .*: h1 cannot be reached: nothing was heard from its agent for \d+ s"
    )
    assert re.search(headline, err), err


def test_suspended_job_goes_on(hosts):
    """Not a shell: one that waits for its child's exec is stopped as well, but in state D, not T."""
    script = (
        "import os, time\nprint('', 'up', os.getpid(), flush=True)\n"
        "while not os.path.exists(os.environ['GO']): time.sleep(0.05)\nprint('went on')"
    )
    go = hosts.parent / "go-on"
    job = Tree(hosts, PYTHON, "-c", script, options=["--agent-timeout", 4], env={"GO": str(go)})
    launcher = job.job.process
    launcher.send_signal(signal.SIGTSTP)
    wait_until(
        lambda: all(state_of(pid) == "T" for pid in (launcher.pid, *job.ranks.values())), 60, "they stop"
    )
    launcher.send_signal(signal.SIGCONT)
    wait_until(lambda: all(state_of(pid) != "T" for pid in job.ranks.values()), 60, "they go on")
    go.touch()
    status, out, _ = job.finish()
    assert status == 0 and out.count("went on") == HOSTS


def test_unreachable_leaf_is_named_with_the_host_that_tried(hosts):
    status, _, err = run(*tree(hosts, "h1:1,h2:1,nowhere:1,h4:1"), "true")
    assert status == 1
    [line] = [line for line in err.splitlines() if "cannot start the job" in line]
    assert "the agent of nowhere has ended: ssh could not connect" in line and "Connection refused" in line
    assert "(h1 could not start it either: ssh from h1 could not connect" in line
    assert "the agent of nowhere is started from here, because h1 could not start it: ssh from h1" in err


def test_unreachable_host_in_the_middle_is_the_only_one_named(hosts):
    names = "nowhere:1,h2:1,h3:1,h4:1,h5:1"
    status, _, err = run(*tree(hosts, names), "true")
    assert status == 1
    [line] = [line for line in err.splitlines() if "cannot start the job" in line]
    assert "the agent of nowhere has ended: ssh could not connect" in line
    assert "h3" not in line and "h5" not in line, line


def test_silent_leaf_is_named_with_the_host_that_waits(hosts, tmp_path):
    with socket.socket() as mute:
        mute.bind(("127.0.0.10", 0))
        mute.listen(5)
        config = tmp_path / "client"
        config.write_text(
            f"Host mute\n  HostName 127.0.0.10\n  Port {mute.getsockname()[1]}\n" + hosts.read_text()
        )
        names = "h1:1,h2:1,mute:1,h4:1,h5:1,h6:1,h7:1"
        status, _, err = run(*tree(config, names), "--start-timeout", 10, "true")
    assert status == 1
    said = (
        r"no answer within 10 s from the agent of mute.*; check that `ssh mute true` works .* on h1, or raise"
    )
    assert re.search(said, err), err


def test_host_that_only_the_launcher_may_reach_is_started_from_there(hosts, tmp_path):
    """The other hosts do not have the user's key: here, a name that only the launcher's machine knows."""
    wrapper = tmp_path / "ssh"
    wrapper.write_text(
        '#!/bin/sh\n[ -z "$SSH_CONNECTION" ] || { echo Permission denied >&2; exit 255; }\nexec ssh "$@"\n'
    )
    wrapper.chmod(0o755)
    options = ["--agent-program", wrapper, "--ssh-args", f"-F {hosts}"]
    without_config = [word for word in tree(hosts) if word not in ("-F", hosts)]
    status, out, err = run(*without_config, *options, "sh", "-c", "echo on $RANK")
    assert status == 0, err
    assert sorted(out.splitlines()) == [f"[{rank} h{rank + 1}] on {rank}" for rank in range(HOSTS)]
    told = [line for line in err.splitlines() if "is started from here, because h" in line]
    assert len(told) == 1 and "Permission denied" in told[0], err


def test_secret_is_on_no_command_line(hosts):
    script = "cat $RUEDA_SECRET_FILE; echo; sleep 100"
    job = Run(
        *tree(hosts), "--ranks", 6, "--no-prefix", "sh", "-c", script, env={"MY_TOKEN": "hunter2hunter2"}
    )
    secret = job.read_until(1, lambda line: len(line) > 32)[0].strip()
    lines = b"".join(
        path.read_bytes() for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if path.exists()
    )
    job.process.send_signal(signal.SIGTERM)
    job.finish()
    job.assert_gone()
    assert secret.encode() not in lines and b"hunter2hunter2" not in lines
