"""Epochs: one number for all ranks, and what is left of an earlier one in a process that goes on."""

import pytest
from harness import assert_all_succeed
from nursery import launch
from robust_support import Jobs, make_jobs

__all__ = ["make_jobs"]  # the fixture `jobs`

BODY = """
from rueda import _core, epochs
assert _core.epoch() == epochs.current() == -1
for turn in range(3):
    hvd.init()
    say("epoch", number=_core.epoch())
    assert epochs.current() == _core.epoch()
    hvd.shutdown()
    assert _core.epoch() == epochs.current() == -1
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


PREPARE = """
import numpy as np
import pytest, torch
import rueda.numpy, rueda.torch
hvd = rueda.torch
STALE = "Handle 1 is from before shutdown.*; start the operation again after init"
"""


@pytest.mark.parametrize("front_end, ones", [("torch", "torch.ones"), ("numpy", "np.ones")])
def test_a_handle_of_an_earlier_epoch_is_not_taken_for_another_operations(front_end: str, ones: str) -> None:
    body = f"""
hvd, ones = rueda.{front_end}, {ones}
hvd.init()
old = hvd.allreduce_async(ones(2), name="old")
hvd.barrier()  # nobody may leave before all have submitted
hvd.shutdown()
def check_stale():
    for use in (hvd.synchronize, hvd.poll):
        with pytest.raises(hvd.HorovodInternalError, match=STALE):
            use(old)
check_stale()
hvd.init()
new = hvd.allreduce_async(ones(2), name="new", op=hvd.Sum)
assert old == new == 1
check_stale()
assert hvd.synchronize(new).tolist() == [2.0, 2.0]
hvd.barrier()
"""
    assert_all_succeed(launch(2, PREPARE + body))


def test_unnamed_operations_are_numbered_anew_in_each_epoch() -> None:
    body = """
for turn in range(2):
    own = [hvd.ProcessSet([rank]) for rank in range(2)]
    hvd.init(process_sets=own)
    me = hvd.rank()
    for _ in range(1 + me):  # the ranks have counted differently by the end of the epoch
        hvd.allreduce(torch.ones(1), process_set=own[me])
    assert hvd.allreduce_async(torch.ones(1), op=hvd.Sum) == 2 + me
    assert rueda.numpy.allreduce(np.ones(1), op=hvd.Sum).tolist() == [2.0]
    hvd.shutdown()
"""
    assert_all_succeed(launch(2, PREPARE + body))


def test_a_process_set_of_an_earlier_epoch_says_that_it_must_be_registered_again() -> None:
    body = """
hvd.init(process_sets="dynamic")
mine = hvd.add_process_set([0])
hvd.shutdown()
hvd.init(process_sets="dynamic")
other = hvd.add_process_set([1])  # may have the same id
text = "not been registered since the last init.*; register it again"
for module, one in ((rueda.torch, torch.ones(1)), (rueda.numpy, np.ones(1))):
    with pytest.raises(ValueError, match=text):
        module.allreduce(one, process_set=mine)
assert mine.size() is None and hvd.remove_process_set(mine) is False
assert other.size() == 1 and hvd.remove_process_set(other)
hvd.add_process_set(mine)
assert mine.size() == 1
if hvd.rank() == 0:
    assert hvd.allreduce(torch.ones(1), process_set=mine).item() == 1.0
hvd.barrier()
"""
    assert_all_succeed(launch(2, PREPARE + body))


def test_process_groups_of_an_earlier_epoch_say_so_and_their_sets_are_registered_again() -> None:
    body = """
import os
import torch.distributed as dist
def start(turn):
    place = f"file://{os.getcwd()}/meeting.{turn}"
    dist.init_process_group("rueda", init_method=place, rank=me, world_size=2)
    return dist.new_group([0]), dist.new_group([1])
me = int(os.environ["RUEDA_RANK"])
for turn in range(2):
    groups = start(turn)
    one = torch.ones(1)
    dist.all_reduce(one, group=groups[me])
    dist.all_reduce(one)
    assert one.item() == 2.0
    hvd.shutdown()
    hvd.init()
    with pytest.raises(RuntimeError, match="ended with the engine.*; call destroy_process_group"):
        dist.all_reduce(one)
    dist.destroy_process_group()
"""
    assert_all_succeed(launch(2, PREPARE + body))
