"""What tests/punish makes of the records of a job's processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "punish"))

from history import (
    Broken,
    Stretch,
    check_equal,
    check_samples,
    history_of,
    read,
    resumed,
    stretches_of,
)


def record(step, view=1, size=2, digest=None, rank=0, used=None):
    digest = f"{step}" if digest is None else digest
    used = [step - 1] if used is None else used
    return {
        "step": step,
        "view": view,
        "size": size,
        "rank": rank,
        "digest": digest,
        "epoch": 0,
        "used": used,
    }


def test_a_later_view_undoes_the_steps_of_an_earlier_one():
    records = [record(1), record(2), record(3, digest="undone"), record(3, view=2, size=1), record(4, 2, 1)]
    history = history_of(records)
    assert [(one.step, one.view, one.digest) for one in history] == [
        (1, 1, "1"),
        (2, 1, "2"),
        (3, 2, "3"),
        (4, 2, "4"),
    ]
    assert stretches_of(history) == [Stretch(0, 2, 2), Stretch(2, 4, 1)]


def test_ranks_that_disagree_and_steps_without_a_record_are_named():
    with pytest.raises(Broken, match="Step 2 in view 1: ranks 0 and 1 have different states"):
        history_of([record(1), record(2), record(2, digest="x", rank=1)])
    with pytest.raises(Broken, match="No process has a record of step 2"):
        history_of([record(1), record(3)])


def test_samples_are_counted():
    check_samples(history_of([record(1), record(2)]), 5)
    with pytest.raises(Broken, match=r"Epoch 0: samples \[0\] were used more than once, \[\] never"):
        check_samples(history_of([record(1), record(2, used=[0])]), 5)
    over = history_of([record(1), {**record(2), "epoch": 1}])
    with pytest.raises(Broken, match=r"Epoch 0: samples \[\] were used more than once, \[1, 2\] never"):
        check_samples(over, 3)


def test_the_first_difference_is_named():
    history = history_of([record(1), record(2)])
    check_equal(history, history)
    with pytest.raises(Broken, match=r"Step 2, by 2 ranks in view 1, differs in the replay: 2 and x\."):
        check_equal(history, history_of([record(1), record(2, digest="x")]))
    with pytest.raises(Broken, match=r"Step 2, .* is missing in the replay: 2 and nothing"):
        check_equal(history, history[:1])


def test_a_job_that_begins_with_a_checkpoint_goes_on_with_the_history_up_to_it():
    history = history_of([record(1), record(2, view=2), record(3, view=2)])
    begun = {"what": "resumed", "step": 2, "digest": "2"}
    again = [begun, begun, record(3, digest="x"), record(3, digest="x", rank=1), record(4)]
    found = resumed(history, again, 2)
    assert [(one.step, one.view, one.digest) for one in found] == [
        (1, 1, "1"),
        (2, 2, "2"),
        (3, 3, "x"),
        (4, 3, "4"),
    ]
    with pytest.raises(Broken, match="What was read from the checkpoint of step 2 is not what was commit"):
        resumed(history, [{**begun, "digest": "z"}, *again], 2)
    with pytest.raises(Broken, match="What was read from the checkpoint of step 4"):
        resumed(history, again, 4)
    with pytest.raises(Broken, match=r"The job that began with step 2 made other steps: \[4\]"):
        resumed(history, [begun, record(4)], 2)


def test_a_line_that_was_cut_off_is_ignored(tmp_path):
    (tmp_path / "1.jsonl").write_text('{"step": 1}\n{"ste')
    assert read(tmp_path) == [{"step": 1}]
