"""Where a timeline ends, and where it cannot be written: what its files have, and what is said."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from harness import assert_all_succeed, launch
from test_timeline import TRAINING, summary, timeline

CYCLES = """
import collections, json, os
import numpy as np
import rueda.numpy as hvd

hvd.init()
lacking = {}
for cycle in range(20):
    path = os.path.join(os.environ["FOLDER"], f"{cycle}.json")
    hvd.start_timeline(path)
    for i in range(5):
        hvd.allreduce(np.ones(4), name=f"g{i}")
    hvd.stop_timeline()
    if hvd.rank() == 0:
        with open(path) as file:
            begins = [event for event in json.load(file) if event.get("name") == "ALLREDUCE"]
        drawn = collections.Counter(event["tid"] for event in begins)
        if drawn != {rank: 5 for rank in range(hvd.size())}:
            lacking[cycle] = dict(drawn)
assert not lacking, lacking
hvd.shutdown()
"""


def test_a_timeline_that_was_stopped_has_the_events_of_all_ranks(tmp_path: Path) -> None:
    ended = launch(4, CYCLES, {"FOLDER": str(tmp_path)})
    assert_all_succeed(ended)
    assert all("may lack" not in rank.output for rank in ended), "no rank was late"


def test_a_rank_that_records_on_is_named_when_rank_0_stops(tmp_path: Path) -> None:
    body = """
import os, time
import numpy as np
import rueda.numpy as hvd

hvd.init()
hvd.start_timeline(os.path.join(os.environ["FOLDER"], "t.json"))
hvd.allreduce(np.ones(4), name="a")
if hvd.rank() != 1:
    hvd.stop_timeline()
hvd.allreduce(np.ones(4), name="b")  # rank 0 comes here although rank 1 has not stopped
hvd.shutdown()
"""
    ended = launch(3, body, {"FOLDER": str(tmp_path)})
    assert_all_succeed(ended)
    (said,) = [line for line in ended[0].output.splitlines() if "may lack" in line]
    assert "the last events of rank 1, which was still recording" in said, said
    assert not any("may lack" in rank.output for rank in ended[1:])


def test_a_trace_that_begins_anew_shows_only_what_follows(tmp_path: Path) -> None:
    body = """
import os
import numpy as np
import rueda.numpy as hvd

hvd.init()
path = os.path.join(os.environ["FOLDER"], "t.json")
for part in ("first", "second"):
    hvd.start_timeline(path)
    hvd.allreduce(np.ones(4), name=part)
    hvd.stop_timeline()
    hvd.barrier()
    if hvd.rank() == 0 and part == "first":
        os.remove(path)
    hvd.barrier()
hvd.shutdown()
"""
    assert_all_succeed(launch(2, body, {"FOLDER": str(tmp_path)}))
    events = json.loads((tmp_path / "t.json").read_text())
    names = {event.get("args", {}).get("name") for event in events}
    assert "allreduce.second" in names and "allreduce.first" not in names, names
    assert {event["tid"] for event in events if event["ph"] == "B"} == {0, 1}
    timeline("merge", str(tmp_path / "all.json"), str(tmp_path / "t.json"))
    assert "allreduce.first" in (tmp_path / "all.json").read_text(), "the records have both"


@pytest.mark.parametrize("what", ["folder", "pipe"])
def test_all_ranks_keep_records_beside_a_trace_that_cannot_be_written(what: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.mkdir() if what == "folder" else os.mkfifo(path)
    ended = launch(2, TRAINING, {"RUEDA_TIMELINE": str(path), "STEPS": "12"}, limit_s=60)
    assert_all_succeed(ended)
    (said,) = [line for line in ended[0].output.splitlines() if f"timeline file {path}" in line]
    assert "Is a directory" in said if what == "folder" else "it is a pipe or another special file" in said
    assert "all ranks keep their records beside it" in said, said
    records = [f"{path}.rank{rank}.rec" for rank in range(2)]
    timeline("merge", str(tmp_path / "all.json"), *records)
    events = json.loads((tmp_path / "all.json").read_text())
    drawn = Counter(event.get("tid") for event in events if event.get("name") == "ALLREDUCE")
    assert set(drawn) == {0, 1}
    assert summary(Path(records[0]))["files"] == 1


def test_start_timeline_warns_of_a_pipe_and_of_what_it_keeps(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.json")
    body = """
import os, warnings
import numpy as np
import rueda.numpy as hvd

hvd.init()
path = os.path.join(os.environ["FOLDER"], "t.json")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    hvd.start_timeline(path)
assert "pipe or another special file" in str(caught[0].message), caught
hvd.allreduce(np.ones(4), name="kept")
hvd.stop_timeline()
assert b"kept" in open(path + ".rank0.rec", "rb").read()
os.mkfifo(path + ".flight")
try:
    hvd.write_flight_record(path + ".flight")
except ValueError as error:
    assert "no regular file" in str(error), error
else:
    raise AssertionError("it would have been replaced")
hvd.shutdown()
"""
    assert_all_succeed(launch(1, body, {"FOLDER": str(tmp_path)}, limit_s=60))
