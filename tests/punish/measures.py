"""What a job made of the faults: times from a scene, and the report. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from history import Commit
from scene import Scene


@dataclass
class Struck:
    """A fault as it was done. Times of the clock of the records."""

    number: int
    kind: str
    began: float
    over: float  # when the last part of it was done
    view: int  # before it
    known: tuple[int, int]  # how many commits and losses had been read
    victims: set[int] = field(default_factory=set)  # pids of those that end by it
    changes_view: bool = False


@dataclass(frozen=True)
class Outcome:
    """The job goes on. Seconds; None where nothing was to be noticed."""

    number: int
    kind: str
    began: float
    detection: float | None  # until the first survivor has an error
    recovery: (
        float | None
    )  # from there, or from the end of the fault, to the first commit without the victims
    stall: float  # the longest time without a commit, from just before the fault


def outcome_of(struck: Struck, scene: Scene) -> Outcome | None:
    """None: the job has not got over it yet."""
    views = [scene.processes[pid].view for pid in struck.victims if pid in scene.processes]
    last = max([struck.view, *views]) if struck.victims or struck.changes_view else 0
    commits, losses = scene.commits[max(0, struck.known[0] - 1) :], scene.losses[struck.known[1] :]
    after = min((one.t for one in commits if one.t > struck.over and one.view > last), default=None)
    if after is None:
        return None
    lost = [one.t for one in losses if struck.began <= one.t <= after and one.pid not in struck.victims]
    detected = min(lost, default=None)
    times = sorted(one.t for one in commits if one.t <= after)
    stall = max((b - a for a, b in zip(times, times[1:])), default=0.0)
    if detected is None:
        return Outcome(struck.number, struck.kind, struck.began, None, None, stall)
    recovery = after - max(detected, struck.over)
    return Outcome(struck.number, struck.kind, struck.began, detected - struck.began, recovery, stall)


def spread(values: Sequence[float]) -> dict[str, float | int]:
    """Median, 99th percentile and largest, in seconds."""
    ordered = sorted(values)
    if not ordered:
        return {"count": 0}
    p99 = ordered[math.ceil(0.99 * len(ordered)) - 1]
    rounded = {"median": median(ordered), "p99": p99, "max": ordered[-1]}
    return {"count": len(ordered), **{name: round(one, 3) for name, one in rounded.items()}}


SLOW_TO_SHOW = ("stop", "outage", "host", "cut", "slow", "pause")  # silence, not death


def times_of(outcomes: Sequence[Outcome]) -> dict[str, dict[str, float | int]]:
    """By what was to be noticed."""
    deaths = [one for one in outcomes if one.kind not in SLOW_TO_SHOW]
    silent = [one for one in outcomes if one.kind in SLOW_TO_SHOW]
    return {
        "death_seen_s": spread([one.detection for one in deaths if one.detection is not None]),
        "silence_seen_s": spread([one.detection for one in silent if one.detection is not None]),
        "recovery_s": spread([one.recovery for one in outcomes if one.recovery is not None]),
        "stall_without_a_loss_s": spread([one.stall for one in outcomes if one.detection is None]),
    }


def goodput_of(history: Sequence[Commit], times: dict[int, float], ranks: int) -> dict[str, float]:
    """Which share of the time the kept steps would have taken without faults. times: of each kept step.

    step_s is the median time of a step; `steps` counts each step as one, `work` by the share of its ranks.
    Both suffer from whatever else makes steps slow. `outside_changes` does not: it is the share of the time
    that was not lost between the last kept step of a view and the first one of the next.
    """
    known = [one for one in history if one.step in times]
    gaps = [times[b.step] - times[a.step] for a, b in zip(known, known[1:]) if a.view == b.view]
    if not gaps:
        return {}
    step = median(gaps)
    span = times[known[-1].step] - times[known[0].step]
    done = known[1:]
    changes = [(a, b) for a, b in zip(known, done) if a.view != b.view]
    lost = sum(max(0.0, times[b.step] - times[a.step] - step) for a, b in changes)
    return {
        "step_s": round(step, 5),
        "span_s": round(span, 1),
        "steps": round(len(done) * step / span, 4),
        "outside_changes": round(1 - lost / span, 4),
        "work": round(sum(one.size for one in done) / ranks * step / span, 4),
    }


def table_of(struck: Sequence[Struck], outcomes: Sequence[Outcome]) -> dict[str, dict[str, int]]:
    """By kind: how many there were, and how many the job survived."""
    done, survived = Counter(one.kind for one in struck), Counter(one.kind for one in outcomes)
    return {kind: {"faults": done[kind], "survived": survived[kind]} for kind in sorted(done)}


def sentence_of(report: dict) -> str:
    """The report in a line."""

    def times(name: str) -> str:
        found = report["times"][name]
        if not found["count"]:
            return "none"
        return f"{found['median']} / {found['p99']} / {found['max']} s"

    faults = sum(one["faults"] for one in report["kinds"].values())
    survived = sum(one["survived"] for one in report["kinds"].values())
    return (
        f"punisher: {faults} faults, {survived} survived, {report['views']} views, "
        f"{report['commits']} commits, {report['wrong_bits']} wrong, "
        f"{len(report['hangs'])} hangs; median / p99 / max: death seen in {times('death_seen_s')}, "
        f"silence in {times('silence_seen_s')}, recovery {times('recovery_s')}; "
        f"goodput {100 * report['goodput'].get('steps', 0):.1f} %; {report['verdict']}"
    )
