"""start_timeline with the path of a timeline that was stopped emptied the files: the first part was lost.
And a path that ends with .pftrace got Chrome's JSON."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "multiprocess"))

from harness import assert_all_succeed, launch
from test_timeline import summary, timeline

BODY = """
import json, os, time, warnings
import numpy as np
import rueda.numpy as hvd

hvd.init()
os.chdir(os.environ["FOLDER"])

def train(steps, name):
    for _ in range(steps):
        hvd.allreduce(np.ones(100), name=name)
        time.sleep(0.002)
        hvd.mark_step()

for part, steps in (("first", 12), ("second", 30)):
    hvd.start_timeline("t.json")
    train(steps, part)
    hvd.stop_timeline()
    train(5, "between")
hvd.start_timeline("other.json")
hvd.stop_timeline()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    hvd.start_timeline("t.json")
assert "was written by this process before another one" in str(caught[0].message), caught
for name in ("t.pftrace", "t.perfetto-trace"):
    try:
        hvd.start_timeline(name)
    except ValueError as error:
        assert f"rueda timeline merge {name} t.json" in str(error), error
    else:
        raise AssertionError(name)
rank = hvd.rank()
hvd.shutdown()
if rank == 0:
    names = {event.get("args", {}).get("name") for event in json.load(open("t.json"))}
    assert {"allreduce.first", "allreduce.second"} <= names, names
"""


def test_a_timeline_that_is_started_again_keeps_its_first_part(tmp_path):
    assert_all_succeed(launch(2, BODY, {"FOLDER": str(tmp_path)}))
    found = summary(tmp_path / "t.json")
    assert 25 <= found["steps"] <= 29, found["steps"]
    remarks = [each for each in found["remarks"] if each.startswith("The timeline was stopped from ")]
    assert len(remarks) == 1, found["remarks"]
    timeline("merge", str(tmp_path / "all.json"), str(tmp_path / "t.json"))
    text = (tmp_path / "all.json").read_text()
    assert "allreduce.first" in text and "allreduce.second" in text


def test_a_timeline_named_after_perfettos_format_is_refused_at_init():
    ended = launch(1, "import rueda.numpy as hvd\nhvd.init()", {"RUEDA_TIMELINE": "t.pftrace"})
    assert ended[0].status != 0
    assert "RUEDA_TIMELINE='t.pftrace' is refused" in ended[0].output, ended[0].output
    assert "rueda timeline merge writes Perfetto's format" in ended[0].output
