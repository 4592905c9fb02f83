"""`rueda reap`: nothing of a program survives its reaper's owner, and nothing else is touched."""

import contextlib
import os
import signal
import socket
import subprocess
import sys

import pytest
from launch_support import RUEDA, assert_all_gone, marked_processes, parent_of
from processes import state_of
from robust_support import wait_until

# Says who it is and which children it has: one of its own, and one with a session whose parent has ended.
PROGRAM = """
import os, subprocess, sys, time
child = subprocess.Popen(["sleep", "300"])
hidden = subprocess.run(["sh", "-c", "setsid sleep 300 >&2 & echo $!"], stdout=subprocess.PIPE).stdout
print(os.getpid(), child.pid, int(hidden), flush=True)
time.sleep(300)
"""


class Kept:
    """A program below a reaper, with the pipes of its owner."""

    def __init__(self, *command, folder):
        self.mark = os.urandom(8).hex()
        self.reader, writer = os.pipe()
        self.process = subprocess.Popen(
            [RUEDA, "reap", "below", str(writer), str(writer), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[writer],
            env={**os.environ, "RUEDA_TEST_MARK": self.mark, "XDG_RUNTIME_DIR": str(folder)},
            start_new_session=True,
        )
        os.close(writer)

    def said(self):
        """All that the program has written, when it and its reaper hold the pipe no longer."""
        with os.fdopen(self.reader, "rb") as file:
            return file.read().decode()

    def pids(self):
        """Of the program and its children."""
        text = b""
        while not text.endswith(b"\n"):
            text += os.read(self.reader, 64)
        return [int(word) for word in text.split()]

    def status(self):
        """The exit code of the program, negative after a signal; None if the reaper does not say it."""
        lines = self.process.stdout.read().decode().splitlines()  # stdin stays open meanwhile
        ended = [line.split()[1] for line in lines if line.startswith("ended ")]
        return os.waitstatus_to_exitcode(int(ended[0])) if ended else None


@pytest.fixture
def keep(tmp_path):
    open_ones = []

    def start(*command):
        open_ones.append(Kept(*command, folder=tmp_path))
        return open_ones[-1]

    yield start
    for one in open_ones:
        for pid in marked_processes(f"RUEDA_TEST_MARK={one.mark}"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        one.process.wait(timeout=90)
        one.process.stdin.close()
        one.process.stdout.close()


def test_output_and_exit_status_reach_the_owner(keep):
    kept = keep("/bin/sh", "-c", "echo out; echo err >&2; exit 3")
    assert kept.status() == 3
    assert sorted(kept.said().split()) == ["err", "out"]


def test_a_program_that_cannot_be_started_is_one_sentence(keep):
    kept = keep("/no/such/program")
    assert kept.status() == 127
    assert kept.said().startswith("rueda: command not found: /no/such/program")


def listen_at(path):
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.listen()
    return made


def test_sockets_of_killed_ranks_are_removed_and_nothing_else(keep, tmp_path):
    (tmp_path / "rueda").mkdir()
    with listen_at(tmp_path / "rueda" / "1-00000001.sock"):
        listen_at(tmp_path / "rueda" / "2-00000002.sock").close()
        (tmp_path / "rueda" / "metrics-9400.token").write_text("of a user")
        kept = keep("/bin/true")
        assert kept.process.wait(timeout=60) == 0
    assert sorted(os.listdir(tmp_path / "rueda")) == ["1-00000001.sock", "metrics-9400.token"]


def test_end_of_file_ends_everything(keep):
    kept = keep(sys.executable, "-c", PROGRAM)
    pids = kept.pids()
    kept.process.stdin.close()
    assert_all_gone(pids)
    assert kept.process.wait(timeout=60) == 0


@pytest.mark.parametrize("which", ["worker", "guardian"])
def test_either_process_ends_everything_if_the_other_is_killed(keep, which):
    kept = keep(sys.executable, "-c", PROGRAM)
    pids = kept.pids()
    worker = parent_of(pids[0])
    assert parent_of(worker) == kept.process.pid
    os.kill(worker if which == "worker" else kept.process.pid, signal.SIGKILL)
    assert_all_gone([*pids, worker, kept.process.pid])
    assert kept.status() is None


def test_what_a_program_leaves_ends_with_it(keep):
    kept = keep(sys.executable, "-c", PROGRAM)
    pids = kept.pids()
    os.kill(pids[0], signal.SIGKILL)
    assert kept.status() == -signal.SIGKILL
    assert_all_gone(pids)


# The child says that it was asked to end. The program ends when it is asked to, and before that does $1.
ASKED = """
sh -c 'trap "echo child >&2; exit" TERM; echo up >&2; while :; do sleep 0.1; done' &
trap "$1; echo program; exit 5" TERM
while :; do sleep 0.1; done
"""


@pytest.mark.parametrize(
    ("letter", "first", "asked"), [(b"T", "true", ["program"]), (b"A", "wait", ["child", "program"])]
)
def test_a_request_to_end_reaches_the_program_or_all(keep, letter, first, asked):
    kept = keep("/bin/sh", "-c", ASKED, "sh", first)
    assert os.read(kept.reader, 64) == b"up\n"
    kept.process.stdin.write(letter)
    kept.process.stdin.flush()
    assert kept.status() == 5
    words = kept.said().split()  # the shells say that their `sleep` was terminated, too
    assert [word for word in words if word in ("child", "program")] == asked


def test_signals_of_a_terminal_do_not_reach_the_reaper(keep):
    kept = keep(sys.executable, "-c", PROGRAM)
    pids = kept.pids()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1):
        os.kill(kept.process.pid, number)
        os.kill(parent_of(pids[0]), number)
    kept.process.stdin.write(b"T")
    kept.process.stdin.flush()
    assert kept.status() == -signal.SIGTERM


# Ends when its stdin does, and leaves a program with its mark.
OWNER = """
import os, subprocess, sys
subprocess.run([sys.argv[1], "reap", "beside", str(os.getpid()), "MARK=" + os.environ["MARK"]],
               stdin=subprocess.PIPE, env={"XDG_RUNTIME_DIR": sys.argv[2]}, check=True)
child = subprocess.Popen(["sleep", "300"], start_new_session=True)
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_a_reaper_beside_a_process_ends_what_has_its_mark_and_nothing_else(tmp_path):
    mark = os.urandom(8).hex()
    other = subprocess.Popen(["sleep", "300"], env={**os.environ, "MARK": mark + "0", "XMARK": mark})
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, RUEDA, str(tmp_path)],
        env={**os.environ, "MARK": mark},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        child = int(owner.stdout.readline())
        assert state_of(child) is not None
        owner.communicate(timeout=60)
        assert_all_gone([child])
        reaper_is_gone = f"MARK={mark}".encode()
        wait_until(lambda: not reapers_of(reaper_is_gone), 30, "the end of the reaper")
        assert other.poll() is None
    finally:
        other.kill()
        other.communicate()


def reapers_of(mark):
    found = []
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if b"reap" in words and mark in words:
            found.append(entry)
    return found


def test_there_is_no_reaper_for_a_process_that_has_ended():
    ended = subprocess.Popen(["true"])
    ended.wait()
    kept = subprocess.run(
        [RUEDA, "reap", "beside", str(ended.pid), "MARK=x"], stderr=subprocess.PIPE, check=False
    )
    assert kept.returncode != 0
    assert f"rueda reap: there is no process {ended.pid}" in kept.stderr.decode()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["beside", "PID", "noequals"], 'the mark of a process is NAME=value, not "noequals"'),
        (["beside", "PID", "=x"], 'the mark of a process is NAME=value, not "=x"'),
        (["below", "3", "4", "true"], "OUT and ERR are open descriptors above 2, not 3 and 4"),
        (["below", "1", "2", "true"], "OUT and ERR are open descriptors above 2, not 1 and 2"),
    ],
)
def test_arguments_that_make_no_sense_are_refused_in_a_sentence(arguments, why):
    with subprocess.Popen(["sleep", "60"]) as owner:  # a reaper that is wrongly started ends with it
        command = [str(owner.pid) if word == "PID" else word for word in arguments]
        done = subprocess.run(
            [RUEDA, "reap", *command], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        owner.kill()
    assert (done.returncode, done.stderr.decode()) == (2, f"rueda reap: {why}\n")
