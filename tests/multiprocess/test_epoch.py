"""The number of an epoch: one for all ranks, larger at each init, none before and after."""

from robust_support import Jobs, make_jobs

__all__ = ["make_jobs"]  # the fixture `jobs`

BODY = """
from rueda import _core
assert _core.epoch() == -1
for turn in range(3):
    hvd.init()
    say("epoch", number=_core.epoch())
    hvd.shutdown()
    assert _core.epoch() == -1
"""


def test_an_epoch_has_one_number_on_all_ranks_and_never_an_old_one(jobs: Jobs) -> None:
    job = jobs.start(2, BODY)
    job.assert_ended_well()
    numbers = [[said["number"] for said in job.said(rank, "epoch")] for rank in range(2)]
    assert numbers == [[1, 2, 3], [1, 2, 3]]


def test_a_job_of_one_process_counts_its_epochs_too(jobs: Jobs) -> None:
    job = jobs.start(1, BODY)
    job.assert_ended_well()
    assert [said["number"] for said in job.said(0, "epoch")] == [1, 2, 3]
