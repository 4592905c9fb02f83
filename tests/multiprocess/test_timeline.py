"""Timelines of real jobs: what their ranks record, and what `rueda timeline` makes of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest
from harness import CASE_LIMIT_S, Finished, assert_all_succeed, launch, make_job_folder, rank_environment
from launch_support import PYTHON, RUEDA

# argv: what is late, and on which rank. A step takes about 10 ms without it.
TRAINING = """
import os, time
import numpy as np
import rueda.numpy as hvd

hvd.init()
late, who = os.environ.get("LATE", ""), int(os.environ.get("WHO", "-1"))

def batches():
    for step in range(int(os.environ.get("STEPS", "25"))):
        if late == "input" and hvd.rank() == who:
            time.sleep(0.1)
        yield step

gradients = [np.ones(int(os.environ.get("COUNT", "20000")), np.float32) for _ in range(3)]
for step in hvd.timed_input(batches()):
    time.sleep(0.01 + (0.1 if late == "compute" and hvd.rank() == who else 0))
    handles = [hvd.allreduce_async(g, name=f"g{i}") for i, g in enumerate(gradients)]
    for handle in handles:
        hvd.synchronize(handle)
    hvd.mark_step()
hvd.shutdown()
"""


def timeline(*arguments: str) -> str:
    done = subprocess.run(
        [RUEDA, "timeline", *arguments], capture_output=True, text=True, timeout=CASE_LIMIT_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def summary(path: Path) -> Dict[str, Any]:
    found: Dict[str, Any] = json.loads(timeline("summary", "--json", str(path)))
    return found


def train(path: Path, size: int = 3, **environment: str) -> List[Finished]:
    return launch(size, TRAINING, {"RUEDA_TIMELINE": str(path), **environment})


@pytest.mark.parametrize("late", ["compute", "input"])
def test_the_summary_names_the_late_rank_and_why(late: str, tmp_path: Path) -> None:
    assert_all_succeed(train(tmp_path / "t.json", LATE=late, WHO="1"))
    found = summary(tmp_path / "t.json")
    assert found["steps"] >= 20
    assert found["unattributed"] < 0.02
    ranks = sorted(found["by_rank"], key=lambda rank: -float(rank["cost_ns"]))
    assert (ranks[0]["rank"], ranks[0]["why"]) == (1, late), ranks
    assert f"for rank 1 (host {ranks[0]['host']})" in timeline("summary", str(tmp_path / "t.json"))


def test_steps_of_torch_are_marked_and_their_time_is_explained(tmp_path: Path) -> None:
    body = """
import torch
import rueda.torch as hvd

torch.set_num_threads(1)
hvd.init()
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(3)])
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01))
for _ in range(20):
    optimizer.zero_grad()
    model(torch.ones(8, 64)).sum().backward()
    optimizer.step()
hvd.shutdown()
"""
    assert_all_succeed(launch(2, body, {"RUEDA_TIMELINE": str(tmp_path / "t.json")}))
    found = summary(tmp_path / "t.json")
    assert found["has_steps"] and found["knows_waits"]
    assert 15 <= found["steps"] <= 19
    shares = sum(found["shares"].values())
    assert shares == pytest.approx(found["step_ns"])
    assert found["unattributed"] < 0.02


def test_a_merged_json_balances_and_has_all_ranks(tmp_path: Path) -> None:
    assert_all_succeed(train(tmp_path / "t.json", size=2, STEPS="5", LATE="compute", WHO="1"))
    timeline("merge", str(tmp_path / "out.json"), str(tmp_path / "t.json"))
    events = json.loads((tmp_path / "out.json").read_text())
    depth: Counter[Tuple[int, int]] = Counter()
    for event in events:
        if event["ph"] in "BE":
            depth[event["pid"], event.get("tid", 0)] += 1 if event["ph"] == "B" else -1
    assert not any(depth.values())
    assert {tid for _, tid in depth} == {0, 1}
    ranks = [e["args"]["name"] for e in events if e.get("name") == "thread_name"]
    assert {name.rpartition(" / ")[2] for name in ranks} == {"rank 0", "rank 1"}
    assert all(name.startswith("host ") for name in ranks), ranks
    bytes_of_rank_1 = [e["args"]["value"] for e in events if e.get("name") == "rank 1: bytes under way"]
    assert max(bytes_of_rank_1) >= 80_000 and bytes_of_rank_1[-1] == 0
    starts = {event["id"]: event["ts"] for event in events if event["ph"] == "s"}
    ends = {event["id"]: event["ts"] for event in events if event["ph"] == "f"}
    assert ends and all(starts[arrow] < when for arrow, when in ends.items())


def test_the_death_of_rank_0_loses_nothing_of_the_others(tmp_path: Path) -> None:
    body = TRAINING.replace(
        "    hvd.mark_step()",
        "    hvd.mark_step()\n    if step == 20 and hvd.rank() == 0:\n        os.kill(os.getpid(), 9)",
    )
    flight = tmp_path / "flight"
    ended = launch(2, body, {"RUEDA_TIMELINE": str(tmp_path / "t.json"), "RUEDA_FLIGHT_RECORD": str(flight)})
    assert ended[0].status == -signal.SIGKILL and ended[1].status != 0
    for path in (tmp_path / "t.json.rank1.rec", tmp_path / "flight.rank1.rec"):
        found = summary(path)
        assert found["steps"] >= 19
        assert any("rank 0" in remark and "was lost" in remark for remark in found["remarks"]), found[
            "remarks"
        ]
    assert f"{flight}.rank1.rec" in ended[1].output
    assert summary(tmp_path / "t.json")["files"] == 2, "what rank 0 wrote can be read as well"


def test_the_trace_can_be_read_while_a_tensor_waits_and_after_rank_0_was_killed(tmp_path: Path) -> None:
    body = """
