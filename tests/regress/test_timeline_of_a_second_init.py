"""A second init in the same process emptied the timeline's file: what the first epoch had done was lost."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "multiprocess"))

from harness import assert_all_succeed, launch

BODY = """
import json
import numpy as np
import rueda.numpy as hvd

for name in ("first", "second"):
    hvd.init()
    hvd.allreduce(np.ones(2), name=name)
    rank = hvd.rank()
    hvd.shutdown()
if rank == 0:
    events = json.load(open("timeline.json"))
    tracks = {e["args"]["name"]: e["pid"] for e in events if "name" in e.get("args", {})}
    times = {
        name: [e["ts"] for e in events if e["pid"] == tracks["allreduce." + name] and e["ph"] == "B"]
        for name in ("first", "second")
    }
    assert 0 < max(times["first"]) <= min(times["second"]), times
    assert sum("start_time_since_epoch_in_micros" in e.get("args", {}) for e in events) == 1
"""


def test_the_timeline_of_a_second_init_goes_on_in_the_same_file():
    assert_all_succeed(launch(2, BODY, {"RUEDA_TIMELINE": "timeline.json"}))
