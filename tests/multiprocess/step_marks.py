"""Counts the steps that ranks record while they train, as `rueda timeline summary` reads them."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Callable

from launch_support import RUEDA

from rueda import basics, exports, operations


def steps_of(train: Callable[[], object]) -> int:
    """All ranks of a world: how many steps this rank has marked in train()."""
    folder = Path(tempfile.mkdtemp(prefix="rueda-steps-"))
    try:
        exports.start_timeline(str(folder / "t.json"))
        train()
        operations.barrier()
        exports.stop_timeline()
        record = folder / f"t.json.rank{basics.basics.rank()}.rec"
        command = [RUEDA, "timeline", "summary", "--json", str(record)]
        summary = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
        # A step lasts from one mark to the next, so the first mark ends none.
        return int(summary["steps"]) + 1 if summary["has_steps"] else 0
    finally:
        shutil.rmtree(folder)
