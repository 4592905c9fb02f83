"""Three hosts, whose lowest ranks speak for the others: what is said, who is blamed, and who is not."""

import re
import signal
import time
from typing import Dict

import pytest
from robust_support import Job, Jobs, make_jobs
from test_robust_death import WAITING, assert_lost

__all__ = ["make_jobs"]  # the fixture `jobs`

HOSTS = "001122"  # of each rank; ranks 2 and 4 lead theirs
RANKS = len(HOSTS)
TIMEOUT_S = 6


def place(rank: int) -> Dict[str, str]:
    return {
        "RUEDA_HOSTNAME": f"h{HOSTS[rank]}",
        "RUEDA_LOCAL_RANK": str(HOSTS[:rank].count(HOSTS[rank])),
        "RUEDA_LOCAL_SIZE": str(HOSTS.count(HOSTS[rank])),
    }


def start(jobs: Jobs, body: str, **environment: str) -> Job:
    return jobs.start(RANKS, body, environment, by_rank=place)


EVERYTHING = """
from rueda import _core
hvd.init()
me, world = hvd.rank(), hvd.size()
def messages():
    return json.loads(_core.describe())["counters"]["negotiation_messages"]
assert hvd.allreduce(torch.full((3,), me), op=hvd.Sum).tolist() == [sum(range(world))] * 3

# ---- process sets that cross hosts, or are inside one ----
sets = [hvd.add_process_set(ranks) for ranks in ([1, 2, 5], [2, 3], [0, 3, 4])]
for turn in range(20):
    for number, one in enumerate(sets):
        if one.included():
            got = hvd.allreduce(torch.tensor([me]), op=hvd.Sum, process_set=one, name=f"in.{number}")
            assert got.item() == sum(one.ranks)
hvd.remove_process_set(sets[1])

# ---- who differs is named, wherever it runs ----
try:
    hvd.allreduce(torch.ones(3 if me in (1, 3) else 2), name="differs")
except hvd.HorovodInternalError as error:
    say("mismatch", text=str(error))

# ---- a plan needs no messages ----
longest = silent = 0
before = messages()
for step in range(120):
    handles = [
        hvd.allreduce_async(torch.full((100 + tensor,), me), op=hvd.Sum, name=f"gradient.{tensor}")
        for tensor in range(5)
    ]
    hvd.allreduce(torch.ones(1), name="loss")
    for handle in handles:
        hvd.synchronize(handle)
    now = messages()
    silent = silent + 1 if now == before else 0
    before, longest = now, max(longest, silent)
say("plan", silent=longest)

# ---- ranks that have no more data ----
for step in range(me):
    hvd.allreduce(torch.ones(4), name="uneven")
say("joined", last=hvd.join())
hvd.barrier()
"""


def test_everything_that_ranks_tell_the_coordinator_passes_leaders(jobs: Jobs) -> None:
    job = start(jobs, EVERYTHING, HOROVOD_DYNAMIC_PROCESS_SETS="1")
    job.assert_ended_well()
    texts = {entry["text"] for rank in range(RANKS) for entry in job.said(rank, "mismatch")}
    assert len(texts) == 1, texts
    (text,) = texts
    assert "ranks 0, 2, 4, 5 have [2], ranks 1, 3 have [3]. Outnumbered: ranks 1, 3." in text
    for rank in range(RANKS):
        (plan,), (joined,) = job.said(rank, "plan"), job.said(rank, "joined")
        assert plan["silent"] >= 30, (rank, plan)
        assert joined["last"] == RANKS - 1, (rank, joined)


def start_waiting(jobs: Jobs, victim: int, **environment: str) -> Job:
    job = start(jobs, f"VICTIM = {victim}\n" + WAITING, **environment)
    for rank in range(RANKS):
        job.await_said(rank, "ready")
    return job


@pytest.mark.parametrize("victim", [0, 1, 2, 3, 5])
def test_a_rank_that_dies_is_named_by_all_whether_it_leads_a_host_or_not(jobs: Jobs, victim: int) -> None:
    job = start_waiting(jobs, victim)
    assert_lost(job, victim, job.kill(victim))


@pytest.mark.parametrize("victim", [0, 2, 3])
def test_a_rank_that_stays_stopped_is_named_by_all_and_nobody_below_it_is(jobs: Jobs, victim: int) -> None:
    job = start_waiting(jobs, victim, RUEDA_PEER_TIMEOUT_SECONDS=str(TIMEOUT_S))
    since = job.kill(victim, signal.SIGSTOP)
    assert_lost(job, victim, since, TIMEOUT_S + 20.0)
    log = "".join(job.output(rank) for rank in range(RANKS) if rank != victim)
    verdicts = re.findall(r"Verdict: (?:stopped|silent|unreachable): rank (\d)", log)
    assert set(verdicts) <= {str(victim)}, job.everything()
    job.kill(victim)
    job.wait(10.0, [victim])


def test_a_leader_that_is_stopped_for_a_while_costs_nobody_the_job(jobs: Jobs) -> None:
    body = """
hvd.init()
say("ready")
for step in range(10_000):
    hvd.allreduce(torch.ones(8), name=f"step.{step % 7}")
    more = hvd.broadcast(torch.tensor([not os.path.exists("enough")]), 0, name="more")
    if not more:
        break
say("done", steps=step)
"""
    longer_s = 3 * TIMEOUT_S  # a third of it is what a busy machine may add
    job = start(jobs, body, RUEDA_PEER_TIMEOUT_SECONDS=str(longer_s))
    for rank in range(RANKS):
        job.await_said(rank, "ready")
    for _ in range(2):
        job.kill(2, signal.SIGSTOP)
        time.sleep(longer_s * 2 / 3)
        job.kill(2, signal.SIGCONT)
        time.sleep(1.0)
    job.release("enough")
    job.assert_ended_well()
    log = "".join(job.output(rank) for rank in range(RANKS))
    assert set(re.findall(r"Verdict: (?:stopped|silent|unreachable|late\S*): rank (\d)", log)) <= {"2"}, log