import json, os, time
import numpy as np
import rueda.numpy as hvd

hvd.init()

def await_trace(is_there):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            events = json.load(open(os.environ["RUEDA_TIMELINE"]))
        except ValueError:
            events = []  # read in the middle of a write
        if is_there(events):
            return events
        time.sleep(0.02)
    raise AssertionError(events)

hvd.allreduce(np.ones(4), name="a")
if hvd.rank() == 1:
    hvd.allreduce(np.ones(4), name="late")
await_trace(lambda events: {0, 1} <= {event.get("tid") for event in events if event["ph"] == "E"})
names = lambda events: [event.get("args", {}).get("name") for event in events]
events = await_trace(lambda events: "allreduce.late" in names(events))
pid = events[names(events).index("allreduce.late")]["pid"]
late = [event["ph"] + event["name"] for event in events if event["pid"] == pid and event["ph"] in "BEX"]
assert late == ["BNEGOTIATE_ALLREDUCE", "X1"], late
os.kill(os.getpid(), 9)
"""
    path = tmp_path / "t.json"
    ended = launch(2, body, {"RUEDA_TIMELINE": str(path)})
    assert ended[0].status == -signal.SIGKILL and "Error" not in ended[0].output, ended[0].output
    events = json.loads(path.read_text())
    assert {"ALLREDUCE", "QUEUE", "LOCAL_ALLREDUCE"} <= {event.get("name") for event in events}


def test_a_signal_and_a_stall_write_the_flight_record_and_the_job_goes_on(tmp_path: Path) -> None:
    body = """
import os, signal, time
import numpy as np
import rueda.numpy as hvd

hvd.init()
path = os.environ["RUEDA_FLIGHT_RECORD"] + f".rank{hvd.rank()}.rec"
hvd.allreduce(np.ones(4), name="a")

def await_record():
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and not (os.path.exists(path) and os.path.getsize(path) > 128):
        time.sleep(0.01)
    assert os.path.getsize(path) > 128

os.kill(os.getpid(), signal.SIGUSR2)
await_record()
os.rename(path, path.replace(".rank", ".signal.rank"))
hvd.allreduce(np.ones(4), name="b")
if hvd.rank() == 0:  # the other one is told that it is late, and comes when both have written
    handle = hvd.allreduce_async(np.ones(4), name="late")
    await_record()
else:
    await_record()
    handle = hvd.allreduce_async(np.ones(4), name="late")
