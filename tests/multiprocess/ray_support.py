"""Real Ray clusters on this machine, in network namespaces of their own, with their files in one folder."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

from harness import LEAN, library
from launch_support import RUEDA, assert_all_gone, marked_processes

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("ray_program.py")
IN_NAMESPACE = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
PORT = "6379"


@functools.lru_cache(None)
def missing() -> Optional[str]:
    """Why no Ray can run here; None if one can."""
    if importlib.util.find_spec("ray") is None:
        return "ray is not installed"
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return "unshare or ip is not there"
    if subprocess.run([*IN_NAMESPACE, "true"], capture_output=True, check=False).returncode != 0:
        return "needs the right to make a network namespace, because Ray listens on all interfaces"
    return None


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose name leaves room for Ray's sockets, which may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="rueda-", dir="/tmp", ignore_cleanup_errors=True) as name:
        yield Path(name)


def environment(folder: Path) -> Dict[str, str]:
    """What the processes of a cluster and its driver find."""
    for part in ("ray", "home"):
        (folder / part).mkdir(exist_ok=True)
    parts = ("python", "compat/horovod", "tests/multiprocess")
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith(("RUEDA_", "HOROVOD_", "RAY_", "CUDA_"))},
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder),
        "XDG_RUNTIME_DIR": str(folder),
        "RUEDA_TEST_RAY": str(folder / "ray"),
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DEDUP_LOGS": "0",
        "PYTHONPATH": os.pathsep.join([LEAN, *(str(ROOT / part) for part in parts)]),
        "RUEDA_LIBRARY": library(),
        "RUEDA_BIN": RUEDA,
        "OMP_NUM_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


class Program:
    """A driver in a process of its own, so that it can be killed; and the lines that it has printed."""

    def __init__(self, command: List[str], variables: Dict[str, str]) -> None:
        self.output = ""
        self._answers: queue.Queue[str] = queue.Queue()
        # Not on stdout, where a thread of Ray prints lines of ranks into the middle of others.
        reader, writer = os.pipe()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**variables, "RUEDA_TEST_ANSWERS": str(writer)},
            pass_fds=[writer],
            text=True,
            bufsize=1,
        )
        os.close(writer)
        self._readers = [
            threading.Thread(target=self._read_output, daemon=True),
            threading.Thread(target=self._read_answers, args=(reader,), daemon=True),
        ]
        for one in self._readers:
            one.start()

    def _read_output(self) -> None:
        for line in self.process.stdout:
            self.output += line

    def _read_answers(self, reader: int) -> None:
        with open(reader) as answers:
            for line in answers:
                self._answers.put(line)
        self._answers.put("")

    def answer(self, seconds: float = 200) -> str:
        """The next answer."""
        try:
            found = self._answers.get(timeout=seconds)
        except queue.Empty:
            raise AssertionError(f"no answer after {seconds} s:\n{self.output}") from None
        assert found, f"the program has ended:\n{self.output}"
        return found

    def begin(self, name: str, *arguments: Any) -> None:
        """Asks for a scenario without waiting."""
        self.process.stdin.write(" ".join([name, *map(str, arguments)]) + "\n")

    def ask(self, name: str, *arguments: Any) -> Any:
        """What a scenario returned, or a dict with "error", "text" and "cause"."""
        self.begin(name, *arguments)
        found = json.loads(self.answer())
        return found.get("value", found)

    def end(self, seconds: float = 30) -> None:
        """Closes stdin and waits; kills it if that takes too long."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for one in self._readers:
            one.join(10)
        self.process.stdout.close()


