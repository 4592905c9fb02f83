"""The parts of elastic training: chunks, transfers, ledgers, notices, and the seam to the engine."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from elastic_double import Job

from rueda import _core, epochs, operations
from rueda.basics import basics
from rueda.elastic import frozen, membership, pieces, transfer
from rueda.elastic.ledger import Ledger, StreamLedger
from rueda.elastic.loop import decorate
from rueda.elastic.membership import CoreMembership, News, View
from rueda.elastic.notices import HostUpdateResult, notification_manager
from rueda.elastic.pieces import Stream, Summary
from rueda.elastic.state import CopyingState, ObjectState, State
from rueda.elastic.transfer import Offer
from rueda.errors import HorovodInternalError, HostsUpdatedInterrupt

# ---- pieces ----


def view_of(*contents: bytes):
    return [memoryview(bytearray(one)) for one in contents]


def test_chunks_cross_the_borders_of_buffers_and_come_back_whole():
    source = Stream(view_of(b"abc", b"", b"defgh", b"ij"))
    assert source.size == 10 and source.chunk_count(4) == 3
    chunks = [bytes(source.read(i, 4)) for i in range(3)]
    assert chunks == [b"abcd", b"efgh", b"ij"]
    buffers = view_of(b"...", b"", b".....", b"..")
    target = Stream(buffers)
    for i, chunk in enumerate(chunks):
        target.write(i, chunk, 4)
    assert [bytes(one) for one in buffers] == [b"abc", b"", b"defgh", b"ij"]
    assert target.digests(4) == source.digests(4) != Stream(view_of(b"abcdefghiJ")).digests(4)


def summary(is_holder=True, shared=b"s", own=b"o", layout=b"l"):
    return Summary(is_holder, *(pieces.digest_of([one]) for one in (layout, shared, own)))


def test_summaries_travel_as_bytes():
    one = summary(False)
    assert Summary.from_bytes(one.to_bytes()) == one


def test_nothing_is_sent_between_equal_holders_and_all_holders_send_to_a_joiner():
    plan = pieces.plan([summary(), summary()])
    assert not plan.is_shared_sent and not plan.is_own_sent and plan.root == 0
    plan = pieces.plan([summary(False, b"new", b"new"), summary(), summary()])
    assert plan.is_shared_sent and plan.root == 1 and plan.sources == (1, 2)
    assert [plan.sender(chunk) for chunk in range(4)] == [1, 2, 1, 2]


def test_a_replica_that_differs_from_most_is_named_and_gets_the_state_of_the_others():
    plan = pieces.plan([summary(shared=b"x"), summary(), summary()])
    assert plan.divergent == (0,) and plan.sources == (1, 2) and plan.root == 1
    tie = pieces.plan([summary(shared=b"x"), summary()])
    assert tie.root == 0 and tie.divergent == (1,)


def test_statistics_of_one_rank_alone_are_no_divergence():
    plan = pieces.plan([summary(own=b"1"), summary(own=b"2")])
    assert not plan.divergent and not plan.is_shared_sent and plan.is_own_sent


def test_without_a_holder_rank_0_has_the_state():
    plan = pieces.plan([summary(False, b"a"), summary(False, b"b")])
    assert plan.root == 0 and plan.sources == (0,) and plan.divergent == ()


# ---- frozen trees ----


def test_arrays_lie_beside_the_skeleton_under_their_names():
    tree = {"model": {"w": np.arange(6.0).reshape(2, 3), "b": np.zeros(0)}, "epoch": 3, "f": lambda: 7}
    found = frozen.freeze(tree)
    assert found.names[0] == "model.w" and found.sizes[0] == 48
    back = frozen.thaw(found.skeleton, [bytearray(one) for one in found.buffers])
    assert (back["model"]["w"] == tree["model"]["w"]).all() and back["epoch"] == 3 and back["f"]() == 7
    back["model"]["w"] += 1  # it is writable, and nobody else's
    assert tree["model"]["w"][0, 0] == 0


# ---- transfers ----


def exchange(offers, chunk_bytes=16):
    """What each rank has after a transfer among ranks that offer these, and what they said."""
    job, said = Job(3), []

    def program(process):
        process.pause("its turn")
        offer = offers[process.uid]
        return transfer.equalise(offer, process, said.append, chunk_bytes)

    job.begin(len(offers), program)
    job.run()
    for one in reversed(job.processes):
        if isinstance(one.outcome, BaseException):
            raise one.outcome
    return [one.outcome for one in job.processes], said


def offer(value, is_holder=True, statistics=0.0):
    tree = {"w": np.full((5, 5), value), "running": np.full(3, statistics), "step": value}
    return Offer(tree, is_holder, 7, lambda name: name == "running")


def test_a_joiner_gets_the_state_of_the_holders_bit_for_bit():
    outcomes, said = exchange([offer(0.0, is_holder=False), offer(2.5), offer(2.5, statistics=9.0)])
    for _, tree in outcomes:
        assert (tree["w"] == 2.5).all() and tree["step"] == 2.5 and (tree["running"] == 0.0).all()
    assert [is_new for is_new, _ in outcomes] == [True, False, True] and said == []


def test_a_divergent_replica_is_named_with_what_differs():
    outcomes, said = exchange([offer(1.0), offer(1.0), offer(4.0)])
    assert all((tree["w"] == 1.0).all() for _, tree in outcomes)
    assert len(set(said)) == 1 and "The state of rank 2 differs" in said[0] and "first in w" in said[0]
    assert "commit 7" in said[0]


def test_a_damaged_chunk_is_refused(monkeypatch):
    def damaged(self, chunk, root, number):
        def wait():
            chunk[:] = self.collective(f"chunk {number}", bytes(chunk))[root]
            chunk[0] ^= 1

        return wait

    monkeypatch.setattr("elastic_double.Process.start_broadcast", damaged)
    with pytest.raises(HorovodInternalError, match=r"Chunk 0 of the state \(16 bytes, from rank 0\) is not"):
        exchange([offer(1.0), offer(0.0, is_holder=False)])


# ---- ledgers ----


def flat(lists):
    return [one for part in lists for one in part]


def ledger(rank=0, size=1, **settings):
    return Ledger(
        settings.pop("length", 10), settings.pop("batch_size", 2), world=lambda: (rank, size), **settings
    )


def test_the_tail_of_an_epoch_is_weighted_and_not_padded():
    parts = [ledger(rank, 3, shuffle=False) for rank in range(3)]
    batches = [list(one) for one in parts]
    assert batches == [[[0, 1], [6, 7]], [[2, 3], [8]], [[4, 5], [9]]]
    assert [one.weight(0) for one in parts] == [1.0] * 3
    assert [one.weight(1) for one in parts] == [1.5, 0.75, 0.75]
    loss = np.arange(10.0)
    averaged = np.mean([one.weight(1) * loss[batch[1]].mean() for one, batch in zip(parts, batches)])
    assert averaged == pytest.approx(loss[6:].mean())
    assert [len(one) for one in parts] == [2] * 3


def test_a_rank_without_a_sample_takes_part_with_the_weight_0():
    parts = [ledger(rank, 3, length=7, shuffle=False) for rank in range(3)]
    assert [list(one)[1] for one in parts] == [[6], [6], [6]]
    assert [one.weight(1) for one in parts] == [3.0, 0.0, 0.0]


def test_a_ledger_goes_on_where_the_commit_was_with_other_ranks():
    one = ledger(0, 2, shuffle=True, seed=5)
    order = one.order()
    iterator = iter(one)
    next(iterator), next(iterator)  # a loader reads ahead
    one.record_batch(0)
    kept = one.state_dict()
    assert kept == {"epoch": 0, "cursor": 4}
    one.record_batch(1)
    again = ledger(0, 1, shuffle=True, seed=5)
    again.load_state_dict(kept)
    assert flat(again) == order[4:] and len(again) == 3
    again.set_epoch(1)
    assert again.cursor == 0 and sorted(flat(again)) == list(range(10)) and again.order() != order


def test_a_stream_is_lent_to_the_ranks_in_steps():
    def stream(rank, size):
        return StreamLedger(lambda epoch: iter("abcdefg"), 2, world=lambda: (rank, size))

    assert list(stream(0, 2)) == [(["a", "b"], 1.0), (["e", "f"], pytest.approx(4 / 3))]
    assert list(stream(1, 2)) == [(["c", "d"], 1.0), (["g"], pytest.approx(2 / 3))]
    one = stream(0, 2)
    iterator = iter(one)
    next(iterator)
    one.record_batch(0)
    assert one.cursor == 4
    next(iterator)
    one.record_batch(1)
    assert one.cursor == 7, "the stream has no more"
    alone = stream(0, 1)
    alone.load_state_dict({"epoch": 0, "cursor": 4})
    assert [items for items, _ in alone] == [["e", "f"], ["g"]]


def test_wrong_arguments_of_a_ledger_are_one_sentence():
    for make in (lambda: ledger(batch_size=0), lambda: ledger(length=-1), lambda: ledger(batch_size=1.5)):
        with pytest.raises(ValueError, match=r"^Ledger: (batch_size|length) is .*, but it must be a whole"):
            make()


# ---- states ----


def state_of(kind=ObjectState, **kwargs):
    return kind(lambda value: value, lambda: 0, **kwargs)


def test_values_come_back_as_they_were_at_the_commit():
    state = state_of(batch=1, epoch=2)
    state.batch, state.other = 5, "not a part of the state"
    state.restore()
    assert state.batch == 1
    state.batch = 7
    state.commit()
    state.batch, state.epoch = 8, 9
    state.restore()
    assert (state.batch, state.epoch, state.other) == (7, 2, "not a part of the state")


def test_a_copying_state_undoes_changes_in_place():
    weights = np.zeros(2)
    state = state_of(CopyingState, weights=weights)
    assert state.weights is weights
    state.weights += 1
    state.commit()
    state.weights += 1
    state.restore()
    assert state.weights.tolist() == [1, 1]
    state.weights += 1
    state.restore()
    assert state.weights.tolist() == [1, 1], "what is restored is a copy as well"


def test_checkpoints_are_written_by_rank_0_of_commits_that_all_have_made(monkeypatch):
    order = []
    monkeypatch.setattr(operations, "barrier", lambda _: order.append("barrier"))
    for rank in (0, 1):
        state = ObjectState(lambda value: value, lambda rank=rank: rank, batch=0)
        state.register_checkpoint(lambda one, rank=rank: order.append((rank, one.batch)), every=2)
        for state.batch in range(1, 5):
            state.commit()
    assert order == ["barrier", (0, 1), "barrier", (0, 3), "barrier", "barrier"]
    with pytest.raises(ValueError, match="register_checkpoint: every is 0"):
        state.register_checkpoint(print, every=0)


def test_a_base_class_says_what_to_define():
    state = State(lambda value: value, lambda: 0)
    for call in (state.save, state.restore, state.sync):
        with pytest.raises(NotImplementedError, match=r"^State must define \w+\(\)\.$"):
            call()


def test_rank_0_cannot_send_what_it_does_not_have():
    state = State(lambda value: value, lambda: 0)
    with pytest.raises(RuntimeError, match="rank 0 has just joined and holds no commit: derive the class"):
        state._begin_view(View(2, 0, 2, 3, holders=(1,)))
    state._commit = 4
    with pytest.raises(RuntimeError, match="No rank of view 3 holds a commit any more"):
        state._begin_view(View(3, 0, 2))


def test_the_loop_takes_nothing_but_a_state():
    with pytest.raises(TypeError, match=r"^train is run by hvd.elastic.run, so its first argument must be a"):

        def train(state):
            pass

        decorate(train)(object())


# ---- what is heard about hosts ----


def test_listeners_hear_of_hosts_and_newer_news_count_once():
    state = state_of(batch=0)
    assert state._host_messages.empty() and state._last_updated_timestamp == 0
    notification_manager.register_listener(state)
    try:
        notification_manager.handle_hosts_updated(1.5, HostUpdateResult.removed)
    finally:
        notification_manager.remove_listener(state)
    assert not state._host_messages.empty()
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.check_host_updates()
    assert caught.value.skip_sync is True and state._last_updated_timestamp == 1.5
    state.on_hosts_updated(1.5, HostUpdateResult.added)
    state.check_host_updates()
    state.on_hosts_updated(2, HostUpdateResult.added)
    state.on_hosts_updated(3, HostUpdateResult.removed)
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.commit()
    assert caught.value.skip_sync is False
    state.on_hosts_updated(4, HostUpdateResult.added)
    state.on_reset()
    state.check_host_updates()


def test_programs_may_look_for_messages_before_the_commit(elastic):
    state = state_of(batch=0)
    assert state._host_messages.empty()
    elastic.heard = News(hosts_added=True, at_commit=5)
    assert not state._host_messages.empty()
    assert state._host_messages.get()[1] == HostUpdateResult.added
    assert state._host_messages.empty(), "one message for one piece of news"
    state.check_host_updates()
    state._commit = 5
    with pytest.raises(HostsUpdatedInterrupt):
        state.check_host_updates()


# ---- the seam ----


@pytest.fixture
def elastic():
    """A membership that says what `heard` is, of a job that is elastic."""
    double = SimpleNamespace(heard=News(), joiner=False)
    double.is_elastic = lambda: True
    double.is_joiner = lambda: double.joiner
    double.committed = lambda commit: None
    double.news = lambda: double.heard
    before = membership.use(double)
    yield double
    membership.use(before)


def test_a_job_that_is_not_elastic_says_so_in_one_sentence():
    core = CoreMembership()
    assert core.is_elastic() is False and core.is_joiner() is False and core.news() == News()
    core.committed(3)
    with pytest.raises(RuntimeError, match="belong to an elastic job; start it with rueda run --min-np"):
        core.join(-1, bytes(32), 1.0)


def test_the_seam_takes_what_the_engine_answers(monkeypatch):
    asked = []
    found = SimpleNamespace(
        number=2, rank=1, size=3, commit=9, holders=[2, 0], joined=[1], lost=["b:0"], something="else"
    )
    monkeypatch.setattr(_core, "is_elastic", lambda: True, raising=False)
    monkeypatch.setattr(_core, "elastic_join", lambda *given: asked.append(given) or found, raising=False)
    heard = SimpleNamespace(hosts_added=1, hosts_removed=0, at_commit=4, leave=0)
    monkeypatch.setattr(_core, "elastic_news", lambda: heard, raising=False)
    monkeypatch.setenv("RUEDA_JOINER", "1")
    core = CoreMembership()
    assert core.is_joiner()
    assert core.join(-1, b"d", 5.0) == View(2, 1, 3, 9, (0, 2), (1,), ("b:0",))
    assert asked == [(-1, b"d", 5.0)]
    assert core.news() == News(True, False, 4, False)


def test_init_of_a_joiner_returns_at_once_and_collectives_say_what_to_do(elastic, monkeypatch):
    for name in ("RUEDA_RANK", "HOROVOD_RANK", "RUEDA_SIZE", "HOROVOD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    elastic.joiner = True
    try:
        basics.init()
        assert basics.is_initialized() and (basics.rank(), basics.size(), basics.local_rank()) == (1, 2, 0)
        monkeypatch.setenv("RUEDA_RANK", "3")
        assert basics.rank() == 3
        with pytest.raises(HorovodInternalError, match="not a member yet: collectives work in the function"):
            operations.barrier()
        with pytest.raises(ValueError, match="not a member yet"):
            epochs.require()
    finally:
        epochs.await_view(False)
    assert not basics.is_initialized()


# ---- states that differ ----


def test_states_whose_arrays_differ_at_first_have_other_layouts_and_what_training_makes_of_them_counts_not():
    def layout(**values):
        return state_of(CopyingState, **values)._layout()

    def model(rows, dtype=np.float32):
        return {"layers": [np.zeros((rows, 2), dtype), np.zeros(2)], "step": 3}

    same = layout(model=model(4), history=np.zeros(0))
    for other in (model(5), model(4, np.float64), {"layers": [], "step": 3}):
        assert layout(model=other, history=np.zeros(0)) != same
    trained = state_of(CopyingState, model=model(4), history=np.zeros(0))
    trained.history = np.zeros(9)
    trained.model["step"] = 12
    trained.save()
    assert trained._layout() == same
