"""What runs in a Spark task: it tells the driver where it is, starts a rank, and brings its outcome."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Optional

from rueda import memory_files
from rueda.placement import Hello
from rueda.ports import ReservedPort, host_key
from rueda.run import find_command
from rueda.spark import channel
from rueda.spark._rank import FDS, Outcome
from rueda.spark.parent import Parent

UNREACHABLE = "The driver of rueda.spark.run cannot be reached:"
_POLL_SECONDS = 1.0
_DRAIN_SECONDS = 3.0
# As in rueda.run: the rank's own packages come first.
_WORKER = "import sys; sys.path.append({!r}); from rueda.spark._rank import main; sys.exit(main())"


@dataclass(frozen=True)
class Job:
    """What every task of a job is given. It travels in Spark's description of the task."""

    driver: tuple[str, int]
    key: bytes = field(repr=False)  # proves tasks and driver to each other
    secret: bytes = field(repr=False)  # hexadecimal; of the ranks
    environment: Mapping[str, str]
    executable: Optional[str]
    start_timeout_s: float


class Stopped(Exception):
    """The rank must end now; the text says why."""


class RankProcess:
    """One rank with its reaper, and what they tell."""

    def __init__(self, job: Job, environment: Mapping[str, str], call: bytes) -> None:
        self._memory = {name: memory_files.make(f"rueda-{name}") for name in ("secret", "call", "outcome")}
        for name, data in (("secret", job.secret), ("call", call)):
            with open(self._memory[name], "wb", closefd=False) as file:
                file.write(data)
            os.lseek(self._memory[name], 0, os.SEEK_SET)
        pipes = {name: os.pipe() for name in ("out", "err", "note")}
        self.readers = {name: pair[0] for name, pair in pipes.items()}
        writers = {name: pair[1] for name, pair in pipes.items()}
        given = [*self._memory.values(), *writers.values()]
        variables = {
            **os.environ,
            **job.environment,
            **environment,
            "RUEDA_SECRET_FILE": f"/proc/self/fd/{self._memory['secret']}",
            FDS: f"{self._memory['call']},{self._memory['outcome']},{writers['note']}",
        }
        package_root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        rank = [job.executable or sys.executable, "-c", _WORKER.format(package_root)]
        try:
            self.reaper = subprocess.Popen(
                [find_command(), "reap", "below", str(writers["out"]), str(writers["err"]), *rank],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=given,
                env=variables,
                start_new_session=True,
                bufsize=0,
            )
        finally:
            for fd in writers.values():
                os.close(fd)
        assert self.reaper.stdout is not None
        self.readers["reaper"] = self.reaper.stdout.fileno()

    def terminate(self) -> None:
        """Asks the rank to end."""
        assert self.reaper.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.reaper.stdin.write(b"T")

    def kill(self) -> None:
        """Ends the rank and whatever it has started; returns when they are gone."""
        assert self.reaper.stdin is not None
        self.reaper.stdin.close()
        try:
            self.reaper.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.reaper.kill()
            self.reaper.wait()

    def outcome(self) -> Optional[Outcome]:
        """None if the rank ended without one."""
        os.lseek(self._memory["outcome"], 0, os.SEEK_SET)
        try:
            with open(self._memory["outcome"], "rb", closefd=False) as file:
                return Outcome(*pickle.load(file))
        except (EOFError, pickle.UnpicklingError):
            return None

    def close(self) -> None:
        for fd in self._memory.values():
            os.close(fd)
        for name in ("out", "err", "note"):
            os.close(self.readers[name])
        assert self.reaper.stdout is not None
        self.reaper.stdout.close()


