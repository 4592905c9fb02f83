"""Tests run against this checkout: its Python sources and the library of build/release (or RUEDA_LIBRARY)."""

import os
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

for folder in ("python", "compat/horovod", "tests/multiprocess"):
    sys.path.insert(0, str(ROOT / folder))
if "RUEDA_LIBRARY" not in os.environ and (ROOT / "build/release/librueda.so").exists():
    os.environ["RUEDA_LIBRARY"] = str(ROOT / "build/release/librueda.so")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Where several processes share the tests, one has all tests of a world of ranks, or of a file."""
    from xdist.scheduler import LoadScopeScheduling

    class ByWorldOrFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            world = re.search(r"\d-ranks-[a-z,]+", nodeid.partition("[")[2])
            return world[0] if world else nodeid.split("::")[0]

    return ByWorldOrFile(config, log)
