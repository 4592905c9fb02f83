"""Pods without a cluster: processes that get what a manifest and Kubernetes give to containers.

The pods of one cluster share a network name space of their own, and there a DNS that learns names when the
test says so. Each pod has its host name, the variables of its manifest and of Kubernetes, and the Secret
where the manifest mounts it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from harness import ROOT, library

DNS = "10.77.0.53"
DOMAIN = "default.svc.cluster.local"

# Made by `unshare --net --mount`; ends with its standard input.
NODE = """
ip link set lo up
for last in 1 2 3 4 53; do ip addr add 10.77.0.$last/32 dev lo; done
mount --bind "$1/etc" /etc
mount -t tmpfs tmpfs /run
mkdir -p /run/sshd
"$2" "$3" "$1" &
read line || true
kill $!
"""

# Answers questions for the A records in a file, and notes each question in another.
NAME_SERVER = """
import json, socket, struct, sys
from pathlib import Path
folder = Path(sys.argv[1])
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("10.77.0.53", 53))
(folder / "dns-is-up").touch()
while True:
    query, asker = server.recvfrom(4096)
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode())
        at += query[at] + 1
    name, kind, question = ".".join(labels), query[at + 2], query[12 : at + 5]
    address = json.loads((folder / "records").read_text()).get(name)
    with open(folder / "asked", "a") as asked:
        asked.write(f"{name} {address}\\n")
    has_answer = address is not None and kind == 1
    answer = struct.pack("!HHHIH", 0xC00C, 1, 1, 5, 4) + socket.inet_aton(address) if has_answer else b""
    flags = 0x8580 if address is not None else 0x8583
    head = query[:2] + struct.pack("!HHHHH", flags, 1, int(has_answer), 0, 0)
    server.sendto(head + question + answer, asker)
"""


class Pod:
    """One container that runs."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self._output = output

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def await_text(self, text: str, limit_s: float = 120.0) -> None:
        deadline = time.monotonic() + limit_s
        while text not in self.output:
            assert self.process.poll() is None and time.monotonic() < deadline, self.output
            time.sleep(0.02)

    def wait(self, limit_s: float = 120.0) -> int:
        return self.process.wait(limit_s)


class Cluster:
    """What pods of one job share. Close it: `with contextlib.closing(Cluster(folder))`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pods: List[Pod] = []
        shutil.copytree("/etc", folder / "etc", symlinks=True, ignore_dangling_symlinks=True)
        (folder / "etc/mpi").mkdir()
        for name, text in {
            "hosts": "127.0.0.1 localhost\n",
            "resolv.conf": f"search {DOMAIN}\noptions ndots:5\nnameserver {DNS}\n",
            "nsswitch.conf": (folder / "etc/nsswitch.conf")
            .read_text()
            .replace("hosts:", "hosts: files dns #"),
        }.items():
            (folder / "etc" / name).unlink(missing_ok=True)
            (folder / "etc" / name).write_text(text)
        (folder / "server.py").write_text(NAME_SERVER)
        self._names: Dict[str, str] = {}
        self._save_names()
        (folder / "asked").touch()
        self._node = subprocess.Popen(
            [
                "unshare",
                "--net",
                "--mount",
                "sh",
                "-euc",
                NODE,
                "node",
                folder,
                sys.executable,
                folder / "server.py",
            ],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._await(lambda: (folder / "dns-is-up").exists(), "the DNS listens")

    def _await(self, claim: Any, what: str, limit_s: float = 120.0) -> None:
        deadline = time.monotonic() + limit_s
        while not claim():
            if self._node.poll() is not None:
                raise AssertionError((self._node.stderr.read() if self._node.stderr else b"").decode())
            ended = [pod.output for pod in self.pods if pod.process.poll() is not None]
            assert not ended and time.monotonic() < deadline, f"{what}: {ended}"
            time.sleep(0.02)

    def _save_names(self) -> None:
        draft = self.folder / "records.draft"
        draft.write_text(json.dumps(self._names))
        draft.replace(self.folder / "records")

    def publish(self, name: str, address: str) -> None:
        """From now on the DNS knows this name of the default name space."""
        self._names[f"{name}.{DOMAIN}"] = address
        self._save_names()

    def questions(self, name: str) -> int:
        """How often this name was asked for."""
        return (self.folder / "asked").read_text().count(f"{name}.{DOMAIN} ")

    def await_question(self, name: str, more_than: int = 0) -> None:
        """One look-up asks two questions, for an IPv4 and an IPv6 address. No pod may end meanwhile."""
        self._await(lambda: self.questions(name) > more_than, f"somebody asks for {name}")

    def mount_secret(self, path: str, key: str) -> None:
        """As kubelet does it: a link to a link to a file that only its owner may read."""
        folder, name = os.path.split(path)
        script = """
            mkdir -p "$1/..data"; cd "$1"; umask 277; printf %s "$3" > "..data/$2"; ln -s "..data/$2" "$2"
        """
        subprocess.run(self._enter("sh", "-euc", script, "mount", folder, name, key), check=True, timeout=60)

    def _enter(self, *command: str) -> List[str]:
        space = f"/proc/{self._node.pid}/ns"
        return ["nsenter", f"--net={space}/net", f"--mount={space}/mnt", f"--wd={self.folder}", *command]

    def start(self, host: str, command: Sequence[str], variables: Dict[str, str]) -> Pod:
        """A container with this host name; variables: what its manifest sets."""
        output = self.folder / f"output.{len(self.pods)}"
        given = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder / "home"),
            "HOSTNAME": host,
            "KUBERNETES_SERVICE_HOST": "10.96.0.1",
            "KUBERNETES_SERVICE_PORT": "443",
            "PYTHONPATH": str(ROOT / "python"),
            "RUEDA_LIBRARY": library(),
            "OMP_NUM_THREADS": "1",
            **variables,
        }
        named = self._enter("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host, *command)
        with open(output, "wb") as file:
            process = subprocess.Popen(
                named,
                env=given,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pods.append(Pod(process, output))
        return self.pods[-1]

    def close(self) -> None:
        for pod in self.pods:
            if pod.process.poll() is None:
                pod.process.kill()
                pod.process.wait(10)
        for stream in (self._node.stdin, self._node.stderr):
            if stream is not None:
                stream.close()
        self._node.wait(10)


# What the pod's own fields say: the number of its Job, and the cores that it asks for.
FIELDS = {"fieldRef": "6e3f0a52-5b51-4f2e-9d0c-0c8b7d3c9a11", "resourceFieldRef": "1"}


def variables_of(container: Dict[str, Any], index: Optional[int] = None) -> Dict[str, str]:
    """The environment of a container: the manifest's variables, and its index in an Indexed Job."""
    given = {}
    for entry in container.get("env", []):
        (source,) = entry.get("valueFrom", {"": ""})
        given[entry["name"]] = entry["value"] if "value" in entry else FIELDS[source]
    return given if index is None else {**given, "JOB_COMPLETION_INDEX": str(index)}


def command_of(container: Dict[str, Any], given: Dict[str, str]) -> List[str]:
    """Its command, with $(VARIABLES) replaced."""
    words = [str(word) for word in container["command"]]
    for name, value in given.items():
        words = [word.replace(f"$({name})", value) for word in words]
    return words
