"""Sockets of killed ranks are removed, and nothing else is."""

import os
import socket
import sys

import pytest

from rueda.dead_sockets import folder, remove_dead_sockets


def listen_at(path):
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.listen()
    return made


def test_only_sockets_without_a_listener_are_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    remove_dead_sockets()  # there is no folder yet
    (tmp_path / "rueda").mkdir()
    with listen_at(tmp_path / "rueda" / "1-00000001.sock"):
        listen_at(tmp_path / "rueda" / "2-00000002.sock").close()
        (tmp_path / "rueda" / "metrics-9400.token").write_text("of a user")
        remove_dead_sockets()
    assert sorted(os.listdir(tmp_path / "rueda")) == ["1-00000001.sock", "metrics-9400.token"]


@pytest.mark.parametrize(
    ("given", "expected"), [("/run/user/7", "/run/user/7/rueda"), ("", None), ("here", None)]
)
def test_the_folder_is_that_of_the_ranks(given, expected, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", given)
    assert folder() == (expected or f"/tmp/rueda-{os.geteuid()}")


def test_the_file_runs_without_the_package(tmp_path):
    """By a Python that sees neither the package nor the variables of the environment's Python."""
    from subprocess import run

    import rueda.dead_sockets

    (tmp_path / "rueda").mkdir()
    listen_at(tmp_path / "rueda" / "2-00000002.sock").close()
    program = f"import runpy; runpy.run_path({rueda.dead_sockets.__file__!r})['remove_dead_sockets']()"
    run([sys.executable, "-I", "-S", "-c", program], env={"XDG_RUNTIME_DIR": str(tmp_path)}, check=True)
    assert os.listdir(tmp_path / "rueda") == []
