"""Processes that have imported a framework at the price of a fork.

A nursery process imports the framework and rueda once and forks ranks before any of them has called init.
Each rank has its own session, so that whatever it leaves behind can be found, and runs its source at the top
level of the main thread, so that it ends as a script does. `harness.launch` has interpreters of their own.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import importlib
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Dict, List, Optional, Tuple

import harness
from harness import QUIET_TENSORFLOW, START_LIMIT_S, Worker, World, library, rank_environment


@dataclass(frozen=True)
class Imports:
    """What ranks need not import themselves."""

    modules: Tuple[str, ...]
    environment: Tuple[Tuple[str, str], ...] = ()  # that the modules read while they are imported


def torch_imports() -> Imports:
    """torch, where it is installed; it imports the second itself when it makes an optimizer."""
    others = ("rueda.numpy", "pytest", "cloudpickle")
    if importlib.util.find_spec("torch") is None:
        return Imports(others)
    return Imports(("rueda.torch", "torch._dynamo", "torch.distributed", *others))


TENSORFLOW = Imports(("rueda.tensorflow", "pytest"), tuple(QUIET_TENSORFLOW.items()))


def keep_imports() -> None:
    """The last thing before an interpreter takes its modules apart: those of others stay whole. A forked
    process would copy their memory for that, which takes longer than all else it does.
    """
    sys.setswitchinterval(3600)  # no other thread imports anything from now on
    own = ("rueda", "horovod", *sys.stdlib_module_names)
    for name, module in list(sys.modules.items()):
        if module is not None and name.partition(".")[0] not in own and getattr(module, "__spec__", None):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(module))
            sys.modules[name] = None  # type: ignore[assignment]  # as the interpreter does


def keep_framework() -> None:
    """As above, for libraries: of what has been loaded until now, no destructor runs when a process ends.
    What is loaded later, as rueda is, ends as always, and what is buffered is written.
    """
    libc = ctypes.CDLL(None)
    for function in (libc._exit, libc.fcloseall):  # the first to be registered is the last to be called
        libc.on_exit(ctypes.cast(function, ctypes.c_void_p), None)


def nurse(modules: List[str]) -> str:
    """Forks a rank per line of input and reports its end; returns, in a rank, the source it is to run."""
    import gc

    atexit.register(keep_imports)  # the first to be registered is the last to be called
    importlib.import_module(modules[0].split(".")[1] if "." in modules[0] else modules[0])
    keep_framework()
    for name in modules:
        importlib.import_module(name)
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, f"{modules} started {len(threads) - 1} threads, which a fork would not have"
    gc.freeze()  # with the above, a rank's end takes 0.1 s of processor time instead of 0.7 s

    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    orders = b""
    while True:
        ready, _, _ = select.select([0, reading], [], [])
        if reading in ready:
            os.read(reading, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            tell({"ended": pid, "status": os.waitstatus_to_exitcode(status), "at": time.monotonic()})
        if 0 not in ready:
            continue
        piece = os.read(0, 1 << 20)
        if not piece:
            sys.exit(0)
        *lines, orders = (orders + piece).split(b"\n")
        for line in lines:
            order = json.loads(line)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.close(reading)
                os.close(writing)
                return become_rank(order)
            tell({"started": pid})


def tell(news: Dict[str, Any]) -> None:
    os.write(1, json.dumps(news).encode() + b"\n")


def become_rank(order: Dict[str, Any]) -> str:
    os.setsid()
    nothing = os.open("/dev/null", os.O_RDONLY)
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(nothing)
    os.close(output)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    return str(order["source"])


class Nursery:
    """The test's side of the nursery."""

    def __init__(self, imports: Imports) -> None:
        private = ("RUEDA_", "HOROVOD_", "KERAS_")
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(private)},
            "PYTHONPATH": rank_environment(0, 1, Path("/"), "tcp")["PYTHONPATH"],
            "RUEDA_LIBRARY": library(),
            "OMP_NUM_THREADS": "1",
            # Keras imports pandas, and pandas pyarrow, whose allocator starts a thread.
            "JE_ARROW_MALLOC_CONF": "background_thread:false",
            "PYTHONFAULTHANDLER": "1",
            **dict(imports.environment),
        }
        self._process = subprocess.Popen(
            [sys.executable, __file__, *imports.modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        assert self._process.stdout is not None
        self._out = self._process.stdout.fileno()
        self._buffer = b""
        self.ends: Dict[int, Dict[str, Any]] = {}

    def start(self, source: str, folder: Path, output: Path, environment: Dict[str, str]) -> int:
        """The pid of a rank that runs this source in this folder."""
        order = {
            "source": source,
            "folder": str(folder),
            "output": str(output),
            "environment": environment,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        started: List[int] = []
        deadline = time.monotonic() + START_LIMIT_S  # the first one waits for the imports
        while not started:
            assert time.monotonic() < deadline, "the nursery does not answer"
            started = self.listen(1.0)
        return started[0]

    def listen(self, seconds: float) -> List[int]:
        """Takes in news; returns the pids of started ranks."""
        started = []
        ready, _, _ = select.select([self._out], [], [], seconds)
        if ready:
            piece = os.read(self._out, 65536)
            assert piece, "the nursery died"
            *lines, self._buffer = (self._buffer + piece).split(b"\n")
            for line in lines:
                news = json.loads(line)
                if "started" in news:
                    started.append(news["started"])
                    self.ends.pop(news["started"], None)  # of an earlier rank: pids come again
                else:
                    self.ends[news["ended"]] = news
        return started

    def await_ends(self, pids: List[int], limit_s: float) -> bool:
        """Whether all of these ranks have ended in time."""
        deadline = time.monotonic() + limit_s
        while not all(pid in self.ends for pid in pids):
            if time.monotonic() > deadline:
                return False
            self.listen(0.1)
        return True

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        assert self._process.stdout is not None
        self._process.stdout.close()


@functools.cache
def shared_nursery(imports: Imports) -> Nursery:
    nursery = Nursery(imports)
    atexit.register(nursery.stop)
    return nursery


SERVE = """
import harness
harness.serve(open({orders!r}), open({replies!r}, "w", buffering=1))
"""


@dataclass
class ForkedWorker:
    """A rank of the nursery: as much of subprocess.Popen as the harness needs."""

    nursery: Nursery
    pid: int
    stdin: Optional[IO[bytes]] = None

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: Optional[float] = None) -> int:
        limit_s = 3600.0 if timeout is None else timeout
        if not self.nursery.await_ends([self.pid], limit_s):
            raise subprocess.TimeoutExpired(f"rank {self.pid}", limit_s)
        return int(self.nursery.ends[self.pid]["status"])


def fork(
    script: str, folder: Path, output: Path, environment: Dict[str, str], imports: Optional[Imports] = None
) -> ForkedWorker:
    """As `harness.start_fresh`, with these imports done (torch's by default)."""
    imports = imports or torch_imports()
    nursery = shared_nursery(imports)
    given = {**dict(imports.environment), **environment}
    return ForkedWorker(nursery, nursery.start(script, folder, output, given))


launch = functools.partial(harness.launch, start=fork)


class ForkedWorld(World):
    """A world whose ranks come from a nursery, torch's by default."""

    def __init__(self, size: int, transports: str, imports: Optional[Imports] = None) -> None:
        super().__init__(size, transports)
        self._imports = imports

    def _start_worker(self, rank: int, folder: Path, environment: Dict[str, str]) -> Tuple[Worker, int]:
        orders, replies = str(folder / f"orders.{rank}"), str(folder / f"replies.{rank}")
        os.mkfifo(orders)
        os.mkfifo(replies)
        reading = os.open(replies, os.O_RDONLY | os.O_NONBLOCK)
        script = SERVE.format(orders=orders, replies=replies)
        worker = fork(script, Path.cwd(), folder / f"output.{rank}", environment, self._imports)
        # Open for both, so that opening waits for nobody; the rank sees the end once this side is closed.
        worker.stdin = open(orders, "r+b", buffering=0)  # noqa: SIM115 (closed by the world)
        return worker, reading


if __name__ == "__main__":
    source = nurse(sys.argv[1:])
    try:
        # At the top level of the main thread, so that a rank ends as a script does.
        exec(compile(source, "<rank>", "exec"), {"__name__": "__main__"})
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
