"""Runs the built `rueda` binary and finds every process a run left behind, by a mark in its environment."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time
import uuid
from typing import ClassVar

from harness import QUIET_TENSORFLOW, library
from processes import state_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILT = [ROOT / ".venv/bin/rueda", ROOT / "build/release/bin/rueda"]
RUEDA = os.environ.get("RUEDA_BIN", str(next((path for path in BUILT if path.exists()), BUILT[0])))
PYTHON = sys.executable

PRINT_ENVIRONMENT = "import json,os; print(json.dumps(dict(os.environ)))"


def script_environment():
    """What scripts of users find here: this tree, few threads, no GPU, and the backend that Keras chooses."""
    return {
        **QUIET_TENSORFLOW,
        "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("python", "compat/horovod")),
        "RUEDA_LIBRARY": library(),
        "RUEDA_BIN": RUEDA,
        "OMP_NUM_THREADS": "1",
        "JAX_PLATFORMS": "cpu",
        "KERAS_BACKEND": "",
    }


def run_script(ranks, folder, script, *arguments):
    """The standard output of a Python script that the launcher runs as a user does, in this folder."""
    environment = {**os.environ, **script_environment()}
    done = subprocess.run(
        [RUEDA, "run", "-np", str(ranks), PYTHON, str(script), *arguments],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# A child that hides: own session, reparented, deaf to SIGTERM and SIGHUP.
HIDING_CHILD = (
    "import os,signal,time\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork() == 0:\n"
    "        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "        signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    "        print('hidden', os.getpid(), flush=True)\n"
    "        time.sleep(300)\n"
    "    os._exit(0)\n"
    "time.sleep(300)\n"
)


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def parent_of(pid):
    """Its parent's pid; 0 if it has ended meanwhile."""
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def marked_processes(mark):
    """pids of the living processes whose first environment held mark ("NAME=value")."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or state_of(entry) in (None, "Z", "X"):
            continue
        try:
            environ = pathlib.Path(f"/proc/{entry}/environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if mark.encode() in environ.split(b"\0"):
            found.append(int(entry))
    return found


# Ends what hangs, also on a machine that does much else; ranks that stay would stay for 300 s.
GONE_S = 30


def assert_all_gone(pids):
    deadline = time.monotonic() + GONE_S
    while left := [(pid, name_of(pid)) for pid in pids if state_of(pid) not in (None, "Z", "X")]:
        assert time.monotonic() < deadline, f"still alive after {GONE_S} s: {left}"
        time.sleep(0.02)


class Run:
    """One run of the launcher. Its processes carry a mark that finds them, whoever their parent is."""

    open: ClassVar[list] = []  # those whose end no test has seen

    def __init__(self, *arguments, env=None, cwd=None, stdout=subprocess.PIPE):
        self.mark = f"RUEDA_TEST_MARK={uuid.uuid4().hex}"
        variables = {k: v for k, v in os.environ.items() if not k.startswith(("RUEDA_", "HOROVOD_"))}
        variables.update(env or {})
        variables.update([self.mark.split("=")])
        self.process = subprocess.Popen(
            [RUEDA, "run", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=variables,
            cwd=cwd,
            text=True,
            errors="surrogateescape",
        )
        Run.open.append(self)

    def finish(self, timeout=120):
        """Waits for the end; returns (exit status, stdout, stderr)."""
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.kill_all()
            out, err = self.process.communicate(timeout=90)
            raise AssertionError(f"no end after {timeout} s\n{out}\n{err}") from None
        return self.process.returncode, out, err

    def processes(self):
        return marked_processes(self.mark)

    def agents(self, name):
        """pids of this run's agents by name: "rueda-agent" (worker) or "rueda-guardian"."""
        return [pid for pid in self.processes() if name_of(pid) == name]

    def read_until(self, count, predicate):
        """Reads lines of stdout until `count` of them satisfy the predicate; returns those."""
        lines = []
        while len(lines) < count:
            line = self.process.stdout.readline()
            assert line, f"the output ended after {lines}: {self.process.stderr.read()}"
            if predicate(line):
                lines.append(line)
        return lines

    def assert_gone(self):
        """Nothing of this run lives on."""
        deadline = time.monotonic() + GONE_S
        while left := self.processes():
            if time.monotonic() > deadline:
                described = [(pid, name_of(pid), state_of(pid)) for pid in left]
                self.kill_all()
                raise AssertionError(f"still alive after {GONE_S} s: {described}")
            time.sleep(0.02)

    def kill_all(self):
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)


def end_open_runs():
    """After a test: what it left running, because it failed."""
    while Run.open:
        job = Run.open.pop()
        if job.process.poll() is None:
            job.kill_all()
            job.process.communicate(timeout=90)


def run(*arguments, timeout=120, **keywords):
    """Runs to the end and checks that nothing is left. Returns (exit status, stdout, stderr)."""
    job = Run(*arguments, **keywords)
    result = job.finish(timeout)
    job.assert_gone()
    return result


def environments(*arguments, **keywords):
    """The environments that the ranks find, in their order."""
    status, out, err = run("--no-prefix", *arguments, PYTHON, "-c", PRINT_ENVIRONMENT, **keywords)
    assert status == 0, err
    found = [json.loads(line) for line in out.splitlines()]
    return sorted(found, key=lambda e: int(e["RUEDA_RANK"]))
