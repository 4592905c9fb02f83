"""Tests run against this checkout: its Python sources and the library of build/release (or RUEDA_LIBRARY)."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

for folder in ("python", "compat/horovod", "tests/multiprocess"):
    sys.path.insert(0, str(ROOT / folder))
if "RUEDA_LIBRARY" not in os.environ and (ROOT / "build/release/librueda.so").exists():
    os.environ["RUEDA_LIBRARY"] = str(ROOT / "build/release/librueda.so")

# In the background of a shell SIGINT is ignored, and what tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config, items):
    """What others nearly prove runs where it is asked for: by RUEDA_TEST_THOROUGH=1, or by its name."""
    if os.environ.get("RUEDA_TEST_THOROUGH") or any("::" in name for name in config.args):
        return
    kept, left_out = [], []
    for item in items:
        (left_out if is_thorough(item) else kept).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


def is_thorough(item):
    """Marked so: all cases, or those whose parameters have one of the words of the marker in their name."""
    case = item.name.partition("[")[2]
    markers = item.iter_markers("thorough")
    return any(not marker.args or any(word in case for word in marker.args) for marker in markers)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Where several processes share the tests, one has all tests of a world of ranks, of a backend of Keras,
    or of a file."""
    from xdist.scheduler import LoadScopeScheduling

    class ByWorldOrFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file, _, test = nodeid.partition("::")
            is_keras = "/test_keras_" in file
            world = re.search(r"\[(jax|torch|tensorflow)\]" if is_keras else r"\d-ranks-[a-z,]+", test)
            return world[0] if world else file

    return ByWorldOrFile(config, log)
