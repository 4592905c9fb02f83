"""A membership of real processes by files, for tests of the Python side of elastic training.

Every process has a number, `uid`, which is the rank with which it was started. Members write their commit for
the next view; the living one with the lowest uid then decides. Ranks and sizes go to the engine through the
environment, which it reads at each init.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from processes import state_of

from rueda.elastic import membership
from rueda.elastic.membership import NOT_IN_VIEW, News, View

LIMIT_S = 120.0


class FileMembership:
    """rueda.elastic.membership.Membership; use() puts it in place. first: uids of the first members."""

    def __init__(self, first: list[int]) -> None:
        self.folder = Path(os.environ["RUEDA_SECRET_FILE"]).parent
        self.uid = int(os.environ["RUEDA_RANK"])
        self.members = list(first)
        self.number = 1
        self.plan = {}  # commit at which all are interrupted, by number of view: (commit, uids that leave)
        self.joiner = self.uid not in first
        self.views: list[View] = []
        self._write(f"pid.{self.uid}", os.getpid())
        if not self.joiner:
            self._place(first.index(self.uid), len(first))

    def use(self) -> FileMembership:
        membership.use(self)
        os.environ["RUEDA_ELASTIC"] = "1"
        return self

    def is_elastic(self) -> bool:
        return True

    def is_joiner(self) -> bool:
        return self.joiner

    def committed(self, commit: int) -> None:
        pass

    def news(self) -> News:
        at_commit, leavers = self.plan.get(self.number, (-1, ()))
        return News(at_commit >= 0 and not leavers, bool(leavers), at_commit, self.uid in leavers)

    def join(self, commit: int, digest: bytes, timeout_s: float) -> View:
        deadline = time.monotonic() + LIMIT_S
        if self.joiner:
            self._write(f"wants.{self.uid}", commit)
        else:
            self._write(f"commit.{self.number + 1}.{self.uid}", commit)
        while (decided := self._decided()) is None:
            assert time.monotonic() < deadline, f"no view after {self.number} for {self.uid}"
            self._try_to_decide()
            time.sleep(0.01)
        self.number, self.members = decided["number"], decided["members"]
        self.joiner = False
        if self.uid not in self.members:
            return View(self.number, NOT_IN_VIEW, 0)
        self._place(self.members.index(self.uid), len(self.members))
        self.views.append(self._view(decided))
        return self.views[-1]

    def _view(self, decided: dict) -> View:
        commits = [decided["commits"][str(uid)] for uid in self.members]
        newest = max(commits)
        holders = tuple(rank for rank, one in enumerate(commits) if one == newest >= 0)
        joined = tuple(self.members.index(uid) for uid in decided["joined"])
        lost = tuple(str(uid) for uid in decided["lost"])
        return View(self.number, self.members.index(self.uid), len(commits), newest, holders, joined, lost)

    def _decided(self) -> dict | None:
        if not self.joiner:
            return self._read(f"view.{self.number + 1}")
        found = [self._read(path.name) for path in self.folder.glob("view.*")]
        mine = [one for one in found if one and self.uid in one["members"]]
        return mine[0] if mine else None

    def _try_to_decide(self) -> None:
        if self.joiner:
            return
        alive = [uid for uid in self.members if self._is_alive(uid)]
        number = self.number + 1
        commits = {uid: self._read(f"commit.{number}.{uid}") for uid in alive}
        if alive[0] != self.uid or None in commits.values():
            return
        wanting = sorted(int(path.name.split(".")[1]) for path in self.folder.glob("wants.*"))
        joined = [uid for uid in wanting if uid not in self.members and self._is_alive(uid)]
        at_commit, leavers = self.plan.get(self.number, (-1, ()))
        if at_commit >= 0 and not leavers and not joined:
            return  # the members were interrupted for a process that has not come yet
        listed = [uid for uid in alive if uid not in leavers] + joined
        every = {**commits, **{uid: self._read(f"wants.{uid}") for uid in joined}}
        lost = [uid for uid in self.members if uid not in listed]
        self._write(
            f"view.{number}",
            {"number": number, "members": listed, "commits": every, "joined": joined, "lost": lost},
        )

    def _is_alive(self, uid: int) -> bool:
        pid = self._read(f"pid.{uid}")
        return pid is not None and state_of(pid) not in (None, "Z", "X")

    def _place(self, rank: int, size: int) -> None:
        for name, value in (("RANK", rank), ("SIZE", size), ("LOCAL_RANK", rank), ("LOCAL_SIZE", size)):
            os.environ[f"RUEDA_{name}"] = str(value)

    def _write(self, name: str, value: object) -> None:
        partial = self.folder / f".{name}.{self.uid}"
        partial.write_text(json.dumps(value))
        partial.rename(self.folder / name)

    def _read(self, name: str):
        try:
            return json.loads((self.folder / name).read_text())
        except FileNotFoundError:
            return None
