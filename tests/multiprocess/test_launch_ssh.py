"""`rueda run` over real ssh: two hosts on loopback addresses, with throw-away keys."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time

import pytest
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
from processes import state_of
from ssh_hosts import IS_INSTALLED, ssh_hosts

pytestmark = [
    pytest.mark.skipif(not os.path.exists(RUEDA), reason=f"{RUEDA} is not built"),
    pytest.mark.skipif(not IS_INSTALLED, reason="OpenSSH is not installed"),
]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    with ssh_hosts(tmp_path_factory.mktemp("ssh"), 2) as client:
        yield client


def test_what_a_scheduler_sends_to_one_host_reaches_the_ranks_of_all_once(hosts):
    script = (
        "import os, signal, time\n"
        "def handler(number, frame):\n"
        "    print('got', signal.Signals(number).name, flush=True)\n"
        "    if number == signal.SIGTERM: os._exit(0)\n"
        "signal.signal(signal.SIGUSR1, handler)\n"
        "signal.signal(signal.SIGTERM, handler)\n"
        "print('ready', os.getpid(), flush=True)\n"
        "end = time.monotonic() + 60\n"
        "while time.monotonic() < end: time.sleep(0.05)\n"
    )
    job = Run("-np", 2, "-H", "h1:1,h2:1", "-F", hosts, "--grace", 20, PYTHON, "-c", script)
    ready = sorted(job.read_until(2, lambda line: "ready" in line))
    guardian = parent_of(parent_of(int(ready[1].split()[-1])))
    assert name_of(guardian) == "rueda-guardian"
    os.kill(guardian, signal.SIGUSR1)
    assert sorted(job.read_until(2, lambda line: "got" in line)) == [
        "[0 h1] got SIGUSR1\n",
        "[1 h2] got SIGUSR1\n",
    ]
    os.kill(guardian, signal.SIGTERM)
    status, out, err = job.finish()
    assert status == 143 and "rueda: SIGTERM came to the agent of h2, " in err, err
    assert sorted(out.splitlines()) == ["[0 h1] got SIGTERM", "[1 h2] got SIGTERM"]


@pytest.mark.alone  # the launcher tells the other agent at once, and sends SIGTERM half a second later
def test_ranks_of_all_hosts_keep_their_grace_if_the_launcher_ends_before_them(hosts, tmp_path):
    """One host is told to end by a scheduler, which then kills `rueda run`."""
    save = f"sleep 3; touch {tmp_path}/saved.$RANK; exit 0"
    script = f"trap '{save}' TERM; echo ready $$; while :; do sleep 0.1; done"
    job = Run("-np", 2, "-H", "h1:1,h2:1", "-F", hosts, "--grace", 30, "sh", "-c", script)
    ready = sorted(job.read_until(2, lambda line: "ready" in line))
    os.kill(parent_of(parent_of(int(ready[0].split()[-1]))), signal.SIGTERM)
    while "SIGTERM came to the agent of h1" not in (line := job.process.stderr.readline()):
        assert line, "rueda run ended"
    time.sleep(0.2)  # what it has told the other agent still lies in ssh, which ends with it
    job.process.kill()
    job.process.communicate(timeout=90)
    job.assert_gone()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["saved.0", "saved.1"]


def test_all_hosts_that_cannot_be_reached_are_named(hosts):
    there = "h1:1,nowhere:1,h2:1,no-such-host.invalid:1"
    status, _, err = run("-np", 4, "-H", there, "-F", hosts, "true")
    assert status == 1
    [line] = [line for line in err.splitlines() if "cannot start the job" in line]
    assert "because 2 of 4 hosts cannot take part: the agent of nowhere has ended: ssh could not conn" in line
    assert "; the agent of no-such-host.invalid has ended: ssh could not connect" in line


def test_four_ranks_on_two_hosts(hosts):
    script = "import json,os; print(json.dumps(dict(os.environ, cwd=os.getcwd(), ppid=str(os.getppid()))))"
    status, out, err = run(
        "-np",
        4,
        "-H",
        "h1:2,h2:2",
        "-F",
        hosts,
        "--no-prefix",
        PYTHON,
        "-c",
        script,
        env={"MY_SETTING": "a b'c\"\n$d", "CUDA_VISIBLE_DEVICES": "3"},
    )
    assert status == 0, err
    decoder, ranks, rest = json.JSONDecoder(), [], out.strip()
    while rest:
        env, end = decoder.raw_decode(rest)
        ranks.append(env)
        rest = rest[end:].lstrip()
    ranks.sort(key=lambda env: int(env["RANK"]))
    assert [env["RUEDA_HOSTNAME"] for env in ranks] == ["h1", "h1", "h2", "h2"]
    assert [env["RUEDA_LOCAL_RANK"] for env in ranks] == ["0", "1", "0", "1"]
    assert [env["RUEDA_CROSS_RANK"] for env in ranks] == ["0", "0", "1", "1"]
    assert {env["MY_SETTING"] for env in ranks} == {"a b'c\"\n$d"}
    assert {env["cwd"] for env in ranks} == {os.getcwd()}
    assert all("CUDA_VISIBLE_DEVICES" not in env for env in ranks)
    assert len({env["RUEDA_STORE"] for env in ranks}) == 1 and ranks[0]["RUEDA_STORE"].startswith(
        "tcp://127."
    )
    assert {env["MASTER_ADDR"] for env in ranks} == {"127.0.0.2"}
    assert len({env["RUEDA_SECRET_FILE"] for env in ranks}) == 2
    assert not any(os.path.exists(os.path.dirname(env["RUEDA_SECRET_FILE"])) for env in ranks)


def test_prefix_names_the_host_and_one_host_may_be_local(hosts):
    status, out, err = run("-np", 3, "-H", "localhost:1,h2:2", "-F", hosts, "sh", "-c", "echo $RUEDA_STORE")
    assert status == 0, err
    prefixes = sorted(line.partition("]")[0] + "]" for line in out.splitlines())
    assert prefixes == ["[0 localhost]", "[1 h2]", "[2 h2]"]


def test_failure_on_a_remote_host_is_named_with_its_host(hosts):
    script = "[ $RANK = 3 ] && { echo lost my disk >&2; exit 9; }; sleep 60"
    status, _, err = run("-np", 4, "-H", "h1:2,h2:2", "-F", hosts, "--grace", 1, "sh", "-c", script)
    assert status == 9
    assert "rank 3 on h2" in err and "  | lost my disk" in err


def test_unreachable_host_is_named_in_the_words_of_ssh(hosts):
    status, _, err = run("-np", 2, "-H", "h1:1,nowhere:1", "-F", hosts, "true")
    assert status == 1
    assert "the agent of nowhere has ended" in err and "Connection refused" in err


def test_refused_key_is_a_sentence(hosts, tmp_path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True)
    config = tmp_path / "client"
    config.write_text(hosts.read_text().replace(f"{hosts.parent}/user\n", f"{tmp_path}/other\n"))
    status, _, err = run("-np", 1, "-H", "h1:1", "-F", config, "true")
    assert status == 1 and "Permission denied" in err


def test_silent_host_is_named_after_the_start_timeout(hosts, tmp_path):
    with socket.socket() as mute:
        mute.bind(("127.0.0.4", 0))
        mute.listen(5)
        config = tmp_path / "client"
        config.write_text(
            f"Host mute\n  HostName 127.0.0.4\n  Port {mute.getsockname()[1]}\n" + hosts.read_text()
        )
        status, _, err = run("-np", 2, "-H", "h1:1,mute:1", "-F", config, "--start-timeout", 4, "true")
    assert status == 1 and re.search(r"the agent of .*mute", err), err


def start_hiding_job(hosts):
    job = Run("-np", 4, "-H", "h1:2,h2:2", "-F", hosts, "--grace", "0.5", PYTHON, "-c", HIDING_CHILD)
    job.hidden = [int(line.split()[-1]) for line in job.read_until(4, lambda line: "hidden" in line)]
    return job


def processes_of(job):
    """Remote agents do not carry the mark (it travels with the job), so look at them through their ranks."""
    marked = set(job.processes())
    agents = {parent_of(pid) for pid in marked if name_of(parent_of(pid)) == "rueda-agent"}
    guardians = {parent_of(pid) for pid in agents if name_of(parent_of(pid)) == "rueda-guardian"}
    return marked | agents | guardians


@pytest.mark.parametrize("victim", ["launcher", "ssh", "rueda-agent", "rueda-guardian", "rank"])
def test_whoever_is_killed_nothing_is_left_on_any_host(hosts, victim):
    job = start_hiding_job(hosts)
    everyone = processes_of(job)
    named = {
        "launcher": [job.process.pid],
        "rank": [
            pid
            for pid in everyone
            if name_of(parent_of(pid)) == "rueda-agent"
            and name_of(pid).startswith("python")
            and pid not in job.hidden
        ],
    }.get(victim) or [pid for pid in everyone if name_of(pid) == victim]
    assert len(named) == {"launcher": 1, "rank": 4}.get(victim, 2)
    os.kill(named[0], signal.SIGKILL)
    if victim == "launcher":
        job.process.communicate(timeout=90)
    else:
        status, _, err = job.finish()
        assert status != 0 and "the job failed: rank" in err, err
    assert_all_gone(everyone)


def test_interrupt_reaches_remote_ranks(hosts):
    script = "trap 'echo caught; exit 0' INT; echo ready; while :; do sleep 0.1; done"
    job = Run("-np", 2, "-H", "h1:1,h2:1", "-F", hosts, "sh", "-c", script)
    job.read_until(2, lambda line: "ready" in line)
    everyone = processes_of(job)
    job.process.send_signal(signal.SIGINT)
    status, out, _ = job.finish()
    assert status == 130 and out.count("caught") == 2
    assert_all_gone(everyone)


def test_remote_secret_is_on_no_command_line(hosts):
    job = Run(
        "-np",
        1,
        "-H",
        "h1:1",
        "-F",
        hosts,
        "--no-prefix",
        "sh",
        "-c",
        "cat $RUEDA_SECRET_FILE; echo; sleep 100",
        env={"MY_TOKEN": "hunter2hunter2"},
    )
    secret = job.read_until(1, lambda line: len(line) > 32)[0].strip()
    lines = b"".join(
        path.read_bytes() for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if path.exists()
    )
    job.process.send_signal(signal.SIGTERM)
    job.finish()
    assert secret.encode() not in lines and b"hunter2hunter2" not in lines


def test_host_that_falls_silent_is_lost_and_its_ranks_end(hosts):
    """A stopped ssh client is a cut cable: both ends must notice without a connection being closed."""
    script = "import time; print('up', flush=True); time.sleep(300)"
    job = Run("-np", 2, "-H", "h1:1,h2:1", "-F", hosts, "--agent-timeout", 4, PYTHON, "-c", script)
    job.read_until(2, lambda line: "up" in line)
    everyone = processes_of(job)
    victim = next(pid for pid in everyone if name_of(pid) == "ssh")
    os.kill(victim, signal.SIGSTOP)
    status, _, err = job.finish()
    assert status == 1 and "nothing was heard from its agent for 4 s" in err
    assert_all_gone(everyone)


def test_host_that_was_cut_off_is_the_headline_and_not_the_rank_that_noticed(hosts, tmp_path):
    """The others fail of it long before --agent-timeout, and rueda then ends the ssh that hangs."""
    script = (
        "import os, sys, time\nprint('up', flush=True)\n"
        "while os.environ['RANK'] == '1' or not os.path.exists(os.environ['GO']): time.sleep(0.05)\n"
        "sys.exit('rank 1 (pid 7 on h2) was lost: it has not answered for 5 s')"
    )
    go = tmp_path / "go"
    remote = ["-H", "h1:1,h2:1", "-F", hosts, "--grace", 0]
    job = Run("-np", 2, *remote, PYTHON, "-c", script, env={"GO": str(go)})
    job.read_until(2, lambda line: "up" in line)
    commands = {pid: pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() for pid in processes_of(job)}
    [victim] = [pid for pid, words in commands.items() if name_of(pid) == "ssh" and b"\0h2\0" in words]
    os.kill(victim, signal.SIGSTOP)
    go.touch()
    status, _, err = job.finish()
    assert status == 1 and "killed by SIGKILL" not in err, err
    headline = r"the job failed: rank 1 on h2 \(pid \d+\) was lost with its host after [\d.]+ s: "
    assert re.search(headline + r"h2 cannot be reached: nothing was heard from its agent for \d+ s", err), err
    assert "rank 0: exited with code 1" in err, err
    assert_all_gone(commands)


def test_stopped_launcher_is_taken_for_dead_by_remote_agents(hosts):
    job = Run("-np", 1, "-H", "h1:1", "-F", hosts, "--agent-timeout", 4, "sh", "-c", "echo up; sleep 300")
    job.read_until(1, lambda line: "up" in line)
    ranks = processes_of(job) - set(job.agents("ssh")) - {job.process.pid}
    os.kill(job.process.pid, signal.SIGSTOP)
    try:
        assert_all_gone(ranks)
    finally:
        os.kill(job.process.pid, signal.SIGCONT)
    status, _, err = job.finish()
    assert status == 1 and "lost" in err


def test_suspended_job_goes_on(hosts):
    """Ctrl-Z tells the agents first, so that their ranks stop, and live."""
    # Not a shell: one that waits for its child's exec is stopped as well, but in state D, not T.
    script = (
        "import os, time\nprint('up', flush=True)\n"
        "while not os.path.exists(os.environ['GO']): time.sleep(0.05)\nprint('went on')"
    )
    go = hosts.parent / "go"
    remote = ["-H", "h1:1", "-F", hosts, "--agent-timeout", 4]
    job = Run("-np", 1, *remote, PYTHON, "-c", script, env={"GO": str(go)})
    job.read_until(1, lambda line: "up" in line)
    [rank] = [pid for pid in processes_of(job) if name_of(parent_of(pid)) == "rueda-agent"]
    job.process.send_signal(signal.SIGTSTP)
    deadline = time.monotonic() + 60
    while state_of(job.process.pid) != "T" or state_of(rank) != "T":
        assert time.monotonic() < deadline, (state_of(job.process.pid), state_of(rank))
        time.sleep(0.02)
    os.kill(job.process.pid, signal.SIGCONT)
    while state_of(rank) == "T":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    go.touch()
    status, out, _ = job.finish()
    assert status == 0 and "went on" in out


def test_files_travel_to_every_host_and_back(hosts, tmp_path):
    """What carries the function of rueda.run: no shared file system is needed."""
    (tmp_path / "data").write_bytes(os.urandom(300_000))
    script = "cd $RUEDA_STAGE_DIR; cat stage > result.$RANK; echo $RANK >> result.$RANK"
    files = ["--stage-file", tmp_path / "data", "--collect-dir", tmp_path]
    status, _, err = run("-np", 2, "-H", "h1:1,h2:1", "-F", hosts, *files, "sh", "-c", script)
    assert status == 0, err
    for rank in range(2):
        expected = (tmp_path / "data").read_bytes() + f"{rank}\n".encode()
        assert (tmp_path / f"result.{rank}").read_bytes() == expected
