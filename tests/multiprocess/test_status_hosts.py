"""`rueda status` and `rueda stacks` of a job on two hosts, asked where it was started."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading

import pytest
from harness import CASE_LIMIT_S
from launch_support import PYTHON, ROOT, RUEDA, name_of, parent_of
from metrics_support import until
from virtual_hosts import HostJob, VirtualHosts, virtual_hosts

PATIENCE_S = LIMIT_S = CASE_LIMIT_S
# Rank 1, which is alone on the second host, hangs after some steps, unless it is told to go on.
PROGRAM = """
import pathlib, sys, time
import numpy
import rueda.numpy as hvd

def hangs_here():
    while not pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.05)

hvd.init()
for step in range(10):
    hvd.allreduce(numpy.ones(100, numpy.float32), name="gradient")
    hvd.mark_step()
print("trained", flush=True)
if hvd.rank() == 1:
    hangs_here()
for step in range(300):
    assert hvd.allreduce(numpy.full(10, float(step)), name="late", op=hvd.Sum)[0] == 2 * step
print("done", flush=True)
"""


class _Job:
    def __init__(self, hosts: VirtualHosts, folder: pathlib.Path) -> None:
        self.folder = folder
        for name in ("here", "a", "b"):
            (folder / name).mkdir(mode=0o700)
        for name in ("a", "b"):
            hosts.plant(name, f"export XDG_RUNTIME_DIR={folder / name}")
        self.words = hosts.words()
        self.environment = {
            **hosts.environment(),
            "PYTHONPATH": str(ROOT / "python"),
            "XDG_RUNTIME_DIR": str(folder / "here"),
        }
        (folder / "program.py").write_text(PROGRAM)
        command = ["run", "-np", "2", "-H", "a:1,b:1", PYTHON, str(folder / "program.py"), str(folder / "go")]
        self.process = subprocess.Popen(
            [*self.words, RUEDA, *command],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2):
            line = self.process.stdout.readline()
            assert "trained" in line, line + self.process.stderr.read()

    def rueda(self, *arguments):
        done = subprocess.run(
            [*self.words, RUEDA, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def status(self, *arguments):
        code, out, error = self.rueda("status", "--json", *arguments)
        assert code == 0, error
        return json.loads(out)

    def socket(self):
        (path,) = (self.folder / "here" / "rueda").glob("*.job")
        return path

    def worker_of(self, rank):
        """The process id of the agent that has started this rank."""
        pid = next(one["pid"] for one in self.status()["ranks"] if one["rank"] == rank)
        while name_of(pid) != "rueda-agent":
            pid = parent_of(pid)
            assert pid > 1
        return pid

    def finish(self):
        (self.folder / "go").touch()
        out, error = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, error
        assert out.count("done") == 2


@pytest.fixture
def job(folder):
    hosts_folder = folder / "hosts"
    hosts_folder.mkdir()
    with virtual_hosts(hosts_folder, ["a", "b"], "1gbit") as hosts:
        one = _Job(hosts, folder)
        try:
            yield one
        finally:
            if one.process.poll() is None:
                one.process.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    one.process.communicate(timeout=90)
            if one.process.poll() is None:
                one.process.kill()
                one.process.communicate(timeout=90)


def _is_whole(found):
    return [rank["rank"] for rank in found["ranks"]] == [0, 1] and found["absent"] == []


def test_a_rank_that_hangs_on_another_host_is_named_and_shown(job):
    def waits():
        return {one["rank"]: one["waits_for"] for one in job.status("--timeout", "20")["ranks"]}

    until(waits, lambda found: found == {0: [1], 1: []}, PATIENCE_S)
    shown = {one["rank"]: one for one in job.status("--timeout", "20", str(job.process.pid))["ranks"]}
    assert shown[1]["host"] == "b" and shown[0]["steps"]["count"] == 10
    code, table, error = job.rueda("status", "--timeout", "20", shown[0]["job"][:4])
    assert code == 0 and "2 of 2 ranks are here" in table, table + error
    code, folded, error = job.rueda("stacks", "--timeout", "40")
    assert code == 0 and "hangs_here (" in folded, folded + error
    code, one, error = job.rueda("stacks", "--rank", "1", "--json", "--timeout", "40")
    assert code == 0, error
    (rank,) = json.loads(one)["ranks"]
    assert rank["rank"] == 1 and rank["threads"]
    out = str(job.folder / "now")
    code, said, error = job.rueda("timeline", "record", "--timeout", "40", out)
    assert code == 0 and "is written, of 2 ranks; " in said, error
    code, summary, error = job.rueda("timeline", "summary", "--json", out)
    assert code == 0 and json.loads(summary)["files"] == 2, error
    job.finish()
    code, _, error = job.rueda("status")
    assert code == 1 and "no process of this user" in error
    assert list((job.folder / "here" / "rueda").iterdir()) == []


def test_a_frozen_agent_is_named_and_does_not_keep_the_answer(job):
    frozen = job.worker_of(1)
    os.kill(frozen, signal.SIGSTOP)
    try:
        # Not the question of worker_of(): an equal one within 100 ms gets the same answer.
        found = job.status("--timeout", "8")
        assert [one["rank"] for one in found["ranks"]] == [0]
        (absent,) = found["absent"]
        assert absent["host"] == "b" and absent["ranks"] == [1]
        assert "its agent" in absent["why"] and absent["job"] == found["jobs"][0]
    finally:
        os.kill(frozen, signal.SIGCONT)
    until(lambda: job.status("--timeout", "20"), _is_whole, PATIENCE_S)
    job.finish()


# As mpirun or torchrun would start it. Each host has a folder of sockets of its own.
ALONE = """
import os, socket, time
os.environ["XDG_RUNTIME_DIR"] = os.environ["FOLDERS"] + "/" + socket.gethostname()
import rueda.numpy as hvd
hvd.init()
print("ready", flush=True)
while not os.path.exists("end"):
    time.sleep(0.1)
