"""Ports that a job reserves before its ranks start, and what tells one host from another."""

from __future__ import annotations

import os
import socket


def host_key() -> str:
    """Equal for processes that share a kernel and a network namespace."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    return f"{boot}|{os.stat('/proc/self/ns/net').st_ino}"


class ReservedPort:
    """A port that nobody else is given while this object lives, and on which a program here can listen:
    the socket is bound but does not listen, and Linux shares it with sockets that allow reuse as well.
    """

    def __init__(self, host: str) -> None:
        family = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind(("", 0))
        self.number: int = self._socket.getsockname()[1]

    def close(self) -> None:
        self._socket.close()
