"""Second half of tools/setup.sh: fills .venv; with ``demo``: as far as the demo needs. Run with its Python.

A step is skipped if its inputs have not changed since it last succeeded (stamps in .venv/.rueda). While rueda
is compiled, packages are installed.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, Iterable, List, Tuple

ROOT = Path(__file__).resolve().parent.parent
STAMPS = Path(sys.prefix) / ".rueda"
DIST = ROOT / "dist"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
FORMER_NAME = "rueda"  # of the distribution rueda-train
WHEEL_INPUTS = [
    "src",
    "include",
    "cmake",
    "python",
    "CMakeLists.txt",
    "pyproject.toml",
    "README.md",
    "LICENSE",
]


def say(text: str) -> None:
    print(f"[setup] {text}", file=sys.stderr, flush=True)


def files_of(names: Iterable[str]) -> List[Path]:
    """The files below the given paths of the repository, except what tools leave behind."""
    found: List[Path] = []
    for name in names:
        path = ROOT / name
        found += [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    unwanted = {"__pycache__", "build", ".mypy_cache", ".ruff_cache"}
    inside = ((p, p.relative_to(ROOT).parts) for p in found)
    return sorted(p for p, parts in inside if not unwanted & set(parts) and "egg-info" not in "".join(parts))


def fingerprint(names: Iterable[str]) -> str:
    """SHA-256 over paths and contents."""
    total = hashlib.sha256(sys.version.encode())
    for path in files_of(names):
        total.update(path.relative_to(ROOT).as_posix().encode() + b"\0")
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def step(name: str, inputs: List[str], is_there: Callable[[], bool], action: Callable[[], None]) -> None:
    """Runs action unless it succeeded before with the same inputs and its result is still there."""
    stamp = STAMPS / name
    wanted = fingerprint(inputs)
    if stamp.exists() and stamp.read_text() == wanted and is_there():
        return
    started = time.monotonic()
    say(f"{name} …")
    stamp.unlink(missing_ok=True)
    action()
    STAMPS.mkdir(exist_ok=True)
    stamp.write_text(wanted)
    say(f"{name}: {time.monotonic() - started:.0f} s")


def run(*command: str) -> None:
    """Runs a command. If it fails, the whole setup ends with its exit status."""
    result = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    if result.returncode != 0:
        raise SystemExit(f"[setup] failed: {' '.join(command)}")


def install(*arguments: str) -> None:
    run(*PIP, "install", "--retries", "5", *arguments)


def build_wheel() -> None:
    run(sys.executable, "tools/build_wheel.py", str(DIST))


def install_wheel() -> None:
    """The wheel; first without the distribution of the former name, which would own the same files."""
    if has_distribution(FORMER_NAME):
        run(*PIP, "uninstall", "-y", FORMER_NAME)
    wheels = sorted(DIST.glob("rueda_train-*.whl"))
    run(*PIP, "install", "--no-index", "--no-deps", "--force-reinstall", str(wheels[-1]))


def has_distribution(name: str) -> bool:
    """Whether .venv holds the distribution, by its name in file names ("rueda_train").

    Looks on disk, because this process may have cached an older state.
    """
    libraries = Path(sys.prefix) / "lib"
    return any(libraries.glob(f"python*/site-packages/{name}-*.dist-info"))


def is_rueda_installed() -> bool:
    return has_distribution("rueda_train") and not has_distribution(FORMER_NAME)


def install_alias() -> None:
    run(*PIP, "install", "--no-deps", "--no-build-isolation", "--force-reinstall", "./compat/horovod")


# Each with a package by which it is recognised. They are installed one after the other, so that pip keeps the
# versions that earlier ones chose.
FOR_THE_DEMO = [("demo", "torch")]
FOR_TESTS = [*FOR_THE_DEMO, ("", "jax"), ("tensorflow", "tensorflow"), ("spark", "pyspark"), ("ray", "ray")]


def install_packages(parts: List[Tuple[str, str]]) -> None:
    for part, package in parts:
        file = f"tools/requirements-{part}.txt" if part else "tools/requirements.txt"
        step(
            f"python packages{part and f' for {part}'}",
            [file],
            lambda package=package: has_distribution(package),
            lambda file=file: install("-r", file),
        )


def main() -> None:
    is_demo = sys.argv[1:] == ["demo"]
    if sys.argv[1:] and not is_demo:
        raise SystemExit(f"setup_venv.py: nothing or 'demo' is expected, not {' '.join(sys.argv[1:])!r}")
    if Path(sys.prefix).resolve() != (ROOT / ".venv").resolve():
        raise SystemExit(f"setup_venv.py would fill {sys.prefix}; run it with {ROOT / '.venv/bin/python'}")
    with ThreadPoolExecutor(1) as beside:
        packages = beside.submit(install_packages, FOR_THE_DEMO if is_demo else FOR_TESTS)
        wheel_inputs = [*WHEEL_INPUTS, "tools/build_wheel.py"]
        step("wheel", wheel_inputs, lambda: any(DIST.glob("rueda_train-*.whl")), build_wheel)
        packages.result()
    step("install rueda", wheel_inputs, is_rueda_installed, install_wheel)
    if not is_demo and (ROOT / "compat" / "horovod" / "pyproject.toml").exists():
        step("install horovod alias", ["compat/horovod"], lambda: has_distribution("horovod"), install_alias)


if __name__ == "__main__":
    main()
