"""What names the hosts of an elastic job."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

from horovod._absent import absent
from rueda.elastic.notices import HostUpdateResult

__all__ = [
    "DiscoveredHosts",
    "FixedHosts",
    "HostDiscovery",
    "HostDiscoveryScript",
    "HostManager",
    "HostState",
    "HostUpdateResult",
]

LIMIT_S = 60.0  # a script that says nothing for so long has failed

_MANAGED = (
    "`rueda run --min-np` keeps the hosts of an elastic job itself; give it a discovery script, or a "
    "HostDiscovery to horovod.runner.gloo_run.gloo_run_elastic"
)
HostState = absent("horovod.runner.elastic.discovery.HostState", _MANAGED)
DiscoveredHosts = absent("horovod.runner.elastic.discovery.DiscoveredHosts", _MANAGED)
HostManager = absent("horovod.runner.elastic.discovery.HostManager", _MANAGED)


class HostDiscovery:
    """Subclasses say which hosts there are."""

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """The number of slots of each host, by its name."""
        raise NotImplementedError(f"{type(self).__name__} must define find_available_hosts_and_slots().")


class HostDiscoveryScript(HostDiscovery):
    """Asks a command of the shell, which prints one host in a line: "name:slots", or "name" for the default
    number of slots.
    """

    def __init__(self, discovery_script: str, slots: int | None = None) -> None:
        self._discovery_script = discovery_script
        self._default_slots = slots

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Runs it. RuntimeError if it fails, ValueError for a line that is no host."""
        found: dict[str, int] = {}
        for line in self._execute_discovery_script().split():
            host, has_slots, slots = line.rpartition(":")
            if not has_slots:
                found[line] = self._slots_of(line)
            elif slots.isdigit():
                found[host] = int(slots)
            else:
                raise ValueError(
                    f"The discovery script {self._discovery_script} printed {line!r}: print host:slots."
                )
        return found

    def _slots_of(self, host: str) -> int:
        if self._default_slots is None:
            raise ValueError(
                f"The discovery script {self._discovery_script} printed {host!r} without slots: print "
                f"{host}:SLOTS, or give the default number (--slots-per-host)."
            )
        return self._default_slots

    def _execute_discovery_script(self) -> str:
        done = subprocess.run(
            ["/bin/sh", "-c", os.fspath(self._discovery_script)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(
                f"Failed to execute discovery script: {self._discovery_script}. Exit code: {done.returncode}"
            )
        return done.stdout


class FixedHosts(HostDiscovery):
    """Hosts that a program names, and changes with set()."""

    def __init__(self, available_hosts_and_slots: Mapping[str, int]) -> None:
        self.set(available_hosts_and_slots)

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Those that were set last."""
        return dict(self._available)

    def set(self, available_hosts_and_slots: Mapping[str, int]) -> None:
        """Other hosts, or other numbers of slots."""
        self._available = dict(available_hosts_and_slots)
