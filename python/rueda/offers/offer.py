"""What runs in an actor or a task that offers slots: it tells the driver what there is, and runs the agent of
its machine if the driver asks for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Optional

from rueda.offers import sealed
from rueda.ports import host_key
from rueda.run import find_command

CONNECT_SECONDS = 30.0
_LOOK_SECONDS = 1.0
_END_SECONDS = 15.0  # for an agent whose input has ended: it gives its ranks the grace of the job
_DRAIN_SECONDS = 3.0
UNREACHABLE = "{} cannot reach the driver of this elastic job at {}:{}: {}"


def describe(
    slots: int, gpus: tuple[str, ...] = (), address: Optional[str] = None, part: str = ""
) -> dict[str, Any]:
    """What an offer says of itself. address: of this machine, if the cluster manager knows it. part: of the
    machine that is lost as a whole, such as an executor: each has an agent of its own.
    """
    return {"slots": slots, "gpus": list(gpus), "address": address, "host_key": f"{host_key()}|{part}"}


def rank_variables(driver: str, own: str, gpus: tuple[str, ...]) -> dict[str, str]:
    """What an agent, and so its ranks, find besides the variables of this process."""
    variables = {
        "RUEDA_OFFER_PYTHON": sys.executable,
        "RUEDA_OFFER_PACKAGES": os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
        "RUEDA_OFFER_FOLDER": os.getcwd(),
        # As sshd says it: the agent tells the launcher where it was reached, and from where.
        "SSH_CONNECTION": f"{driver} 0 {own} 0",
    }
    return {**variables, "CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else variables


class _Agent:
    """The agent of this machine, whose output goes to the driver."""

    def __init__(self, connection: sealed.Connection, variables: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [find_command(), "agent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **variables},
            start_new_session=True,
            bufsize=0,
        )
        self._connection = connection
        self._pumps = []
        for kind, pipe in ((sealed.OUT, self._process.stdout), (sealed.ERR, self._process.stderr)):
            self._pumps.append(threading.Thread(target=self._pump, args=(kind, pipe), daemon=True))
        for pump in self._pumps:
            pump.start()
        threading.Thread(target=self._tell_end, daemon=True).start()

    def write(self, data: bytes) -> None:
        """Hands bytes of the launcher on."""
        assert self._process.stdin is not None
        view = memoryview(data)
        with contextlib.suppress(OSError, ValueError):  # it has ended; the driver hears of that
            while view:
                view = view[self._process.stdin.write(view) :]

    def end_input(self) -> None:
        """The agent then ends, and its ranks."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def end(self) -> None:
        """Returns when it is gone."""
        self.end_input()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _pump(self, kind: int, pipe: BinaryIO) -> None:
        with contextlib.suppress(OSError, sealed.Broken):
            while data := os.read(pipe.fileno(), sealed.PIECE_BYTES):
                self._connection.send(kind, data)

    def _tell_end(self) -> None:
        status = self._process.wait()
        for pump in self._pumps:
            pump.join(_DRAIN_SECONDS)
        with contextlib.suppress(sealed.Broken):
            self._connection.send(sealed.ENDED, json.dumps(status).encode())


def serve(
    driver: tuple[str, int],
    key: bytes,
    said: dict[str, Any],
    is_abandoned: Callable[[], bool] = lambda: False,
) -> None:
    """Offers what `said` says (see `describe`) until the driver closes the connection.

    is_abandoned: whether nobody wants this process any more, asked once a second. Raises RuntimeError with
    one sentence if the driver cannot be reached.
    """
    try:
        connection = sealed.connect(driver, key, CONNECT_SECONDS)
    except sealed.Broken as error:
        where = os.uname().nodename
        raise RuntimeError(UNREACHABLE.format(where, driver[0], driver[1], error)) from None
    own, there = (end[0] for end in (connection.raw.getsockname(), connection.raw.getpeername()))
    agent: Optional[_Agent] = None
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_LOOK_SECONDS):
            if is_abandoned():
                connection.close()
                return

    threading.Thread(target=watch, daemon=True).start()
    try:
        hello = {**said, "address": said["address"] or own}
        connection.send(sealed.HELLO, json.dumps(hello).encode())
        while True:
            kind, body = connection.receive()
            if kind == sealed.AGENT and agent is None:
                agent = _Agent(connection, rank_variables(there, own, tuple(json.loads(body))))
            elif kind == sealed.IN and agent is not None:
                agent.write(body)
            elif kind == sealed.IN_ENDS and agent is not None:
                agent.end_input()
    except sealed.Broken:
        pass
    finally:
        over.set()
        connection.close()
        if agent is not None:
            agent.end()
