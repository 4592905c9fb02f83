"""The driver's end of all offers: hears of those that come and go, writes the list of hosts that the launcher
reads, and connects the launcher with the agents.

Threads: one accepts offers, one accepts relays, one serves each connection. A lock guards what they share.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shlex
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from rueda.offers import sealed
from rueda.offers.hosts import Host, Hosts, Offer

_LOOK_SECONDS = 0.2
MAX_STRANGERS = 64  # connections in their handshake
GONE = "the {} that offered {} is gone"
_RELAY = '#!/bin/sh\nexec {} -I {} {} "$@"\n'


@dataclass
class _Link:
    """The connection of an offer, and the launcher's descriptors while it runs an agent."""

    connection: sealed.Connection
    offer: Offer
    out: dict[int, int] = field(default_factory=dict)  # descriptors, by kind of message
    relay: Optional[socket.socket] = None


class Switchboard:
    """Serves one job. Use it in a `with` statement.

    folder: a private one, for its files. kind: what offers are here ("actor", "task"), which also begins the
    names of hosts. on_news(object): what a rank says with `rueda.offers.news`.
    """

    def __init__(
        self,
        bind: str,
        folder: Path,
        kind: str,
        on_news: Callable[[Any], None] = lambda _: None,
        port: int = 0,
    ) -> None:
        self.key = os.urandom(32)
        self._kind = kind
        self._on_news = on_news
        self._folder = folder
        self._hosts = Hosts(kind)
        self._links: dict[int, _Link] = {}
        self._count = self._strangers = self._most = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._listed: Optional[list[tuple[str, int]]] = None
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        self._listener = socket.create_server((bind, port), family=family, backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._relays = socket.socket(socket.AF_UNIX)
        self._relays.bind(str(folder / "relays"))
        self._relays.listen(128)
        self.hosts_file = folder / "hosts"
        self.agent_program = folder / "start-agent"
        relay = Path(__file__).with_name("relay.py")
        words = [shlex.quote(str(one)) for one in (sys.executable, relay, folder / "relays")]
        self.agent_program.write_text(_RELAY.format(*words))
        self.agent_program.chmod(0o700)
        self._write_hosts()

    def __enter__(self) -> Switchboard:
        for work in (self._accept_offers, self._accept_relays, self._keep_list):
            threading.Thread(target=work, daemon=True, name=f"rueda{work.__name__}").start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections: the offers end, and with them their agents. May be called again."""
        self._over.set()
        for listener in (self._listener, self._relays):
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            links = list(self._links.values())
        for link in links:
            link.connection.close()

    def slots(self) -> int:
        """How many are offered now, whether their machines have settled or not."""
        with self._lock:
            return sum(link.offer.slots for link in self._links.values())

    def has_had_slots(self, count: int = 1) -> bool:
        """Whether so many were offered at once."""
        return self._most >= count

    # ---- the list of hosts ----

    def _keep_list(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):  # machines settle by time
            self._write_hosts()

    def _write_hosts(self) -> None:
        with self._lock:
            listed = self._hosts.listed(time.monotonic())
            if listed == self._listed:
                return
            self._listed = listed
            partial = self.hosts_file.with_suffix(".new")
            with contextlib.suppress(FileNotFoundError):  # the job is over, and its folder is gone
                partial.write_text("".join(f"{name}:{slots}\n" for name, slots in listed))
                partial.replace(self.hosts_file)

    # ---- offers ----

    def _accept_offers(self) -> None:
        while not self._over.is_set():
            try:
                raw, _ = self._listener.accept()
            except OSError:
                continue  # the stranger has gone already, or the job is over
            with self._lock:
                is_crowded = self._strangers >= MAX_STRANGERS
                self._strangers += not is_crowded
            if is_crowded:
                raw.close()
                continue
            threading.Thread(target=self._serve, args=(raw,), daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        first: Optional[sealed.Message] = None
        try:
            connection = sealed.accept(raw, self.key)
            raw.settimeout(sealed.HANDSHAKE_SECONDS)
            first = connection.receive()
            raw.settimeout(None)
        except sealed.Broken:
            raw.close()
        finally:
            with self._lock:
                self._strangers -= 1
        if first is None:
            return
        with contextlib.suppress(sealed.Broken, ValueError, KeyError, TypeError):
            if first.kind == sealed.HELLO:
                self._serve_offer(connection, json.loads(first.body))
            while first.kind == sealed.NEWS:
                self._on_news(pickle.loads(first.body))
                first = connection.receive()
        connection.close()

    def _serve_offer(self, connection: sealed.Connection, said: dict[str, Any]) -> None:
        with self._lock:
            self._count += 1
            address, key, slots = str(said["address"]), str(said["host_key"]), int(said["slots"])
            offer = Offer(self._count, address, key, slots, tuple(map(str, said["gpus"])))
            link = self._links[offer.number] = _Link(connection, offer)
            self._hosts.add(offer, time.monotonic())
            self._most = max(self._most, sum(one.offer.slots for one in self._links.values()))
        status = 1
        try:
            while not self._over.is_set():
                kind, body = connection.receive()
                if kind == sealed.ENDED:
                    status = int(json.loads(body)) & 0xFF
                    return
                if kind in link.out:
                    _write(link.out[kind], body)
        finally:
            with self._lock:
                del self._links[offer.number]
                self._hosts.remove(offer.number)
            self._write_hosts()
            _hang_up(link, status)

    # ---- the launcher ----

    def _accept_relays(self) -> None:
        while not self._over.is_set():
            try:
                relay, _ = self._relays.accept()
            except OSError:
                continue
            threading.Thread(target=self._serve_relay, args=(relay,), daemon=True).start()

    def _serve_relay(self, relay: socket.socket) -> None:
        relay.settimeout(sealed.HANDSHAKE_SECONDS)
        try:
            name, given, _, _ = socket.recv_fds(relay, 1024, 3)
        except OSError:
            relay.close()
            return
        if len(given) != 3:
            relay.close()
            return
        reader, out, err = given
        link = self._begin_agent(name.decode(), relay, {sealed.OUT: out, sealed.ERR: err})
        if link is None:
            _write(err, (GONE.format(self._kind, name.decode()) + "\n").encode())
            for fd in given:
                os.close(fd)
            relay.close()
            return
        try:
            while data := os.read(reader, sealed.PIECE_BYTES):
                link.connection.send(sealed.IN, data)
            link.connection.send(sealed.IN_ENDS)
        except (OSError, sealed.Broken):
            pass
        finally:
            os.close(reader)

    def _begin_agent(self, name: str, relay: socket.socket, out: dict[int, int]) -> Optional[_Link]:
        """Asks the leader of the host for its agent. None if it is gone."""
        with self._lock:
            host: Optional[Host] = self._hosts.find(name)
            link = self._links.get(host.leader) if host is not None else None
            if host is None or link is None or link.relay is not None:
                return None
            link.relay, link.out = relay, out
        with contextlib.suppress(sealed.Broken):  # who reads from it finds that out as well
            link.connection.send(sealed.AGENT, json.dumps(host.gpus).encode())
        return link


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    with contextlib.suppress(OSError):  # the launcher has ended
        while view:
            view = view[os.write(fd, view) :]


def _hang_up(link: _Link, status: int) -> None:
    """The agent has ended, or its offer is gone: the launcher sees the end of its streams and its relay."""
    for fd in link.out.values():
        os.close(fd)
    if link.relay is not None:
        with contextlib.suppress(OSError):
            link.relay.send(bytes([status]))
        link.relay.close()