hvd.shutdown()
"""


def test_without_a_launcher_the_missing_ranks_are_named_with_their_hosts(folder):
    for name in ("hosts", "a", "b", "c"):
        (folder / name).mkdir(mode=0o700)
    with virtual_hosts(folder / "hosts", ["a", "b", "c"], "1gbit") as hosts:
        job = HostJob(hosts, ALONE, FOLDERS=str(folder))
        try:
            until(lambda: job.output(0), lambda text: "ready" in text, PATIENCE_S)
            here = {"XDG_RUNTIME_DIR": str(folder / "a")}
            found = json.loads(hosts.run("status", "--json", **here).stdout)
            assert [rank["rank"] for rank in found["ranks"]] == [0]
            assert [(one["host"], one["ranks"]) for one in found["absent"]] == [("b", [1]), ("c", [2])]
            stacks = hosts.run("stacks", **here)
            assert (
                "rank 2 on c: no rueda run reaches that host from here; run this command there"
                in stacks.stderr
            )
            (job.folder / "end").touch()
            job.end(LIMIT_S)
        finally:
            job.remove()


def _ask(path, request, user=None):
    """What the launcher answers to this user; b"": it hangs up."""
    script = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.settimeout(30); s.connect(sys.argv[1]);"
        "s.sendall(sys.argv[2].encode()); out = b''\n"
        "while part := s.recv(65536): out += part\n"
        "sys.stdout.buffer.write(out)"
    )
    done = subprocess.run(
        ["/usr/bin/python3" if user else sys.executable, "-c", script, str(path), request],
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
        user=user,
        cwd="/",
    )
    return done.stdout, done.stderr.decode()


def test_another_user_is_refused_even_where_the_folder_is_open(job):
    path = job.socket()
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    answer, _ = _ask(path, "status 20000 -1\n")
    assert b'"rank"' in answer
    answer, error = _ask(path, "status 20000 -1\n", user=65534)
    assert answer == b"" and "PermissionError" in error
    for part, mode in ((path, 0o666), (path.parent, 0o755), (path.parents[1], 0o755), (job.folder, 0o755)):
        part.chmod(mode)
    answer, error = _ask(path, "status 20000 -1\n", user=65534)
    assert answer == b"" and "PermissionError" not in error  # connected, and hung up on
    job.finish()


def test_a_flood_of_questions_does_not_keep_the_job_from_ending(job):
    stop = threading.Event()
    answered = []

    path = str(job.socket())

    def flood():
        while not stop.is_set():
            with socket.socket(socket.AF_UNIX) as asking, contextlib.suppress(OSError):
                asking.settimeout(30)
                asking.connect(path)
                asking.sendall(b"stacks 20000 -1\n")
                size = 0
                while part := asking.recv(1 << 20):
                    size += len(part)
                if size:
                    answered.append(size)

    threads = [threading.Thread(target=flood, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: len(answered), lambda count: count > 8, PATIENCE_S)
        job.finish()
    finally:
        stop.set()
        for thread in threads:
            thread.join(LIMIT_S)
