"""A job that exists only here: processes that take turns, collectives between them, and members that change.

One process runs at a time, and a seeded generator chooses the next one wherever a process waits or passes a
point at which another could run. So every run can be repeated, and a job in which nobody can go on is found
at once, with what each process waits for.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field

from rueda.elastic.membership import NOT_IN_VIEW, News, View
from rueda.errors import HorovodInternalError

LIMIT_TICKS = 20_000  # no job here needs a tenth of it


class Killed(BaseException):
    """What a process is ended by, wherever it is."""


class Deadlock(AssertionError):
    """Nobody can go on."""


@dataclass
class Epoch:
    """One connected life of a view."""

    members: list[Process]
    arrived: dict[tuple[int, str], dict[int, object]] = field(default_factory=dict)
    started: set[int] = field(default_factory=set)
    left: set[int] = field(default_factory=set)  # uids of those that are no longer in it
    is_broken: bool = False  # one of them was lost, or has met an error


class Process:
    """One process of the job: a thread that runs when it has its turn."""

    def __init__(self, job: Job, uid: int, program, is_joiner: bool) -> None:
        self.job, self.uid, self.is_joiner = job, uid, is_joiner
        self.turn = threading.Semaphore(0)
        self.may_run = lambda: True
        self.waits_for = "its start"
        self.is_killed = self.is_over = False
        self.view: View | None = None
        self.epoch: Epoch | None = None
        self.commit = -1
        self.must_leave = False
        self.outcome: object = None
        self._counts: dict[str, int] = {}
        self._program = program
        self.thread = threading.Thread(target=self._live, daemon=True)

    def _live(self) -> None:
        self.turn.acquire()
        try:
            if self.is_killed:
                raise Killed
            self.outcome = self._program(self)
        except (Killed, SystemExit) as end:
            self.outcome = end
        except BaseException as error:
            self.outcome = error
        self.is_over = True
        self.leave_epoch(is_orderly=not isinstance(self.outcome, BaseException))
        self.job.back.release()

    def pause(self, what: str, may_run=lambda: True) -> None:
        """Others may run here; goes on once may_run() holds."""
        self.waits_for, self.may_run = what, may_run
        self.job.back.release()
        self.turn.acquire()
        if self.is_killed:
            raise Killed

    def leave_epoch(self, is_orderly: bool = False) -> None:
        if self.epoch is not None:
            self.epoch.left.add(self.uid)
            self.epoch.is_broken |= not is_orderly
        self.epoch = None

    def collective(self, name: str, value: object) -> list:
        """What each member gave to this call, in rank order."""
        epoch = self.epoch
        if epoch is None:
            raise HorovodInternalError("not initialized")
        number = self._counts[name] = self._counts.get(name, 0) + 1
        calls = epoch.arrived.setdefault((number, name), {})
        calls[self.uid] = value
        everybody = {one.uid for one in epoch.members}

        def is_decided() -> bool:
            return set(calls) == everybody or bool(epoch.left - set(calls))

        self.pause(f"{name} {number}", is_decided)
        # Ranks hear of an end at different times: one has its result and another has an error.
        if set(calls) != everybody or (epoch.is_broken and self.job.random.random() < 0.5):
            raise HorovodInternalError(f"{name}: ranks {sorted(epoch.left)} are lost")
        return [calls[one.uid] for one in epoch.members]

    # ---- the engine, as rueda.elastic.loop.Engine ----

    def is_running(self) -> bool:
        return self.epoch is not None

    def start(self) -> None:
        epoch = self.job.epoch_of_view
        epoch.started.add(self.uid)
        self.epoch, self._counts = epoch, {}
        everybody = {one.uid for one in epoch.members}

        def is_decided() -> bool:
            missing = [one for one in epoch.members if one.uid not in epoch.started]
            return not missing or any(one.is_over for one in missing) or bool(epoch.left)

        self.pause("init", is_decided)
        if epoch.started != everybody:
            self.leave_epoch()
            raise ValueError("Horovod initialization failed.")

    def stop(self) -> None:
        self.leave_epoch()

    # ---- the wire, as rueda.elastic.wire.Wire ----

    @property
    def rank(self) -> int:
        return self.view.rank

    @property
    def size(self) -> int:
        return self.view.size

    def allgather(self, data: bytes) -> list[bytes]:
        return self.collective("allgather", data)

    def broadcast(self, data: bytes, root: int) -> bytes:
        return self.collective("broadcast", data)[root]

    def start_broadcast(self, chunk: bytearray, root: int, number: int):
        def wait() -> None:
            chunk[:] = self.collective(f"chunk {number}", bytes(chunk))[root]

        return wait


class Job:
    """Processes, the view that they are in, and what is to happen to them at which tick."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.processes: list[Process] = []
        self.back = threading.Semaphore(0)
        self.tick = 0
        self.view_number = 0
        self.members: list[Process] = []
        self.epoch_of_view: Epoch | None = None
        self.joining: dict[int, int] = {}  # the commits of those that wait for the next view, by uid
        self.decided: dict[int, View] = {}
        self.interrupt_at = -1
        self.has_more_hosts = self.has_fewer_hosts = False
        self.views: list[View] = []
        self._local = threading.local()

    # ---- processes ----

    def add(self, program, is_joiner: bool = False) -> Process:
        uid = len(self.processes)

        def live(process: Process):
            self._local.process = process
            return program(process)

        process = Process(self, uid, live, is_joiner)
        self.processes.append(process)
        process.thread.start()
        return process

    def here(self) -> Process:
        """The process of this thread."""
        return self._local.process

    def begin(self, count: int, program) -> None:
        """The first view: these have called init() already."""
        for _ in range(count):
            self.add(program)
        self.members = list(self.processes)
        self.epoch_of_view = Epoch(self.members)
        self.view_number = 1
        for rank, process in enumerate(self.members):
            process.view = View(1, rank, count)
            process.epoch = self.epoch_of_view

    def kill(self, process: Process) -> None:
        if not process.is_over:
            process.is_killed = True
            process.may_run = lambda: True

    def interrupt(self, more: bool = False, leaver: Process | None = None) -> None:
        """All members are to raise HostsUpdatedInterrupt at one commit, none of which they have made."""
        living = [one for one in self.members if not one.is_over]
        if not living or self.interrupt_at >= 0:
            return
        self.has_more_hosts, self.has_fewer_hosts = more, leaver is not None
        self.interrupt_at = max(one.commit for one in living) + 1
        if leaver is not None:
            leaver.must_leave = True

    def run(self, events=()) -> None:
        """Until all are over. events: (tick, function of the job) in the order of ticks."""
        waiting = list(events)
        while True:
            while waiting and waiting[0][0] <= self.tick:
                waiting.pop(0)[1](self)
            self._decide()
            living = [one for one in self.processes if not one.is_over]
            if not living:
                return
            ready = [one for one in living if one.may_run()]
            if not ready and waiting:
                self.tick = waiting[0][0]
                continue
            if not ready or self.tick > LIMIT_TICKS:
                self._end(living)
            self.tick += 1
            chosen = self.random.choice(ready)
            chosen.turn.release()
            self.back.acquire()

    def _end(self, living: list[Process]) -> None:
        waits = {one.uid: one.waits_for for one in living}
        for one in living:
            one.is_killed = True
            one.turn.release()
            self.back.acquire()
        raise Deadlock(f"tick {self.tick}: nobody goes on; they wait for {waits}")

    # ---- views ----

    def _decide(self) -> None:
        """The next view, once all members that live have asked for it."""
        members = [one for one in self.members if not one.is_over]
        if not self.joining or any(one.uid not in self.joining for one in members):
            return
        if any(not self.processes[uid].is_over for uid in self.decided):
            return
        new = [one for one in self.processes if one.uid in self.joining and one not in members]
        new = [one for one in new if not one.is_over]
        if not members:  # the job has ended: nobody could tell a joiner the state
            self.decided = {uid: View(self.view_number + 1, NOT_IN_VIEW, 0) for uid in self.joining}
            self.joining = {}
            return
        staying = [one for one in members if not one.must_leave] or members  # somebody holds the state
        listed = staying + new
        lost = tuple(str(one.uid) for one in self.members if one not in listed)
        leaving = [one.uid for one in members if one not in listed]
        newest = max(self.joining[one.uid] for one in listed)
        holders = tuple(r for r, one in enumerate(listed) if newest >= 0 and self.joining[one.uid] == newest)
        joined = tuple(r for r, one in enumerate(listed) if one in new)
        self.view_number += 1
        self.decided = {
            one.uid: View(self.view_number, rank, len(listed), newest, holders, joined, lost)
            for rank, one in enumerate(listed)
        } | {uid: View(self.view_number, NOT_IN_VIEW, 0) for uid in leaving}
        self.views.append(self.decided[listed[0].uid])
        self.members, self.joining = listed, {}
        self.epoch_of_view = Epoch(listed)
        self.interrupt_at, self.has_more_hosts, self.has_fewer_hosts = -1, False, False


class DoubleMembership:
    """rueda.elastic.membership.Membership for all processes of a job."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def is_elastic(self) -> bool:
        return True

    def is_joiner(self) -> bool:
        return self.job.here().is_joiner

    def join(self, commit: int, digest: bytes, timeout_s: float) -> View:
        process = self.job.here()
        assert process.epoch is None and timeout_s > 0 and len(digest) == 32
        self.job.joining[process.uid] = commit
        process.pause("the next view", lambda: process.uid in self.job.decided)
        process.view = self.job.decided.pop(process.uid)
        process.is_joiner = False
        # One that dies now is missing in init().
        return process.view

    def committed(self, commit: int) -> None:
        self.job.here().commit = commit

    def news(self) -> News:
        job, process = self.job, self.job.here()
        process.pause("news")
        return News(job.has_more_hosts, job.has_fewer_hosts, job.interrupt_at, process.must_leave)
