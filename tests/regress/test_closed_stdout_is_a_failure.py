"""`rueda run` with its stdout closed lost what the ranks printed and exited with 0."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "multiprocess"))

from launch_support import RUEDA


@pytest.mark.parametrize(
    "command, status", [("echo lost", 1), ("echo lost; exit 5", 5), ("echo shown >&2", 0)]
)
def test_output_to_a_closed_stdout_is_a_failure(command, status):
    closed = f"{RUEDA} run -np 1 sh -c '{command}' >&-"
    done = subprocess.run(["/bin/sh", "-c", closed], stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == status, done
    is_lost = "cannot write the ranks' output to stdout: Bad file descriptor" in done.stderr
    assert is_lost == (status != 0), done
