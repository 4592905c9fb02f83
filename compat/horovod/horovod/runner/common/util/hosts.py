"""Hosts, their slots, and which rank runs where. Values in, values out."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class HostInfo:
    """A host and how many ranks it takes."""

    hostname: str
    slots: int

    @staticmethod
    def from_string(host_string: str) -> HostInfo:
        """From "worker-0:2"; IPv6 addresses stand in brackets."""
        match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\s:]+):(\d+)", host_string.strip())
        if match is None:
            raise ValueError(
                "Invalid host input, please make sure it has format as : worker-0:2,worker-1:2. "
                f"({host_string!r})"
            )
        return HostInfo(match[1], int(match[2]))


@dataclass
class SlotInfo:
    """One rank and its place among the others."""

    hostname: str
    rank: int
    local_rank: int
    cross_rank: int
    size: int | None = None
    local_size: int | None = None
    cross_size: int | None = None

    def to_response_string(self) -> str:
        """rank,size,local_rank,local_size,cross_rank,cross_size"""
        numbers = (self.rank, self.size, self.local_rank, self.local_size, self.cross_rank, self.cross_size)
        return ",".join(str(number) for number in numbers)


INVALID_SLOT_INFO = SlotInfo("", -1, -1, -1, -1, -1, -1)


def parse_hosts(hosts_string: str) -> list[HostInfo]:
    """From "a:2,b:2"."""
    return [HostInfo.from_string(one) for one in hosts_string.split(",")]


def parse_hosts_and_slots(hosts: str) -> tuple[list[str], dict[str, int]]:
    """From "a:2,b:2": the names, and the slots of each."""
    infos = parse_hosts(hosts)
    return [info.hostname for info in infos], {info.hostname: info.slots for info in infos}


def parse_host_files(filename: str) -> str:
    """From a file of lines "a slots=2": "a:2,b:2". Empty lines and comments (#) do not count."""
    found = []
    with open(filename) as file:
        for number, line in enumerate(file, 1):
            text = line.partition("#")[0].strip()
            if not text:
                continue
            match = re.fullmatch(r"(\S+?)(?:\s+slots\s*=\s*(\d+)|:(\d+))?", text)
            if match is None:
                raise ValueError(f"{filename}, line {number}: {text!r} is not of the form 'name slots=2'.")
            found.append(f"{match[1]}:{match[2] or match[3] or 1}")
    return ",".join(found)


def get_host_assignments(
    hosts: Sequence[HostInfo], min_num_proc: int, max_num_proc: int | None = None
) -> list[SlotInfo]:
    """The ranks of each host, one host after the other: all slots, or max_num_proc of them.

    Raises ValueError if there are fewer slots than min_num_proc.
    """
    places: list[tuple[str, int, int]] = []  # host, local rank, cross rank
    used: Counter[str] = Counter()
    peers: defaultdict[int, int] = defaultdict(int)  # hosts that have this local rank
    for host in hosts:
        for _ in range(host.slots):
            if max_num_proc is not None and len(places) >= max_num_proc:
                break
            local_rank = used[host.hostname]
            places.append((host.hostname, local_rank, peers[local_rank]))
            used[host.hostname] += 1
            peers[local_rank] += 1
    if len(places) < min_num_proc:
        raise ValueError(
            f"Requested more processes ({min_num_proc}) than there are available slots ({len(places)})"
        )
    return [
        SlotInfo(name, rank, local, cross, len(places), used[name], peers[local])
        for rank, (name, local, cross) in enumerate(places)
    ]