def kill_marked(mark: str) -> None:
    """Ends what a failed test has left."""
    for pid in marked_processes(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def local(folder: Path) -> Iterator[Program]:
    """A driver with a Ray of its own. Afterwards no process and no shared memory is left."""
    shared = set(os.listdir("/dev/shm"))
    mark = f"RUEDA_TEST_MARK={os.urandom(8).hex()}"
    variables = {**environment(folder), **dict([mark.split("=")])}
    program = Program([*IN_NAMESPACE, sys.executable, str(PROGRAM), "local", "127.0.0.1"], variables)
    try:
        assert program.answer(120).strip() == "ready"
        yield program
        program.end()
        assert_all_gone(marked_processes(mark))
        ours = ("plasma", "ray", "rueda")  # other jobs of this machine come and go
        left = [name for name in set(os.listdir("/dev/shm")) - shared if name.startswith(ours)]
        assert not left, left
    finally:
        kill_marked(mark)
        program.end()


class Cluster:
    """Two nodes with two CPUs each, in network namespaces that a cable connects; drivers run on the first."""

    def __init__(self, folder: Path) -> None:
        self.mark = f"RUEDA_TEST_MARK={os.urandom(8).hex()}"
        self._variables = {**environment(folder), **dict([self.mark.split("=")])}
        self.folder = folder
        self._undo = contextlib.ExitStack()
        self._spaces = [f"ray{os.getpid()}{end}" for end in "ab"]
        self._commands: List[subprocess.Popen[bytes]] = []
        self._drivers: List[Program] = []

    def __enter__(self) -> Cluster:
        with self._undo:
            self._connect()
            address = f"10.79.0.1:{PORT}"
            self._start(0, ["--head", f"--port={PORT}", "--include-dashboard=false"])
            self._start(1, [f"--address={address}"])
            self._undo = self._undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self._undo:
            for program in self._drivers:
                program.end()
            for command in reversed(self._commands):
                command.terminate()
            for command in self._commands:
                command.wait(timeout=90)
            assert_all_gone(marked_processes(self.mark))

    def _connect(self) -> None:
        def ip(*arguments: str) -> None:
            subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=90)

        one, other = self._spaces
        for space in self._spaces:
            ip("netns", "add", space)
            self._undo.callback(ip, "netns", "del", space)
        self._undo.callback(kill_marked, self.mark)
        ip("link", "add", "net0", "netns", one, "type", "veth", "peer", "name", "net0", "netns", other)
        for number, space in enumerate(self._spaces, 1):
            ip("-n", space, "addr", "add", f"10.79.0.{number}/24", "dev", "net0")
            for device in ("lo", "net0"):
                ip("-n", space, "link", "set", device, "up")

    def _inside(self, node: int, *command: str) -> List[str]:
        return ["ip", "netns", "exec", self._spaces[node], *command]

    def _start(self, node: int, arguments: List[str]) -> None:
        log = self.folder / f"node{node}.log"
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=2"]
        own = [f"--node-ip-address=10.79.0.{node + 1}", "--object-store-memory=100000000"]
        where = [f"--temp-dir={self.folder / 'ray'}"] if node == 0 else []
        with open(log, "wb") as file:
            command = self._inside(node, *ray, *arguments, *own, *where)
            self._commands.append(
                subprocess.Popen(
                    command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, env=self._variables
                )
            )
        deadline = time.monotonic() + 90
        while "Ray runtime started" not in log.read_text():
            assert self._commands[-1].poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)

    def driver(self) -> Program:
        """A driver on the first node."""
        python = [sys.executable, str(PROGRAM), f"10.79.0.1:{PORT}", "10.79.0.1"]
        program = Program(self._inside(0, *python), self._variables)
        self._drivers.append(program)
        assert program.answer(90).strip() == "ready"
        return program

    def is_up(self) -> bool:
        """Whether `ray start --block` still runs on both nodes."""
        return all(command.poll() is None for command in self._commands)

    def kill_second_node(self) -> None:
        """As if its machine had lost its power: every process there gets SIGKILL."""
        space = os.stat(f"/run/netns/{self._spaces[1]}").st_ino
        for pid in marked_processes(self.mark):
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{pid}/ns/net").st_ino == space:
                    os.kill(pid, signal.SIGKILL)
