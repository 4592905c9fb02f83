"""Where the dispatchers and workers of a tf.data service meet: a small server that one process runs.

A connection carries one question. The server sends a nonce, the client a line of JSON, and the server answers
with one. Both lines are authenticated by HMAC-SHA256 over the nonce, so nobody without the key of the
configuration is served or believed. Nothing is encrypted.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import math
import os
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, Callable, Optional

MAX_LINE_BYTES = 1 << 16
_NONCE_BYTES = 16
_SECONDS = 10.0  # for one question
_LOOK_SECONDS = 0.2  # between two questions of one who waits
NEWS_SECONDS = 10.0  # until one who waits says for what


class Unreachable(RuntimeError):
    """There is no registry at the other end, or it refuses to answer."""


def _sign(key: bytes, role: bytes, nonce: bytes, body: str) -> str:
    return hmac.new(key, role + nonce + body.encode(), hashlib.sha256).hexdigest()


def _seal(key: bytes, role: bytes, nonce: bytes, content: Any) -> bytes:
    body = json.dumps(content)
    return json.dumps({"body": body, "proof": _sign(key, role, nonce, body)}).encode() + b"\n"


def _open(key: bytes, role: bytes, nonce: bytes, line: bytes) -> Any:
    """What a line says. Raises ValueError if its sender does not know the key."""
    message = json.loads(line)
    body, proof = str(message["body"]), str(message["proof"])
    if not hmac.compare_digest(proof.encode(), _sign(key, role, nonce, body).encode()):
        raise ValueError("the other end does not know the key")
    return json.loads(body)


class Board:
    """What has been registered. Values in, values out; any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._dispatchers: dict[str, str] = {}
        self._workers: dict[str, list[str]] = {}
        self._is_over = False

    def answer(self, question: Any) -> Any:
        """The answer to a question of `Client`."""
        kind, name = str(question["kind"]), str(question.get("dispatcher", ""))
        with self._lock:
            if kind == "add dispatcher":
                if self._dispatchers.setdefault(name, str(question["address"])) != question["address"]:
                    return {"refused": f"dispatcher {name} is registered with another address already"}
            elif kind == "add worker":
                workers = self._workers.setdefault(name, [])
                if question["worker"] not in workers:
                    workers.append(question["worker"])
            elif kind == "end":
                self._is_over = True
            return {
                "address": self._dispatchers.get(name),
                "workers": len(self._workers.get(name, ())),
                "is over": self._is_over,
            }


class _Handler(socketserver.StreamRequestHandler):
    timeout = _SECONDS

    def handle(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        nonce = os.urandom(_NONCE_BYTES)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # strangers are not answered
            self.wfile.write(nonce)
            question = _open(server.key, b"client", nonce, self.rfile.readline(MAX_LINE_BYTES))
            self.wfile.write(_seal(server.key, b"server", nonce, server.board.answer(question)))


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, key: bytes) -> None:
        super().__init__(("", 0), _Handler)
        self.key, self.board = key, Board()


class Registry:
    """The server, in a thread. Use it in a `with` statement."""

    def __init__(self, key: bytes) -> None:
        self._server = _Server(key)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    def __enter__(self) -> Registry:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Client:
    """Asks a registry. addresses: candidates (host, port), of which the first that answers is used.

    Waiting methods raise RuntimeError in one sentence after timeout_s. verbose: from 2 on, they say on stderr
    what they wait for.
    """

    def __init__(
        self, addresses: Sequence[tuple[str, int]], key: bytes, timeout_s: float, verbose: int = 1
    ) -> None:
        self._addresses = list(addresses)
        self._key = key
        self._timeout_s = timeout_s
        self._verbose = verbose

    def own_address(self) -> str:
        """The address of this machine on the way to the registry."""
        with self._connect() as connection:
            return str(connection.getsockname()[0])

    def _connect(self) -> socket.socket:
        reasons = []
        for host, port in list(self._addresses):
            try:
                connection = socket.create_connection((host, port), timeout=_SECONDS)
            except OSError as error:
                reasons.append(f"{host}:{port}: {error}")
                continue
            self._addresses = [(host, port), *(one for one in self._addresses if one != (host, port))]
            return connection
        raise Unreachable(f"The registry of the data service does not answer ({'; '.join(reasons)}).")

    def ask(self, kind: str, **fields: Any) -> Any:
        """The answer to one question. Raises Unreachable if there is none."""
        with self._connect() as connection, connection.makefile("rb") as file:
            try:
                nonce = file.read(_NONCE_BYTES)
                connection.sendall(_seal(self._key, b"client", nonce, {"kind": kind, **fields}))
                line = file.readline(MAX_LINE_BYTES)
            except OSError as error:
                raise Unreachable(f"The registry of the data service is gone: {error}.") from None
            if not line:
                raise Unreachable("The registry of the data service refused the key of this configuration.")
            answer = _open(self._key, b"server", nonce, line)
        if "refused" in answer:
            raise ValueError(f"The data service: {answer['refused']}.")
        return answer

    def register_dispatcher(self, dispatcher_id: int, address: str) -> None:
        """Says where a dispatcher listens, as "host:port"."""
        self.ask("add dispatcher", dispatcher=dispatcher_id, address=address)

    def register_worker_for_dispatcher(self, dispatcher_id: int, worker_id: int) -> None:
        """Says that a worker of this dispatcher runs."""
        self.ask("add worker", dispatcher=dispatcher_id, worker=worker_id)

    def wait_for_dispatcher_registration(self, dispatcher_id: int, timeout: Optional[float] = None) -> str:
        """The address of a dispatcher, "host:port"."""
        what = f"dispatcher {dispatcher_id}"
        return str(self._wait(dispatcher_id, lambda answer: answer["address"], timeout, what))

    def wait_for_dispatcher_worker_registration(
        self, dispatcher_id: int, timeout: Optional[float] = None, *, workers: int = 1
    ) -> None:
        """Until so many workers of a dispatcher run."""
        what = f"{workers} workers of dispatcher {dispatcher_id}"
        self._wait(dispatcher_id, lambda answer: answer["workers"] >= workers, timeout, what)

    def _wait(
        self, dispatcher_id: int, found: Callable[[Any], Any], timeout: Optional[float], what: str
    ) -> Any:
        seconds = self._timeout_s if timeout is None else timeout
        began = time.monotonic()
        news = began if self._verbose >= 2 else math.inf
        while not (value := found(self.ask("look", dispatcher=dispatcher_id))):
            if time.monotonic() > news:
                print(f"rueda: waiting for {what} of the data service", file=sys.stderr, flush=True)
                news += NEWS_SECONDS
            if time.monotonic() > began + seconds:
                raise RuntimeError(
                    f"The data service has no {what} after {seconds:g} s: look at the output of its "
                    "processes, or raise the timeout."
                )
            time.sleep(_LOOK_SECONDS)
        return value

    def wait_for_shutdown(self) -> None:
        """Until `shutdown` is called by anybody, or the registry is gone."""
        with contextlib.suppress(Unreachable):
            while not self.ask("look")["is over"]:
                time.sleep(_LOOK_SECONDS)

    def shutdown(self) -> None:
        """Ends the data service."""
        self.ask("end")
