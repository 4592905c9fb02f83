"""Files of Debian's packages without installing them: of another architecture, or of a newer release.

The archive is the one this machine's apt uses. apt's lists for it are kept apart from the system's. Packages
are unpacked in ~/.cache/rueda (cache() below), once.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Sequence

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # as Debian names them
LISTS_LAST_S = 3600.0


def cache() -> Path:
    """The folder that outlives a clone: $RUEDA_CACHE, or where $XDG_CACHE_HOME says, or ~/.cache/rueda."""
    if given := os.environ.get("RUEDA_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rueda"


@dataclass(frozen=True)
class Archive:
    """Debian's packages of one architecture and one release."""

    architecture: str = ARCHITECTURES.get(platform.machine(), platform.machine())
    suite: str = ""  # "": those that this machine's apt knows

    @property
    def folder(self) -> Path:
        return cache() / "debian" / (f"{self.architecture}-{self.suite}" if self.suite else self.architecture)

    def unpack(self, packages: Sequence[str], name: str = "") -> Path:
        """The files of the packages in one tree, kept under that name (default: the first package)."""
        kept = self.folder / (name or packages[0])
        if not kept.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
                self._download(Path(scratch), packages)
                unpacked = Path(scratch) / "unpacked"
                for archive in sorted(Path(scratch).glob("*.deb")):
                    subprocess.run(["dpkg-deb", "-x", str(archive), str(unpacked)], check=True)
                unpacked.rename(kept)
        return kept

    def _download(self, where: Path, packages: Sequence[str]) -> None:
        apt = self._apt()
        updated = self.folder / "apt" / "updated"
        if not updated.exists() or time.time() - updated.stat().st_mtime > LISTS_LAST_S:
            subprocess.run([*apt, "update"], check=True, stdout=sys.stderr)
            updated.touch()
        subprocess.run([*apt, "download", *packages], check=True, stdout=sys.stderr, cwd=where)

    def _apt(self) -> List[str]:
        """apt-get with lists of its own."""
        lists = self.folder / "apt"
        for inner in ("state/lists/partial", "cache/archives/partial"):
            (lists / inner).mkdir(parents=True, exist_ok=True)
        (lists / "status").touch()
        options: Dict[str, object] = {
            "APT::Architecture": self.architecture,
            "APT::Architectures::": self.architecture,
            "APT::Sandbox::User": "root",
            "Dir::State": lists / "state",
            "Dir::State::status": lists / "status",
            "Dir::Cache": lists / "cache",
            "Acquire::Retries": 3,
            "Acquire::Languages": "none",
        }
        if self.suite:
            keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
            (lists / "sources.list").write_text(f"deb [signed-by={keys}] {mirror()} {self.suite} main\n")
            options |= {"Dir::Etc::sourcelist": lists / "sources.list", "Dir::Etc::sourceparts": "/dev/null"}
        return [
            "apt-get",
            "-qq",
            *(word for key, value in options.items() for word in ("-o", f"{key}={value}")),
        ]


def mirror() -> str:
    """The address of Debian's archive in the sources of this machine's apt."""
    command = ["apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)", "Created-By: Packages"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for label, _, address in (line.partition(" ") for line in said.splitlines()):
        if label == "Debian":
            return address
    raise SystemExit("apt on this machine has no list of Debian's archive; run apt-get update as root.")
