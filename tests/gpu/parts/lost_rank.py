"""The last rank is killed in the middle of its steps: the others raise an error that names it within five
seconds, whatever was launched ends, shutdown returns, and the survivors train on in a world of their own.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import world
from world import RANK, SIZE, mine

import rueda.torch as hvd

LIMIT_S = 5.0
KILLED = SIZE - 1
LAST_STEP = 20  # long enough for the steps to be learned as a plan
died = Path("died")  # in the folder of the part: when, by the clock that all processes of a host share

hvd.init()
world.require_engine()
seen = None
try:
    for step in range(100_000):
        handles = [hvd.allreduce_async_(mine(1 << 16), name=f"gradient.{i}", op=hvd.Sum) for i in range(4)]
        if RANK == KILLED and step == LAST_STEP:
            unfinished = died.with_suffix(".part")
            unfinished.write_text(str(time.monotonic()))
            unfinished.rename(died)
            os.kill(os.getpid(), signal.SIGKILL)
        for handle in handles:
            seen = hvd.synchronize(handle)
        float(seen[0])  # waits for the GPU, as a loop does that prints its loss
    raise AssertionError(f"no step failed, though rank {KILLED} was killed")
except hvd.HorovodInternalError as error:
    took_s = time.monotonic() - float(died.read_text())
    assert f"rank {KILLED}" in str(error), error
assert took_s <= LIMIT_S, f"the error came after {took_s:.1f} s"
world.synchronize()  # what was launched has ended
began = time.monotonic()
hvd.shutdown()
world.say(noticed_s=round(took_s, 2), shutdown_s=round(time.monotonic() - began, 2))

os.environ.update(RUEDA_SIZE=str(SIZE - 1), RUEDA_LOCAL_SIZE=str(SIZE - 1))
hvd.init()
total = hvd.allreduce(mine(1000), op=hvd.Sum)
assert (total == SIZE * (SIZE - 1) / 2).all(), total
world.say(checks=["named_in_time", "launched_work_ends", "shutdown_returns", "init_works_again"])
hvd.shutdown()
