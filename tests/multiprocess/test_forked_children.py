"""Children of fork() know what their parent knew of the job, and are refused whatever needs its engine."""

import functools
import importlib.util

import harness
import pytest
from harness import QUIET_TENSORFLOW, assert_all_succeed
from nursery import TENSORFLOW, fork, launch

PREPARE = """
import os, signal, sys, traceback
import pytest
def in_child(work):
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a child that waits for a lock of its parent's threads would wait for ever
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
"""

PREPARE_TORCH = (
    PREPARE
    + """
import torch
import rueda.torch as hvd
"""
)

FACTS = """
def facts():
    told = [hvd.is_initialized(), hvd.gloo_enabled(), hvd.is_homogeneous()]
    told += [hvd.rank(), hvd.size(), hvd.mpi_enabled(), hvd.nccl_built()]
    told += [hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()]
    for one in (*sets, hvd.global_process_set):
        told += [one.process_set_id, one.size(), one.ranks, one.included()]
        if one.included():
            told.append(one.rank())
        else:
            pytest.raises(ValueError, one.rank).match("not part of")
    return told
"""

FRONT_ENDS = {
    "torch": "import rueda.torch as hvd",
    "tensorflow": "import rueda.tensorflow as hvd",
    "keras": "import rueda.keras as hvd",
    "jax": "import rueda.jax as hvd",
    "numpy": "import rueda.numpy as hvd",
    "horovod.torch": "import horovod.torch as hvd",
    "horovod.tensorflow": "import horovod.tensorflow as hvd",
    "horovod.keras": "import horovod.keras as hvd",
}
NEEDS = {"numpy": "numpy", "keras": "keras", "horovod.keras": "tensorflow"}
REFUSALS = """
def refused(call):
    with pytest.raises(Exception) as caught:
        call()
    said = getattr(caught.value, "message", str(caught.value))  # errors of TensorFlow have a message
    assert "was forked from one that had initialized" in said, repr(caught.value)
"""


def environment_of(front_end):
    backend = "jax" if front_end == "keras" else "tensorflow"
    return {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", **QUIET_TENSORFLOW}


def run_on(front_end, script):
    """Two interpreters of their own; where TensorFlow is needed, two ranks forked after its import."""
    start = harness.start_fresh
    if NEEDS.get(front_end, front_end).endswith("tensorflow"):
        start = functools.partial(fork, imports=TENSORFLOW)
    return harness.launch(2, script, environment_of(front_end), limit_s=120, start=start)


@pytest.mark.thorough("keras", "horovod.torch")
@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_child_answers_what_its_parent_knew(front_end):
    needed = NEEDS.get(front_end, front_end.rpartition(".")[2])
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f"there is no {needed}")
    body = f"""
{FRONT_ENDS[front_end]}
import rueda.process_sets
hvd.global_process_set = rueda.process_sets.global_process_set
sets = [rueda.process_sets.ProcessSet([1]), rueda.process_sets.ProcessSet([0])]
hvd.init(process_sets=sets)
{FACTS}
known = facts()
assert known[3:5] == [int(os.environ["RUEDA_RANK"]), 2]
def ask():
    assert facts() == known, (facts(), known)
    in_child(lambda: facts() == known or os._exit(2))  # and its own child
for _ in range(2):
    in_child(ask)
"""
    assert_all_succeed(run_on(front_end, PREPARE + body))


@pytest.mark.parametrize("front_end", ["torch", "tensorflow", "jax", "numpy"])
def test_collectives_in_a_child_are_refused_by_the_sentence_that_names_the_fork(front_end):
    if importlib.util.find_spec(front_end) is None:
        pytest.skip(f"there is no {front_end}")
    make = {
        "torch": "torch.ones",
        "tensorflow": "tensorflow.ones",
        "jax": "jax.numpy.ones",
        "numpy": "numpy.ones",
    }
    body = f"""
import {front_end}
{FRONT_ENDS[front_end]}
from rueda.process_sets import add_process_set
hvd.init(process_sets="dynamic")
{REFUSALS}
def work():
    ones = {make[front_end]}((2,))
    refused(lambda: hvd.allreduce(ones, name="x"))
    refused(lambda: hvd.grouped_allreduce([ones, ones]))
    refused(lambda: hvd.allgather(ones))
    refused(lambda: hvd.broadcast(ones, 0))
    refused(lambda: hvd.alltoall(ones))
    refused(lambda: hvd.reducescatter(ones))
    for name in ("join", "barrier"):
        if hasattr(hvd, name):
            refused(getattr(hvd, name))
    refused(lambda: hvd.broadcast_object(1))
    refused(lambda: hvd.allgather_object(1))
    refused(lambda: add_process_set([0]))
    refused(lambda: hvd.start_timeline("t.json"))
    refused(hvd.stop_timeline)
    refused(hvd.init)
    assert hvd.rank() == int(os.environ["RUEDA_RANK"])
    if hasattr(hvd, "rank_op"):
        told = [hvd.rank_op(), hvd.size_op(), hvd.local_rank_op(), hvd.process_set_included_op()]
        assert list(map(int, told)) == [hvd.rank(), hvd.size(), hvd.local_rank(), 1]
in_child(work)
"""
    assert_all_succeed(run_on(front_end, PREPARE + body))


