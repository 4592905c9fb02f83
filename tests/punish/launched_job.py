"""An elastic job of `rueda run`."""

from __future__ import annotations

import contextlib
import os
import subprocess

from faults import Kind
from job import Hosts, Job, Plan, is_alive
from scene import Process

# A slot rests for up to a minute when its process was killed, so there are many more than ranks.
SLOTS = 32
MOST_SLOTS = 200


class LaunchedJob(Job):
    """Its launcher starts others in the place of those that are lost. slots: of each host, at first."""

    has_launcher = True

    def __init__(self, plan: Plan, hosts: Hosts | None, slots: int = SLOTS) -> None:
        super().__init__(plan, hosts)
        self._slots = slots
        self._hosts_file = plan.folder / "hosts.txt"

    def exit_code(self) -> int | None:
        return self._process.poll()

    def can_bear(self, members: list[Process], kind: Kind) -> bool:
        return len(members) - kind.members >= self.plan.least

    def launcher(self) -> int:
        """What the words before it have become."""
        return self._process.pid

    def is_leaving(self, process: Process) -> bool:
        """Whether its slot is no longer offered."""
        return process.slot >= self._offered[process.host]

    def offer(self, slots: dict[str, int] | None = None) -> None:
        """What the discovery script says from now on: so many slots of these hosts, and all of the others."""
        counts = {name: (slots or {}).get(name, self._slots) for name in self.host_names}
        self._offered = counts
        partial = self._hosts_file.with_suffix(".new")
        partial.write_text("".join(f"{name}:{count}\n" for name, count in counts.items() if count))
        partial.rename(self._hosts_file)

    def offer_another(self) -> None:
        """One slot more of each host, from now on."""
        self._slots = min(self._slots + 1, MOST_SLOTS)
        self.offer()

    def prepare(self) -> None:
        """Offers everything, but where one of several hosts has all processes, nothing more of that one."""
        living = [one for one in self.records.scene.processes.values() if is_alive(one)]
        used = {one.host for one in living}
        is_crowded = len(used) == 1 < len(self.host_names)
        self.offer({name: max(one.slot for one in living) + 1 for name in used} if is_crowded else {})

    def tend(self) -> None:
        """The launcher does what there is to do."""

    def _start(self, undo: contextlib.ExitStack) -> None:
        each = -(-self.plan.ranks // len(self.host_names))
        self.offer({name: each for name in self.host_names} if self.hosts else {})
        with open(self.output, "wb") as output:
            self._process = subprocess.Popen(
                self._command(),
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        undo.callback(self._end)

    def _command(self) -> list[str]:
        plan = self.plan
        rueda = os.environ.get("RUEDA_BIN", "rueda")
        before = self.hosts.words() if self.hosts else []
        command = [*before, rueda, "run", "-np", str(plan.ranks), "--min-np", str(plan.least)]
        command += ["--max-np", str(plan.ranks), "--host-discovery-script", f"cat {self._hosts_file}"]
        command += ["--elastic-timeout", "120", "--agent-timeout", "30"]
        if self.disk:
            command += ["--log-dir", str(self.disk / "logs")]
        if self.disk and plan.has_timeline:
            command += ["--timeline-filename", str(self.disk / "timeline.json")]
        return command + self._program()

    def _end(self) -> None:
        """Ends what still runs: the launcher ends all others."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(30)