assert hvd.synchronize(handle).tolist() == [1] * 4
hvd.shutdown()
"""
    given = {"RUEDA_FLIGHT_RECORD": str(tmp_path / "f"), "RUEDA_FLIGHT_RECORD_SIGNAL": "USR2"}
    ended = launch(2, body, {**given, "RUEDA_STALL_CHECK_TIME_SECONDS": "3"})
    assert_all_succeed(ended)
    for rank in range(2):
        assert "A signal asked for it" in ended[rank].output and "Ranks are stalled" in ended[rank].output
        assert summary(tmp_path / f"f.signal.rank{rank}.rec")["files"] == 1
        remarks = summary(tmp_path / f"f.rank{rank}.rec")["remarks"]
        assert any("late" in remark and "stalled" in remark for remark in remarks), remarks
    timeline("merge", str(tmp_path / "all.json"), *(str(tmp_path / f"f.rank{rank}.rec") for rank in range(2)))
    events = json.loads((tmp_path / "all.json").read_text())
    assert any(event.get("name", "").startswith("stall: ") for event in events)


def test_a_flight_record_is_written_without_a_timeline(tmp_path: Path) -> None:
    written = TRAINING.replace(
        "hvd.shutdown()",
        f"hvd.write_flight_record({str(tmp_path)!r} + f'/{{hvd.rank()}}.rec')\nhvd.shutdown()",
    )
    assert_all_succeed(launch(2, written, {"STEPS": "6"}))
    found = summary(tmp_path)
    assert (found["steps"], found["files"]) == (5, 2)
    assert found["shares"]["input_ns"] > 0
    no_record = "with pytest.raises(ValueError, match='RUEDA_FLIGHT_RECORD_BYTES is 0'): hvd.write"
    refused = "import pytest\n" + written.replace("hvd.write", no_record)
    assert_all_succeed(launch(1, refused, {"STEPS": "1", "RUEDA_FLIGHT_RECORD_BYTES": "0"}))


def test_a_mismatch_that_ended_a_job_is_in_its_summary(tmp_path: Path) -> None:
    body = TRAINING.replace(
        "hvd.shutdown()",
        """
try:
    hvd.allreduce(np.ones(3 + (hvd.rank() == 2), np.float32), name="odd")
except hvd.HorovodInternalError:
    pass
hvd.shutdown()
""",
    )
    assert_all_succeed(launch(3, body, {"STEPS": "5", "RUEDA_TIMELINE": str(tmp_path / "t.json")}))
    remarks = summary(tmp_path / "t.json")["remarks"]
    (said,) = [remark for remark in remarks if "mismatch" in remark]
    assert "Verdict: mismatch: rank 2 (" in said and "Tensor allreduce.odd" in said


def test_two_jobs_with_one_path_and_a_path_that_cannot_be_written_train_on(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    holder = f"""
import fcntl, sys
file = open({str(path) + ".rank0.rec"!r}, "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
    other = subprocess.Popen([PYTHON, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        ended = train(path, size=2, STEPS="3")
        assert_all_succeed(ended)
        assert f"process {other.pid} is writing it" in ended[0].output
    finally:
        other.communicate(b"", timeout=90)
    ended = train(tmp_path / "missing" / "t.json", size=2, STEPS="3")
    assert_all_succeed(ended)
    assert "missing/t.json" in ended[0].output


# ---- several hosts: network namespaces of this machine, one of them with another clock ----

SWITCH = "rueda-tl-sw"


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=90)


@pytest.fixture(name="hosts")
def make_hosts() -> Iterator[List[str]]:
    """Three namespaces on one switch; rank 1's sends at a twentieth of the rate of the others."""
    if os.geteuid() != 0 or shutil.which("tc") is None:
        pytest.skip("network namespaces need root and tc")
    names = [f"rueda-tl-{os.getpid()}-{i}" for i in range(3)]
    switch = f"{SWITCH}-{os.getpid()}"
    made: List[str] = []
    try:
        for name in (switch, *names):
            try:
                ip("netns", "add", name)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"this container may not make network namespaces: {error.stderr!r}")
            made.append(name)
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "link", "set", "br0", "up")
        for i, name in enumerate(names):
            ip("-n", switch, "link", "add", f"p{i}", "type", "veth", "peer", "name", "net0", "netns", name)
            ip("-n", switch, "link", "set", f"p{i}", "master", "br0", "up")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "addr", "add", f"10.78.0.{i + 1}/24", "dev", "net0")
            ip("-n", name, "link", "set", "net0", "up")
            rate = "20mbit" if i == 1 else "400mbit"
            shape = ["tc", "qdisc", "add", "dev", "net0", "root", "tbf", "rate", rate]
            command = ["ip", "netns", "exec", name, *shape, "burst", "131072", "limit", "1514000"]
            subprocess.run(command, check=True, timeout=90)
        yield names
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False, timeout=90)


