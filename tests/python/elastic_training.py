"""A program that counts the samples it has used, on a job of elastic_double."""

from __future__ import annotations

from elastic_double import DoubleMembership, Job, Killed

import rueda.elastic.state as state_module
from rueda.elastic import membership, wire
from rueda.elastic.ledger import Ledger
from rueda.elastic.loop import Loop
from rueda.elastic.membership import EXIT_LEFT
from rueda.elastic.state import ObjectState

SAMPLES, BATCH, EPOCHS = 23, 2, 2


class Training:
    """A program that counts the samples it has used, on a job of the double."""

    def __init__(self, seed: int) -> None:
        self.job = Job(seed)
        self.resets = 0
        self.skipped = 0

    def program(self, process):
        process.pause("its first line")
        ledger = Ledger(SAMPLES, BATCH, seed=3, world=lambda: (process.rank, process.size))
        state = ObjectState(
            lambda value: process.collective("object", value)[0],
            lambda: process.rank,
            used=(),
            total=0.0,
            steps=0,
            ledger=ledger,
        )
        state.register_reset_callbacks([self._count_reset])
        found = Loop(process).run(self.train, state, process)
        return found, state._commit, process.view.number

    def _count_reset(self) -> None:
        self.resets += 1

    def train(self, state, process):
        assert state.steps == state._commit, "the state is that of the commit"
        while state.ledger.epoch < EPOCHS:
            for i, batch in enumerate(state.ledger):
                process.pause("before the sum")
                mine = [index for index in batch if state.ledger.weight(i) > 0]
                weighted = state.ledger.weight(i) * sum(mine) / max(1, len(mine))
                everything = process.collective("sum", (mine, weighted))
                process.pause("after the sum")
                state.used += tuple(sorted(index for part, _ in everything for index in part))
                state.total += sum(part for _, part in everything) / len(everything)
                state.ledger.record_batch(i)
                state.steps += 1
                if state.steps % 3 == 0:  # a failure here leaves a state that is no commit
                    process.collective("metric", 0)
                state.commit()
            state.ledger.set_epoch(state.ledger.epoch + 1)
        return state.used, state.total

    def join(self, job) -> None:
        job.interrupt(more=True)
        job.add(self.program, is_joiner=True)

    def run(self, ranks: int, events=()) -> list:
        """What the processes that were not killed came to."""
        before = membership.use(DoubleMembership(self.job))
        engine_wire, wire.engine_wire = wire.engine_wire, self.job.here
        barrier, state_module.operations.barrier = state_module.operations.barrier, lambda _: None
        try:
            self.job.begin(ranks, self.program)
            self.job.run(events)
        finally:
            membership.use(before)
            wire.engine_wire = engine_wire
            state_module.operations.barrier = barrier
        return [one.outcome for one in self.job.processes if not isinstance(one.outcome, Killed)]


def check(outcomes: list, at_least: int = 1) -> None:
    """Everybody who ended well has used each sample of each epoch once."""
    for one in outcomes:
        if isinstance(one, BaseException) and not isinstance(one, SystemExit):
            raise one
    ended = [one for one in outcomes if not isinstance(one, SystemExit)]
    assert len(ended) >= at_least
    assert all(one.code == EXIT_LEFT for one in outcomes if isinstance(one, SystemExit))
    last = max(view for _, _, view in ended)
    assert len({found for found, _, view in ended if view == last}) == 1, "survivors are equal"
    for (used, _), commit, _ in ended:
        for epoch in range(EPOCHS):
            part = used[epoch * SAMPLES : (epoch + 1) * SAMPLES]
            assert sorted(part) == list(range(SAMPLES)), "each sample of an epoch is used once"
        assert len(used) == EPOCHS * SAMPLES
        assert commit > 0


def kill(uid):
    """An event of a job."""
    return lambda job: job.kill(job.processes[uid])


def leave(uid):
    """Another one: the host of this process is to go."""
    return lambda job: job.interrupt(leaver=job.processes[uid])
