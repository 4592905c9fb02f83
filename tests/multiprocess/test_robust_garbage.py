"""Thousands of strangers' connections at every socket of a job: it trains on, rightly, at a bounded price."""

import contextlib
import os
import resource
import socket
from typing import Dict, List, Optional

import launch_support
import pytest
from harness import library
from ports import free_port
from robust_attack import Address, Attack, Recorder, connect, listening_sockets
from robust_support import LIMIT_S, PRELUDE, Jobs, make_jobs, wait_until

__all__ = ["make_jobs"]  # the fixture `jobs`

SEED = 20240229
THROWN = 4000  # connections per test
STRANGERS_PER_PORT = int(os.environ.get("RUEDA_STRANGERS", "600"))
MAX_STRANGERS = 64 * 2 + 256  # that the two transports and the store of one process keep

TRAIN = """
def possessions():
    pages = int(open("/proc/self/statm").read().split()[1])
    return {"fds": len(os.listdir("/proc/self/fd")), "mib": pages * 4096 / (1 << 20)}
def train(until):
    turn = 0
    while True:
        for _ in range(20):
            numbers = torch.arange(3000.0) + turn
            got = hvd.allreduce(numbers * (hvd.rank() + 1), op=hvd.Sum, name="gradient")
            assert torch.equal(got, numbers * 3), turn
            turn += 1
        say("alive", turn=turn, **possessions())
        is_over = torch.tensor([float(hvd.rank() == 0 and os.path.exists(until))])
        if hvd.allreduce(is_over, op=hvd.Sum, name="over").item() > 0:
            return
hvd.init()
say("up", pid=os.getpid(), **possessions())
train("stop-training")
for life in range(3):
    hvd.shutdown()
    hvd.init()
    assert hvd.allreduce(torch.ones(5), op=hvd.Sum).tolist() == [2.0] * 5
say("again")
train("stop-all")
"""


def recorder() -> Optional[Recorder]:
    try:
        return Recorder()
    except PermissionError:
        return None


def assert_replay_is_refused(said: List[bytes], address: tuple) -> None:
    """The replayed client gets the server's challenge and, for its old proof, no welcome but the end."""
    with connect(address) as made:
        made.settimeout(8)
        heard = b""
        try:
            for part in said:
                made.sendall(part)
            while piece := made.recv(4096):
                heard += piece
        except ConnectionError:
            pass
    assert len(heard) < 400, heard


@pytest.mark.parametrize("transports", ["shm,tcp", "tcp"])
def test_a_job_trains_on_under_garbage(jobs: Jobs, transports: str) -> None:
    port = free_port()
    listener = recorder()
    environment = {"RUEDA_STORE": f"tcp://127.0.0.1:{port}"}
    job = jobs.start(2, TRAIN, transports=transports, environment=environment)
    for rank in range(2):
        job.await_said(rank, "up")
    addresses = listening_sockets(job.pids)
    ports = {address[1] for address in addresses if isinstance(address, tuple)}
    assert port in ports and len(addresses) >= 3, addresses
    assert {address[0] for address in addresses if isinstance(address, tuple)} == {"127.0.0.1"}
    recorded: List[List[bytes]] = []
    if listener is not None:
        wait_until(lambda: len(listener.spoken_to({port})) >= 2, 30, "handshakes seen on the wire")
        listener.stop()
        recorded = listener.spoken_to(ports)
        for said in listener.spoken_to({port})[:2]:
            assert_replay_is_refused(said, ("127.0.0.1", port))
    attack = Attack(job.pids, recorded, SEED)
    try:
        wait_until(lambda: sum(attack.kinds.values()) > THROWN, 60, "enough garbage")
        turns = [job.said(rank, "alive")[-1]["turn"] for rank in range(2)]
        wait_until(lambda: all(job.said(r, "alive")[-1]["turn"] > turns[r] for r in range(2)), 30, "progress")
        job.release("stop-training")
        for rank in range(2):
            job.await_said(rank, "again", 60)
    finally:
        attack.stop()
    job.release("stop-all")
    job.assert_ended_well()
    assert attack.kinds["replay"] > 100 or listener is None, attack.kinds
    assert attack.targets["tcp"] > 100 and (attack.targets["unix"] > 100 or transports == "tcp")
    for rank in range(2):
        first: Dict[str, float] = job.said(rank, "up")[0]
        assert max(a["fds"] for a in job.said(rank, "alive")) <= first["fds"] + MAX_STRANGERS
        assert max(a["mib"] for a in job.said(rank, "alive")) < first["mib"] + 64


def test_a_launched_job_trains_on_under_garbage(tmp_path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PRELUDE + TRAIN)
    environment = {
        "PYTHONPATH": os.environ.get("PYTHONPATH", "") + os.pathsep + str(launch_support.ROOT / "python"),
        "OMP_NUM_THREADS": "1",
    }
    out = tmp_path / "out"
    with open(out, "w") as stdout:
        run = launch_support.Run(
            *("-np", "2", launch_support.PYTHON, script),
            env=environment | {"RUEDA_LIBRARY": library()},
            cwd=tmp_path,
            stdout=stdout,
        )
    try:
        wait_until(lambda: out.read_text().count('"up"') == 2, 60, "the start of the job")
        assert listening_sockets([run.process.pid]), "the launcher serves the store"
        attack = Attack(run.processes(), [], SEED)
        try:
            wait_until(lambda: sum(attack.kinds.values()) > THROWN, 60, "enough garbage")
            (tmp_path / "stop-training").touch()
            wait_until(lambda: out.read_text().count('"again"') == 2, 60, "new connections of the job")
        finally:
            attack.stop()
        (tmp_path / "stop-all").touch()
        status, _, errors = run.finish()
        assert status == 0, out.read_text() + errors
        run.assert_gone()
    finally:
        run.kill_all()


def fill(address: Address, most: int) -> List[socket.socket]:
    """Silent connections to this socket: so many, or until its queue is full."""
    held = []
    with contextlib.suppress(OSError):
        while len(held) < most:
            held.append(connect(address))
    return held


MEET_LATE = """
if os.environ["RUEDA_RANK"] == "2":
    await_file("go")
hvd.init()
assert hvd.allreduce(torch.ones(5), op=hvd.Sum).tolist() == [3.0] * 5
"""


@pytest.mark.parametrize("transports", ["shm,tcp", "tcp"])
def test_ranks_meet_although_strangers_have_filled_every_port(jobs: Jobs, transports: str) -> None:
    """They come while ranks 0 and 1 wait in init, and before anybody accepts a connection of a rank."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    port = free_port()
    environment = {"RUEDA_STORE": f"tcp://127.0.0.1:{port}"}
    job = jobs.start(3, MEET_LATE, environment=environment, transports=transports)
    ports = 1 + 2 * transports.count(",") + 2  # of the store, and of each transport of two ranks
    wait_until(lambda: len(listening_sockets(job.pids)) >= ports, LIMIT_S, "ranks 0 and 1 listen")
    held: List[socket.socket] = []
    try:
        for address in listening_sockets(job.pids):
            filled = fill(address, STRANGERS_PER_PORT)
            assert len(filled) > 64, (address, len(filled))
            held += filled
        job.release("go")
        job.assert_ended_well()
    finally:
        for made in held:
            made.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
