"""Three slow jobs with a planted cause: the advice of `rueda timeline summary` names it."""

import contextlib
import json
import pathlib
import subprocess
from typing import Any, Dict

import pytest
from harness import CASE_LIMIT_S
from launch_support import RUEDA, run_script
from virtual_hosts import HostJob, virtual_hosts

RATE, SLOW = "200mbit", "20mbit"  # low enough that a busy machine reaches it

# A step computes for 60 ms and sends about 0.5 MB over each link.
PROGRAM = """
import os, time
import numpy as np
import rueda.numpy as hvd

hvd.init()
fault, is_victim = os.environ["FAULT"], hvd.rank() == 2

def batches():
    for step in range(24):
        time.sleep(0.2 if fault == "input" and is_victim else 0.005)
        yield step

gradients = [np.ones(125_000, np.float32) for _ in range(3)]
for step in hvd.timed_input(batches()):
    time.sleep(0.06 + (0.2 if fault == "compute" and is_victim else 0))
    for handle in [hvd.allreduce_async(g, name=f"layer{i}") for i, g in enumerate(gradients)]:
        hvd.synchronize(handle)
    hvd.mark_step()
hvd.shutdown()
"""

ADVICE = {
    "input": "for rank 2 (host c): it waits ",
    "compute": "for rank 2 (host c): it computes ",
    "link": "The link between rank 0 (host a) and rank 2 (host c) is slow",
}


def summary(*arguments: str) -> str:
    done = subprocess.run(
        [RUEDA, "timeline", "summary", *arguments],
        capture_output=True,
        text=True,
        timeout=CASE_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.alone  # gives no advice but about what was planted
@pytest.mark.parametrize("fault", list(ADVICE))
def test_the_first_advice_names_what_was_planted(fault: str, tmp_path: pathlib.Path) -> None:
    with virtual_hosts(tmp_path, ["a", "b", "c"], RATE) as hosts, contextlib.ExitStack() as undo:
        if fault == "link":
            hosts.limit_link("a", "c", SLOW)
        job = HostJob(hosts, PROGRAM, FAULT=fault, RUEDA_TIMELINE=str(tmp_path / "t.json"))
        undo.callback(job.remove)
        job.end(CASE_LIMIT_S)
    text = summary(str(tmp_path / "t.json"))
    found: Dict[str, Any] = json.loads(summary("--json", str(tmp_path / "t.json")))
    (tmp_path / "summary.txt").write_text(text)
    assert found["steps"] >= 20
    assert ADVICE[fault] in found["advice"][0]["text"], text
    others = [advice["text"] for advice in found["advice"][1:]]
    for name, other in ADVICE.items():
        assert name == fault or not any(other in text for text in others), text


SIZES = """
import numpy as np
import rueda.numpy as hvd

hvd.init()
hvd.start_timeline("t.json")
for step in range(12):
    hvd.allreduce(np.ones(1000, np.float32), name="reduced")
    hvd.allgather(np.ones((5 + 2 * hvd.rank(), 100), np.float32), name="gathered")
    hvd.alltoall(np.ones((4, 50), np.float64), name="dealt")
    hvd.broadcast(np.ones(300, np.float32), 0, name="sent")
    hvd.mark_step()
hvd.shutdown()
"""


def test_the_sizes_of_all_collectives_are_those_of_their_inputs(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "sizes.py"
    script.write_text(SIZES)
    run_script(2, tmp_path, script)
    found = json.loads(summary("--json", str(tmp_path / "t.json")))
    sizes = {one["name"].split(".", 1)[1]: one["bytes"] for one in found["by_transfer"]}
    assert sizes == {"reduced": 4000, "gathered": 6 * 400, "dealt": 200 * 8, "sent": 1200}
    assert found["knows_waits"], "each call is waited for at once"
    assert all(one["bus_gbps"] > 0 for one in found["by_transfer"]), found["by_transfer"]
