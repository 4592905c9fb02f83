"""Ranks of a host share one connection to a store on another one, whichever of them serves it or goes. When
init is over only that connection is left: each rank closes its own, to the store or to the relay."""

import re
import signal
from pathlib import Path
from typing import Tuple

from cables import RANKS, WIRES, make_cable, place, start_in_spaces
from ports import free_port
from robust_support import LIMIT_S, Job, Jobs, make_jobs, wait_until

__all__ = ["make_cable", "make_jobs"]  # the fixtures `cable` and `jobs`

ESTABLISHED = "01"

BODY = """
if os.environ["RUEDA_RANK"] == os.environ.get("LATE"):
    await_file("go")
hvd.init()
assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [hvd.size()] * 3
say("up")
await_file("end")
hvd.shutdown()
hvd.init()
assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [hvd.size()] * 3
"""


def connections_to(port: int, seen_by: int) -> int:
    """How many connections lead to this port, in the network of that process."""
    rows = [line.split() for line in Path(f"/proc/{seen_by}/net/tcp").read_text().splitlines()[1:]]
    return sum(row[2].endswith(f":{port:04X}") and row[3] == ESTABLISHED for row in rows)


def start(jobs: Jobs, port: int, **environment: str) -> Job:
    store = {"RUEDA_STORE": f"tcp://127.0.0.1:{port}"}
    return jobs.start(RANKS, BODY, environment={**store, **environment}, by_rank=place)


def finish(job: Job) -> None:
    for rank in range(RANKS):
        job.await_said(rank, "up")
    job.release("end")
    job.assert_ended_well()


def test_ranks_of_one_network_share_a_connection_beside_that_of_rank_0(jobs: Jobs) -> None:
    port = free_port()
    job, _ = start_until_relayed(jobs, port)
    assert connections_to(port, job.pids[0]) == 2
    job.release("go")
    for rank in range(RANKS):
        job.await_said(rank, "up")
    assert connections_to(port, job.pids[0]) == 1
    finish(job)


def test_rank_0_that_serves_the_store_of_one_host_keeps_no_connection(jobs: Jobs) -> None:
    port = free_port()
    job = jobs.start(RANKS, BODY, environment={"RUEDA_STORE": f"tcp://127.0.0.1:{port}"})
    for rank in range(RANKS):
        job.await_said(rank, "up")
    assert connections_to(port, job.pids[0]) == 0
    finish(job)


def test_after_init_one_connection_of_the_other_host_is_left(jobs: Jobs, cable: Tuple[str, str]) -> None:
    port = free_port()
    job = start_in_spaces(jobs, cable, BODY, RUEDA_STORE=f"tcp://{WIRES[0]}:{port}")
    for rank in range(RANKS):
        job.await_said(rank, "up")
    assert [connections_to(port, job.pids[rank]) for rank in (0, RANKS - 1)] == [1, 1]
    finish(job)


def relays(job: Job) -> int:
    """The rank whose process has the thread that relays; -1: there is none yet."""
    for rank in range(1, RANKS):
        for thread in Path(f"/proc/{job.pids[rank]}/task").iterdir():
            if (thread / "comm").read_text().strip() == "rueda-relay":
                return rank
    return -1


def start_until_relayed(jobs: Jobs, port: int) -> Tuple[Job, int]:
    """A job that waits in init for its last rank, and the rank that relays."""
    job = start(jobs, port, LATE=str(RANKS - 1), RUEDA_START_TIMEOUT="15")
    wait_until(lambda: relays(job) > 0, LIMIT_S, "a rank relays")
    return job, relays(job)


def test_ranks_meet_while_the_one_that_relays_is_stopped(jobs: Jobs) -> None:
    port = free_port()
    job, relay = start_until_relayed(jobs, port)
    job.kill(relay, signal.SIGSTOP)
    job.release("go")
    wait_until(lambda: connections_to(port, job.pids[0]) > 2, LIMIT_S, "others dial the store")
    job.kill(relay, signal.SIGCONT)
    finish(job)


def test_the_rank_that_relays_is_named_if_it_dies(jobs: Jobs) -> None:
    job, relay = start_until_relayed(jobs, free_port())
    job.kill(relay)
    job.release("go")
    survivors = [rank for rank in range(RANKS) if rank != relay]
    assert set(job.wait(ranks=survivors)) == {1}
    for rank in survivors:
        assert re.search(rf"ValueError: .*\brank {relay}\b", job.output(rank)), job.everything()
