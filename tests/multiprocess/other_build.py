"""The two ends of a store's handshake in another build of rueda. docs/wire.md has the bytes."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import socket
import struct
import sys
import threading
from pathlib import Path
from typing import Iterator, Tuple

ROOT = Path(__file__).resolve().parents[2]
[RELEASE] = re.findall(r'kRelease\[\] = "(.*)"', (ROOT / "src/rueda/base/release.h").read_text())
BEFORE_THE_NUMBER, WIRE = 1, 2  # wire versions
PROTOCOL = 999
WRONG_VERSION, WRONG_PROTOCOL = 1, 7


def text(value: bytes) -> bytes:
    return struct.pack("<I", len(value)) + value


def message(kind: int, body: bytes) -> bytes:
    return struct.pack("<IBH", 0x31445552, kind, len(body)) + body


def receive(sock: socket.socket) -> bytes:
    """One message, b"" at the end of the connection."""
    got = b""
    wanted = 7
    while len(got) < wanted:
        part = sock.recv(wanted - len(got))
        if not part:
            return b""
        got += part
        if len(got) == 7:
            wanted = 7 + struct.unpack_from("<H", got, 5)[0]
    return got


def prove(secret: bytes, side: str, first: bytes, second: bytes) -> bytes:
    said = text(f"rueda handshake 1 {side}".encode()) + text(first) + text(second)
    return hmac.new(secret, said, hashlib.sha256).digest()


def hello(wire: int, job: str, rank: int) -> bytes:
    body = struct.pack("<H", wire) + text(RELEASE.encode()) + text(job.encode())
    body += struct.pack("<QBHii", 0, 1, 0, rank, -1)
    body += struct.pack("<H", PROTOCOL) if wire == WIRE else b""
    return message(1, body + os.urandom(32))


def dial(wire: int, place: Tuple[str, int], job: str, secret: bytes, rank: int) -> int:
    """What a rank of another build is refused for."""
    with socket.create_connection(place, timeout=60) as sock:
        mine = hello(wire, job, rank)
        sock.sendall(mine)
        answer = receive(sock)
        outcome = answer[7 + 2 + 4 + len(RELEASE)]
        if outcome == 0:
            sock.sendall(message(3, bytes([WRONG_PROTOCOL]) + prove(secret, "client", mine, answer)))
            outcome = receive(sock)[7]
        return outcome


def answer_to(wire: int, greeting: bytes, secret: bytes) -> bytes:
    body = struct.pack("<H", wire) + text(RELEASE.encode())
    if wire == BEFORE_THE_NUMBER:
        return message(2, body + bytes([WRONG_VERSION]))
    body += struct.pack("<BiH", 0, -1, PROTOCOL) + os.urandom(32)
    return message(2, body + prove(secret, "server", greeting, body))


@contextlib.contextmanager
def store(wire: int, secret: bytes) -> Iterator[int]:
    """The port of the store of another build."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ends = threading.Event()
        listener.settimeout(0.05)

        def serve() -> None:
            while not ends.is_set():
                with contextlib.suppress(OSError):
                    sock, _ = listener.accept()
                    with sock:
                        sock.settimeout(60)
                        sock.sendall(answer_to(wire, receive(sock), secret))
                        receive(sock)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            ends.set()
            thread.join()


def read_secret(path: str) -> bytes:
    raw = Path(path).read_bytes()
    return bytes.fromhex(raw.decode()) if len(raw.strip()) == 64 else raw


def main() -> None:
    """A rank of another build, below a launcher or by hand."""
    host, port = os.environ["RUEDA_STORE"][len("tcp://") :].rsplit(":", 1)
    outcome = dial(
        int(sys.argv[1]),
        (host, int(port)),
        os.environ["RUEDA_JOB"],
        read_secret(os.environ["RUEDA_SECRET_FILE"]),
        int(os.environ["RUEDA_RANK"]),
    )
    sys.exit(f"refused with outcome {outcome}")


if __name__ == "__main__":
    main()
