"""What a build for other machines needs: a compiler that links against an old glibc, and their libraries.

Zig's clang (PyPI: ziglang) brings the headers and symbol versions of every glibc and its own static C++
library. Header-only libraries come from this machine's Debian packages, and the static libcrypto and libyaml
from Debian's archive (debian_files.py).

The compiler is kept in ~/.cache/rueda (debian_files.cache()) and made again if it is missing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List

from debian_files import ARCHITECTURES, Archive, cache

ROOT = Path(__file__).resolve().parent.parent
ZIG = "0.17.1"
GLIBC = (2, 28)  # of RHEL 8; Ubuntu 20.04 has 2.31, Amazon Linux 2023 has 2.34
HEADER_ONLY = ["CLI", "fmt", "hwy", "nlohmann", "protozero"]


@dataclass(frozen=True)
class Machine:
    """An architecture, as Python's platform module names it."""

    name: str

    @property
    def debian(self) -> Archive:
        return Archive(ARCHITECTURES[self.name])

    @property
    def zig(self) -> str:
        return f"{self.name}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"


MACHINES = [Machine(name) for name in ARCHITECTURES]


def from_pypi(name: str, version: str, *options: str) -> Path:
    """The folder of a package, installed apart from the environment if it is not there yet."""
    folder = cache() / f"{name}-{version}"
    if not folder.exists():
        cache().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache()) as scratch:
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "install", *options]
            target = Path(scratch) / name
            subprocess.run([*pip, "--target", str(target), f"{name}=={version}"], check=True)
            target.rename(folder)
    return folder


def find_zig() -> Path:
    """The compiler."""
    return from_pypi("ziglang", ZIG, "--no-deps") / "ziglang" / "zig"


def make_tools(machine: Machine, folder: Path) -> None:
    """Programs with the names and the options that CMake expects."""
    zig = find_zig()
    folder.mkdir(parents=True, exist_ok=True)
    commands = {"clang": f"cc -target {machine.zig}", "clang++": f"c++ -target {machine.zig}"}
    for name, command in {**commands, "ar": "ar", "ranlib": "ranlib"}.items():
        text = f'#!/bin/sh\nexec {zig} {command} "$@"\n'
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            path.chmod(0o755)


def make_includes(machine: Machine, folder: Path) -> Path:
    """A folder with the headers that may be used, and none of this machine's C library."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in HEADER_ONLY:
        (folder / name).symlink_to(f"/usr/include/{name}")
    ssl = machine.debian.unpack(["libssl-dev"]) / "usr" / "include"
    shutil.copytree(ssl / "openssl", folder / "openssl")
    for path in ssl.glob("*/openssl/*.h"):  # of the architecture
        shutil.copy(path, folder / "openssl")
    shutil.copy(machine.debian.unpack(["libyaml-dev"]) / "usr" / "include" / "yaml.h", folder)
    return folder


def openssl_version(machine: Machine) -> str:
    """Of the libcrypto that is linked: 3.0.19."""
    header = machine.debian.unpack(["libssl-dev"]) / "usr" / "include" / "openssl" / "opensslv.h"
    found = re.search(r'OPENSSL_VERSION_STR "([0-9.]+)"', header.read_text())
    if found is None:
        raise SystemExit(f"{header} names no version of OpenSSL.")
    return found[1]


FMT_CONFIG = """add_library(fmt::fmt-header-only INTERFACE IMPORTED)
set_target_properties(fmt::fmt-header-only PROPERTIES INTERFACE_COMPILE_DEFINITIONS FMT_HEADER_ONLY=1)
"""


def cmake_settings(machine: Machine, tree: Path, is_quick: bool) -> List[str]:
    """Prepares everything in the build tree, and returns what to tell CMake.

    is_quick: the command is not optimized.
    """
    tools = tree / "portable" / "bin"
    make_tools(machine, tools)
    include = make_includes(machine, tree / "portable" / "include")
    fmt = tree / "portable" / "fmt"
    fmt.mkdir(exist_ok=True)
    (fmt / "fmt-config.cmake").write_text(FMT_CONFIG)
    (crypto,) = machine.debian.unpack(["libssl-dev"]).glob("usr/lib/*/libcrypto.a")
    (yaml,) = machine.debian.unpack(["libyaml-dev"]).glob("usr/lib/*/libyaml.a")
    settings: Dict[str, object] = {
        "CMAKE_BUILD_TYPE": "Release",
        "RUEDA_BUILD_TESTS": "OFF",
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": machine.name,
        "CMAKE_C_COMPILER": tools / "clang",
        "CMAKE_CXX_COMPILER": tools / "clang++",
        "CMAKE_AR": tools / "ar",
        "CMAKE_RANLIB": tools / "ranlib",
        "CMAKE_CXX_FLAGS": f"-isystem {include}",
        "CMAKE_SHARED_LINKER_FLAGS": "-s",
        "CMAKE_MODULE_LINKER_FLAGS": "-s",
        "CMAKE_EXE_LINKER_FLAGS": "-s",
        "fmt_DIR": fmt,
        "RUEDA_LIBCRYPTO": crypto,
        "RUEDA_LIBYAML": yaml,
        "RUEDA_LIBC_MEMORY": "ON",
        "RUEDA_QUICK_COMMAND": "ON" if is_quick else "OFF",
    }
    return [f"-D{key}={value}" for key, value in settings.items()]
