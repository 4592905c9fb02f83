"""Builds the one wheel: Python package, librueda.so, headers, CMake package and the rueda command.

It is the PEP 517 backend named in pyproject.toml and a command: ``python tools/build_wheel.py [DIR]``. The
tag states what the binaries need: py3-none, because they use no CPython symbol, and a manylinux version
that is the newest GLIBC_x.y among the symbols that they import (PEP 600). If they need more than glibc, the
tag is linux_x86_64.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional, Tuple

import sbom
import wheel_metadata

ROOT = Path(__file__).resolve().parent.parent
GLIBC_LIBRARIES = {
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "librt.so.1",
    "libpthread.so.0",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
}
MINIMAL_CMAKE = (3, 25)
FORMER_NAME = "rueda"  # of the distribution; on PyPI another project has it
TARGETS = ["rueda", "rueda_cli", "rueda_jax", "rueda_tensorflow", "rueda_torch"]


@dataclass(frozen=True)
class Build:
    """How the binaries of a wheel are made. The default: for this machine, with its compiler."""

    tree: Path = Path(os.environ.get("RUEDA_BUILD_DIR", ROOT / "build" / "release"))
    machine: str = platform.machine()
    # The oldest glibc that the tag may name: 2.17 is the oldest that x86_64 wheels can name usefully.
    glibc: Tuple[int, int] = (2, 17)
    settings: Tuple[str, ...] = ("-DCMAKE_BUILD_TYPE=Release", "-DRUEDA_BUILD_TESTS=OFF")
    install: Tuple[str, ...] = ("--strip",)
    libraries: Tuple[sbom.Component, ...] = tuple(sbom.LIBRARIES)
    runtime: sbom.Component = sbom.GCC_RUNTIME
    environment: Dict[str, str] = field(default_factory=dict)


def project() -> Dict[str, Any]:
    """The [project] table of pyproject.toml."""
    try:
        import tomllib
    except ModuleNotFoundError:  # Python < 3.11
        import tomli as tomllib  # type: ignore[no-redef]
    with open(ROOT / "pyproject.toml", "rb") as file:
        table: Dict[str, Any] = tomllib.load(file)["project"]
    return table


def stem_of(table: Dict[str, Any]) -> str:
    """What the names of its files begin with: the distribution, as file names spell it, and its version."""
    return f"{re.sub('[-_.]+', '_', table['name']).lower()}-{table['version']}"


def find_tool(name: str) -> Optional[str]:
    """A program from the environment of the running interpreter, or from PATH."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)


def find_cmake() -> Optional[str]:
    """cmake of at least MINIMAL_CMAKE, or None."""
    for candidate in (find_tool("cmake"), "/usr/bin/cmake"):
        if candidate is None or not os.path.exists(candidate):
            continue
        said = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=False).stdout
        found = re.search(r"version (\d+)\.(\d+)", said)
        if found and (int(found[1]), int(found[2])) >= MINIMAL_CMAKE:
            return candidate
    return None


# ---- the binaries ----


def build_binaries(prefix: Path, build: Build) -> None:
    """Configures, builds and installs the component `rueda` under prefix, stripped."""
    cmake = find_cmake()
    if cmake is None:
        raise SystemExit("rueda needs CMake 3.25 or newer to build: apt install cmake, or pip install cmake.")
    env = {**os.environ, **build.environment}
    if build != Build() or not (build.tree / "CMakeCache.txt").exists():
        # The tree of the C++ tests keeps its own settings, since they share its objects.
        generator = ["-G", "Ninja"] if find_tool("ninja") else []
        configure = [cmake, "-S", str(ROOT), "-B", str(build.tree), *generator, *build.settings]
        subprocess.run(configure, check=True, stdout=sys.stderr, env=env)
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count() or 1))
    compile_all = [cmake, "--build", str(build.tree), "--target", *TARGETS, "-j", jobs]
    subprocess.run(compile_all, check=True, stdout=sys.stderr, env=env)
    install = [cmake, "--install", str(build.tree), "--prefix", str(prefix), "--component", "rueda"]
    subprocess.run([*install, *build.install], check=True, stdout=subprocess.DEVNULL)


def dynamic_needs(binary: Path) -> Tuple[List[str], Tuple[int, int]]:
    """NEEDED libraries, and the newest GLIBC symbol version imported (0, 0 if none)."""
    read = ["readelf", "--wide", "--dynamic", "--version-info", str(binary)]
    table = subprocess.run(read, capture_output=True, text=True, check=True, env={"LC_ALL": "C"}).stdout
    needed = re.findall(r"\(NEEDED\)\s+Shared library: \[(\S+)\]", table)
    versions = [(int(a), int(b)) for a, b in re.findall(r"Name: GLIBC_(\d+)\.(\d+)", table)]
    return needed, max(versions, default=(0, 0))


def platform_tag(binaries: List[Path], build: Build) -> str:
    """manylinux_X_Y_<machine> if nothing but glibc is needed, otherwise linux_<machine>."""
    newest = build.glibc
    for binary in binaries:
        needed, version = dynamic_needs(binary)
        foreign = sorted(set(needed) - GLIBC_LIBRARIES - {"librueda.so"})  # which lies beside the plugins
        if foreign:
            print(f"{binary.name} needs {', '.join(foreign)}: tagged linux_{build.machine}", file=sys.stderr)
            return f"linux_{build.machine}"
        newest = max(newest, version)
    return f"manylinux_{newest[0]}_{newest[1]}_{build.machine}"


