"""Strangers: finds every socket some processes listen on and throws at it what an attacker might."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import socket
import struct
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Dict, Iterable, List, Set, Tuple, Union

Address = Union[Tuple[str, int], str]  # TCP, or the name of an abstract UNIX socket

SO_ATTACH_FILTER, SO_RCVBUFFORCE = 26, 33  # of Linux; Python has no names for them

HELLO_BEGIN = struct.pack("<IBH", 0x31445552, 1, 120)  # magic, kind, size of the body: docs/wire.md


def socket_inodes(pid: int) -> Set[str]:
    """The sockets a process holds, as /proc/net names them; none when it has ended."""
    inodes = set()
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{fd}")
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
    return inodes


def listening_sockets(pids: Iterable[int]) -> Set[Address]:
    """Where these processes accept connections."""
    inodes = {inode for pid in pids for inode in socket_inodes(pid)}
    found: Set[Address] = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in inodes:
            ip, port = fields[1].split(":")
            found.add((socket.inet_ntoa(struct.pack("=I", int(ip, 16))), int(port, 16)))
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[3], 16) & 0x10000 and fields[6] in inodes and fields[7:] and fields[7][0] == "@":
            found.add("\0" + fields[7][1:])
    return found


def connect(address: Address) -> socket.socket:
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.settimeout(0.5)
    try:
        made.connect(address.encode() if isinstance(address, str) else address)
    except OSError:
        made.close()
        raise
    return made


class Recorder:
    """Records what clients said first on each loopback connection. Needs the right to open packet sockets."""

    KEPT = 6  # segments of a connection: its handshake and a little more

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        self._pass_small_packets_only()
        self._socket.bind(("lo", 0x0800))
        self._socket.settimeout(0.1)
        self._flows: Dict[Tuple[int, int], List[bytes]] = defaultdict(list)
        self._is_over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _pass_small_packets_only(self) -> None:
        """The loopback of a busy machine carries gigabytes that would push handshakes out of the buffer."""
        load_length, jump_if_greater, result = 0x80, 0x25, 0x06
        steps = [
            (load_length, 0, 0, 0),
            (jump_if_greater, 0, 1, 2000),
            (result, 0, 0, 0),
            (result, 0, 0, 65536),
        ]
        program = b"".join(struct.pack("=HBBI", *step) for step in steps)
        kept = ctypes.create_string_buffer(program)
        self._socket.setsockopt(
            socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("@HP", len(steps), ctypes.addressof(kept))
        )

    def _run(self) -> None:
        while not self._is_over:
            try:
                packet, (_, _, kind, _, _) = self._socket.recvfrom(65536)
            except TimeoutError:
                continue
            if kind == socket.PACKET_OUTGOING or packet[9] != socket.IPPROTO_TCP:
                continue  # on loopback every packet comes twice
            tcp = packet[(packet[0] & 15) * 4 :]
            source, target = struct.unpack_from("!HH", tcp)
            payload = tcp[(tcp[12] >> 4) * 4 :]
            if payload and len(self._flows[source, target]) < self.KEPT:
                self._flows[source, target].append(payload)

    def stop(self) -> None:
        self._is_over = True
        self._thread.join()
        self._socket.close()

    def spoken_to(self, ports: Set[int]) -> List[List[bytes]]:
        """What clients of these ports said, segment by segment."""
        return [said for (_, target), said in self._flows.items() if target in ports]


class Attack:
    """Throws connections at what `find` returns until stopped. kinds counts what was thrown."""

    HELD = 400  # connections kept open at a time

    def __init__(self, pids: Iterable[int], recorded: List[List[bytes]], seed: int) -> None:
        self._pids = list(pids)
        self._recorded = recorded
        self._random = random.Random(seed)
        self._held: List[Tuple[socket.socket, bytes]] = []
        self._is_over = False
        self.kinds: Counter[str] = Counter()
        self.targets: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._is_over = True
        self._thread.join()
        for kept, _ in self._held:
            kept.close()

    def _run(self) -> None:
        next_look, addresses = 0.0, []
        while not self._is_over:
            if time.monotonic() >= next_look:
                addresses = sorted(listening_sockets(self._pids), key=str)
                next_look = time.monotonic() + 0.3
            if not addresses:
                time.sleep(0.01)
                continue
            for _ in range(20):
                with contextlib.suppress(OSError):
                    self._throw(self._random.choice(addresses))
            self._feed_slowly()

    def _throw(self, address: Address) -> None:
        kinds = [self._noise, self._half_open, self._slow, self._huge, self._hello_alone]
        kind = self._random.choice([*kinds, self._replay, self._replay] if self._recorded else kinds)
        made = connect(address)
        self.kinds[kind.__name__[1:]] += 1
        self.targets["unix" if isinstance(address, str) else "tcp"] += 1
        kind(made)

    def _keep(self, made: socket.socket, drip: bytes) -> None:
        made.setblocking(False)
        self._held.append((made, drip))
        while len(self._held) > self.HELD:
            self._held.pop(0)[0].close()

    def _noise(self, made: socket.socket) -> None:
        with made:
            made.sendall(self._random.randbytes(self._random.randint(1, 4096)))

    def _half_open(self, made: socket.socket) -> None:
        self._keep(made, b"")

    def _slow(self, made: socket.socket) -> None:
        self._keep(made, HELLO_BEGIN + self._random.randbytes(200))

    def _huge(self, made: socket.socket) -> None:
        head = self._random.choice([HELLO_BEGIN[:5] + b"\xff\xff", b"\xff" * 16, b"\x00" * 16])
        made.sendall(head + self._random.randbytes(8192))
        self._keep(made, b"")

    def _hello_alone(self, made: socket.socket) -> None:
        said = self._random.choice(self._recorded)[0] if self._recorded else HELLO_BEGIN
        made.sendall(said)
        self._keep(made, b"")

    def _replay(self, made: socket.socket) -> None:
        with made:
            for part in self._random.choice(self._recorded):
                made.sendall(part)

    def _feed_slowly(self) -> None:
        for at, (kept, drip) in enumerate(self._held):
            if drip and self._random.random() < 0.1:
                with contextlib.suppress(OSError):
                    kept.send(drip[:1])
                self._held[at] = (kept, drip[1:])
