"""Which `rueda` command Python starts: that of the same installation."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rueda.run  # noqa: F401 (rueda.run is a function as well)

ROOT = Path(__file__).resolve().parents[2]
run = sys.modules["rueda.run"]


def executable(path, text="#!/bin/sh\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def found(monkeypatch, tmp_path):
    """find_command() for a package in that folder, with another command beside Python and in PATH."""
    monkeypatch.delenv("RUEDA_BIN", raising=False)
    executable(tmp_path / "venv/bin/rueda")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv/bin/python"))
    monkeypatch.setenv("PATH", str(Path(executable(tmp_path / "path/rueda")).parent))

    def find(packages):
        monkeypatch.setattr(run, "_package_root", lambda: str(tmp_path / packages))
        return os.path.relpath(run.find_command(), tmp_path)

    return find


@pytest.mark.parametrize(
    ("packages", "command"),
    [
        ("D", "D/bin/rueda"),
        ("usr/lib64/python3.9/site-packages", "usr/bin/rueda"),
        ("usr/lib/python3/dist-packages", "usr/bin/rueda"),
        ("home/.local/lib/python3.12/site-packages", "home/.local/bin/rueda"),
    ],
)
def test_the_command_of_the_same_installation_comes_first(found, tmp_path, packages, command):
    assert found(packages) == "venv/bin/rueda"
    executable(tmp_path / command)
    assert found(packages) == command


def test_a_checkout_uses_the_command_beside_python_and_then_that_of_path(found, tmp_path):
    assert found("checkout/python") == "venv/bin/rueda"
    (tmp_path / "venv/bin/rueda").unlink()
    assert found("checkout/python") == "path/rueda"
    (tmp_path / "path/rueda").unlink()
    with pytest.raises(RuntimeError, match="set RUEDA_BIN"):
        found("checkout/python")


def start(tmp_path, **variables):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), **variables}
    command = [sys.executable, "-m", "rueda", "--flag", "a b"]
    return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)


def test_python_m_rueda_becomes_the_command_with_its_arguments_and_status(tmp_path):
    given = executable(tmp_path / "rueda", '#!/bin/sh\nprintf "%s|" "$@"\nexit 7\n')
    done = start(tmp_path, RUEDA_BIN=given)
    assert (done.returncode, done.stdout) == (7, "--flag|a b|"), done.stderr
    done = start(tmp_path, RUEDA_BIN="/nowhere/rueda")
    assert done.returncode == 1 and done.stderr == (
        "rueda: There is no rueda command at /nowhere/rueda, which RUEDA_BIN names.\n"
    )
