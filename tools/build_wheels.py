"""``make wheels``: the wheels to publish, one for each architecture, checked; and the source distribution.

``python tools/build_wheels.py [--machine x86_64|aarch64] [--quick] [DIR]``. They run on Linux with glibc
2.28 or newer. A wheel is checked symbol by symbol by auditwheel, and its metadata by twine. Then a program
that reduces random numbers runs with the library of each wheel, the aarch64 one under qemu, and must print
the same as with this machine's own build. With --quick the command is not optimized, and compiles in half
the time: enough for ``make test-all``, and not to be published.
"""

from __future__ import annotations

import argparse
import email
import os
import platform
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import List

import build_wheel
import portable_build
import sbom
from portable_build import GLIBC, MACHINES, ROOT, ZIG, Machine

TWINE = "7.0.0"
CLASSIFIERS = "2026.9.21.13"  # of trove-classifiers
BITS = ROOT / "tests" / "portable" / "bits.cc"


def build_for(machine: Machine, is_quick: bool) -> build_wheel.Build:
    """How the wheel of that architecture is built."""
    tree = ROOT / "build" / f"portable-{machine.name}"
    return build_wheel.Build(
        tree=tree,
        machine=machine.name,
        glibc=GLIBC,
        settings=tuple(portable_build.cmake_settings(machine, tree, is_quick)),
        install=(),  # linked with -s: strip knows this machine's binaries only
        libraries=sbom.with_openssl(portable_build.openssl_version(machine)),
        runtime=sbom.zig_runtime(ZIG, portable_build.find_zig().parent / "lib" / "libcxx" / "LICENSE.TXT"),
        environment={"CCACHE_COMPILERCHECK": "content"},  # of the scripts that call Zig
    )


def check_symbols(wheel: Path) -> None:
    """Raises SystemExit unless auditwheel finds nothing newer than the wheel's tag."""
    command = [sys.executable, "-m", "auditwheel", "show", str(wheel)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    text = " ".join((said.stdout + said.stderr).split())
    found = re.search(r'consistent with the following platform tag: "manylinux_(\d+)_(\d+)_(\w+)"', text)
    if found is None or (int(found[1]), int(found[2])) > GLIBC or found[3] not in wheel.name:
        raise SystemExit(f"{wheel.name}: auditwheel does not agree with its tag: {text}")
    print(f"{wheel.name}: auditwheel finds symbols up to glibc {found[1]}.{found[2]}")


def check_page(*archives: Path) -> None:
    """Raises SystemExit unless PyPI would accept them and show their text."""
    folder = portable_build.from_pypi("twine", TWINE)
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, archives)]
    env = {**os.environ, "PYTHONPATH": str(folder), "NO_COLOR": "1"}
    subprocess.run(command, check=True, env=env)


def check_classifiers(wheel: Path) -> None:
    """Raises SystemExit if PyPI would refuse a classifier. twine does not look at them."""
    program = "import sys, trove_classifiers; print(*set(sys.argv[1:]) - set(trove_classifiers.classifiers))"
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        said = email.message_from_bytes(archive.read(name)).get_all("Classifier", [])
    env = {**os.environ, "PYTHONPATH": str(portable_build.from_pypi("trove-classifiers", CLASSIFIERS))}
    command = [sys.executable, "-c", program, *said]
    unknown = subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout.strip()
    if unknown or not said:
        raise SystemExit(f"{wheel.name}: PyPI does not know the classifier {unknown or '(there is none)'}")


# ---- the same bits ----


def compile_bits(machine: Machine, folder: Path) -> Path:
    """The program, for that architecture."""
    program = folder / f"bits-{machine.name}"
    zig = portable_build.find_zig()
    options = ["-std=c++20", "-O1", "-target", machine.zig, "-I", str(ROOT / "include")]
    subprocess.run([zig, "c++", *options, BITS, "-o", program, "-ldl"], check=True)
    return program


def emulator(machine: Machine) -> List[str]:
    """What runs programs of that architecture here."""
    if machine.name == platform.machine():
        return []
    glibc = machine.debian.unpack(["libc6"])
    return [f"qemu-{machine.name}-static", "-L", str(glibc)]


def bits_of(machine: Machine, library: Path, folder: Path) -> str:
    """What the program prints with that library."""
    command = [*emulator(machine), str(compile_bits(machine, folder)), str(library)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout


def check_bits(machine: Machine, wheel: Path) -> None:
    """Raises SystemExit unless the library of the wheel gives the bits of this machine's own build."""
    (here,) = (each for each in MACHINES if each.name == platform.machine())
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with zipfile.ZipFile(wheel) as archive:
            archive.extract("rueda/lib/librueda.so", folder)
        build_wheel.build_binaries(folder / "here", build_wheel.Build())
        expected = bits_of(here, folder / "here" / "lib" / "librueda.so", folder)
        found = bits_of(machine, folder / "rueda" / "lib" / "librueda.so", folder)
    if found != expected or not expected:
        raise SystemExit(f"{wheel.name} gives other bits than this machine's build:\n{expected}\n{found}")
    print(
        f"{wheel.name}: the bits of {len(expected.splitlines())} reductions are those of this machine's build"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="portable wheels")
    parser.add_argument("directory", nargs="?", type=Path, default=ROOT / "dist" / "portable")
    names = [machine.name for machine in MACHINES]
    parser.add_argument("--machine", choices=names, help="only this architecture")
    parser.add_argument(
        "--quick", action="store_true", help="do not optimize the command: to check, not to publish"
    )
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    for machine in MACHINES:
        if given.machine in (None, machine.name):
            wheel = given.directory / build_wheel.write_wheel(
                given.directory, build_for(machine, given.quick)
            )
            check_symbols(wheel)
            check_page(wheel)
            check_classifiers(wheel)
            check_bits(machine, wheel)
            print(wheel)
    source = given.directory / build_wheel.build_sdist(str(given.directory))
    check_page(source)
    print(source)


if __name__ == "__main__":
    main()
