"""The pure parts of tests/punish: the program of faults, the scene, and what is measured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "punish"))

import history
from faults import KINDS, ends_of, profile_of, program, usable
from history import Broken, Commit
from majority import goes_on, survives
from measures import Struck, goodput_of, outcome_of, spread
from scene import Scene


def test_a_seed_gives_the_same_faults_again():
    mixed = profile_of("mixed", None, [])
    assert list(program(7, 50, mixed)) == list(program(7, 50, mixed))
    assert list(program(7, 50, mixed)) != list(program(8, 50, mixed))
    assert {one.kind for one in program(7, 500, mixed)} == {
        name for name, kind in KINDS.items() if kind.weight
    }


def test_faults_are_of_the_kinds_and_pauses_that_are_asked_for():
    found = list(program(1, 100, profile_of("mixed", (29, 29), ["kill", "root"])))
    assert {one.kind for one in found} == {"kill", "root"}
    assert all(one.pause == 29 and one.lasts == 0 and 0 <= one.choice < 1 for one in found)
    churn = [one.kind for one in program(1, 1000, profile_of("churn", None, []))]
    assert 550 < churn.count("spawn") < 650 and churn.count("spawn") + churn.count("kill") == 1000


def test_what_needs_hosts_or_a_disk_is_left_out_where_there_are_none():
    every = {name: 1 for name in KINDS}
    by_launcher = set(usable(every, has_hosts=True, has_disk=True, has_launcher=True))
    by_members = set(usable(every, has_hosts=True, has_disk=True, has_launcher=False))
    assert set(every) - by_launcher == {"crash", "host", "join"}
    assert set(every) - by_members == {"leave", "spawn", "launcher"}
    assert by_members - set(usable(every, has_hosts=False, has_disk=False, has_launcher=False)) == {
        "crash",
        "host",
        "cut",
        "outage",
        "slow",
        "disk",
    }


def test_the_launcher_is_killed_only_if_it_is_named_and_after_all_others():
    assert all(not KINDS[kind].ends_job for kind in profile_of("mixed", None, []).weights)
    assert ends_of(["kill", "launcher", "root"]) == (["kill", "root"], True)
    assert ends_of(["kill"]) == (["kill"], False)


def test_faults_strike_only_while_those_that_are_left_can_decide_the_next_view():
    assert goes_on(["a", "a", "a", "a"], [1, 2]), "they have ended for certain"
    assert not goes_on(["a", "a", "a"], [1, 2])
    assert not goes_on(["a", "a", "b", "b"], [0, 1]), "nobody knows whether b is only cut off"
    assert goes_on(["a", "b", "c"], [1])
    spread = ["a", "a", "b", "b", "c", "c"]
    assert all(survives(spread, KINDS[kind]) for kind in ("kill", "double", "joiner", "host", "crash"))
    assert not survives(["a", "b", "c"], KINDS["double"])
    assert not survives(["a", "a", "a", "b", "c", "c"], KINDS["host"]), "half of them are on that host"


def scene_of(*records: tuple[int, dict]) -> Scene:
    """Processes 1, 2 and 3 in view 1, and then these records."""
    scene = Scene()
    for pid in (1, 2, 3):
        scene.add(pid, {"what": "start", "uid": f"here:{pid - 1}#0", "t": 0})
        scene.add(pid, {"what": "view", "view": 1, "rank": pid - 1, "size": 3, "t": 1})
        scene.add(pid, {"step": 1, "view": 1, "t": 2})
    for pid, record in records:
        scene.add(pid, record)
    return scene


SEEN = [(1, {"what": "lost", "view": 1, "t": 10.5}), (2, {"what": "lost", "view": 1, "t": 10.25})]
GOES_ON = [
    (1, {"what": "view", "view": 2, "rank": 0, "size": 2, "t": 11}),
    (2, {"what": "view", "view": 2, "rank": 1, "size": 2, "t": 11}),
    (1, {"step": 2, "view": 2, "t": 11.5}),
    (2, {"step": 2, "view": 2, "t": 11.75}),
]


def test_members_are_those_that_train_in_the_newest_view():
    assert [one.pid for one in scene_of().members(lambda _: True)] == [1, 2, 3]
    assert [one.pid for one in scene_of(*SEEN, *GOES_ON).members(lambda _: True)] == [1, 2]
    assert scene_of(*SEEN, *GOES_ON[:3]).members(lambda _: True) == [], "one has made no commit yet"
    assert scene_of().members(lambda one: one.pid != 2) == [], "the next view is on its way"


def test_the_job_has_got_over_a_death_with_the_first_commit_without_the_victim():
    struck = Struck(1, "kill", began=10, over=10, view=1, known=(3, 0), victims={3})
    dying = (3, {"what": "lost", "view": 1, "t": 10.125})
    assert outcome_of(struck, scene_of(dying, *SEEN)) is None
    assert outcome_of(struck, scene_of((1, {"step": 2, "view": 1, "t": 10.1}), *SEEN)) is None
    found = outcome_of(struck, scene_of(dying, *SEEN, *GOES_ON))
    assert found and (found.detection, found.recovery, found.stall) == (0.25, 1.25, 9.5)


def test_recovery_counts_from_the_last_part_of_a_fault():
    struck = Struck(1, "double", began=10, over=11.25, view=1, known=(3, 0), victims={3})
    found = outcome_of(struck, scene_of(*SEEN, *GOES_ON))
    assert found and (found.detection, found.recovery) == (0.25, 0.25)


def test_a_fault_that_ends_nobody_is_over_with_the_next_commit():
    struck = Struck(1, "slow", began=10, over=12, view=1, known=(3, 0))
    assert outcome_of(struck, scene_of((1, {"step": 2, "view": 1, "t": 11}))) is None
    found = outcome_of(
        struck, scene_of((1, {"step": 2, "view": 1, "t": 11}), (1, {"step": 3, "view": 1, "t": 12.5}))
    )
    assert found and (found.detection, found.recovery, found.stall) == (None, None, 9)
    leaves = Struck(1, "leave", began=10, over=10, view=1, known=(3, 0), changes_view=True)
    assert outcome_of(leaves, scene_of((1, {"step": 2, "view": 1, "t": 11}))) is None
    assert outcome_of(leaves, scene_of(*GOES_ON)) is not None


def test_the_99th_percentile_of_100_is_the_second_largest():
    assert spread([1.0] * 98 + [2.0, 3.0]) == {"count": 100, "median": 1.0, "p99": 2.0, "max": 3.0}
    assert spread([]) == {"count": 0}


def commit(step: int, view: int, size: int = 4) -> Commit:
    return Commit(step, view, size, f"digest {step}", 0, ())


def test_goodput_is_the_share_of_time_that_kept_steps_need():
    made = [commit(1, 1), commit(2, 1), commit(3, 1), commit(4, 2, 2), commit(5, 2, 2)]
    times = {1: 1.0, 2: 2.0, 3: 3.0, 4: 8.0, 5: 9.0}
    found = goodput_of(made, times, 4)
    assert (found["step_s"], found["span_s"], found["steps"], found["work"]) == (1.0, 8.0, 0.5, 0.375)
    assert found["outside_changes"] == 0.5


def test_a_checkpoint_of_a_commit_that_was_given_up_is_found():
    written = [{"what": "checkpoint", "step": 2, "digest": "digest 2", "t": 0}]
    history.check_checkpoints([commit(1, 1), commit(2, 1)], written)
    with pytest.raises(Broken, match="The checkpoint of step 2 is of a commit that the job gave up"):
        history.check_checkpoints([commit(1, 1)], written)


def test_samples_that_are_used_twice_or_never_are_found():
    whole = [Commit(1, 1, 2, "", 0, (0, 1)), Commit(2, 1, 2, "", 0, (2, 3)), Commit(3, 1, 2, "", 1, (3,))]
    history.check_samples(whole, 4)
    with pytest.raises(Broken, match=r"samples \[\] were used more than once, \[3\] never"):
        history.check_samples([whole[0], Commit(2, 1, 2, "", 0, (2,)), whole[2]], 4)
    with pytest.raises(Broken, match=r"samples \[1\] were used more than once"):
        history.check_samples([whole[0], Commit(2, 1, 2, "", 0, (1, 2, 3)), whole[2]], 4)
