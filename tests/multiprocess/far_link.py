"""A long way between two virtual hosts: their packets pass through this program, which keeps each for a time.

Linux can do this by itself (`tc qdisc add netem delay`), where its kernel has that module.
"""

import collections
import contextlib
import ctypes
import fcntl
import os
import select
import struct
import subprocess
import sys
import time
from typing import Deque, Iterator, Tuple

from virtual_hosts import VirtualHosts

LIMIT_S = 120  # nobody needs it for longer
DEVICE = "far"
CLONE_NEWNET, TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x40000000, 0x400454CA, 0x0001, 0x1000

PING = """
import socket, struct, sys, time
echo = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
echo.settimeout(2)
trips = []
for sequence in range(30):
    head = struct.pack("!BBHHH", 8, 0, 0, 77, sequence)
    total = sum(struct.unpack("!4H", head))
    summed = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    began = time.monotonic()
    echo.sendto(struct.pack("!BBHHH", 8, 0, summed, 77, sequence), (sys.argv[1], 0))
    answer = b""
    while answer[20:22] + answer[24:28] != struct.pack("!HHH", 0, 77, sequence):
        answer = echo.recv(200)
    trips.append(time.monotonic() - began)
print(1e6 * min(trips))
"""


def ping_us(hosts: VirtualHosts, one: str, other: str) -> float:
    """The shortest of 30 round trips, as `ping` would say."""
    address = hosts.address(hosts.names.index(other))
    words = ["ip", "netns", "exec", hosts.space(one), sys.executable, "-c", PING, address]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    return float(done.stdout)


@contextlib.contextmanager
def far_link(hosts: VirtualHosts, one: str, other: str, delay_ms: float) -> Iterator[None]:
    """What these two send to each other takes so much longer, each way."""
    places = [f"{hosts.space(name)}={hosts.address(hosts.names.index(name))}" for name in (one, other)]
    words = [sys.executable, __file__, *places, str(delay_ms)]
    relay = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert relay.stdout is not None and relay.stdout.readline() == b"ready\n"
        yield
    finally:
        relay.communicate(timeout=LIMIT_S)  # it ends with its stdin, and takes devices and routes with it


def open_end(space: str, source: str, target: str) -> int:
    """The device on one of the hosts, with the route to the other."""
    entered = os.open(f"/run/netns/{space}", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(entered, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"setns to {space}")
    os.close(entered)
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), IFF_TUN | IFF_NO_PI))
    for words in (f"link set {DEVICE} up", f"route add {target}/32 dev {DEVICE} src {source}"):
        subprocess.run(["ip", *words.split()], check=True, timeout=LIMIT_S)
    return device


def relay(ends: Tuple[int, int], delay_s: float) -> None:
    waiting: Deque[Tuple[float, int, bytes]] = collections.deque()  # when, to, packet
    stop_at = time.monotonic() + LIMIT_S
    while (now := time.monotonic()) < stop_at:
        pause = min(waiting[0][0], stop_at) - now if waiting else stop_at - now
        ready, _, _ = select.select([*ends, sys.stdin], [], [], max(0.0, pause))
        if sys.stdin in ready:
            return
        for device in ready:
            with contextlib.suppress(BlockingIOError):
                while True:
                    packet = os.read(device, 65536)
                    to = ends[1] if device == ends[0] else ends[0]
                    waiting.append((time.monotonic() + delay_s, to, packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, to, packet = waiting.popleft()
            with contextlib.suppress(BlockingIOError):  # full: the packet is lost, as on a wire
                os.write(to, packet)


def main() -> None:
    (one, at), (other, there) = (word.split("=") for word in sys.argv[1:3])
    ends = open_end(one, at, there), open_end(other, there, at)
    print("ready", flush=True)
    relay(ends, float(sys.argv[3]) / 1e3)


if __name__ == "__main__":
    main()
