"""Tests run against this checkout: its Python sources and the library of build/release (or RUEDA_LIBRARY)."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

for folder in ("python", "compat/horovod", "tests/multiprocess"):
    sys.path.insert(0, str(ROOT / folder))
if "RUEDA_LIBRARY" not in os.environ and (ROOT / "build/release/librueda.so").exists():
    os.environ["RUEDA_LIBRARY"] = str(ROOT / "build/release/librueda.so")


def pytest_collection_modifyitems(config, items):
    """Where several processes share the tests, one has all tests of a world or a file."""
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        world = getattr(item, "callspec", None) and item.callspec.params.get("world")
        group = f"world {world[0]} {world[1]}" if world else item.nodeid.split("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))
