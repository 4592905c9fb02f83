"""Elastic jobs of `rueda run` that are punished: each ends with the bits of a job that nobody disturbs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import PATIENCE, ROOT, library
from launch_support import RUEDA
from virtual_hosts import why_not

sys.path.insert(0, str(ROOT / "tests/punish"))

import history
import replay
from history import Broken

PUNISH = ROOT / "tests/punish"
LIMIT_S = 280.0 * PATIENCE
VARIABLES = {
    "RUEDA_BIN": RUEDA,
    "RUEDA_LIBRARY": library(),
    "RUEDA_DETERMINISM": "bitwise",
    "PYTHONPATH": str(ROOT / "python"),
    "OMP_NUM_THREADS": "1",
}


@pytest.fixture(autouse=True)
def _variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)


def run(*command: object) -> str:
    """What it printed. It must end well."""
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def train(log: Path, ranks: int, steps: int, *points: str, more: tuple[object, ...] = ()) -> str:
    """A job whose ranks do to themselves what the points say."""
    at = [word for point in points for word in ("--at", point)]
    options = ["-np", ranks, "--min-np", 1, "--elastic-timeout", 60]
    program = [sys.executable, PUNISH / "program.py", "--log", log, "--steps", steps]
    return run(RUEDA, "run", *options, *program, *at, *more)


def punish(folder: Path, *options: object) -> dict:
    """The report of the punisher."""
    run(sys.executable, PUNISH / "punisher.py", "--folder", folder, *options)
    return json.loads((folder / "report.json").read_text())


def assert_survived(report: dict, faults: int) -> None:
    assert report["hangs"] == [] and report["wrong_bits"] == 0, report
    assert sum(one["survived"] for one in report["kinds"].values()) == faults, report
    assert report["verdict"].startswith("equal: "), report


def test_a_job_survives_whatever_is_done_to_its_processes_and_disk(tmp_path: Path) -> None:
    kinds = ["kill", "root", "double", "joiner", "pause", "reset", "leave", "disk"]
    kinds = kinds if os.geteuid() == 0 else kinds[:-1]
    report = punish(tmp_path / "run", "--faults", 12, "--seed", 5, "--timeline", "--kinds", *kinds)
    assert_survived(report, 12)
    assert len(report["kinds"]) >= 5, "the seed was chosen for this"


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_a_job_survives_whatever_is_done_to_the_network_of_its_hosts(tmp_path: Path) -> None:
    kinds = ["cut", "outage", "slow", "reset", "leave", "kill"]
    report = punish(tmp_path / "run", "--faults", 6, "--seed", 3, "--hosts", 2, "--kinds", *kinds)
    assert_survived(report, 6)


def test_a_rank_that_is_stopped_for_too_long_is_replaced(tmp_path: Path) -> None:
    report = punish(tmp_path / "run", "--faults", 1, "--ranks", 3, "--kinds", "stop")
    assert_survived(report, 1)
    assert report["times"]["silence_seen_s"]["count"] == 1


def test_a_job_without_a_launcher_survives_whatever_is_done_to_its_processes(tmp_path: Path) -> None:
    kinds = ["kill", "root", "double", "joiner", "pause", "join"]
    report = punish(tmp_path / "run", "--members", "--faults", 4, "--seed", 5, "--kinds", *kinds)
    assert_survived(report, 4)
    assert {"root", "double", "joiner", "join"} == set(report["kinds"]), "the seed was chosen for this"


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_a_job_without_a_launcher_survives_the_end_of_the_host_that_started_it(tmp_path: Path) -> None:
    members = ["--members", "--hosts", 3, "--ranks", 6, "--seed", 9]
    report = punish(tmp_path / "run", *members, "--faults", 2, "--kinds", "crash", "host", "cut")
    assert_survived(report, 2)
    assert {"crash", "host"} == set(report["kinds"]), "the seed was chosen for this"


def test_the_launcher_that_is_killed_leaves_no_process_and_a_checkpoint_with_which_training_goes_on(
    tmp_path: Path,
) -> None:
    report = punish(tmp_path / "run", "--ranks", 3, "--faults", 2, "--seed", 1, "--kinds", "kill", "launcher")
    assert_survived(report, 2)
    ending = report["launcher_end"]
    assert ending["faults"] == [] and ending["checkpoint"] >= 0, ending
    assert f"; with the checkpoint of step {ending['checkpoint']}: equal: " in report["verdict"], report


@pytest.mark.thorough
def test_ten_peers_come_and_go(tmp_path: Path) -> None:
    report = punish(tmp_path / "run", "--profile", "churn", "--ranks", 6, "--faults", 10, "--seed", 1)
    assert_survived(report, 10)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_job_that_loses_and_gains_a_rank_has_the_bits_of_an_undisturbed_one(
    victim: int, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    train(log, 3, 400, f"die:25:{victim}", more=("--pace", "0.01"))
    sizes = [one.size for one in history.history_of(history.read(log))]
    assert sizes[0] == sizes[-1] == 3 and 2 in sizes
    assert replay.compare(log, tmp_path).startswith("equal: 400 commits, ")


def test_a_second_death_while_a_view_is_agreed_changes_no_bit(tmp_path: Path) -> None:
    log = tmp_path / "log"
    train(log, 4, 200, "die:60:1", "die:61:0")
    assert replay.compare(log, tmp_path).startswith("equal: 200 commits, ")


def test_rank_0_that_dies_in_a_learned_plan_leaves_its_timeline_and_the_next_view_has_another(
    tmp_path: Path,
) -> None:
    log, timeline = tmp_path / "log", tmp_path / "t.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RUEDA_TIMELINE", str(timeline))
        said = train(log, 3, 120, "die:60:0")
    assert "view 2 has 2 ranks; gone: localhost:0#0; it goes on from commit 60" in said
    assert replay.compare(log, tmp_path).startswith("equal: 120 commits, ")
    for path in (timeline, tmp_path / "t.view2.json"):
        events = json.loads(path.read_text())
        assert any("ALLREDUCE" in str(one.get("name")) for one in events), path
        assert path.with_name(path.name + ".rank1.rec").exists()


def test_a_commit_that_only_a_lost_rank_held_is_made_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    said = train(log, 3, 120, "fail:60:0", "fail:60:1", "die-alone:60:2")
    assert "view 2 has 2 ranks; gone: localhost:2#0; it goes on from commit 60" in said
    records = history.read(log)
    made = {(one["view"], one["rank"]) for one in records if "what" not in one and one["step"] == 61}
    assert (1, 2) in made and not {(1, 0), (1, 1)} & made, "rank 2 alone had made commit 61"
    # Not always both: a process in the place of rank 2 may come to this commit, and end the view there.
    assert {(2, 0), (2, 1)} & made, "the others made it again"
    assert replay.compare(log, tmp_path).startswith("equal: 120 commits, ")


def test_a_commit_that_one_survivor_holds_is_not_made_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    said = train(log, 3, 120, "fail:60:0", "die-alone:60:2")
    assert "view 2 has 2 ranks; gone: localhost:2#0; it goes on from commit 61" in said
    records = history.read(log)
    assert {one["view"] for one in records if "what" not in one and one["step"] == 61} == {1}
    assert replay.compare(log, tmp_path).startswith("equal: 120 commits, ")


def test_a_joiner_that_dies_while_it_receives_the_state_costs_one_view(tmp_path: Path) -> None:
    log = tmp_path / "log"
    more = ("--ballast", 24 << 20, "--pace", "0.02")
    said = train(log, 3, 300, "die:30:1", "die-joining:3:0", more=more)
    assert "(process localhost:1#1 of view 3)" in said, "it was a member when it died"
    assert "view 4 has 2 ranks; gone: localhost:1#1" in said
    assert "new: localhost:1#2" in said
    views = [one for one in history.read(log) if one.get("what") == "view"]
    assert len({one["ballast"] for one in views}) == 1, "whoever trains has the whole state"
    assert replay.compare(log, tmp_path).startswith("equal: 300 commits, ")


def test_a_state_that_is_one_bit_off_is_found(tmp_path: Path) -> None:
    log = tmp_path / "log"
    train(log, 2, 6)
    for path in log.glob("*.jsonl"):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        for one in records:
            if one.get("step") == 4:
                one["digest"] = "f" + one["digest"]
        path.write_text("\n".join(map(json.dumps, records)))
    with pytest.raises(Broken, match=r"^Step 4, by 2 ranks in view 1, differs in the replay"):
        replay.compare(log, tmp_path)
