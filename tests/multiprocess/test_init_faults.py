"""Faults of the system, and deaths, in the middle of init: one sentence says who and why, nothing hangs.

Ranks of several hosts, of which the lowest ranks lead the others. `SCRIPT` says which rank is on which host.
"""

import errno
import json
import os
import re
import signal
import socket
from typing import Iterator, List

import launch_support
import pytest
from faulty_ranks import KILLED, LIMIT_S, SCRIPT, STOPPED, Ended, Fault, Ranks, build_faults, run_by_hand
from faulty_ranks import variables as rank_variables
from ports import free_port
from processes import state_of
from robust_support import Jobs, make_jobs, wait_until

__all__ = ["make_jobs"]  # the fixture `jobs`

HOSTS = "aabb"  # of each rank; ranks 0 and 2 lead theirs
UNIX, INET = int(socket.AF_UNIX), int(socket.AF_INET)
ENOUGH = "600"  # seconds for init, longer than any test may take: a fault is told before


@pytest.fixture(scope="module")
def shim(tmp_path_factory) -> str:
    return build_faults(tmp_path_factory.mktemp("faults"))


@pytest.fixture(autouse=True)
def end_what_runs() -> Iterator[None]:
    yield
    launch_support.end_open_runs()


def launch(shim: str, hosts: str, rank: int, fault: Fault):
    """The same ranks under `rueda run`: its exit status and what it has said. Nothing is left behind."""
    environment = rank_variables(shim, hosts, {rank: fault})
    status, _, errors = launch_support.run(
        "-np", len(hosts), launch_support.PYTHON, "-c", SCRIPT, env=environment
    )
    return status, errors


def placements(ended: List[Ended]) -> List[List[int]]:
    assert all(one.status == 0 for one in ended), ended
    found = [line for one in ended for line in one.output.splitlines() if line.startswith('{"placed"')]
    assert len(found) == len(ended), ended
    return [json.loads(line)["placed"] for line in found]


# ---- hosts ----


def test_hosts_may_have_different_numbers_of_ranks(shim: str) -> None:
    assert placements(run_by_hand("abbccc", shim, {})) == [
        [0, 0, 1, 0, 3],  # rank, local rank and size, cross rank and size
        [1, 0, 2, 1, 3],
        [2, 1, 2, 0, 2],
        [3, 0, 3, 2, 3],
        [4, 1, 3, 1, 2],
        [5, 2, 3, 0, 1],
    ]


def test_a_machine_that_is_named_twice_counts_as_two_hosts(shim: str) -> None:
    names = ["-H", "localhost:2,127.0.0.1:1", "--no-prefix"]
    command = [launch_support.PYTHON, "-c", SCRIPT]
    status, out, errors = launch_support.run("-np", 3, *names, *command, env=rank_variables(shim, "", {}))
    assert status == 0, errors
    placed = sorted(json.loads(line)["placed"] for line in out.splitlines())
    assert placed == [[0, 0, 2, 0, 2], [1, 1, 2, 0, 1], [2, 0, 1, 1, 2]]


def test_a_leader_that_cannot_bind_its_local_socket_goes_over_the_network(shim: str) -> None:
    ended = run_by_hand(HOSTS, shim, {2: ("bind", 1, errno.EACCES, UNIX)})
    assert [place[0] for place in placements(ended)] == [0, 1, 2, 3]
    said = "ranks that cannot share memory with their host: rank 2 (host b)"
    assert said in ended[0].output and "Permission denied" in ended[0].output, ended


def test_a_leader_that_cannot_listen_is_the_cause_on_every_rank(shim: str) -> None:
    status, errors = launch(shim, HOSTS, 2, ("bind", 1, errno.EACCES, INET))
    assert status == 1
    assert re.search(r"the job failed: rank 2 on localhost \(pid \d+\) exited with code 1", errors), errors
    causes = [line for line in errors.splitlines() if "] init failed on rank " in line]
    assert causes, errors
    for cause in causes:
        assert re.search(r"cannot listen on 127\.0\.0\.1:0: Permission denied; .*RUEDA_INTERFACE", cause)
        assert "rank 2: " in cause or "on rank 2: " in cause, cause


# ---- ranks that come late, are stopped or die ----


