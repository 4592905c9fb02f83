"""Two hosts on one machine: each has a network, a name, processes and shared memory of its own, and an sshd.

A box is a process in new name spaces; a cable (a veth pair) connects the two. They share the file system, as
hosts of a cluster share a home directory. Nothing of them is left when their first processes have ended.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Optional

from harness import PATIENCE
from processes import children_of

NAMES = ["a", "b"]
TOOLS = ["ip", "unshare", "nsenter", "ssh", "ssh-keygen"]
SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
START_S = 90.0 * PATIENCE

# The first process of a box. Its input says when the cable is there.
FIRST_PROCESS = """
hostname "$1"
mount --bind "$2/hosts" /etc/hosts
mount --bind "$2/ssh_config" /etc/ssh/ssh_config
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /dev/shm
mkdir /run/sshd
ip link set lo up
read ready
ip addr add "$3/24" dev "cable-$1"
ip link set "cable-$1" up
exec "$4" -D -f "$2/sshd_config" -E "$2/sshd-$1.log" </dev/null
"""


def why_not() -> Optional[str]:
    """The reason why no boxes can be made here."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    missing += [] if os.path.exists(SSHD) else ["sshd"]
    if missing:
        return f"not installed: {', '.join(missing)} (packages iproute2, util-linux and openssh-server)"
    if os.geteuid() != 0:
        return "name spaces need root"
    tried = subprocess.run(["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "true"], check=False)
    return None if tried.returncode == 0 else "this machine allows no new name spaces"


class Boxes:
    """Box `a` at 10.91.0.1 and box `b` at 10.91.0.2. A login there finds `variables`."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self._folder = folder
        self._processes: List[subprocess.Popen[bytes]] = []
        self._firsts: List[int] = []
        self._write_files(variables)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _write_files(self, variables: Mapping[str, str]) -> None:
        at = self._folder
        at.chmod(0o700)
        for name in ("user", "host"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", at / name], check=True)
        (at / "authorized").write_text((at / "user.pub").read_text())
        hosts = "".join(f"{self.address(name)} {name}\n" for name in NAMES)
        (at / "hosts").write_text("127.0.0.1 localhost\n" + hosts)
        login = " ".join(f'"{name}={value}"' for name, value in variables.items())
        (at / "sshd_config").write_text(
            f"HostKey {at}/host\nAuthorizedKeysFile {at}/authorized\nStrictModes no\nUsePAM no\n"
            f"PidFile none\nPermitRootLogin prohibit-password\nPasswordAuthentication no\nSetEnv {login}\n"
        )
        (at / "ssh_config").write_text(
            f"IdentityFile {at}/user\nIdentitiesOnly yes\nUserKnownHostsFile {at}/known\n"
            "StrictHostKeyChecking accept-new\nBatchMode yes\n"
        )

    @staticmethod
    def address(name: str) -> str:
        return f"10.91.0.{NAMES.index(name) + 1}"

    def _start(self) -> None:
        for name in NAMES:
            self._processes.append(
                subprocess.Popen(
                    [
                        *("unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child"),
                        *("--mount-proc", "sh", "-euc", FIRST_PROCESS, "first"),
                        *(name, self._folder, self.address(name), SSHD),
                    ],
                    stdin=subprocess.PIPE,
                    start_new_session=True,
                )
            )
        self._firsts = [self._await_child(process) for process in self._processes]
        cable = ["ip", "link", "add", "cable-a", "netns", str(self._firsts[0]), "type", "veth"]
        cable += ["peer", "name", "cable-b", "netns", str(self._firsts[1])]
        subprocess.run(cable, check=True)
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(b"ready\n")
            process.stdin.flush()
        for name in NAMES:
            self._await_login(name)

    def _await_child(self, process: subprocess.Popen[bytes]) -> int:
        deadline = time.monotonic() + START_S
        while True:
            assert process.poll() is None and time.monotonic() < deadline, "a box did not start"
            with contextlib.suppress(OSError):
                children = children_of(process.pid)
                if children and _command_of(children[0]).startswith("sh"):
                    return children[0]
            time.sleep(0.01)

    def _await_login(self, name: str) -> None:
        deadline = time.monotonic() + START_S
        while True:
            tried = subprocess.run(
                self.command("a", "ssh", "-o", "ConnectTimeout=2", name, "true"), capture_output=True
            )
            if tried.returncode == 0:
                return
            assert time.monotonic() < deadline, tried.stderr.decode()
            time.sleep(0.05)

    def command(self, name: str, *command: str) -> List[str]:
        """The command as it is run in that box."""
        first = str(self._firsts[NAMES.index(name)])
        return ["nsenter", "--target", first, "--net", "--uts", "--mount", "--pid", "--", *command]

    def processes(self) -> List[int]:
        """What runs in the boxes beside their sshd."""
        spaces = {os.readlink(f"/proc/{first}/ns/pid") for first in self._firsts}
        return [pid for pid in _all_processes() if pid not in self._firsts and _space_of(pid) in spaces]

    def stop(self) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGKILL)  # ends its child, which ends all others of the box
            process.wait(10)
            if process.stdin is not None:
                process.stdin.close()


def _command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _all_processes() -> List[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _space_of(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


@contextlib.contextmanager
def boxes(folder: Path, variables: Dict[str, str]) -> Iterator[Boxes]:
    made = Boxes(folder, variables)
    try:
        yield made
    finally:
        made.stop()
