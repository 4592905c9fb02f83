"""A merged trace, read with Perfetto's own definitions of its format."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, List, Set, Tuple

import pytest
from harness import assert_all_succeed
from test_timeline import timeline, train


def count_unknown(message: Any, unknown_fields: Callable[[Any], Any]) -> int:
    """How many fields Perfetto does not define, in this message and in all those in it."""
    inner = [value for field, value in message.ListFields() if field.message_type is not None]
    nested = [one for value in inner for one in (value if hasattr(value, "add") else [value])]
    return len(unknown_fields(message)) + sum(count_unknown(one, unknown_fields) for one in nested)


def check_counters(values: Dict[Tuple[str, int], List[int]]) -> None:
    """Queue and transfers fill and are empty again; calls by a plan are counted."""
    kinds = Counter(name for name, _ in values)
    assert kinds == {"calls in the queue": 2, "bytes under way": 2, "calls by a learned plan": 2}
    for (name, _), seen in values.items():
        if name == "calls by a learned plan":
            assert 0 < seen[-1] <= 24 and seen == sorted(seen), seen
        else:
            assert min(seen) == 0 and seen[-1] == 0, (name, seen)
        assert name != "bytes under way" or max(seen) >= 80_000, seen


def check_arrows(starts: Dict[int, Tuple[int, int]], ends: Dict[int, Tuple[int, int]]) -> None:
    """Each end has a start, by its arrow: the track and the time. Rank 0 waits in nearly every step."""
    assert ends and set(ends) <= set(starts)
    for arrow, (track, when) in ends.items():
        assert starts[arrow][1] < when and starts[arrow][0] != track
    into_rank_0 = [track for track, _ in ends.values() if track >> 32 == 1]
    assert len(into_rank_0) >= 5, ends


def check_hierarchy(parents: Dict[int, int], names: Dict[int, str]) -> None:
    """host -> rank -> row"""
    (host,) = {uuid for uuid, parent in parents.items() if parent == 0}
    ranks = {uuid: names[uuid] for uuid, parent in parents.items() if parent == host}
    assert sorted(ranks.values()) == ["rank 0", "rank 1"]
    for rank in ranks:
        rows = {names[uuid] for uuid, parent in parents.items() if parent == rank}
        assert {"steps", "events", "blocked", "transfers", "tensors"} <= rows, rows


def check_clock(trace: Any) -> None:
    """The first packet pairs the time of the events (Perfetto's default clock) with the time of day."""
    (snapshot,) = [packet for packet in trace.packet if packet.HasField("clock_snapshot")]
    assert trace.packet[0] == snapshot
    clock = type(snapshot.clock_snapshot).Clock
    pairs = {each.clock_id: each.timestamp for each in snapshot.clock_snapshot.clocks}
    assert set(pairs) == {clock.BOOTTIME, clock.REALTIME}
    times = [packet.timestamp for packet in trace.packet if packet.HasField("track_event")]
    age_s = (time.time_ns() - pairs[clock.REALTIME] - (max(times) - pairs[clock.BOOTTIME])) / 1e9
    assert 0 <= age_s < 300, "the last event was a moment ago"
    assert min(times) - pairs[clock.BOOTTIME] < 300e9


def test_a_merged_trace_is_what_perfetto_defines(tmp_path: Path) -> None:
    perfetto = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    unknown_fields = pytest.importorskip("google.protobuf.unknown_fields")

    assert_all_succeed(train(tmp_path / "t.json", size=2, STEPS="8", LATE="compute", WHO="1"))
    timeline("merge", str(tmp_path / "out.pftrace"), str(tmp_path / "t.json"))
    trace = perfetto.Trace.FromString((tmp_path / "out.pftrace").read_bytes())

    assert count_unknown(trace, unknown_fields.UnknownFieldSet) == 0
    check_clock(trace)
    names: Dict[Tuple[int, int], str] = {}
    parents: Dict[int, int] = {}
    rows: Dict[int, str] = {}
    processes: Set[str] = set()
    depth: Counter[int] = Counter()
    slices: Counter[str] = Counter()
    instants: Set[str] = set()
    last: Dict[int, int] = {}
    counters: Dict[int, str] = {}
    values: Dict[Tuple[str, int], List[int]] = {}
    starts: Dict[int, Tuple[int, int]] = {}  # arrows: where they start, and when
    ends: Dict[int, Tuple[int, int]] = {}
    for packet in trace.packet:
        sequence = packet.trusted_packet_sequence_id
        for entry in packet.interned_data.event_names:
            names[sequence, entry.iid] = entry.name
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            parents[track.uuid] = track.parent_uuid
            rows[track.uuid] = track.name
            if track.HasField("process"):
                processes.add(track.process.process_name)
            if track.HasField("counter"):
                counters[track.uuid] = track.name
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        assert event.track_uuid in parents
        assert packet.timestamp >= last.get(event.track_uuid, 0), "events of a track are in order"
        last[event.track_uuid] = packet.timestamp
        if event.type == event.TYPE_COUNTER:
            values.setdefault((counters[event.track_uuid], event.track_uuid), []).append(event.counter_value)
        starts.update({arrow: (event.track_uuid, packet.timestamp) for arrow in event.flow_ids})
        ends.update({arrow: (event.track_uuid, packet.timestamp) for arrow in event.terminating_flow_ids})
        if event.type == event.TYPE_INSTANT and event.name_iid:
            instants.add(names[sequence, event.name_iid])
        depth[event.track_uuid] += {event.TYPE_SLICE_BEGIN: 1, event.TYPE_SLICE_END: -1}.get(event.type, 0)
        assert depth[event.track_uuid] >= 0
        if event.type == event.TYPE_SLICE_BEGIN:
            slices[names[sequence, event.name_iid]] += 1
    assert not any(depth.values())
    assert all(parent == 0 or parent in parents for parent in parents.values())
    assert (len(processes), slices["step 3"]) == (1, 2) and min(processes).startswith("host ")
    check_hierarchy(parents, rows)
    assert slices["TRANSFER"] > 0 and slices["NEGOTIATE_ALLREDUCE"] > 0
    assert {"epoch 1 begins", "plan learned"} <= instants, instants
    check_counters(values)
    check_arrows(starts, ends)
