"""Third part of tools/setup.sh: MPI libraries for the tests, from PyPI. Run with .venv/bin/python.

Each package of tools/requirements-mpi.txt gets a folder of its own in the folder mpi of debian_files.cache(),
which all clones share. A package that cannot be had is only reported; its tests are skipped.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Iterator, Tuple

from debian_files import cache

ROOT = Path(__file__).resolve().parent.parent


def packages() -> Iterator[Tuple[str, str]]:
    """(name, version) of each package."""
    for line in (ROOT / "tools" / "requirements-mpi.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, version = line.partition("==")
            yield name, version


def folder_of(name: str) -> Path:
    """Where this package is, or would be."""
    return cache() / "mpi" / f"{name}-{dict(packages())[name]}"


def install(name: str, version: str) -> None:
    folder = folder_of(name)
    if folder.is_dir():
        return
    print(f"[setup] {name} {version} …", file=sys.stderr, flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{name}-"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "install", "--retries", "5"]
    command = [*pip, "--no-deps", "--prefix", str(scratch), f"{name}=={version}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    if done.returncode == 0 and not folder.exists():
        scratch.chmod(0o755)
        scratch.rename(folder)  # all of it, or nothing
        return
    shutil.rmtree(scratch, ignore_errors=True)
    if done.returncode != 0:
        note = f"[setup] {name} could not be installed; what needs it will be skipped"
        print(note, file=sys.stderr, flush=True)


def main() -> None:
    for name, version in packages():
        install(name, version)


if __name__ == "__main__":
    main()
