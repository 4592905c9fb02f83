"""The wheel of `make wheels`, as a user of an older Linux meets it. RUEDA_PORTABLE_WHEEL names it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import List

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import debian_files

GLIBC = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2"}
WHEEL = os.environ.get("RUEDA_PORTABLE_WHEEL", "")
pytestmark = pytest.mark.skipif(not WHEEL, reason="RUEDA_PORTABLE_WHEEL names no wheel (make wheels)")


def succeed(*command: object) -> str:
    hidden = ("PYTHON", "RUEDA_", "HOROVOD_", "VIRTUAL_ENV")
    env = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=170, env=env)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    zipfile.ZipFile(WHEEL).extractall(folder)
    return folder


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> Path:
    """bin/ of an environment with pip and the wheel, nothing else."""
    folder = tmp_path_factory.mktemp("venv")
    succeed(sys.executable, "-m", "venv", folder)
    succeed(folder / "bin" / "pip", "install", "--no-index", "--no-deps", "-q", WHEEL)
    return folder / "bin"


def binaries_of(folder: Path) -> List[Path]:
    return [*sorted(folder.glob("rueda/lib/*.so")), folder / "rueda_train-0.1.0.data/scripts/rueda"]


def test_the_tag_is_that_of_rhel_8():
    assert Path(WHEEL).name == "rueda_train-0.1.0-py3-none-manylinux_2_28_x86_64.whl"


def test_reductions_use_the_instructions_of_this_machine(bare):
    """Their bits are the same without, so nothing else would tell."""
    flags = set(re.findall(r"^flags\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)[0].split())
    found = re.findall(r"instruction set\s+(\S+)", succeed(bare / "rueda", "doctor"))
    wide = "AVX3" if {"avx512f", "avx512vl", "avx512dq", "avx512bw"} <= flags else "AVX2"
    assert found == [wide if "avx2" in flags else "SSE4"]


def test_bytes_are_copied_by_the_c_library(unpacked):
    """The compiler's own memcpy is built for the oldest machine: sums of 1 MiB took 1.7 times as long."""
    symbols = succeed("readelf", "--wide", "--dyn-syms", unpacked / "rueda" / "lib" / "librueda.so")
    assert {"memcpy", "memmove", "memset", "memcmp"} <= set(re.findall(r" UND (\w+)@GLIBC", symbols))


def test_no_symbol_is_newer_than_the_tag(unpacked):
    assert len(binaries_of(unpacked)) == 5
    for binary in binaries_of(unpacked):
        found = re.findall(r"GLIBC_2\.(\d+)", succeed("readelf", "--wide", "--version-info", binary))
        assert found and max(int(minor) for minor in found) <= 28, binary.name


def test_nothing_but_glibc_and_librueda_is_needed(unpacked):
    for binary in binaries_of(unpacked):
        needed = set(re.findall(r"library: \[(\S+)\]", succeed("readelf", "--wide", "--dynamic", binary)))
        assert needed and needed <= GLIBC | {"librueda.so"}, binary.name


def test_the_library_exports_its_c_functions_alone(unpacked):
    table = succeed("nm", "--dynamic", "--defined-only", unpacked / "rueda/lib/librueda.so")
    names = {line.split()[-1].partition("@")[0] for line in table.splitlines()}
    assert "rueda_init" in names
    assert all(name.startswith("rueda_") for name in names), sorted(names)[:5]


def test_what_is_linked_is_listed_with_its_licence(unpacked):
    info = unpacked / "rueda_train-0.1.0.dist-info"
    listing = json.loads((info / "sboms" / "rueda.cdx.json").read_text())
    names = {component["name"] for component in listing["components"]}
    assert "openssl" in names and "libc++ (of Zig)" in names and "libstdc++" not in names
    (openssl,) = [one for one in listing["components"] if one["name"] == "openssl"]
    # Of what is linked, not this machine's.
    headers = debian_files.cache().glob("debian/*/libssl-dev/usr/include/openssl/opensslv.h")
    assert any(f'"{openssl["version"]}"' in header.read_text() for header in headers), openssl
    assert (info / "licenses" / "LICENSE").exists()
    for name in names:
        assert (info / "licenses" / "linked" / f"{name}.txt").stat().st_size > 100, name


def test_two_ranks_meet(bare):
    script = "echo rank $RANK"
    lines = succeed(bare / "rueda", "run", "-np", 2, "--no-prefix", "sh", "-c", script).splitlines()
    assert sorted(lines) == ["rank 0", "rank 1"]
