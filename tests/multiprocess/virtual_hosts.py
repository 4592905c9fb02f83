"""Hosts on one machine: a network name space each, joined by a switch, reached through a program named ssh.

What is wrong with a host is planted where it would be on a real one: the rate of its port by `tc`; limits,
clock and mounts by what its "ssh" does before it runs the command.
"""

import contextlib
import itertools
import os
import pathlib
import shutil
import subprocess
import sys
import time
from typing import Dict, Iterator, List, Optional

import pytest
from harness import PATIENCE, library, make_job_folder, rank_environment
from launch_support import RUEDA

LIMIT_S = 90.0 * PATIENCE
COUNT = itertools.count()
# A larger bucket would let the first bytes of a measurement pass at once.
BUCKET = ["burst", "128kb", "limit", "1mb"]

SSH = """#!/bin/sh
# ssh [options] HOST COMMAND: runs the command on a virtual host.
for word; do host=$command; command=$word; done
spaces=@SPACES@
[ -e "/run/netns/$spaces-$host" ] || { echo "ssh: Could not resolve hostname $host" >&2; exit 255; }
exec ip netns exec "$spaces-$host" unshare --mount \\
  sh -c "mount --bind '@FOLDER@/hosts' /etc/hosts; . '@FOLDER@/$host.sh'; exec sh -c \\"\\$1\\"" sh "$command"
"""


def call(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True, timeout=LIMIT_S)


class VirtualHosts:
    """Created with `virtual_hosts()`. The launcher has a name space of its own."""

    def __init__(self, folder: pathlib.Path, names: List[str]) -> None:
        self.names = names
        self._prefix = f"rueda-{os.getpid()}-{next(COUNT)}"
        self._folder = folder
        script = SSH.replace("@SPACES@", self._prefix).replace("@FOLDER@", str(folder))
        ssh = folder / "ssh"
        ssh.write_text(script)
        ssh.chmod(0o755)
        for name in names:
            self.plant(name, "")
        known = [f"{self.address(index)} {name}\n" for index, name in enumerate(names)]
        (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(known))

    def space(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    @staticmethod
    def address(index: int) -> str:
        return f"10.213.9.{index + 1}"

    def connect(self, rate: str) -> contextlib.ExitStack:
        """Makes the name spaces. The returned stack removes them."""
        with contextlib.ExitStack() as undo:
            for name in ["switch", "launcher", *self.names]:
                call("ip", "netns", "add", self.space(name))
                undo.callback(call, "ip", "netns", "del", self.space(name))
                call("ip", "-n", self.space(name), "link", "set", "lo", "up")
            switch = self.space("switch")
            call("ip", "-n", switch, "link", "add", "switch", "type", "bridge")
            call("ip", "-n", switch, "link", "set", "switch", "up")
            for index, name in enumerate([*self.names, "launcher"]):
                here = self.space(name)
                words = f"link add port-{name} type veth peer name eth0 netns {here}".split()
                call("ip", "-n", switch, *words)
                call("ip", "-n", switch, "link", "set", f"port-{name}", "master", "switch", "up")
                call("ip", "-n", here, "addr", "add", f"{self.address(index)}/24", "dev", "eth0")
                call("ip", "-n", here, "link", "set", "eth0", "up")
            for name in self.names:
                self.limit_host(name, rate)
            return undo.pop_all()

    def limit_host(self, name: str, rate: str) -> None:
        """What the host sends and what it receives, each at most at this rate."""
        for space, device in ((self.space(name), "eth0"), (self.space("switch"), f"port-{name}")):
            bucket = ["root", "tbf", "rate", rate, *BUCKET]
            call("tc", "-n", space, "qdisc", "replace", "dev", device, *bucket)

    def limit_link(self, one: str, other: str, rate: str) -> None:
        """These two get a cable of their own, which is slower than the switch."""
        spaces = self.space(one), self.space(other)
        words = f"link add direct netns {spaces[0]} type veth peer name direct netns {spaces[1]}"
        call("ip", *words.split())
        for here, there in ((one, other), (other, one)):
            source, target = (self.address(self.names.index(name)) for name in (here, there))
            call("ip", "-n", self.space(here), "link", "set", "direct", "up")
            words = f"route add {target}/32 dev direct src {source}"
            call("ip", "-n", self.space(here), *words.split())
            call("tc", "-n", self.space(here), *f"qdisc add dev direct root tbf rate {rate}".split(), *BUCKET)

    def cut(self, one: str, other: str) -> None:
        """Between these two nothing arrives: each sends to a network card that nobody has."""
        nobody = "lladdr 02:00:00:00:00:01 nud permanent"
        for here, there in ((one, other), (other, one)):
            call("ip", "-n", self.space(here), "neigh", "replace", *self._neighbour(there), *nobody.split())

    def mend(self, one: str, other: str) -> None:
        for here, there in ((one, other), (other, one)):
            call("ip", "-n", self.space(here), "neigh", "del", *self._neighbour(there))

    def _neighbour(self, name: str) -> List[str]:
        return [self.address(self.names.index(name)), "dev", "eth0"]

    def plant(self, name: str, commands: str) -> None:
        """Shell commands that run on the host before every command there, as root in mounts of its own."""
        (self._folder / f"{name}.sh").write_text(commands + "\n")

    def words(self) -> List[str]:
        """What to put before a command so that it runs on the launcher's host."""
        naming = f'mount --bind "{self._folder}/hosts" /etc/hosts; exec "$@"'
        inside = ["unshare", "--mount", "sh", "-c", naming, "sh"]
        return ["ip", "netns", "exec", self.space("launcher"), *inside]

    def environment(self) -> Dict[str, str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("RUEDA_", "HOROVOD_"))}
        return {
            **clean,
            "PATH": f"{self._folder}:{os.environ['PATH']}",
            "RUEDA_LIBRARY": library(),
            "RUEDA_PYTHON": sys.executable,
        }

    def run(
        self, *arguments: str, limit_s: float = 180, **environment: str
    ) -> "subprocess.CompletedProcess[str]":
        """`rueda ...` on the launcher's host."""
        return subprocess.run(
            [*self.words(), RUEDA, *arguments],
            env={**self.environment(), **environment},
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )


class HostJob:
    """One rank on each host, started without a launcher. Each runs the same source in `folder`."""

    def __init__(self, hosts: VirtualHosts, source: str, **variables: str) -> None:
        self.folder = make_job_folder()
        self._ranks: List[subprocess.Popen[bytes]] = []
        alone = {"RUEDA_LOCAL_RANK": "0", "RUEDA_LOCAL_SIZE": "1", "RUEDA_INTERFACE": "eth0"}
        for rank, name in enumerate(hosts.names):
            naming = ["unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', name]
            environment = {
                **rank_environment(rank, len(hosts.names), self.folder, "tcp"),
                **alone,
                **variables,
            }
            with open(self.folder / f"output.{rank}", "wb") as output:
                words = ["ip", "netns", "exec", hosts.space(name), *naming, sys.executable, "-c", source]
                self._ranks.append(
                    subprocess.Popen(
                        words, env=environment, cwd=self.folder, stdout=output, stderr=subprocess.STDOUT
                    )
                )

    def output(self, rank: int) -> str:
        return (self.folder / f"output.{rank}").read_text(errors="replace")

    def everything(self) -> str:
        return "\n".join(f"---- rank {rank} ----\n{self.output(rank)}" for rank in range(len(self._ranks)))

    def end(self, limit_s: float) -> None:
        """Waits for the ranks, which must end well."""
        deadline = time.monotonic() + limit_s
        try:
            for rank in self._ranks:
                rank.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not ended after {limit_s} s\n{self.everything()}") from None
        assert all(rank.returncode == 0 for rank in self._ranks), self.everything()

    def remove(self) -> None:
        for rank in self._ranks:
            rank.kill()
            rank.wait(LIMIT_S)
        shutil.rmtree(self.folder, ignore_errors=True)


def why_not() -> Optional[str]:
    """Why this machine cannot have virtual hosts."""
    if os.geteuid() != 0:
        return "network name spaces need root"
    missing = [name for name in ("ip", "tc", "unshare") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed"
    probe = subprocess.run(
        ["unshare", "--net", "--mount", "true"], capture_output=True, check=False, timeout=LIMIT_S
    )
    return "this machine allows no network name spaces" if probe.returncode else None


@contextlib.contextmanager
def virtual_hosts(folder: pathlib.Path, names: List[str], rate: str) -> Iterator[VirtualHosts]:
    """Hosts whose ports have this rate, in the words of tc: 200mbit."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    hosts = VirtualHosts(folder, names)
    with hosts.connect(rate):
        yield hosts