# ---- the archive ----


def metadata_text(table: Dict[str, Any], licenses: Iterable[str] = ("LICENSE",)) -> str:
    """PKG-INFO or METADATA. licenses: paths below the folder of licences."""
    return wheel_metadata.text_of(table, (ROOT / table["readme"]).read_text(encoding="utf-8"), licenses)


class WheelWriter:
    """A wheel under construction: first its files, then RECORD. The same inputs give the same bytes."""

    def __init__(self, path: Path, info: str) -> None:
        self.info = info
        self.records: List[str] = []
        epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))  # 1980-01-01, the first a zip can hold
        self.date = time.gmtime(max(epoch, 315532800))[:6]
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)

    def add(self, name: str, data: bytes, mode: int = 0o644) -> None:
        entry = zipfile.ZipInfo(name, self.date)
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.records.append(f"{name},sha256={digest},{len(data)}")

    def finish(self) -> None:
        name = f"{self.info}/RECORD"
        self.records.append(f"{name},,")
        entry = zipfile.ZipInfo(name, self.date)
        entry.external_attr = 0o100644 << 16
        self.zip.writestr(entry, "\n".join(self.records) + "\n")
        self.zip.close()


def package_files() -> List[Path]:
    """The files of python/rueda that are shipped."""
    package = ROOT / "python" / "rueda"
    wanted = [p for p in package.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    return sorted(p for p in wanted if p.suffix in (".py", ".pyi", ".md", ".typed") or p.name == "py.typed")


def build_wheel(
    wheel_directory: str,
    config_settings: Optional[Dict[str, Any]] = None,
    metadata_directory: Optional[str] = None,
) -> str:
    """PEP 517: writes the wheel into wheel_directory and returns its name."""
    return write_wheel(Path(wheel_directory), Build())


def write_wheel(directory: Path, build: Build) -> str:
    """Builds the binaries and writes the wheel into directory; returns its name."""
    table = project()
    stem = stem_of(table)
    with tempfile.TemporaryDirectory() as scratch:
        prefix = Path(scratch)
        build_binaries(prefix, build)
        libraries, command = sorted((prefix / "lib").glob("*.so")), prefix / "bin" / "rueda"
        tag = f"py3-none-{platform_tag([*libraries, command], build)}"
        name = f"{stem}-{tag}.whl"
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        wheel = WheelWriter(target.with_suffix(".part"), f"{stem}.dist-info")
        for path in package_files():
            wheel.add(path.relative_to(ROOT / "python").as_posix(), path.read_bytes())
        for path in sorted(p for p in prefix.rglob("*") if p.is_file()):
            if path == command:
                wheel.add(f"{stem}.data/scripts/rueda", path.read_bytes(), 0o755)
            else:
                mode = 0o755 if path in libraries else 0o644
                wheel.add(f"rueda/{path.relative_to(prefix).as_posix()}", path.read_bytes(), mode)
        add_metadata(wheel, table, tag, [*build.libraries, build.runtime])
        wheel.finish()
    target.with_suffix(".part").replace(target)
    return name


def add_metadata(
    wheel: WheelWriter, table: Dict[str, Any], tag: str, components: List[sbom.Component]
) -> None:
    """The files of .dist-info but RECORD."""
    about = f"Wheel-Version: 1.0\nGenerator: rueda tools/build_wheel.py\nRoot-Is-Purelib: false\nTag: {tag}\n"
    listing = sbom.document(table["name"], table["version"], table["license"], components)
    texts = {"LICENSE": (ROOT / "LICENSE").read_bytes(), **sbom.license_texts(components)}
    wheel.add(f"{wheel.info}/METADATA", metadata_text(table, texts).encode())
    wheel.add(f"{wheel.info}/WHEEL", about.encode())
    wheel.add(f"{wheel.info}/sboms/rueda.cdx.json", listing.encode())
    for path, text in texts.items():
        wheel.add(f"{wheel.info}/licenses/{path}", text)


def build_sdist(sdist_directory: str, config_settings: Optional[Dict[str, Any]] = None) -> str:
    """PEP 517: the tracked files, and PKG-INFO."""
    table = project()
    stem = stem_of(table)
    name = f"{stem}.tar.gz"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(Path(sdist_directory) / name, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(listed.decode().split("\0")):
            if path and (ROOT / path).is_file():
                archive.add(ROOT / path, f"{stem}/{path}")
        with tempfile.NamedTemporaryFile("w", suffix="PKG-INFO", encoding="utf-8") as about:
            about.write(metadata_text(table))
            about.flush()
            archive.add(about.name, f"{stem}/PKG-INFO")
    return name


def get_requires_for_build_wheel(config_settings: Optional[Dict[str, Any]] = None) -> List[str]:
    """What pip must install for the build: nothing if the machine has CMake and Ninja."""
    wanted = [] if find_cmake() else ["cmake>=3.25"]
    return wanted + ([] if find_tool("ninja") else ["ninja"])


if __name__ == "__main__":
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist")
    for old in (*directory.glob("rueda_train-*.whl"), *directory.glob(f"{FORMER_NAME}-*.whl")):
        old.unlink()
    print(directory / build_wheel(str(directory)))
