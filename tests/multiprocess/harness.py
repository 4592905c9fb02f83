"""Runs test bodies on several ranks of one job on this machine.

`World` keeps n worker processes alive and runs one function on all of them at a time, so that importing a
framework is paid once per world. `launch` starts fresh processes for tests that need their own life cycle.
Where ranks need nothing else of their interpreter, `nursery` has both at the price of a fork.
Every wait has a deadline; whatever was started is killed at the end.
"""

from __future__ import annotations

import abc
import gc
import importlib.util
import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Callable, Dict, Iterable, List, Optional, Protocol, Sequence, TextIO, Tuple

ROOT = Path(__file__).resolve().parent.parent.parent
# Limits end what hangs. No test measures time by them, so they are long enough for a machine that does much
# else; a slower one needs more patience.
PATIENCE = float(os.environ.get("RUEDA_TEST_PATIENCE", "1"))
CASE_LIMIT_S = 120.0 * PATIENCE
START_LIMIT_S = 120.0 * PATIENCE
# Longer than any test may take: what is noticed is then noticed otherwise, so at once.
NO_PEER_TIMEOUT = {"RUEDA_PEER_TIMEOUT_SECONDS": "36000"}

# What tests compile runs once or twice.
QUICK_XLA = {"XLA_FLAGS": "--xla_backend_optimization_level=0"}
# The first part of PYTHONPATH for ranks that start and end in less time: without PyTorch's compiler.
LEAN = str(ROOT / "tests/multiprocess/lean")

# TensorFlow without its log, GPUs and the rounding of oneDNN; read while it is imported.
QUIET_TENSORFLOW = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "TF_ENABLE_ONEDNN_OPTS": "0"}


def library() -> str:
    """The librueda.so under test."""
    given = os.environ.get("RUEDA_LIBRARY")
    return given or str(ROOT / "build" / "release" / "librueda.so")


def rank_environment(rank: int, size: int, folder: Path, transports: str) -> Dict[str, str]:
    """The environment a launcher would give this rank, without any launcher."""
    clean = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("RUEDA_", "HOROVOD_", "OMPI_", "PMI_", "KERAS_"))
    }
    return {
        **clean,
        "PYTHONPATH": os.pathsep.join(
            str(ROOT / p) for p in ("python", "compat/horovod", "tests/multiprocess")
        ),
        "PYTHONFAULTHANDLER": "1",
        "OMP_NUM_THREADS": "1",  # n ranks share the cores of one machine
        **QUICK_XLA,
        "RUEDA_LIBRARY": library(),
        "RUEDA_RANK": str(rank),
        "RUEDA_SIZE": str(size),
        "RUEDA_LOCAL_RANK": str(rank),
        "RUEDA_LOCAL_SIZE": str(size),
        "RUEDA_STORE": f"file://{folder}/store",
        "RUEDA_SECRET_FILE": str(folder / "secret"),
        "RUEDA_TRANSPORTS": transports,
        "RUEDA_START_TIMEOUT": "90",  # ranks of one job may start far apart on a busy machine
    }


def make_job_folder() -> Path:
    """A private folder with an empty store and a fresh secret."""
    folder = Path(tempfile.mkdtemp(prefix="rueda-test-"))
    (folder / "store").mkdir()
    secret = folder / "secret"
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_hex(32))
    return folder


# ---- ranks that live for many tests ----


class Worker(Protocol):
    """What a world needs of a process: a part of subprocess.Popen."""

    @property
    def stdin(self) -> Optional[IO[bytes]]: ...
    def send_signal(self, number: int) -> None: ...
    def kill(self) -> None: ...
    def wait(self, timeout: Optional[float] = None) -> int: ...


