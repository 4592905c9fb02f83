"""The source distribution of `make wheels`, in an empty folder. RUEDA_SOURCE_DISTRIBUTION names it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Dict, List

import pytest

SOURCE = os.environ.get("RUEDA_SOURCE_DISTRIBUTION", "")
pytestmark = pytest.mark.skipif(not SOURCE, reason="RUEDA_SOURCE_DISTRIBUTION names no file (make wheels)")
BUILD_LIMIT_S = 1200


def environment(folder: Path, compiler: Dict[str, str]) -> Dict[str, str]:
    """This machine's, without git, and without what points at the repository."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    git = programs / "git"
    git.write_text("#!/bin/sh\necho 'the build called git' >&2\nexit 1\n")
    git.chmod(0o755)
    hidden = ("PYTHON", "RUEDA_", "HOROVOD_", "CMAKE_", "CC", "CXX", "CCACHE_BASEDIR", "CCACHE_NOHASHDIR")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    return {**kept, **compiler, "PATH": f"{programs}{os.pathsep}{kept['PATH']}"}


def succeed(command: List[object], env: Dict[str, str], limit_s: float = 120) -> None:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=limit_s, check=False)
    assert done.returncode == 0, f"{words}: {(done.stdout + done.stderr)[-4000:]}"


@pytest.fixture(name="tree")
def unpack(tmp_path: Path) -> Path:
    with tarfile.open(SOURCE) as archive:
        archive.extractall(tmp_path)
    return tmp_path / "rueda_train-0.1.0"


def test_no_link_leads_out_of_it(tree: Path) -> None:
    links = [path for path in tree.rglob("*") if path.is_symlink()]
    assert [path for path in links if tree not in path.resolve().parents or not path.exists()] == []


def test_clang_configures_it(tree: Path, tmp_path: Path) -> None:
    clang = next((name for name in ("clang++", "clang++-14") if shutil.which(name)), None)
    if clang is None:
        pytest.skip("clang++ is not installed")
    env = environment(tmp_path, {"CC": clang.replace("++", ""), "CXX": clang})
    succeed(["cmake", "-S", tree, "-B", tmp_path / "build", "-DRUEDA_BUILD_TESTS=OFF"], env)


@pytest.mark.timeout(BUILD_LIMIT_S)
def test_the_compiler_of_this_machine_builds_the_wheel(tree: Path, tmp_path: Path) -> None:
    env = environment(tmp_path, {})  # as the stage cpp, whose objects ccache then has
    pip = [sys.executable, "-m", "pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation"]
    succeed([*pip, "-w", tmp_path / "dist", tree], env, BUILD_LIMIT_S)
    (wheel,) = (tmp_path / "dist").glob("rueda_train-0.1.0-py3-none-manylinux_*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "unpacked")
    env["PYTHONPATH"] = str(tmp_path / "unpacked")
    succeed([sys.executable, "-S", "-c", "import rueda; from rueda.basics import basics; basics.init()"], env)
