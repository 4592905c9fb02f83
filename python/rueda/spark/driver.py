"""The driver's end of a job: hears every task, gives out ranks, shows their lines, and finds the first cause.

One thread uses it. `Supervisor` performs the effects; `Progress` decides, from events and the time.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

from rueda.failures import Failure, Progress, describe_status
from rueda.placement import Hello, Place, environment, place
from rueda.spark import channel

HANDSHAKE_SECONDS = 10.0
MAX_STRANGERS = 64
_TAIL_LINES = 20
_LINE_BYTES = 8 << 20  # what is longer is shown in parts


class Peer:
    """A connection of the listener: a stranger until it has proved that it is a task of this job."""

    def __init__(self, connection: socket.socket, now: float) -> None:
        self.connection = connection
        self.since = now
        self.nonce = channel.make_nonce()
        self.greeting: Optional[bytearray] = bytearray()  # None when it has proved itself
        self.decoder = channel.Decoder()
        self.hello: Optional[Hello] = None
        self.place: Optional[Place] = None
        self.pid = 0  # of the rank
        self.lines = {channel.OUT: bytearray(), channel.ERR: bytearray()}  # incomplete ones
        self.tail: list[str] = []
        self.has_ended = False


@dataclass(frozen=True)
class Terms:
    """What the driver must know about a job to give out places."""

    name: str
    key: bytes
    size: int
    with_tf_config: bool = False


class Supervisor:
    """Serves the tasks of one job. show(kind, rank, host, line) prints a line of a rank."""

    def __init__(
        self, listener: socket.socket, terms: Terms, show: Callable[[int, Place, str], None]
    ) -> None:
        self.progress = Progress(terms.size)
        self.places: dict[int, Place] = {}
        self._terms = terms
        self._show = show
        self._peers: set[Peer] = set()
        self._stop_is_sent = False
        self._listener = listener
        listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, None)

    def watch(self, source: socket.socket) -> None:
        """Also returns from `step` when this socket can be read."""
        self._selector.register(source, selectors.EVENT_READ, source)

    def arrived(self) -> int:
        """How many tasks have said hello."""
        return sum(peer.hello is not None for peer in self._peers)

    def hosts(self) -> int:
        """On how many hosts they are."""
        return len({peer.hello.host_key for peer in self._peers if peer.hello})

    def step(self, timeout_s: float) -> None:
        """Waits for events, and handles them."""
        for key, _ in self._selector.select(timeout_s):
            if key.data is None:
                self._accept()
            elif isinstance(key.data, Peer):
                self._read(key.data)
        now = time.monotonic()
        for peer in [one for one in self._peers if one.greeting is not None]:
            if now > peer.since + HANDSHAKE_SECONDS:
                self._drop(peer)
        if self.progress.must_stop(now):
            self.stop()

    def stop(self) -> None:
        """Asks all ranks that still run to end: SIGTERM, and SIGKILL 5 s later."""
        if self._stop_is_sent:
            return
        self._stop_is_sent = True
        for peer in list(self._peers):
            if peer.place is not None and not peer.has_ended:
                self._send(peer, channel.STOP, {})

    def close(self) -> None:
        """Closes all connections, which ends every rank that still runs."""
        for peer in list(self._peers):
            self._flush(peer)
            self._drop(peer)
        self._selector.close()
        self._listener.close()

    # ---- connections ----

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # the stranger has gone already
            return
        if sum(peer.greeting is not None for peer in self._peers) >= MAX_STRANGERS + self._terms.size:
            connection.close()
            return
        channel.keep_alive(connection)
        peer = Peer(connection, time.monotonic())
        self._peers.add(peer)
        self._selector.register(connection, selectors.EVENT_READ, peer)
        self._send_raw(peer, peer.nonce)

    def _send(self, peer: Peer, kind: int, body: Any) -> None:
        self._send_raw(peer, channel.encode(kind, body))

    def _send_raw(self, peer: Peer, data: bytes) -> None:
        try:
            peer.connection.sendall(data)  # a few kilobytes, which fit the socket's buffer
        except OSError:
            self._lose(peer)

    def _drop(self, peer: Peer) -> None:
        if peer in self._peers:
            self._peers.remove(peer)
            self._selector.unregister(peer.connection)
            peer.connection.close()

    def _lose(self, peer: Peer) -> None:
        """The connection has ended; is that a failure?"""
        if peer not in self._peers:
            return
        self._flush(peer)
        self._drop(peer)
        if peer.place is not None and not peer.has_ended and not self._stop_is_sent:
            self._fail(
                peer, "was lost: its Spark task has ended, so the executor or its Python worker was killed"
            )

    def _read(self, peer: Peer) -> None:
        try:
            data = peer.connection.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._lose(peer)
            return
        if peer.greeting is not None:
            data = self._greet(peer, data)
        try:
            # Decoded apart from what is done with it: errors of the stream that `show` prints to are not
            # the task's.
            messages = [self._decode(kind, body) for kind, body in peer.decoder.feed(data)]
        except (channel.Broken, ValueError, TypeError, KeyError):
            self._lose(peer)  # no task of this version says such things
            return
        for kind, content in messages:
            self._take(peer, kind, content)

    @staticmethod
    def _decode(kind: int, body: bytes) -> tuple[int, Any]:
        """The message with what its kind needs of the body."""
        if kind == channel.HELLO:
            fields = json.loads(body)
            return kind, Hello(**{**fields, "ports": tuple(fields["ports"]), "gpus": tuple(fields["gpus"])})
        if kind == channel.STARTED:
            return kind, int(json.loads(body)["pid"])
        if kind == channel.ENDED:
            fields = json.loads(body)
            return kind, (fields["status"], fields["has_outcome"])
        return kind, body

    def _greet(self, peer: Peer, data: bytes) -> bytes:
        """Takes the answer to the nonce. Returns what has come after it."""
        assert peer.greeting is not None
        peer.greeting += data
        answer = bytes(peer.greeting[: channel.TASK_PROOF_BYTES])
        rest = bytes(peer.greeting[channel.TASK_PROOF_BYTES :])
        if len(answer) < channel.TASK_PROOF_BYTES:
            return b""
        own = channel.check_task(self._terms.key, peer.nonce, answer)
        if own is None:
            self._drop(peer)
            return b""
        peer.greeting = None
        self._send_raw(peer, own)
        return rest

    # ---- messages ----

    def _take(self, peer: Peer, kind: int, body: Any) -> None:
        if kind in peer.lines:
            self._print(peer, kind, body)
        elif kind == channel.HELLO:
            self._welcome(peer, body)
        elif kind == channel.STARTED:
            peer.pid = body
        elif kind == channel.RAISED:
            headline, _, text = body.decode(errors="replace").partition("\n")
            self._fail(peer, "failed: " + headline.rstrip("."), text)
        elif kind == channel.ENDED:
            peer.has_ended = True
            self._flush(peer)
            status, has_outcome = body
            if status == 0 and has_outcome:
                self.progress.ended.add(self._rank(peer))
            elif not self._stop_is_sent:
                early = "" if has_outcome or status != 0 else " before the function had returned"
                self._fail(peer, describe_status(status) + early)

    def _welcome(self, peer: Peer, hello: Hello) -> None:
        taken = {one.hello.partition for one in self._peers if one.hello}
        if self.places or hello.partition in taken or not 0 <= hello.partition < self._terms.size:
            self._send(peer, channel.REFUSED, "the job has started already; Spark has repeated its stage")
            return
        peer.hello = hello
        if self.arrived() == self._terms.size:
            self._give_places()

    def _give_places(self) -> None:
        peers = [peer for peer in self._peers if peer.hello is not None]
        hellos = [peer.hello for peer in peers if peer.hello is not None]
        self.places = place(hellos)
        for peer, hello in zip(peers, hellos):
            peer.place = self.places[hello.partition]
        for peer, hello in zip(peers, hellos):
            variables = environment(hellos, self.places, hello, self._terms.name, self._terms.with_tf_config)
            variables["RUEDA_SPARK_GPUS"] = ",".join(hello.gpus)  # see devices.py
            rank = self.places[hello.partition].rank
            self._send(peer, channel.PLACE, {"rank": rank, "environment": variables})

    def _rank(self, peer: Peer) -> int:
        return peer.place.rank if peer.place is not None else -1

    def _fail(self, peer: Peer, what: str, traceback: str = "") -> None:
        host = peer.place.host if peer.place is not None else "an unknown host"
        failure = Failure(self._rank(peer), host, peer.pid, what, traceback, tuple(peer.tail))
        self.progress.fail(failure, time.monotonic())

    # ---- output ----

    def _print(self, peer: Peer, kind: int, body: bytes) -> None:
        peer.lines[kind] += body
        if b"\n" not in body and len(peer.lines[kind]) <= _LINE_BYTES:
            return
        *lines, rest = bytes(peer.lines[kind]).replace(b"\r\n", b"\n").split(b"\n")
        if len(rest) > _LINE_BYTES:
            lines, rest = [*lines, rest], b""
        peer.lines[kind] = bytearray(rest)
        for line in lines:
            self._line(peer, kind, line)

    def _flush(self, peer: Peer) -> None:
        for kind, line in peer.lines.items():
            if line:
                self._line(peer, kind, bytes(line))
            peer.lines[kind] = bytearray()

    def _line(self, peer: Peer, kind: int, line: bytes) -> None:
        text = line.decode(errors="replace")
        if kind == channel.ERR:
            peer.tail = [*peer.tail[1 - _TAIL_LINES :], text]
        if peer.place is not None:
            self._show(kind, peer.place, text)