class Relay:
    """Moves what the rank says to the driver, and the driver's wishes to the rank, until it has ended."""

    def __init__(
        self, rank: RankProcess, connection: socket.socket, parent: Parent, grace_s: float = 5.0
    ) -> None:
        self._rank = rank
        self._connection = connection
        self._parent = parent
        self._grace_s = grace_s
        self._is_asked_to_end = False
        self._kill_at = self._drain_until = math.inf
        self._decoder = channel.Decoder()
        self._reaper_text = self._note = b""
        self._selector = selectors.DefaultSelector()
        for name, fd in rank.readers.items():
            self._selector.register(fd, selectors.EVENT_READ, name)
        self._selector.register(connection, selectors.EVENT_READ, "driver")
        if parent.fd is not None:
            self._selector.register(parent.fd, selectors.EVENT_READ, "parent")

    def _send(self, kind: int, body: Any) -> None:
        try:
            self._connection.sendall(channel.encode(kind, body))
        except OSError as error:
            raise Stopped(f"the connection to the driver is lost: {error}") from None

    def run(self) -> Optional[int]:
        """The wait status of the rank; None if its reaper was killed. Raises Stopped if others are gone."""
        try:
            while set(self._names()) - {"driver", "parent"} and time.monotonic() < self._drain_until:
                timeout = max(0.0, min(_POLL_SECONDS, self._kill_at - time.monotonic()))
                ready = self._selector.select(timeout)
                if self._parent.is_gone():
                    raise Stopped("the process that started this Python worker is gone")
                for key, _ in ready:
                    if key.data != "parent":  # it ended just now; the next round stops
                        self._take(key.data, key.fd)
                if time.monotonic() >= self._kill_at:
                    self._rank.kill()
                    self._kill_at = math.inf
        finally:
            self._selector.close()
        return self._status()

    def _names(self) -> list[str]:
        return [key.data for key in self._selector.get_map().values()]

    def _take(self, name: str, fd: int) -> None:
        if name == "driver":
            try:
                self._obey(self._connection.recv(65536))
            except (OSError, channel.Broken) as error:
                raise Stopped(f"the connection to the driver is lost: {error}") from None
            return
        data = os.read(fd, 65536)
        if not data:
            self._selector.unregister(fd)
            if name == "note" and self._note:
                self._send(channel.RAISED, self._note)
            if name == "reaper":  # what the rank has said before is in the pipes
                self._drain_until = time.monotonic() + _DRAIN_SECONDS
        elif name == "note":
            self._note += data
        elif name == "reaper":
            self._reaper_text += data
            if data.startswith(b"started"):
                self._send(channel.STARTED, {"pid": int(data.split()[1])})
        else:
            self._send(channel.OUT if name == "out" else channel.ERR, data)

    def _obey(self, data: bytes) -> None:
        if not data:
            raise Stopped("the driver has closed the connection")
        for kind, _ in self._decoder.feed(data):
            if kind == channel.STOP and not self._is_asked_to_end:
                self._is_asked_to_end = True
                self._rank.terminate()
                self._kill_at = time.monotonic() + self._grace_s

    def _status(self) -> Optional[int]:
        for line in self._reaper_text.splitlines():
            if line.startswith(b"ended"):
                return int(line.split()[1])
        return None


def _reply(connection: socket.socket, timeout_s: float, parent: Parent) -> tuple[int, Any]:
    """The first message of the driver, which comes when all tasks have said hello."""
    decoder = channel.Decoder()
    deadline = time.monotonic() + timeout_s
    connection.settimeout(_POLL_SECONDS)
    while time.monotonic() < deadline and not parent.is_gone():
        try:
            data = connection.recv(65536)
        except socket.timeout:
            continue
        except OSError as error:
            raise Stopped(f"the connection to the driver is lost: {error}") from None
        if not data:
            raise Stopped("the driver has closed the connection before this rank could start")
        for kind, body in decoder.feed(data):
            connection.settimeout(None)
            return kind, json.loads(body)
    raise Stopped("the driver gave this task no rank in time")


def gpus(context: Any) -> tuple[str, ...]:
    """Those that Spark gave to the task."""
    resource = (context.resources() or {}).get("gpu")
    return tuple(resource.addresses) if resource else ()


def _host(context: Any, connection: socket.socket) -> str:
    """This executor as other tasks reach it: a barrier stage knows what Spark calls it."""
    if hasattr(context, "getTaskInfos"):
        address = context.getTaskInfos()[context.partitionId()].address
        return str(address).rpartition(":")[0].strip("[]")
    return str(connection.getsockname()[0])


def run_task(context: Any, job: Job, fetch_call: Callable[[], bytes]) -> tuple[int, Optional[int], Any]:
    """Runs one rank. Returns its number, its wait status (None if its reaper was killed), and its outcome.

    context: pyspark's BarrierTaskContext or TaskContext. fetch_call: the pickled function. Raises
    RuntimeError if the job is over or the driver cannot be reached.
    """
    parent = Parent()
    partition = context.partitionId()
    try:
        connection = channel.connect(job.driver, job.key, timeout_s=30.0)
    except channel.Broken as error:
        parent.close()
        where = f"{job.driver[0]}:{job.driver[1]}"
        raise RuntimeError(
            f"{UNREACHABLE} a task on {socket.gethostname()} cannot use {where}: {error}"
        ) from None
    host = _host(context, connection)
    ports = [ReservedPort(host) for _ in range(3)]
    try:
        numbers = (ports[0].number, ports[1].number, ports[2].number)
        hello = Hello(partition, host, host_key(), os.getpid(), numbers, gpus(context))
        connection.sendall(channel.encode(channel.HELLO, asdict(hello)))
        kind, body = _reply(connection, job.start_timeout_s, parent)
        if kind != channel.PLACE:
            raise Stopped(f"the driver refused this task: {body}")
        rank = RankProcess(job, body["environment"], fetch_call())
        try:
            status = Relay(rank, connection, parent).run()
            outcome = rank.outcome()
            connection.sendall(
                channel.encode(channel.ENDED, {"status": status, "has_outcome": outcome is not None})
            )
            return body["rank"], status, outcome
        finally:
            rank.kill()
            rank.close()
    except (Stopped, OSError, channel.Broken) as error:
        raise RuntimeError(f"This rank of rueda.spark.run was stopped: {error}.") from None
    finally:
        connection.close()
        parent.close()
        for port in ports:
            port.close()
