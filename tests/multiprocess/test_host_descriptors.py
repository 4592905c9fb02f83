"""On one host a rank holds few descriptors, whatever the number of ranks, and still hears who has gone."""

from typing import List

import pytest
from robust_support import Job, Jobs, make_jobs

__all__ = ["make_jobs"]  # the fixture `jobs`

RANKS = 14
NOTICE_S = 20.0  # at once, and not only after the peer timeout, which is 30 s

BODY = """
def descriptors():
    return len(os.listdir("/proc/self/fd"))

before = descriptors()
hvd.init()
for _ in range(20):  # so that it runs by a plan
    hvd.allreduce(torch.ones(2), name="small")
deadline = time.monotonic() + 90
while descriptors() > before + 30 and time.monotonic() < deadline:
    time.sleep(0.01)
say("up", held=descriptors() - before)
if hvd.rank() in VICTIMS:
    await_file("never")
try:
    hvd.allreduce(torch.ones(2), name="small")
except hvd.HorovodInternalError as error:
    say("lost", text=str(error))
"""


def start(jobs: Jobs, victims: List[int]) -> Job:
    return jobs.start(RANKS, f"VICTIMS = {victims}\n" + BODY, transports="shm,tcp")


@pytest.mark.parametrize("victims", [[RANKS - 1], [6, 7, 8], [0]])
def test_ranks_without_a_connection_to_each_other_hear_who_has_gone(jobs: Jobs, victims: List[int]) -> None:
    job = start(jobs, victims)
    for rank in range(RANKS):
        held = job.await_said(rank, "up")["held"]
        assert held <= 30, (rank, held, job.everything())
    since = min(job.kill(victim) for victim in victims)
    survivors = [rank for rank in range(RANKS) if rank not in victims]
    job.assert_ended_well(survivors)
    for rank in survivors:
        (lost,) = job.said(rank, "lost")
        assert any(f"rank {victim}" in lost["text"] for victim in victims), lost
        assert lost["at"] - since < NOTICE_S, (lost, job.everything())
