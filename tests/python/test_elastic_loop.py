"""The loop of elastic training in jobs whose members are lost and come at every point of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from elastic_double import DoubleMembership
from elastic_training import Training, check, kill, leave

from rueda.elastic import membership, wire
from rueda.elastic.loop import Loop
from rueda.elastic.state import ObjectState
from rueda.errors import HorovodInternalError, HostsUpdatedInterrupt


def test_an_undisturbed_job_runs_its_function_once():
    training = Training(1)
    check(training.run(3), at_least=3)
    assert training.resets == 0 and training.job.view_number == 1


@pytest.mark.parametrize("uid", [0, 1, 2])
@pytest.mark.parametrize("tick", range(1, 160, 3))
def test_a_rank_may_be_lost_at_any_point(tick, uid):
    training = Training(tick)
    check(training.run(3, [(tick, kill(uid))]), at_least=2)


@pytest.mark.parametrize("tick", range(1, 160, 7))
def test_two_ranks_may_be_lost_one_within_the_recovery_from_the_other(tick):
    for later in (1, 4, 9):
        check(Training(tick).run(4, [(tick, kill(3)), (tick + later, kill(0))]), at_least=2)


@pytest.mark.parametrize("tick", range(1, 150, 5))
def test_a_process_joins_at_a_commit_and_nothing_is_lost(tick):
    training = Training(tick)
    check(training.run(2, [(tick, training.join)]), at_least=2)


@pytest.mark.parametrize("tick", range(1, 150, 9))
def test_a_joiner_may_be_killed_while_it_receives_the_state(tick):
    for later in (3, 9, 15):
        training = Training(tick)
        check(training.run(2, [(tick, training.join), (tick + later, kill(2))]), at_least=2)


@pytest.mark.parametrize("tick", range(1, 150, 9))
def test_a_process_whose_host_goes_leaves_at_a_commit(tick, capsys):
    training = Training(tick)
    outcomes = training.run(3, [(tick, leave(1))])
    check(outcomes, at_least=2)
    if any(isinstance(one, SystemExit) for one in outcomes):
        assert "leaves the job at commit" in capsys.readouterr().err


@pytest.mark.parametrize("tick", range(1, 150, 5))
def test_a_process_that_was_to_leave_stays_if_the_others_are_lost_before_the_next_view(tick, capsys):
    training = Training(tick)

    def leave_and_kill(job):
        leave(1)(job)
        job.view_before = job.view_number

    def kill_when_it_waits(job):
        # The others are lost when it has left the view, and before they have, so before the next one.
        if set(job.joining) == {1} and job.view_number == job.view_before:
            kill(0)(job)
            kill(2)(job)

    events = [(tick, leave_and_kill), *((later, kill_when_it_waits) for later in range(tick + 1, tick + 60))]
    outcomes = training.run(3, events)
    check(outcomes)
    if len(outcomes) == 1:
        assert "leaves the job" not in capsys.readouterr().err


def test_survivors_go_on_from_the_newest_commit_that_one_of_them_holds():
    seen = set()
    for seed in range(120):
        training = Training(seed)
        check(training.run(4, [(60 + seed % 40, kill(seed % 4))]), at_least=3)
        for view in training.job.views:
            seen.add(len(view.holders) < view.size)
    assert seen == {True, False}, "ranks were one commit apart in some runs, and equal in others"


def test_no_sync_is_needed_where_the_view_says_that_all_hold_the_commit():
    view = membership.View(2, 0, 2, commit=7, holders=(0, 1))
    assert view.needs_no_sync
    for other in (
        membership.View(2, 0, 2, 7, holders=(1,)),
        membership.View(2, 0, 2, 7, holders=(0, 1), joined=(1,)),
        membership.View(2, 0, 2),
    ):
        assert not other.needs_no_sync


# ---- jobs that are not elastic ----


class Alone:
    """An engine of one process, which only counts."""

    def __init__(self) -> None:
        self.starts = self.stops = 0

    def is_running(self) -> bool:
        return self.starts >= 0

    def start(self) -> None:
        self.starts += 1

    def stop(self) -> None:
        self.stops += 1


def plain_state(**kwargs):
    return ObjectState(lambda value: value, lambda: 0, **kwargs)


def test_a_job_that_is_not_elastic_calls_the_function_once():
    engine, calls = Alone(), []
    assert Loop(engine).run(lambda state, x: calls.append(state.batch) or x, plain_state(batch=3), 5) == 5
    assert calls == [3] and engine.starts == engine.stops == 0


def test_a_job_that_is_not_elastic_raises_the_error_of_a_lost_rank():
    def train(state):
        raise HorovodInternalError("rank 1 is lost")

    with pytest.raises(HorovodInternalError, match="rank 1 is lost"):
        Loop(Alone()).run(train, plain_state(batch=3))


def test_hosts_that_a_program_is_told_of_begin_another_epoch():
    engine, seen = Alone(), []

    def train(state):
        seen.append(state.batch)
        state.batch += 1
        if state.batch == 1:
            state.on_hosts_updated(1, 2)
        state.commit()
        return state.batch

    state = plain_state(batch=0)
    state.register_reset_callbacks([lambda: seen.append("reset")])
    assert Loop(engine).run(train, state) == 2
    assert seen == [0, "reset", 1] and (engine.stops, engine.starts) == (1, 1)


# ---- errors that recur ----


class Unchanging(DoubleMembership):
    """All views have the same members."""

    def __init__(self) -> None:
        self.views = 1

    def is_joiner(self):
        return False

    def join(self, commit, digest, timeout_s):
        self.views += 1
        return membership.View(self.views, 0, 1, commit, (0,) if commit >= 0 else ())

    def committed(self, commit):
        pass

    def news(self):
        return membership.News()


class WireOfOne:
    """What one rank sends to itself."""

    rank, size = 0, 1

    def allgather(self, data):
        return [data]

    def broadcast(self, data, root):
        return data


@pytest.fixture
def unchanging(monkeypatch):
    double = Unchanging()
    before = membership.use(double)
    monkeypatch.setattr(wire, "engine_wire", WireOfOne)
    yield double
    membership.use(before)


def test_an_error_that_recurs_without_a_loss_ends_the_job(unchanging, capsys):
    attempts = []

    def train(state):
        attempts.append(state.batch)
        raise HorovodInternalError("Mismatched ALLREDUCE tensor shapes")

    with pytest.raises(HorovodInternalError, match="Mismatched"):
        Loop(Alone()).run(train, plain_state(batch=3))
    assert attempts == [3, 3, 3] and "no rank was lost" in capsys.readouterr().err


def test_a_script_without_a_commit_is_told_that_its_training_begins_anew(unchanging, capsys):
    def train(state, commits):
        if commits:
            state.commit()
        if unchanging.views == 1:
            raise HorovodInternalError("lost")

    Loop(Alone()).run(train, plain_state(batch=0), True)
    assert capsys.readouterr().err == ""
    unchanging.views = 1
    Loop(Alone()).run(train, plain_state(batch=0), False)
    said = capsys.readouterr().err
    assert "state.commit(), so in view 2 training begins anew" in said and said.count("\n") == 1


def test_errors_at_different_commits_do_not_add_up(unchanging):
    def train(state):
        while state.batch < 9:
            state.batch += 1
            state.commit()
            if state.batch % 2:
                raise HorovodInternalError("a short outage")
        return state.batch

    assert Loop(Alone()).run(train, plain_state(batch=0)) == 9 and unchanging.views == 6


def test_other_errors_are_raised_at_once(unchanging):
    def train(state):
        raise KeyError("x")

    with pytest.raises(KeyError):
        Loop(Alone()).run(train, plain_state(batch=0))
    assert unchanging.views == 1


def test_init_may_fail_because_another_member_was_lost_meanwhile(unchanging):
    class FailsTwice(Alone):
        def start(self):
            super().start()
            if self.starts < 3:
                raise ValueError("Horovod initialization failed.")

    def train(state):
        if unchanging.views == 1:
            raise HorovodInternalError("lost")
        return unchanging.views

    assert Loop(FailsTwice()).run(train, plain_state(batch=0)) == 4


def test_init_that_fails_until_the_deadline_is_the_error(unchanging, monkeypatch):
    class Fails(Alone):
        def start(self):
            raise ValueError("Horovod initialization failed.")

    def train(state):
        raise HorovodInternalError("lost")

    monkeypatch.setenv("RUEDA_ELASTIC_TIMEOUT", "10")
    times = iter(range(0, 100, 4))
    with pytest.raises(ValueError, match="initialization failed"):
        Loop(Fails(), clock=lambda: next(times)).run(train, plain_state(batch=0))
    monkeypatch.setenv("RUEDA_ELASTIC_TIMEOUT", "soon")
    with pytest.raises(ValueError, match="RUEDA_ELASTIC_TIMEOUT is 'soon', but it must be a number"):
        Loop(Fails()).run(train, plain_state(batch=0))


def test_the_interrupt_names_no_sync_only_without_new_hosts(unchanging, monkeypatch):
    for added, skips in ((True, False), (False, True)):
        news = membership.News(added, not added, at_commit=0)
        monkeypatch.setattr(unchanging, "news", lambda news=news: news)
        with pytest.raises(HostsUpdatedInterrupt) as caught:
            plain_state(batch=0).commit()
        assert caught.value.skip_sync is skips and caught.value.leave is False