def check_messages(folder: Path) -> None:
    """The steps of schedules: each message of rank 1 is drawn on both ends, and joined by an arrow."""
    timeline("merge", str(folder / "all.json"), str(folder / "t.json"))
    events = json.loads((folder / "all.json").read_text())
    names = [event for event in events if event.get("name") == "process_name"]
    tracks = {event["pid"]: event["args"].get("name", "") for event in names}
    begins = [event for event in events if event.get("ph") == "B"]
    drawn = Counter(
        (tracks[event["pid"]].split(" (")[0], event.get("tid", 0)) for event in begins
    )  # all lanes
    for peer in (0, 2):
        assert drawn["sent to rank 1", peer] == drawn[f"received from rank {peer}", 1] > 0, drawn
        assert drawn[f"sent to rank {peer}", 1] == drawn["received from rank 1", peer] > 0, drawn
    starts = {event["id"]: event["ts"] for event in events if event.get("ph") == "s"}
    ends = {event["id"]: event["ts"] for event in events if event.get("ph") == "f"}
    assert len(ends) >= drawn["sent to rank 0", 1] and set(ends) <= set(starts)
    assert all(starts[arrow] <= when for arrow, when in ends.items())
    rates = [e["args"]["value"] for e in events if e.get("name") == "rank 1: bytes sent each second"]
    assert max(rates) > 1e6 and rates[-1] == 0


def check_clocks_of_the_trace(path: Path) -> None:
    """Rank 0 has drawn the other hosts while the job ran, on its own clock."""
    events = json.loads(path.read_text())
    begins = [[event["ts"] for event in events if event["ph"] == "B" and event["tid"] == i] for i in range(3)]
    assert all(begins)
    for times in begins:
        assert abs(min(times) - min(begins[0])) < 20e6 and abs(max(times) - max(begins[0])) < 20e6


def check_transfer_by_link(found: Dict[str, Any], text: str) -> None:
    """All ranks were blocked by the link of rank 1, whose port does 50 Mbit/s."""
    transfer = found["shares"]["transfer_ns"]
    links = found["by_link"]
    assert sum(link["blocked_ns"] for link in links) + found["off_links_ns"] == pytest.approx(transfer)
    of_rank_1 = sum(link["blocked_ns"] for link in links if 1 in (link["from"], link["to"]))
    assert of_rank_1 > 0.8 * transfer, links
    assert {links[0]["from"], links[0]["to"]} & {1}, links
    slow = next(link for link in links if link["from"] == 1 and link["bytes"] > 0)
    assert 0 < slow["gbps"] < 2 * slow["measured_gbps"], slow
    assert "Transfer by link" in text and "1 -> " in text
    for step in found["by_step"]:
        most = step["transfer_on"][0]
        assert 1 in (most["from"], most["to"]), step
        assert sum(link["ns"] for link in step["transfer_on"]) > 0.7 * step["shares"]["transfer_ns"], step


@pytest.mark.alone  # says what share of the time a link of a given rate took
def test_a_slow_link_and_another_clock_are_found_between_hosts(hosts: List[str], tmp_path: Path) -> None:
    folder = make_job_folder()
    # Rank 2 is in a time namespace whose monotonic clock is 50 s ahead.
    has_times = subprocess.run(
        ["unshare", "-T", "--monotonic", "50", "true"], check=False, capture_output=True
    )
    ahead = ["unshare", "-T", "--monotonic", "50"] if has_times.returncode == 0 else []
    ranks = []
    for rank, name in enumerate(hosts):
        given = {
            "RUEDA_LOCAL_RANK": "0",
            "RUEDA_LOCAL_SIZE": "1",
            "RUEDA_INTERFACE": "net0",
            "COUNT": "300000",
        }
        given |= {"STEPS": "7", "RUEDA_TIMELINE": str(tmp_path / "t.json")}
        command = ["ip", "netns", "exec", name, *(ahead if rank == 2 else []), PYTHON, "-c", TRAINING]
        environment = {**rank_environment(rank, 3, folder, "tcp"), **given}
        ranks.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        )
    outputs = [rank.communicate(timeout=CASE_LIMIT_S)[0] for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), outputs
    shutil.rmtree(folder)
    check_clocks_of_the_trace(tmp_path / "t.json")
    assert b"does not show" not in outputs[0], "they share a folder"
    found = summary(tmp_path / "t.json")
    assert [link["rank"] for link in found["links"] if link["is_slow"]] == [1], found["links"]
    assert found["shares"]["transfer_ns"] > found["step_ns"] / 2, "the link is what takes the time"
    text = timeline("summary", str(tmp_path / "t.json"))
    assert "The link of rank 1 (host " in text
    check_transfer_by_link(found, text)
    check_messages(tmp_path)
    # The clocks are known to be 50 s apart: otherwise the steps of the ranks would not meet.
    assert found["steps"] >= 5
    assert 0 < found["clock_bound_ns"] < 100e6
    assert found["unattributed"] < 0.02
