"""The connection between a Spark task and the driver: a mutual handshake, then messages.

A message has a kind (one byte), a length (4 bytes, big-endian) and a body of at most `MAX_BODY_BYTES`.
Either end proves by HMAC-SHA256 that it knows the key of the job; nothing is encrypted, so no secret
travels here.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import struct
from typing import Any, Iterator

# Kinds of messages.
HELLO, PLACE, REFUSED, STARTED, OUT, ERR, RAISED, ENDED, STOP = range(1, 10)

MAX_BODY_BYTES = 1 << 20  # a traceback or a piece of output
_HEADER = struct.Struct("!BI")
_MAGIC = b"rueda-spark-1\n"
_NONCE_BYTES = 16
_PROOF_BYTES = hashlib.sha256().digest_size
TASK_PROOF_BYTES = len(_MAGIC) + _NONCE_BYTES + _PROOF_BYTES


class Broken(RuntimeError):
    """The other end is gone, or is not who it should be."""


def proof(key: bytes, role: bytes, first: bytes, second: bytes) -> bytes:
    """What the end in this role ("task" or "driver") sends; the nonces are the driver's and the task's."""
    return hmac.new(key, role + first + second, hashlib.sha256).digest()


def make_nonce() -> bytes:
    """Sixteen bytes that no earlier connection has used."""
    return os.urandom(_NONCE_BYTES)


def check_task(key: bytes, nonce: bytes, answer: bytes) -> bytes | None:
    """The driver's proof for a task that answered its nonce well; None for a stranger."""
    theirs = answer[len(_MAGIC) : len(_MAGIC) + _NONCE_BYTES]
    is_task = hmac.compare_digest(answer[len(_MAGIC) + _NONCE_BYTES :], proof(key, b"task", nonce, theirs))
    return proof(key, b"driver", nonce, theirs) if answer.startswith(_MAGIC) and is_task else None


def encode(kind: int, body: bytes | Any) -> bytes:
    """One message; a body that is not bytes travels as JSON."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    if len(raw) > MAX_BODY_BYTES:
        raise ValueError(f"A message of {len(raw)} bytes is longer than {MAX_BODY_BYTES}.")
    return _HEADER.pack(kind, len(raw)) + raw


class Decoder:
    """Cuts arriving bytes into messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The messages (kind, body) that these bytes complete. Raises Broken if a length is too large."""
        self._bytes += data
        while len(self._bytes) >= _HEADER.size:
            kind, length = _HEADER.unpack_from(self._bytes)
            if length > MAX_BODY_BYTES:
                raise Broken(f"a message of {length} bytes is announced, but {MAX_BODY_BYTES} are allowed")
            end = _HEADER.size + length
            if len(self._bytes) < end:
                return
            body = bytes(self._bytes[_HEADER.size : end])
            del self._bytes[:end]
            yield kind, body


def keep_alive(connection: socket.socket) -> None:
    """Lets the kernel close the connection a minute after the other machine has vanished."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise Broken("the driver closed the connection: its job may have ended")
        data += more
    return data


def connect(address: tuple[str, int], key: bytes, timeout_s: float) -> socket.socket:
    """The task's end, connected and authenticated. Raises Broken with the reason."""
    try:
        connection = socket.create_connection(address, timeout=timeout_s)
    except OSError as error:
        raise Broken(str(error)) from None
    try:
        nonce, own = _receive(connection, _NONCE_BYTES), make_nonce()
        connection.sendall(_MAGIC + own + proof(key, b"task", nonce, own))
        if not hmac.compare_digest(_receive(connection, _PROOF_BYTES), proof(key, b"driver", nonce, own)):
            raise Broken("who listens there does not know the key of this job")
    except OSError as error:
        connection.close()
        raise Broken(str(error)) from None
    except Broken:
        connection.close()
        raise
    connection.settimeout(None)
    keep_alive(connection)
    return connection
