"""Elastic training, and the ledger of samples, for any order of events."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("hypothesis")
sys.path.insert(0, str(Path(__file__).resolve().parent))

from elastic_training import Training, check, kill, leave
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    some.integers(0, 10**6),
    some.integers(1, 5),
    some.lists(some.tuples(some.integers(0, 400), some.sampled_from(["kill", "join", "leave"])), max_size=6),
    some.data(),
)
def test_each_sample_is_used_once_whatever_happens_to_the_ranks(seed, ranks, plan, data):
    training = Training(seed)
    events, killed = [], set()
    for tick, what in sorted(plan):
        uid = data.draw(some.integers(0, ranks - 1))
        if what == "join":
            events.append((tick, training.join))
        elif len(killed | {uid}) < ranks:  # one of the first members stays
            killed.add(uid)
            events.append((tick, kill(uid) if what == "kill" else leave(uid)))
    check(training.run(ranks, events))