def test_workers_of_data_loaders_shard_by_rank_and_seed_by_rank():
    body = """
hvd.init()
mine = [hvd.rank(), hvd.size(), hvd.local_rank()]
class Sharded(torch.utils.data.IterableDataset):
    def __iter__(self):
        worker = torch.utils.data.get_worker_info().id
        yield torch.tensor([hvd.rank(), hvd.size(), hvd.local_rank(), torch.initial_seed(), worker])
def seed(worker):
    torch.manual_seed(100 * hvd.rank() + worker)
loader = torch.utils.data.DataLoader(
    Sharded(), batch_size=None, num_workers=2, worker_init_fn=seed, multiprocessing_context="fork"
)
rows = sorted(row.tolist() for row in loader)
assert rows == [[*mine, 100 * hvd.rank() + worker, worker] for worker in range(2)], rows
sampled = torch.utils.data.DataLoader(
    range(8), sampler=torch.utils.data.distributed.DistributedSampler(range(8), hvd.size(), hvd.rank()),
    num_workers=1, collate_fn=lambda rows: (hvd.rank(), rows), multiprocessing_context="fork",
)
assert {rank for rank, _ in sampled} == {hvd.rank()}
assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 3
"""
    assert_all_succeed(launch(3, PREPARE_TORCH + body))


def test_processes_and_pools_of_multiprocessing_know_the_rank():
    body = """
import multiprocessing
hvd.init()
forking = multiprocessing.get_context("fork")
def tell(queue):
    queue.put((hvd.rank(), hvd.size(), hvd.is_initialized()))
queue = forking.Queue()
one = forking.Process(target=tell, args=(queue,))
one.start()
assert queue.get(timeout=60) == (hvd.rank(), 2, True)
one.join(60)
assert one.exitcode == 0
with forking.Pool(2) as pool:
    assert pool.map(abs_rank, range(4)) == [hvd.rank() * 10 + i for i in range(4)]
assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 2
"""
    work = "def abs_rank(i): return hvd.rank() * 10 + i\n"
    assert_all_succeed(harness.launch(2, PREPARE_TORCH + work + body))


def test_a_child_knows_the_epoch_of_its_fork_and_no_other():
    body = (
        FACTS
        + """
hvd.init()
stale = hvd.ProcessSet([0])
hvd.shutdown()
def unknown():
    assert not hvd.is_initialized()
    world = hvd.mpi_ops.global_process_set
    for ask in (hvd.rank, hvd.size, hvd.local_rank, hvd.mpi_ops.is_homogeneous, world.rank):
        pytest.raises(ValueError, ask).match("not been initialized")
in_child(unknown)
hvd.init(process_sets=[stale])
first = stale.process_set_id
hvd.shutdown()
later = hvd.ProcessSet([1])
hvd.init(process_sets=[later])
def of_the_last_init():
    assert stale.process_set_id is None and stale.size() is None
    assert later.size() == 1 and later.included() == (hvd.rank() == 1)
    hvd.shutdown()  # forgets, and harms nobody
    unknown()
in_child(of_the_last_init)
assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 2
"""
    )
    assert_all_succeed(launch(2, PREPARE_TORCH + body))


def test_a_childs_knowledge_outlives_the_engine_of_its_parent():
    body = """
hvd.init()
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    signal.alarm(60)
    os.close(writing)
    os.read(reading, 1)  # until the parent has shut down
    os._exit(0 if (hvd.rank(), hvd.size()) == (int(os.environ["RUEDA_RANK"]), 2) else 1)
hvd.shutdown()
os.close(writing)
assert os.waitpid(child, 0)[1] == 0
"""
    assert_all_succeed(launch(2, PREPARE_TORCH + body))


def test_handles_of_the_parent_are_refused_in_a_child():
    body = """
hvd.init()
handle = hvd.allreduce_async(torch.ones(2), name="x")
def work():
    for use in (hvd.poll, hvd.synchronize):
        with pytest.raises(hvd.HorovodInternalError, match="forked"):
            use(handle)
in_child(work)
assert hvd.synchronize(handle).tolist() == [1, 1]
"""
    assert_all_succeed(launch(2, PREPARE_TORCH + body))


def test_an_exit_of_a_child_with_its_exit_handlers_waits_for_nothing():
    body = """
hvd.init()
import rueda.torch.arena
child = os.fork()
if child == 0:
    signal.alarm(60)
    assert hvd.is_initialized()
    hvd.DistributedOptimizer(torch.optim.SGD([torch.ones(1, requires_grad=True)], 1.0))
    assert not rueda.torch.arena.state().is_on, "a child has no rank to share gradients with"
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 2
"""
    assert_all_succeed(harness.launch(2, PREPARE_TORCH + body, {"RUEDA_TORCH_ARENA": "1"}))
