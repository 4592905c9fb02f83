"""Ports for servers of tests, below those that Linux gives to whoever asks for any: no connection of others
gets them meanwhile."""

import contextlib
import itertools
import os
import socket

FIRST, END, STEP = 10_000, 30_000, 20
_calls = itertools.count()


def free_ports(count: int = 1, address: str = "127.0.0.1") -> int:
    """The first of some ports in a row that nobody uses, 20 at most. Each call begins to look elsewhere."""
    assert count <= STEP
    places = (END - FIRST) // STEP
    begin = os.getpid() * 61 + next(_calls)
    for place in range(begin, begin + places):
        first = FIRST + place % places * STEP
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind((address, port))
            return first
    raise AssertionError(f"no {count} free ports on {address} from {FIRST} to {END}")


def free_port(address: str = "127.0.0.1") -> int:
    return free_ports(1, address)