class World(abc.ABC):
    """n workers in one job; a subclass knows how one starts. `run` executes one function on all ranks and
    raises what failed, on which rank.
    """

    def __init__(self, size: int, transports: str) -> None:
        self.size = size
        self.transports = transports
        self._workers: List[Worker] = []
        self._replies: List[int] = []  # read ends of the workers' pipes
        self._folder: Optional[Path] = None

    def run(self, path: str, name: str) -> None:
        """Runs function `name` of the test file `path` on every rank. A failure ends the workers: their state
        is lost.
        """
        if not self._workers:
            self._start()
        command = json.dumps({"path": path, "name": name}).encode() + b"\n"
        for worker in self._workers:
            assert worker.stdin is not None
            worker.stdin.write(command)
            worker.stdin.flush()
        replies = self._collect(CASE_LIMIT_S)
        faults = [f"rank {rank}: {reply}" for rank, reply in enumerate(replies) if reply != "ok"]
        if faults:
            output = self._output()
            self.stop()
            raise AssertionError("\n\n".join(faults) + "\n\n" + output)

    def _start(self) -> None:
        self._folder = make_job_folder()
        for rank in range(self.size):
            environment = rank_environment(rank, self.size, self._folder, self.transports)
            worker, replies_of_rank = self._start_worker(rank, self._folder, environment)
            self._workers.append(worker)
            self._replies.append(replies_of_rank)
        replies = self._collect(START_LIMIT_S)
        if any(reply != "ok" for reply in replies):
            output = self._output()
            self.stop()
            raise AssertionError(f"The ranks did not start: {replies}\n{output}")

    @abc.abstractmethod
    def _start_worker(self, rank: int, folder: Path, environment: Dict[str, str]) -> Tuple[Worker, int]:
        """A process that serves, and the descriptor its replies are read from."""

    def _collect(self, limit_s: float) -> List[str]:
        """One reply of each rank; a rank that ends or is late gets a text that says so."""
        deadline = time.monotonic() + limit_s
        replies: List[Optional[str]] = [None] * self.size
        pending = {fd: (rank, b"") for rank, fd in enumerate(self._replies)}
        while pending:
            ready, _, _ = select.select(list(pending), [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                for rank, _ in pending.values():
                    self._workers[rank].send_signal(signal.SIGUSR1)  # faulthandler prints the stacks
                    replies[rank] = f"no answer within {limit_s} s"
                time.sleep(0.5)  # the stacks are for the reader alone; nothing depends on them
                break
            for fd in ready:
                rank, text = pending[fd]
                piece = os.read(fd, 65536)
                text += piece
                if text.endswith(b"\n"):
                    replies[rank] = json.loads(text)
                    del pending[fd]
                elif not piece:
                    replies[rank] = f"the process ended with status {self._workers[rank].wait(10)}"
                    del pending[fd]
                else:
                    pending[fd] = (rank, text)
        return [reply or "no answer" for reply in replies]

    def _output(self) -> str:
        assert self._folder is not None
        parts = []
        for rank in range(self.size):
            text = (self._folder / f"output.{rank}").read_text(errors="replace")
            parts.append(f"---- output of rank {rank} ----\n{text[-8000:]}")
        return "\n".join(parts)

    def stop(self) -> None:
        """Ends the workers."""
        for worker in self._workers:
            if worker.stdin is not None:
                worker.stdin.close()
        deadline = time.monotonic() + 90
        for worker in self._workers:
            try:
                worker.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait(10)
        for fd in self._replies:
            os.close(fd)
        self._workers, self._replies = [], []
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def on_every_rank(body: Callable[[], None]) -> Callable[[World], None]:
    """Makes a test of a function that is to run on all ranks of the fixture `world`."""
    path = body.__code__.co_filename

    def test(world: World) -> None:
        world.run(path, body.__name__)

    test.__name__ = body.__name__
    test.__doc__ = body.__doc__
    test.__module__ = body.__module__
    test.body = body  # type: ignore[attr-defined]  # what the worker calls
    return test


def _load(path: str) -> Any:
    name = "case_" + Path(path).stem
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


def serve(orders: Iterable[str], replies: TextIO) -> None:
    """The life of a worker: joins the job, then runs what it is told to until its input ends."""
    import faulthandler

    from rueda import operations
    from rueda.basics import basics
    from rueda.process_sets import global_process_set

    faulthandler.register(signal.SIGUSR1, all_threads=True)
    try:
        basics.init(process_sets="dynamic")
        replies.write(json.dumps("ok") + "\n")
        for line in orders:
            order = json.loads(line)
            getattr(_load(order["path"]), order["name"]).body()
            operations.barrier(global_process_set)  # nobody starts the next case early
            replies.write(json.dumps("ok") + "\n")
        gc.freeze()  # a framework's modules take a second to collect
    except BaseException:
        replies.write(json.dumps(traceback.format_exc()) + "\n")
        replies.flush()
        sys.exit(1)


# ---- ranks with a life cycle of their own ----


@dataclass
class Finished:
    """How one process ended."""

    status: int  # negative: killed by that signal
    output: str  # stdout and stderr
    seconds: float  # from the start to its end


def start_fresh(script: str, folder: Path, output: Path, environment: Dict[str, str]) -> Worker:
    """An interpreter of its own that runs this source in this folder."""
    with open(output, "wb") as file:
        return subprocess.Popen(
            [sys.executable, "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )


def launch(
    size: int,
    script: str,
    environment: Optional[Dict[str, str]] = None,
    transports: str = "shm,tcp",
    limit_s: float = CASE_LIMIT_S,
    start: Callable[[str, Path, Path, Dict[str, str]], Worker] = start_fresh,
) -> List[Finished]:
    """Runs Python source on every rank, each in a process of its own, and waits. Late ones are aborted."""
    folder = make_job_folder()
    began = time.monotonic()
    outputs = [folder / f"output.{rank}" for rank in range(size)]
    workers = []
    for rank, path in enumerate(outputs):
        variables = {**rank_environment(rank, size, folder, transports), **(environment or {})}
        workers.append(start(script, folder, path, variables))
    finished = []
    for worker, path in zip(workers, outputs):
        try:
            status = worker.wait(max(0.1, began + limit_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.send_signal(signal.SIGABRT)  # faulthandler prints the stacks
            status = worker.wait(10)
        seconds = time.monotonic() - began
        finished.append(Finished(status, path.read_text(errors="replace"), seconds))
    shutil.rmtree(folder, ignore_errors=True)
    return finished


def assert_all_succeed(finished: Sequence[Finished]) -> None:
    """Fails with everybody's output unless every process ended with status 0."""
    if any(one.status != 0 for one in finished):
        raise AssertionError(
            "\n".join(
                f"---- rank {rank}: status {one.status} ----\n{one.output}"
                for rank, one in enumerate(finished)
            )
        )
