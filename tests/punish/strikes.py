"""How each kind of fault is done to a job."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from faults import Fault
from job import Job, is_alive
from launched_job import LaunchedJob
from members_job import MembersJob
from scene import Process

RATE, SLOW_RATE = "4gbit", "2mbit"
LIMIT_S = 60.0


@dataclass(frozen=True)
class Blow:
    """What a strike has done."""

    victims: set[int] = field(default_factory=set)  # pids of those that end by it
    over: float = field(default_factory=time.monotonic)  # when it was: the last part of it, if it has several
    changes_view: bool = False  # somebody has to leave or to join because of it


class Strikes:
    """Strikes a job. members: those that train, by rank."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def do(self, fault: Fault, members: list[Process]) -> Blow:
        """Returns when it is over."""
        strike: Callable[[Fault, list[Process]], Blow] = getattr(self, f"_{fault.kind}")
        return strike(fault, members)

    # ---- processes ----

    def _kill(self, fault: Fault, members: list[Process]) -> Blow:
        return Blow(_kill(_chosen(fault, members[1:] or members)))

    def _root(self, fault: Fault, members: list[Process]) -> Blow:
        return Blow(_kill(members[0]))

    def _double(self, fault: Fault, members: list[Process]) -> Blow:
        first = _chosen(fault, members)
        others = [one for one in members if one is not first]
        victims = _kill(first)
        time.sleep(fault.lasts)
        return Blow(victims | _kill(_chosen(fault, others)))

    def _joiner(self, fault: Fault, members: list[Process]) -> Blow:
        """The one that comes in place of the first dies wherever it is by then."""
        began = time.monotonic()
        victims = _kill(_chosen(fault, members))
        while time.monotonic() < began + LIMIT_S:
            self._job.tend()
            newcomers = self._job.records.read().newcomers(began)
            if newcomers:
                time.sleep(fault.lasts)
                return Blow(victims | _kill(newcomers[0]))
            time.sleep(0.02)
        return Blow(victims)  # the hang is found by whoever waits for the next view

    def _pause(self, fault: Fault, members: list[Process]) -> Blow:
        self._hold(_chosen(fault, members), fault.lasts)
        return Blow()

    def _stop(self, fault: Fault, members: list[Process]) -> Blow:
        victim = _chosen(fault, members)
        began = time.monotonic()
        if self._job.has_launcher:
            self._hold(victim, fault.lasts)
            return Blow({victim.pid}, began)
        # The members ask it once more before they end it, for as long; so it may have woken, and stay.
        self._hold(victim, 2 * fault.lasts)
        return Blow(set(), began, changes_view=True)

    def _crash(self, fault: Fault, members: list[Process]) -> Blow:
        return Blow(_kill_all(_neighbours(members)))

    def _host(self, fault: Fault, members: list[Process]) -> Blow:
        """Nothing that the dying processes' kernel sends is heard by the others."""
        began, victims = time.monotonic(), _neighbours(members)
        with self._link_down(victims[0].host):
            ended = _kill_all(victims)
            time.sleep(fault.lasts)
        return Blow(ended, began)

    def _join(self, fault: Fault, members: list[Process]) -> Blow:
        assert isinstance(self._job, MembersJob)
        return Blow(changes_view=self._job.add())

    def _hold(self, victim: Process, seconds: float) -> None:
        os.kill(victim.pid, signal.SIGSTOP)
        time.sleep(seconds)
        if is_alive(victim):
            os.kill(victim.pid, signal.SIGCONT)

    def _leave(self, fault: Fault, members: list[Process]) -> Blow:
        """Of several hosts with members one goes. Of one host, the slot with the highest number."""
        assert isinstance(self._job, LaunchedJob)
        hosts = sorted({one.host for one in members})
        if len(hosts) > 1:
            self._job.offer({hosts[int(fault.choice * len(hosts))]: 0})
            return Blow(changes_view=True)
        last = max(one.slot for one in members)
        slots = max(last, self._job.plan.least)
        self._job.offer({hosts[0]: slots})
        return Blow(changes_view=slots == last)

    def _spawn(self, fault: Fault, members: list[Process]) -> Blow:
        assert isinstance(self._job, LaunchedJob)
        self._job.offer_another()
        return Blow()

    # ---- networks ----

    def _reset(self, fault: Fault, members: list[Process]) -> Blow:
        """Both ends of each connection get a reset."""
        victim = _chosen(fault, members)
        ports = _ports_of(victim.pid)
        if ports:
            wanted = " or ".join(f"sport = :{port}" for port in ports)
            words = ["nsenter", "-t", str(victim.pid), "-n", "ss", "-tK", "state", "established", wanted]
            subprocess.run(words, check=False, capture_output=True, timeout=LIMIT_S)
        return Blow()

    def _cut(self, fault: Fault, members: list[Process]) -> Blow:
        with self._link_down(_chosen(fault, members).host):
            time.sleep(fault.lasts)
        return Blow()

    _outage = _cut

    @contextlib.contextmanager
    def _link_down(self, host: str) -> Iterator[None]:
        words = ["ip", "-n", self._hosts.space("switch"), "link", "set", f"port-{host}"]
        subprocess.run([*words, "down"], check=True, timeout=LIMIT_S)
        yield
        subprocess.run([*words, "up"], check=True, timeout=LIMIT_S)

    def _slow(self, fault: Fault, members: list[Process]) -> Blow:
        host = _chosen(fault, members).host
        self._hosts.limit_host(host, SLOW_RATE)
        time.sleep(fault.lasts)
        self._hosts.limit_host(host, RATE)
        return Blow()

    @property
    def _hosts(self):  # type: ignore[no-untyped-def]
        assert self._job.hosts is not None, "this fault needs hosts"
        return self._job.hosts

    # ---- disks ----

    def _disk(self, fault: Fault, members: list[Process]) -> Blow:
        assert self._job.disk is not None
        full = self._job.disk / "full"
        with open(full, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError:
                time.sleep(fault.lasts)
        full.unlink()
        return Blow()


def _chosen(fault: Fault, members: list[Process]) -> Process:
    return members[int(fault.choice * len(members))]


def _kill(victim: Process) -> set[int]:
    if not is_alive(victim):
        return set()
    os.kill(victim.pid, signal.SIGKILL)
    return {victim.pid}


def _kill_all(victims: list[Process]) -> set[int]:
    return {pid for one in victims for pid in _kill(one)}


def _neighbours(members: list[Process]) -> list[Process]:
    """Those on rank 0's host."""
    return [one for one in members if one.host == members[0].host]


def _ports_of(pid: int) -> list[int]:
    """Local ports of the TCP connections of a process, in its network."""
    try:
        links = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")]
        table = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    except OSError:
        return []
    inodes = {found[1] for link in links if (found := re.fullmatch(r"socket:\[(\d+)\]", link))}
    rows = [line.split() for line in table]
    return [int(row[1].rpartition(":")[2], 16) for row in rows if row[9] in inodes and row[3] == "01"]
