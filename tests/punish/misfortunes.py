"""What a process does to itself at a named point, for tests that need exactly that one: `WHAT:STEP:RANK`.

die        SIGKILL before the sum of the step after STEP steps
fail       the sum succeeds, but this rank takes it for failed, as one does that hears of a loss before it
die-alone  SIGKILL when this rank has made and recorded the commit of that step
die-joining:CHUNK:0   SIGKILL of the process that joins, when it asks for this chunk of the state

Each happens once in a job, because another process may come to the same step as the same rank.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import rueda.numpy as hvd
from rueda.elastic import wire


class Misfortunes:
    """Those of one process. folder: where the processes of a job leave marks."""

    def __init__(self, points: list[str], folder: Path) -> None:
        self._points, self._folder = points, folder
        joining = [int(one.split(":")[1]) for one in points if one.startswith("die-joining:")]
        if joining and os.environ.get("RUEDA_JOINER") == "1":
            self._die_at_chunk(joining[0])

    def befall(self, what: str, step: int) -> None:
        """This process is at that point."""
        point = f"{what}:{step}:{hvd.rank()}"
        if point not in self._points or not self._is_first(point):
            return
        if what == "fail":
            raise hvd.HorovodInternalError(f"rank {hvd.rank()} takes the sum of step {step + 1} for failed")
        os.kill(os.getpid(), signal.SIGKILL)

    def _is_first(self, point: str) -> bool:
        try:
            (self._folder / f"befell.{point}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _die_at_chunk(self, chunk: int) -> None:
        start = wire.EngineWire.start_broadcast

        def start_or_die(wire_, content, root, number):
            if number == chunk and self._is_first("die-joining"):
                os.kill(os.getpid(), signal.SIGKILL)
            return start(wire_, content, root, number)

        wire.EngineWire.start_broadcast = start_or_die
