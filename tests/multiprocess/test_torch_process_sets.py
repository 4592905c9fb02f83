"""Process sets from one init to the next. Each test has processes of its own."""

from harness import assert_all_succeed
from nursery import launch

PREPARE = """
import os
import pytest, torch
import rueda.torch as hvd
"""


def run(size, body):
    return launch(size, PREPARE + body)


def test_static_process_sets_get_ids_in_order():
    body = """
sets = [hvd.ProcessSet([0]), hvd.ProcessSet([2, 1])]
hvd.init(process_sets=sets)
assert [s.process_set_id for s in sets] == [1, 2] and sets[1].ranks == [1, 2]
assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks() == {0: [0, 1, 2], 1: [0], 2: [1, 2]}
mine = sets[0] if hvd.rank() == 0 else sets[1]
assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=mine).item() == mine.size()
again = [hvd.ProcessSet([1, 2]), hvd.ProcessSet([0])]
hvd.init(process_sets=again)
assert [s.process_set_id for s in again] == [2, 1]
for unknown, text in (([[0, 1]], "without the process set of ranks [[]0, 1[]]"), ([[0], [0]], "twice")):
    with pytest.raises(ValueError, match=text):
        hvd.init(process_sets=[hvd.ProcessSet(ranks) for ranks in unknown])
changes = {"adding": lambda: hvd.add_process_set([1]), "removing": lambda: hvd.remove_process_set(mine)}
for word, change in changes.items():
    text = f"Set HOROVOD_DYNAMIC_PROCESS_SETS=1 to allow {word} process sets after Horovod initialization."
    with pytest.raises(ValueError, match=text):
        change()
hvd.barrier()
hvd.shutdown()
assert sets[0].process_set_id == 1
with pytest.raises(ValueError, match="not been initialized"):
    sets[0].size()
"""
    assert_all_succeed(run(3, body))


def test_a_static_set_of_all_ranks_is_the_world():
    body = """
world, one = hvd.ProcessSet([1, 0]), hvd.ProcessSet([1])
hvd.init(process_sets=[world, one])
assert (world.process_set_id, one.process_set_id) == (0, 1) and world.size() == 2
assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks() == {0: [0, 1], 1: [1]}
assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=world).item() == 2
assert not hvd.remove_process_set(world)
hvd.barrier()
"""
    assert_all_succeed(run(2, body))


def test_process_sets_end_with_their_init():
    body = """
import copy
old = hvd.ProcessSet([0, 1])
hvd.init(process_sets=[old])
copied = copy.deepcopy(old)
hvd.barrier()
hvd.shutdown()
new = hvd.ProcessSet([1, 2])
hvd.init(process_sets=[new])
assert new.process_set_id == 1
for stale in (old, copied):
    assert stale.process_set_id is None and stale.size() is None
    for operation in (hvd.allreduce, hvd.allgather, lambda x, process_set: hvd.barrier(process_set)):
        with pytest.raises(ValueError, match="not been registered since the last init.*; register it again"):
            operation(torch.ones(1), process_set=stale)
hvd.barrier()
hvd.shutdown()
hvd.init(process_sets=[old])
if old.included():
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=old).item() == 2
hvd.barrier()
"""
    assert_all_succeed(run(3, body))


def test_ranks_that_disagree_about_process_sets_all_fail_in_init():
    body = """
rank = int(os.environ["RUEDA_RANK"])
with pytest.raises(ValueError, match="mismatching"):
    hvd.init(process_sets=[hvd.ProcessSet([0] if rank == 0 else [1])])
assert not hvd.is_initialized()
"""
    assert_all_succeed(run(2, body))
