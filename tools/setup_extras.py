"""Last part of tools/setup.sh: programs that Debian 12 lacks, from the packages of a newer Debian.

A newer Python, to run the package with, and kustomize, to render the manifests. They are unpacked in
~/.cache/rueda and not installed. Where they cannot be had, the tests that need them are skipped.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Callable

from debian_files import Archive

NEWER = Archive(suite="forky")
PYTHON = "3.14"
# The interpreter needs a newer C library than Debian 12 has. It runs with its own.
LIBRARIES = ["libc6", "libexpat1", "libffi8", "libssl3t64", "libzstd1", "zlib1g"]
PYTHON_PACKAGES = [f"python{PYTHON}-minimal", f"libpython{PYTHON}-minimal", f"libpython{PYTHON}-stdlib"]
AGAIN_AFTER_S = 86_400  # a machine without a network does not ask each time


def python_program() -> Path:
    """Where the newer Python is, or would be. It finds its modules from this place."""
    return NEWER.folder / PYTHON_PACKAGES[0] / "usr" / "start" / f"python{PYTHON}"


def kustomize_program() -> Path:
    """Where kustomize is, or would be."""
    return NEWER.folder / "kustomize" / "usr" / "bin" / "kustomize"


def make_python() -> None:
    """A script that starts the interpreter with the libraries of its own release."""
    tree = NEWER.unpack([*PYTHON_PACKAGES, *LIBRARIES])
    (loader,) = (tree / "usr" / "lib").glob("*/ld-linux-*.so.*")
    options = f'--library-path "{loader.parent}" --argv0 "$0"'
    script = f'#!/bin/sh\nexec "{loader}" {options} "{tree}/usr/bin/python{PYTHON}" "$@"\n'
    program = python_program()
    program.parent.mkdir(exist_ok=True)
    part = program.with_suffix(".part")
    part.write_text(script)
    part.chmod(0o755)
    subprocess.run([str(part), "-c", "import ctypes, hashlib, json, ssl"], check=True)
    part.replace(program)


def make_kustomize() -> None:
    NEWER.unpack(["kustomize"])


def see_to(program: Path, make: Callable[[], None]) -> None:
    """Makes what is not there, and says it if that fails."""
    failure = NEWER.folder / f"{program.name}.failed"
    if program.exists() or (failure.exists() and time.time() - failure.stat().st_mtime < AGAIN_AFTER_S):
        return
    started = time.monotonic()
    NEWER.folder.mkdir(parents=True, exist_ok=True)
    try:
        make()
        said = f"{time.monotonic() - started:.0f} s"
    except (OSError, ValueError, subprocess.CalledProcessError, SystemExit) as error:
        failure.touch()
        said = f"cannot be had ({error}); what needs it will be skipped"
    print(f"[setup] {program.name}: {said}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    see_to(python_program(), make_python)
    see_to(kustomize_program(), make_kustomize)
