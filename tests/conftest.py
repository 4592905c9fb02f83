"""Tests run against this checkout: its Python sources and the library of build/release (or RUEDA_LIBRARY)."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

for folder in ("python", "compat/horovod", "tests/multiprocess"):
    sys.path.insert(0, str(ROOT / folder))
if "RUEDA_LIBRARY" not in os.environ and (ROOT / "build/release/librueda.so").exists():
    os.environ["RUEDA_LIBRARY"] = str(ROOT / "build/release/librueda.so")
