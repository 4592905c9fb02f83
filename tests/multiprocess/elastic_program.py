"""One process of an elastic job, over `_core` and numpy: it sums ones, counts commits, and does what its uid
is told in the variable TEST_ACTIONS. Each line that it prints is JSON.

TEST_ACTIONS: {uid: {"kill_at": commit, "while": "allreduce" | "join" | "init" | "step" | "start"}}, where
"join" and "init" mean the first after that commit, and "start" before the first init. "signal": the name of
another signal than SIGKILL, sent once. "starts_after": a file for which it waits before all else.
TEST_END: [view, commits]: it ends when it has made so many commits in this view or a later one, with so many
ranks if there is a third number, and if it is the one that a fourth value names. TEST_PAUSE_S: after each
commit.
TEST_HOSTS: {view: text}: when this view begins, its rank 0 writes the text into TEST_HOSTS_FILE.
"""

import json
import os
import pathlib
import signal
import sys
import threading
import time

import numpy as np

import rueda.numpy as hvd
from rueda import _core, errors

UID = os.environ.get("RUEDA_ELASTIC_UID", "")
ACTION = json.loads(os.environ.get("TEST_ACTIONS", "{}")).get(UID, {})
END = json.loads(os.environ.get("TEST_END", "[]"))
END_VIEW, END_COMMITS, END_SIZE, END_UID = END + [2, 20, 1, UID][len(END) :]
PAUSE_S = float(os.environ.get("TEST_PAUSE_S", "0"))
HOSTS = json.loads(os.environ.get("TEST_HOSTS", "{}"))
ELEMENTS = int(os.environ.get("TEST_ELEMENTS", "1000"))
DIGEST = ACTION.get("digest", "model").encode()


def say(**words):
    print(json.dumps({"uid": UID, **words}), flush=True)


def die():
    number = signal.Signals[ACTION.pop("signal", "SIGKILL")]
    ACTION.pop("while", None)
    os.kill(launcher() if ACTION.get("pid") == "launcher" else os.getpid(), number)


def launcher():
    """The parent of the agent's two processes."""
    pid = os.getpid()
    for _ in range(3):
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
        pid = int(text.rpartition(")")[2].split()[1])
    return pid


def is_due(where, commit):
    return ACTION.get("while") == where and commit >= ACTION["kill_at"]


class Training:
    def __init__(self):
        self.commit, self.total = -1, 0.0
        self.number, self.began = 1, -1
        self.spans = []  # [view, size, commit before, commit after]

    def join(self):
        if is_due("join", self.commit):
            die()
        view = _core.elastic_join(self.commit, DIGEST, 60.0)
        say(what="view", **view._asdict())
        if is_due("init", self.commit):
            die()
        return view

    def enter(self, view):
        hvd.init()
        hosts = HOSTS.get(str(1 if view is None else view.number))
        if hosts and hvd.rank() == 0:
            pathlib.Path(os.environ["TEST_HOSTS_FILE"]).write_text(hosts)
        if view is None:
            return
        if self.spans:
            self.spans[-1][3] = view.commit
        self.number = view.number
        root = view.holders[0] if view.holders else 0
        state = hvd.broadcast(np.array([self.commit, self.total]), root, name="state")
        self.commit, self.total = int(state[0]), float(state[1])

    def step(self):
        ones = np.ones(ELEMENTS, dtype=np.float32)
        if is_due("allreduce", self.commit + 1):
            threading.Timer(0.001, die).start()
        if is_due("step", self.commit + 1):
            die()
        result = hvd.allreduce(ones, op=hvd.Sum, name="ones")
        assert np.all(result == hvd.size())
        self.total += float(result[0])
        self.commit += 1
        _core.elastic_committed(self.commit)

    def epoch(self):
        """Whether the training is over."""
        self.began = self.commit
        self.spans.append([self.number, hvd.size(), self.began, self.commit])
        while True:
            self.step()
            self.spans[-1][3] = self.commit
            is_late = self.number >= END_VIEW and self.commit - self.began >= END_COMMITS
            if is_late and hvd.size() >= END_SIZE and UID == END_UID:
                return True
            time.sleep(PAUSE_S)
            news = _core.elastic_news()
            if -1 < news.at_commit <= self.commit:
                say(what="interrupt", commit=self.commit, added=news.hosts_added, leave=news.leave)
                return False

    def run(self):
        view = self.join() if os.environ.get("RUEDA_JOINER") == "1" else None
        while True:
            try:
                self.enter(view)
                is_over = self.epoch()
                size = hvd.size()
                hvd.shutdown()
                if is_over:
                    say(what="end", commit=self.commit, total=self.total, size=size, spans=self.spans)
                    return
            except (errors.HorovodInternalError, ValueError) as error:
                say(what="error", kind=type(error).__name__, text=str(error), commit=self.commit)
                hvd.shutdown()
            view = self.join()


def await_file(path):
    deadline = time.monotonic() + 100
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            sys.exit(f"{UID}: there is no {path} after 100 s")
        time.sleep(0.01)


if "starts_after" in ACTION:
    await_file(ACTION["starts_after"])
if ACTION.get("while") == "start":
    die()
try:
    Training().run()
except errors.RuedaError as error:
    say(what="refused", text=str(error))
    sys.exit(75)
