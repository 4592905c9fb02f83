"""A job that met at file:// left the directory of its run behind, until the next one swept it."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "multiprocess"))

from harness import assert_all_succeed, launch

ONCE = """
import rueda.numpy as hvd
hvd.init()
hvd.barrier()
"""
AGAIN = ONCE + "hvd.shutdown()\n" + ONCE  # at the same place
FORKED = ONCE + "import os\nif os.fork() == 0:\n    raise SystemExit\nos.wait()\nhvd.barrier()\n"


@pytest.mark.parametrize("body", [ONCE, AGAIN, FORKED], ids=["once", "again", "with a forked child"])
def test_a_clean_end_leaves_no_run_behind(body, tmp_path):
    assert_all_succeed(launch(2, body, {"RUEDA_STORE": f"file://{tmp_path}/store"}))
    left = [name for name in os.listdir(tmp_path / "store") if name.startswith("run-")]
    assert not left, left
