"""A connection between an offer and the driver: a mutual handshake, then messages that nobody else can read
or change. The agent of a host gets the secret of the job on it.

Both ends know the key of the job, which has travelled through the cluster manager. Each proves it by
HMAC-SHA256 over two fresh nonces; these make the keys of the connection, one for each direction and use.
A message has a kind (one byte), a length (4 bytes, big-endian), a tag and a body. The body is combined with
SHAKE-256 of key and number of the message, a stream that recurs in no other message; the tag is the HMAC of
number, header and encrypted body. So a message that is repeated, left out, reflected or changed is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import socket
import struct
import threading
from typing import NamedTuple

# Kinds of messages. Of an offer: what it is, output of its agent, its end; of a rank: a pickled object.
HELLO, OUT, ERR, ENDED, NEWS = range(1, 6)
# Of the driver: start the agent, what it reads, no more of that.
AGENT, IN, IN_ENDS = range(6, 9)

MAX_BODY_BYTES = 1 << 20
PIECE_BYTES = 1 << 16  # of a stream that is sent on
HANDSHAKE_SECONDS = 10.0
_HEADER = struct.Struct("!BI")
_MAGIC = b"rueda-offer-1\n"
_NONCE_BYTES = 16
_PROOF_BYTES = hashlib.sha256().digest_size
_TAG_BYTES = 16


class Broken(RuntimeError):
    """The other end is gone, or is not who it should be."""


class Message(NamedTuple):
    """One message."""

    kind: int
    body: bytes


def _mac(key: bytes, *parts: bytes) -> bytes:
    return hmac.new(key, b"".join(parts), hashlib.sha256).digest()


def _combine(key: bytes, number: bytes, body: bytes) -> bytes:
    stream = hashlib.shake_256(key + number).digest(len(body))
    mixed = int.from_bytes(body, "big") ^ int.from_bytes(stream, "big")
    return mixed.to_bytes(len(body), "big")


class Seal:
    """One direction of a connection: encodes or decodes its messages in their order."""

    def __init__(self, session: bytes, direction: bytes) -> None:
        self._cipher = _mac(session, direction, b"cipher")
        self._tag = _mac(session, direction, b"tag")
        self._count = 0

    def _next(self) -> bytes:
        self._count += 1
        return self._count.to_bytes(8, "big")

    def encode(self, kind: int, body: bytes) -> bytes:
        """The bytes of a message."""
        if len(body) > MAX_BODY_BYTES:
            raise ValueError(f"A message of {len(body)} bytes is longer than {MAX_BODY_BYTES}.")
        number, header = self._next(), _HEADER.pack(kind, len(body))
        mixed = _combine(self._cipher, number, body)
        return header + _mac(self._tag, number, header, mixed)[:_TAG_BYTES] + mixed

    def decode(self, header: bytes, tag: bytes, mixed: bytes) -> Message:
        """The message. Raises Broken if it is not the next one of the other end."""
        number = self._next()
        if not hmac.compare_digest(tag, _mac(self._tag, number, header, mixed)[:_TAG_BYTES]):
            raise Broken("a message was changed on its way, repeated or left out")
        return Message(_HEADER.unpack(header)[0], _combine(self._cipher, number, mixed))


class Connection:
    """One end, after the handshake. One thread reads; any thread sends."""

    def __init__(self, raw: socket.socket, reading: Seal, writing: Seal) -> None:
        self.raw = raw
        self._reading = reading
        self._writing = writing
        self._lock = threading.Lock()
        raw.settimeout(None)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The kernel closes the connection a minute after the other machine has vanished.
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
            raw.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)

    def send(self, kind: int, body: bytes = b"") -> None:
        """Sends a message. Raises Broken if the other end is gone."""
        with self._lock:
            try:
                self.raw.sendall(self._writing.encode(kind, body))
            except OSError as error:
                raise Broken(str(error)) from None

    def receive(self) -> Message:
        """The next message. Raises Broken if there is none."""
        header = _receive(self.raw, _HEADER.size)
        length = _HEADER.unpack(header)[1]
        if length > MAX_BODY_BYTES:
            raise Broken(f"a message of {length} bytes is announced, but {MAX_BODY_BYTES} are allowed")
        tag = _receive(self.raw, _TAG_BYTES)
        return self._reading.decode(header, tag, _receive(self.raw, length))

    def close(self) -> None:
        """Wakes whoever reads, too."""
        with contextlib.suppress(OSError):  # the other end was faster
            self.raw.shutdown(socket.SHUT_RDWR)
        self.raw.close()


def _receive(raw: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        try:
            more = raw.recv(count - len(data))
        except OSError as error:
            raise Broken(str(error)) from None
        if not more:
            raise Broken("the other end has closed the connection")
        data += more
    return bytes(data)


def _end(raw: socket.socket, session: bytes, reading: bytes, writing: bytes) -> Connection:
    return Connection(raw, Seal(session, reading), Seal(session, writing))


def accept(raw: socket.socket, key: bytes) -> Connection:
    """The driver's end of a connection that has just come. Raises Broken if a stranger is at the other."""
    raw.settimeout(HANDSHAKE_SECONDS)
    own = os.urandom(_NONCE_BYTES)
    try:
        raw.sendall(own)
        answer = _receive(raw, len(_MAGIC) + _NONCE_BYTES + _PROOF_BYTES)
        theirs, shown = answer[len(_MAGIC) : -_PROOF_BYTES], answer[-_PROOF_BYTES:]
        knows_key = hmac.compare_digest(shown, _mac(key, b"offer", own, theirs))
        if not (answer.startswith(_MAGIC) and knows_key):
            raise Broken("a stranger has connected")
        raw.sendall(_mac(key, b"driver", own, theirs))
    except OSError as error:
        raise Broken(str(error)) from None
    return _end(raw, _mac(key, b"session", own, theirs), b"to driver", b"to offer")


def connect(address: tuple[str, int], key: bytes, timeout_s: float) -> Connection:
    """An offer's end, or that of a rank. Raises Broken with the reason."""
    try:
        raw = socket.create_connection(address, timeout=timeout_s)
    except OSError as error:
        raise Broken(str(error)) from None
    try:
        raw.settimeout(HANDSHAKE_SECONDS)
        theirs, own = _receive(raw, _NONCE_BYTES), os.urandom(_NONCE_BYTES)
        raw.sendall(_MAGIC + own + _mac(key, b"offer", theirs, own))
        if not hmac.compare_digest(_receive(raw, _PROOF_BYTES), _mac(key, b"driver", theirs, own)):
            raise Broken("who listens there does not know the key of this job")
        return _end(raw, _mac(key, b"session", theirs, own), b"to offer", b"to driver")
    except OSError as error:
        raw.close()
        raise Broken(str(error)) from None
    except Broken:
        raw.close()
        raise
