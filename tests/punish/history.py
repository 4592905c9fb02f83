"""One history of a job from the records of its processes. Pure: records in, a history or a sentence out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


class Broken(AssertionError):
    """The records of a job contradict one another, or what was promised."""


@dataclass(frozen=True)
class Commit:
    """What a step came to, as far as it was not undone."""

    step: int  # the number of steps done
    view: int
    size: int
    digest: str
    epoch: int
    used: tuple[int, ...]  # the samples of the step, of all ranks


@dataclass(frozen=True)
class Stretch:
    """Steps that one number of ranks made one after the other: those after `first`, up to `last`."""

    first: int
    last: int
    size: int


def read(folder: Path) -> list[dict]:
    """The records of all processes, events too. The last line of one that was killed may be cut off."""
    records = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                continue
    return records


def history_of(records: list[dict]) -> list[Commit]:
    """The commits 1, 2, … as the job has them in the end. A later view undoes those after its first one."""
    by_view: dict[int, dict[int, list[dict]]] = {}
    for one in (one for one in records if "what" not in one):
        by_view.setdefault(one["view"], {}).setdefault(one["step"], []).append(one)
    found: dict[int, Commit] = {}
    for view in sorted(by_view):
        steps = by_view[view]
        for step in [known for known in found if known >= min(steps)]:
            del found[step]
        for step in sorted(steps):
            found[step] = _agreed(steps[step])
    missing = next((step for step in range(1, max(found, default=0) + 1) if step not in found), None)
    if missing is not None:
        raise Broken(f"No process has a record of step {missing}.")
    return [found[step] for step in sorted(found)]


def _agreed(same: list[dict]) -> Commit:
    first = same[0]
    for one in same:
        if (one["digest"], one["size"], one["used"]) != (first["digest"], first["size"], first["used"]):
            raise Broken(
                f"Step {first['step']} in view {first['view']}: ranks {first['rank']} and {one['rank']} have "
                "different states."
            )
    return Commit(
        first["step"], first["view"], first["size"], first["digest"], first["epoch"], tuple(first["used"])
    )


def resumed(history: list[Commit], again: list[dict], step: int) -> list[Commit]:
    """The commits up to this step, and after them those of a job that began with a checkpoint of it."""
    kept, later = history[:step], [one for one in again if "what" not in one]
    begun = {one["digest"] for one in again if one.get("what") == "resumed"}
    if not kept or kept[-1].step != step or begun != {kept[-1].digest}:
        raise Broken(f"What was read from the checkpoint of step {step} is not what was committed then.")
    first = kept[-1].view + 1  # the views of the other job are numbered from 1
    by_step: dict[int, list[dict]] = {}
    for one in later:
        by_step.setdefault(one["step"], []).append({**one, "view": first})
    if sorted(by_step) != list(range(step + 1, step + 1 + len(by_step))):
        raise Broken(f"The job that began with step {step} made other steps: {sorted(by_step)}.")
    return [*kept, *(_agreed(by_step[one]) for one in sorted(by_step))]


def stretches_of(history: list[Commit]) -> list[Stretch]:
    """The steps of a history by the number of ranks. A change of the view alone begins no stretch: the
    iteration over the samples does, so a view with as many ranks as before does as well.
    """
    found: list[Stretch] = []
    views: list[int] = []
    for one in history:
        if found and views[-1] == one.view:
            found[-1] = Stretch(found[-1].first, one.step, one.size)
        else:
            found.append(Stretch(one.step - 1, one.step, one.size))
            views.append(one.view)
    return found


def check_samples(history: list[Commit], samples: int) -> None:
    """Each sample is used once in each epoch that is over."""
    used: dict[int, list[int]] = {}
    for one in history:
        used.setdefault(one.epoch, []).extend(one.used)
    for epoch, found in used.items():
        is_over = epoch < max(used)
        if len(set(found)) != len(found) or (is_over and sorted(found) != list(range(samples))):
            counts = sorted({one for one in found if found.count(one) > 1})
            lacking = sorted(set(range(samples)) - set(found)) if is_over else []
            raise Broken(f"Epoch {epoch}: samples {counts} were used more than once, {lacking} never.")


def check_checkpoints(history: list[Commit], records: list[dict]) -> None:
    """What was written to disk is of commits that the job has kept."""
    digests = {one.step: one.digest for one in history}
    for one in records:
        if one.get("what") == "checkpoint" and digests.get(one["step"]) != one["digest"]:
            raise Broken(f"The checkpoint of step {one['step']} is of a commit that the job gave up.")


def check_equal(history: list[Commit], replay: list[Commit]) -> None:
    """All digests of the replay are those of the job."""
    again = {one.step: one.digest for one in replay}
    for one in history:
        if again.get(one.step) != one.digest:
            what = "differs" if one.step in again else "is missing"
            raise Broken(
                f"Step {one.step}, by {one.size} ranks in view {one.view}, {what} in the replay: "
                f"{one.digest[:12]} and {again.get(one.step, 'nothing')[:12]}."
            )
