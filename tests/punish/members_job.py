"""An elastic job that nobody launched (RUEDA_ELASTIC=members): the punisher starts its processes by hand, and
others that join in the place of those that are lost.
"""

from __future__ import annotations

import contextlib
import secrets
import subprocess
from collections import Counter
from dataclasses import dataclass

from faults import Kind
from job import Hosts, Job, Plan
from majority import survives
from ports import free_ports
from scene import Process

PORTS = 16  # of a host, at which processes that join look for members
FIRST_PORT = 29_400  # of a host that nobody else uses
LEFT_OUT, KILLED = 75, -9
MOST_MORE = 2  # processes beyond those that the job began with


@dataclass(frozen=True)
class Started:
    """A process of the job, as it was started."""

    host: str
    slot: int
    process: subprocess.Popen[bytes]

    @property
    def code(self) -> int | None:
        return self.process.poll()


class MembersJob(Job):
    """Its ranks are spread evenly over its hosts, and each host is filled up again."""

    has_launcher = False

    def __init__(self, plan: Plan, hosts: Hosts | None) -> None:
        super().__init__(plan, hosts)
        self._each = plan.ranks // len(self.host_names)
        self._port = FIRST_PORT if hosts else free_ports(PORTS)
        self._secret = plan.folder / "secret"
        self._started: list[Started] = []

    def exit_code(self) -> int | None:
        """Members end by signals or because they are left out, and those of the last view with 0."""
        ended = [one for one in self._started if one.code is not None]
        wrong = next((one.code for one in ended if one.code not in (0, LEFT_OUT, KILLED)), None)
        if wrong is not None:
            return wrong
        views = {pid: one.view for pid, one in self.records.read().processes.items()}
        newest = self.records.scene.view
        if newest == 0:
            return (ended[0].code or 1) if ended else None
        if any(views.get(one.process.pid) for one in self._living()):
            return None
        last = [one.code for one in ended if views.get(one.process.pid) == newest]
        return next((code for code in last if code != 0), 0)

    def can_bear(self, members: list[Process], kind: Kind) -> bool:
        here = Counter(one.host for one in members)
        is_full = all(here[name] >= self._each for name in self.host_names)
        return is_full and survives([one.host for one in members], kind)

    def prepare(self) -> None:
        """A host is full before it is struck: can_bear()."""

    def tend(self) -> None:
        """Fills up each host, once the job has begun."""
        if self.records.scene.view == 0 or self.stop_file.exists():
            return
        here = Counter(one.host for one in self._living())
        for name in self.host_names:
            for _ in range(self._each - here[name]):
                self._start_process(name, RUEDA_JOINER="1")

    def add(self) -> bool:
        """Another process joins. Whether there was room for it."""
        here = Counter(one.host for one in self._living())
        if sum(here.values()) >= self.plan.ranks + MOST_MORE:
            return False
        self._start_process(min(self.host_names, key=lambda name: here[name]), RUEDA_JOINER="1")
        return True

    def ended_besides(self, victims: set[int]) -> dict[str, int]:
        """How many ended that no fault had killed, by their exit codes. Cuts and stops explain some."""
        codes = [one.code for one in self._started if one.process.pid not in victims]
        return dict(Counter(str(code) for code in codes if code is not None))

    def _start(self, undo: contextlib.ExitStack) -> None:
        self._secret.touch(mode=0o600)
        self._secret.write_text(secrets.token_hex(32))
        undo.callback(self._end)
        size = self._each * len(self.host_names)
        for rank in range(size):
            host = self.host_names[rank // self._each]
            self._start_process(host, RUEDA_RANK=str(rank), RUEDA_SIZE=str(size))

    def _start_process(self, host: str, **variables: str) -> None:
        used = {one.slot for one in self._living() if one.host == host}
        slot = next(slot for slot in range(len(used) + 1) if slot not in used)
        life = sum(one.host == host and one.slot == slot for one in self._started)
        uid = f"{host}:{slot}#{life}"
        within = ["ip", "netns", "exec", self.hosts.space(host)] if self.hosts else []
        with open(self.output, "ab") as output:
            process = subprocess.Popen(
                [*within, *self._program()],
                env={**self._environment(), "RUEDA_ELASTIC_UID": uid, "RUEDA_HOSTNAME": host, **variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._started.append(Started(host, slot, process))

    def _environment(self) -> dict[str, str]:
        addresses = ["127.0.0.1"]
        if self.hosts:
            addresses = [self.hosts.address(i) for i in range(len(self.host_names))]
        ports = range(self._port, self._port + self._each + MOST_MORE + 2)
        places = [f"{address}:{port}" for address in addresses[1:] for port in ports]
        return {
            **super()._environment(),
            "RUEDA_ELASTIC": "members",
            "RUEDA_STORE": f"tcp://{addresses[0]}:{self._port}",
            "RUEDA_ELASTIC_MEMBERS": ",".join(places),
            "RUEDA_SECRET_FILE": str(self._secret),
            "RUEDA_START_TIMEOUT": "60",
            **({"RUEDA_INTERFACE": "eth0"} if self.hosts else {}),
        }

    def _living(self) -> list[Started]:
        return [one for one in self._started if one.code is None]

    def _end(self) -> None:
        for one in self._living():
            one.process.kill()
        for one in self._started:
            one.process.wait(30)
