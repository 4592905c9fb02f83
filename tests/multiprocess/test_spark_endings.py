"""Whatever is killed of an application on Spark, no rank and nothing that it has started survives."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import spark_support
from launch_support import assert_all_gone, marked_processes, parent_of

if why := spark_support.missing():
    pytest.skip(why, allow_module_level=True)

pytestmark = pytest.mark.timeout(600)  # a JVM for each of the application's processes starts slowly

PROGRAM = Path(__file__).with_name("spark_program.py")


class Program:
    """The program in a process of its own, so that its driver can be killed."""

    def __init__(self, folder, use_daemon, runtime):
        folder.joinpath("local").mkdir()
        self.mark = f"RUEDA_TEST_MARK={os.urandom(8).hex()}"
        environment = {**os.environ, **spark_support.environment(folder), **dict([self.mark.split("=")])}
        environment["XDG_RUNTIME_DIR"] = str(runtime)
        environment["PYTHONPATH"] += os.pathsep + str(PROGRAM.parent)
        self.errors = folder / "stderr"
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(folder), use_daemon],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                bufsize=0,
            )

    def read(self, word):
        """The next line that holds the word."""
        deadline = time.monotonic() + 180
        while time.monotonic() < deadline:
            if select.select([self.process.stdout], [], [], 1)[0]:
                line = self.process.stdout.readline().decode()
                if word in line:
                    return line
                said = f"no {word!r}, but {line!r}\n{self.errors.read_text(errors='replace')[-8000:]}"
                assert line and "failed:" not in line, said
        raise AssertionError(f"no {word!r} after three minutes")

    def start_job(self):
        """Starts two ranks that wait. Returns (rank, reaper, hidden child) of each, as pids."""
        self.process.stdin.write(b"go\n")
        lines = [self.read(" rank ").split() for _ in range(2)]
        return [tuple(int(text) for text in line[-3:]) for line in lines]

    def everything(self):
        return marked_processes(self.mark)


# Beside much else, a job without the daemon that follows a killed one has been seen to lose a rank to Spark.
WITHOUT_DAEMON = pytest.param("false", marks=pytest.mark.alone)


@pytest.fixture(params=["true", WITHOUT_DAEMON], ids=["daemon", "no-daemon"])
def program(request, tmp_path, folder):
    made = Program(tmp_path, request.param, folder)
    try:
        made.read("ready")
        yield made
    finally:
        for pid in made.everything():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        made.process.communicate(timeout=60)


def flat(ranks):
    return [pid for pids in ranks for pid in pids]


def test_nothing_survives_the_death_of_any_part(program, folder):
    # The Python worker of one rank.
    ranks = program.start_job()
    os.kill(worker_of(ranks[0]), signal.SIGKILL)
    assert_all_gone(ranks[0])
    assert "was lost: its Spark task has ended" in program.read("failed:")
    assert_all_gone(flat(ranks))

    # Either process of the reaper of one rank.
    for killed in (lambda parent: parent, parent_of):
        ranks = program.start_job()
        os.kill(killed(ranks[1][1]), signal.SIGKILL)
        assert_all_gone(ranks[1])
        assert "its reaper process was killed" in program.read("failed:")
        assert_all_gone(flat(ranks))

    # An executor.
    ranks = program.start_job()
    worker = worker_of(ranks[0])
    executors = [
        pid for pid in program.everything() if "CoarseGrainedExecutor" in spark_support.command_line(pid)
    ]
    victim = next(pid for pid in executors if pid in ancestors(worker))
    os.kill(victim, signal.SIGKILL)
    assert "was lost: its Spark task has ended" in program.read("failed:")
    assert_all_gone([worker, *flat(ranks)])

    # Nothing but the job, by Ctrl-C.
    ranks = program.start_job()
    program.process.send_signal(signal.SIGINT)
    assert "interrupted" in program.read("interrupted")
    assert_all_gone(flat(ranks))

    # The driver.
    ranks = program.start_job()
    program.process.kill()
    assert_all_gone(flat(ranks))
    assert_all_gone(program.everything())
    assert list((folder / "rueda").iterdir()) == []


def worker_of(rank):
    return parent_of(parent_of(rank[1]))  # above the guardian


def ancestors(pid):
    found = []
    while pid > 1:
        pid = parent_of(pid)
        found.append(pid)
    return found