def test_a_rank_that_comes_late_is_named_meanwhile_and_is_taken(jobs: Jobs) -> None:
    body = """
if os.environ["RUEDA_RANK"] == "2":
    await_file("go")
hvd.init()
assert hvd.allreduce(torch.ones(5), op=hvd.Sum).tolist() == [3.0] * 5
"""
    job = jobs.start(3, body)
    said = "missing in init, for which rank 0 has waited"
    wait_until(lambda: said in job.output(0) and ": rank 2." in job.output(0), LIMIT_S, said)
    job.release("go")
    job.assert_ended_well()


@pytest.mark.parametrize("call", ["connect", "sendmsg"])
@pytest.mark.parametrize("rank", [0, 2])
def test_a_leader_that_is_stopped_in_init_and_continued_harms_nobody(shim: str, rank: int, call: str) -> None:
    ranks = Ranks(HOSTS, shim, {rank: (call, 1, STOPPED, 0)}, store=f"tcp://127.0.0.1:{free_port()}")
    try:
        leader = ranks.processes[rank].pid
        wait_until(lambda: state_of(leader) in ("T", None), LIMIT_S, "it stops")
        # The others look for failures several times meanwhile.
        signal.sigtimedwait([], 2.0)
        os.kill(leader, signal.SIGCONT)
    finally:
        ended = ranks.finish()
    assert [place[0] for place in placements(ended)] == [0, 1, 2, 3]


# The moments at which a rank dies: it dials the store, opens its memory, listens, passes descriptors to the
# other ranks of its host, takes theirs.
MOMENTS = [
    (0, ("bind", 1, KILLED, INET)),
    (0, ("sendmsg", 1, KILLED, 0)),
    (2, ("connect", 1, KILLED, 0)),
    (2, ("memfd_create", 1, KILLED, 0)),
    (2, ("sendmsg", 1, KILLED, 0)),
    (3, ("listen", 2, KILLED, 0)),
    (3, ("recvmsg", 1, KILLED, 0)),
]


@pytest.mark.parametrize("rank, fault", MOMENTS, ids=lambda value: str(value).replace(" ", ""))
def test_a_rank_that_dies_in_init_is_named_by_launcher_and_ranks(shim: str, rank: int, fault: Fault) -> None:
    status, errors = launch(shim, HOSTS, rank, fault)
    assert status == 128 + signal.SIGKILL, errors
    assert re.search(rf"the job failed: rank {rank} on localhost \(pid \d+\) was killed by SIGKILL", errors)
    causes = [line for line in errors.splitlines() if "] init failed on rank " in line]
    assert causes, errors
    for cause in causes:
        assert re.search(rf"\brank {rank} (on|\(host)", cause), errors


@pytest.mark.parametrize("store", ["file", "tcp"])
@pytest.mark.parametrize("rank, call", [(2, "sendmsg"), (3, "recvmsg")])
def test_a_rank_that_dies_while_ranks_connect_is_named_without_a_launcher(
    shim: str, rank: int, call: str, store: str
) -> None:
    url = f"tcp://127.0.0.1:{free_port()}" if store == "tcp" else store
    ended = run_by_hand(HOSTS, shim, {rank: (call, 1, KILLED, 0)}, store=url, RUEDA_START_TIMEOUT=ENOUGH)
    for number, one in enumerate(ended):
        assert one.status == (-signal.SIGKILL if number == rank else 1), ended
        assert number == rank or f"rank {rank} (host b, pid " in one.cause, one


# Those below a leader hear nothing of rank 0 but that their leader has closed its connection, since it gives
# up; and the store, in which it would say why, has ended with rank 0.
@pytest.mark.parametrize("call", ["sendmsg", "recvmsg"])
def test_rank_0_that_dies_in_init_with_its_store_is_named_on_every_rank(shim: str, call: str) -> None:
    url = f"tcp://127.0.0.1:{free_port()}"
    fault: Fault = (call, 1, KILLED, 0)
    ended = run_by_hand("aabbcc", shim, {0: fault}, store=url, RUEDA_START_TIMEOUT=ENOUGH)
    assert ended[0].status == -signal.SIGKILL, ended
    for one in ended[1:]:
        assert one.status == 1, one
        assert "rank 0, which serves the store of this init, has ended" in one.cause, one
