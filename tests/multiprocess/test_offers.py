"""Elastic jobs on slots that processes offer, as the actors of Ray and the tasks of Spark do."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from elastic_sums import train
from harness import library
from launch_support import ROOT, RUEDA, assert_all_gone, marked_processes

from rueda.offers import job, sealed
from rueda.offers.news import News
from rueda.offers.switchboard import Switchboard
from rueda.run import pickle_call

pytestmark = [
    pytest.mark.skipif(not os.path.exists(RUEDA), reason=f"{RUEDA} is not built"),
    pytest.mark.timeout(200),
]
OFFER = (
    "import json, sys; from rueda.offers import offer; "
    "said = {**offer.describe(1), **json.loads(sys.argv[3])}; "
    "offer.serve(('127.0.0.1', int(sys.argv[1])), bytes.fromhex(sys.argv[2]), said)"
)


class Offers:
    """Processes that offer slots."""

    def __init__(self, board):
        self.mark = f"RUEDA_TEST_MARK={os.urandom(8).hex()}"
        self._board = board
        self.processes = []

    def add(self, **said):
        variables = {
            **os.environ,
            **dict([self.mark.split("=")]),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), str(Path(__file__).parent)]),
            "RUEDA_LIBRARY": library(),
            "RUEDA_BIN": RUEDA,
        }
        command = [
            sys.executable,
            "-c",
            OFFER,
            str(self._board.port),
            self._board.key.hex(),
            json.dumps(said),
        ]
        self.processes.append(subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL))
        return self.processes[-1]

    def end(self):
        for process in self.processes:
            process.wait(30)
        assert_all_gone(marked_processes(self.mark))


@pytest.fixture
def told():
    return []


@pytest.fixture
def board(tmp_path, monkeypatch, told):
    monkeypatch.setenv("RUEDA_BIN", RUEDA)
    with Switchboard("127.0.0.1", tmp_path, "test", told.append) as made:
        yield made


@pytest.fixture
def offers(board):
    made = Offers(board)
    yield made
    board.close()
    made.end()


def run(board, size, *args, **env):
    return job.run(pickle_call(train, args, {}), size, board, job.Surroundings(env))


def test_the_slots_of_one_machine_are_one_host_with_one_agent(board, offers):
    for _ in range(2):
        offers.add()
    results = run(board, job.Size(least=2), 10, 2)
    name = "test-127.0.0.1"
    assert results == [(0, 2, 0, f"{name}:0#0", True), (1, 2, 1, f"{name}:1#0", True)]


def test_a_machine_that_comes_later_grows_the_job_and_ranks_tell_the_driver_about_it(board, offers, told):
    offers.add()

    def add_another():
        while not told:
            time.sleep(0.05)
        offers.add(host_key="another")

    helper = threading.Thread(target=add_another)
    helper.start()
    news = News(("127.0.0.1", board.port), board.key)
    results = run(board, job.Size(least=1, most=2), 10, 2, None, False, news.put)
    helper.join()
    assert [one[:2] for one in results] == [(0, 2), (1, 2)]
    assert [one[3] for one in results] == ["test-127.0.0.1:0#0", "test-127.0.0.1.1:0#0"]
    assert told[:2] == [(0, 1), (1, 1)]


def test_a_machine_whose_offer_is_killed_is_replaced_by_another_offer(board, offers):
    doomed = offers.add(host_key="first")
    while board.slots() < 1:
        time.sleep(0.05)
    for number in range(2):
        offers.add(host_key=f"other{number}")
    size = job.Size(least=1, first=3, most=3)
    victim = ("test-127.0.0.1:0#0", 5)
    results = run(board, size, 10, 2, victim, TEST_DOOMED=str(doomed.pid))
    assert [one[:2] for one in results] == [(0, 2), (1, 2)] and all(one[4] for one in results)
    assert "test-127.0.0.1:0#0" not in {one[3] for one in results}


def test_strangers_change_nothing(board):
    answers = []
    for said in (b"", b"x" * 200, b"rueda-offer-1\n" + bytes(48)):
        with socket.create_connection(("127.0.0.1", board.port)) as stranger:
            stranger.settimeout(20)
            stranger.recv(16)
            try:
                stranger.sendall(said)
                stranger.shutdown(socket.SHUT_WR)
                answers.append(stranger.recv(100))
            except TimeoutError:
                raise
            except OSError:  # the board has closed the connection already
                answers.append(b"")
    assert answers == [b"", b"", b""] and board.slots() == 0
    with pytest.raises(sealed.Broken):
        sealed.connect(("127.0.0.1", board.port), bytes(32), 20)
    assert board.slots() == 0
