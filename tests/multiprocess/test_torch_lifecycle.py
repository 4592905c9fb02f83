"""Beginnings and ends: init, shutdown, fork, exit. Each test has processes of its own."""

import harness
import pytest
from harness import assert_all_succeed
from nursery import launch

PREPARE = """
import os, signal, sys, time
import pytest, torch
import rueda.torch as hvd
NOT_INITIALIZED = "Horovod has not been initialized; use hvd.init()."
"""


def run(size, body, **options):
    return launch(size, PREPARE + body, **options)


def run_fresh(size, body):
    """With interpreters of their own, for what happens at an interpreter's end."""
    return harness.launch(size, PREPARE + body)


def test_init_and_shutdown_two_hundred_times():
    body = """
for i in range(200):
    hvd.init()
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [2, 2]
    hvd.shutdown()
    assert not hvd.is_initialized()
"""
    assert_all_succeed(run(2, body, limit_s=150))


def test_topology_before_init_and_after_shutdown():
    body = """
x = torch.ones(2)
guards = [hvd.rank, hvd.size, hvd.local_rank, hvd.local_size, hvd.cross_rank, hvd.cross_size]
guards += [hvd.mpi_ops.is_homogeneous, lambda: hvd.start_timeline("t.json"), hvd.stop_timeline]
guards += [lambda: hvd.alltoall(x), lambda: hvd.broadcast_object(1), lambda: hvd.add_process_set([0])]
failing = [lambda: hvd.allreduce(x), lambda: hvd.allgather(x), lambda: hvd.broadcast(x, 0)]
failing += [hvd.join, hvd.barrier]
failing += [lambda: hvd.reducescatter(x), lambda: hvd.alltoall(x, [1, 1]), lambda: hvd.grouped_allreduce([x])]
def check_guards():
    assert hvd.is_initialized() is False and hvd.gloo_enabled() is False
    for guard in guards:
        with pytest.raises(ValueError, match=NOT_INITIALIZED.replace("(", ".").replace(")", ".")):
            guard()
    for operation in failing:
        with pytest.raises(hvd.HorovodInternalError) as caught:
            operation()
        assert str(caught.value) == NOT_INITIALIZED
    assert hvd.remove_process_set(hvd.ProcessSet([0])) is False
    assert hvd.synchronize(1) is None
    with pytest.raises(ValueError, match="Handle 1 was not created or has been cleared."):
        hvd.poll(1)
check_guards()
world = hvd.mpi_ops.global_process_set
assert world.ranks is None and world.included() is None
hvd.init()
hvd.init()  # changes nothing
assert hvd.is_initialized() and hvd.gloo_enabled() and hvd.is_homogeneous() is True
assert hvd.size() == 2 and hvd.rank() == int(os.environ["RUEDA_RANK"]) == hvd.local_rank()
assert (hvd.local_size(), hvd.cross_size(), hvd.cross_rank()) == (2, 1, 0)
assert world.ranks == [0, 1] and world.included() and world.rank() == hvd.rank() and world.size() == 2
handle = hvd.allreduce_async(x)
assert handle == 1
hvd.barrier()
hvd.shutdown()
hvd.shutdown()
check_guards()
hvd.init()
assert hvd.allreduce_async(x) == 1  # numbers start again
hvd.barrier()  # nobody may leave before all have submitted
"""
    assert_all_succeed(run(2, body))


def test_without_a_launcher_the_world_has_one_rank():
    body = """
hvd.init()
assert (hvd.size(), hvd.local_size(), hvd.cross_size()) == (1, 1, 1)
assert (hvd.rank(), hvd.local_rank(), hvd.cross_rank()) == (0, 0, 0)
x = torch.arange(3.0)
assert torch.equal(hvd.allreduce(x, op=hvd.Sum, postscale_factor=2.0), 2 * x)
assert torch.equal(hvd.alltoall(x), x) and torch.equal(hvd.reducescatter(x), x) and hvd.join() == 0
net = torch.nn.Linear(2, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
net(torch.ones(1, 2)).sum().backward()
optimizer.zero_grad()  # nothing is under way: no hooks in a single-process job
optimizer.step()
"""
    alone = {
        name: ""
        for name in ("RUEDA_RANK", "RUEDA_SIZE", "RUEDA_LOCAL_RANK", "RUEDA_LOCAL_SIZE", "RUEDA_STORE")
    }
    assert_all_succeed(run(1, body, environment=alone))


def test_ending_with_a_step_under_way_does_not_fail_the_others():
    body = """
import time
hvd.init()
net = torch.nn.Sequential(torch.nn.Linear(30, 30), torch.nn.Linear(30, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters(), cross_step=True, model=net)
for step in range(3):
    if step == 2 and hvd.rank() == 0:
        time.sleep(0.5)  # the other rank is at its end meanwhile
    net(torch.ones(4, 30)).sum().backward()
    optimizer.step()
"""
    assert_all_succeed(run_fresh(2, body))


def test_exit_without_shutdown_is_clean():
    body = """
hvd.init()
hvd.allreduce(torch.ones(2))
never_awaited = hvd.allreduce_async(torch.ones(2))
hvd.barrier()  # nobody may leave before all have submitted
"""
    assert_all_succeed(run_fresh(3, body))


def test_an_engine_that_is_gone_says_why_waiting_fails():
    body = """
from rueda import in_flight, operations
hvd.init()
if hvd.rank() == 0:
    engine_handle = in_flight.of_handle(hvd.allreduce_async(torch.ones(2))).engine_handle
hvd.barrier()  # nobody may leave before all have submitted
if hvd.rank() == 0:
    hvd.shutdown()  # as by another thread while this one waits
    with pytest.raises(hvd.HorovodInternalError) as caught:
        operations.wait(engine_handle)
    assert len(str(caught.value)) > 20, caught.value
"""
    assert_all_succeed(run(2, body))


def test_gradients_in_flight_at_shutdown_are_lost_and_training_can_be_resumed():
    body = """
hvd.init()
torch.manual_seed(0)
net = torch.nn.Linear(1000, 100)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
state = optimizer.state_dict()
for way in ("load", "step"):
    if hvd.rank() == 0:
        net(torch.ones(1, 1000)).sum().backward()
    hvd.barrier()  # nobody may leave before all have submitted
    hvd.shutdown()
    hvd.init()
    others = [hvd.allreduce_async_(torch.ones(1), name=f"other.{i}", op=hvd.Sum) for i in range(4)]
    if way == "step" and hvd.rank() == 0:
        with pytest.raises(hvd.HorovodInternalError, match="when Horovod was shut down"):
            optimizer.state_dict()
    optimizer.load_state_dict(state)
    optimizer.zero_grad()
    assert [hvd.synchronize(handle).item() for handle in others] == [2.0] * 4
    net(torch.full((1, 1000), float(hvd.rank()))).sum().backward()
    optimizer.step()
    assert torch.allclose(net.weight.grad, torch.full((100, 1000), 0.5))
    optimizer.zero_grad()
hvd.barrier()
"""
    assert_all_succeed(run(2, body))


def test_sys_exit_with_a_status_keeps_it():
    finished = run_fresh(2, "hvd.init(); hvd.allreduce(torch.ones(2)); sys.exit(3)")
    assert [one.status for one in finished] == [3, 3]


def test_data_loader_workers_may_fork_after_init():
    body = """
hvd.init()
data = torch.utils.data.TensorDataset(torch.arange(40.0))
for epoch in range(3):
    loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2, multiprocessing_context="fork")
    for (batch,) in loader:
        assert hvd.allreduce(batch, op=hvd.Sum).tolist() == (2 * batch).tolist()
"""
    assert_all_succeed(run(2, body))


def test_a_forked_child_cannot_use_the_engine_and_does_no_harm():
    body = """
hvd.init()
child = os.fork()
if child == 0:
    code = 1
    try:
        with pytest.raises(hvd.HorovodInternalError, match="forked"):
            hvd.allreduce(torch.ones(1))
        with pytest.raises(ValueError, match="forked"):
            hvd.init()
        hvd.shutdown()
        code = 0
    finally:
        os._exit(code)
assert os.waitpid(child, 0)[1] == 0
child = os.fork()
if child == 0:
    sys.exit(0)  # with its exit handlers
assert os.waitpid(child, 0)[1] == 0
assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 2
"""
    assert_all_succeed(run(2, body))


def test_wrong_arguments_of_init_are_refused_and_a_retry_works():
    body = """
with pytest.raises(TypeError):
    hvd.init(comm="x")
with pytest.raises(ValueError, match="Horovod has not been built with MPI support"):
    hvd.init(comm=3)
with pytest.raises(ValueError, match="Invalid type of argument comm"):
    hvd.init(comm=["a"])
with pytest.raises(ValueError, match="dynamic"):
    hvd.init(process_sets="foo")
with pytest.raises(ValueError, match="ProcessSet"):
    hvd.init(process_sets=[[0]])
with pytest.raises(TypeError, match='process_sets is 5; pass "dynamic" or a list of ProcessSet objects.'):
    hvd.init(process_sets=5)
text = "Horovod initialization failed. Please check log messages above for a more descriptive error."
causes = {(0, 5): "invalid rank: 5", (1, 1): "duplicate rank: 1", (2**32,): "invalid rank: 4294967296"}
for ranks, cause in causes.items():
    with pytest.raises(ValueError) as caught:
        hvd.init(process_sets=[hvd.ProcessSet(ranks)])
    assert str(caught.value).startswith(text) and cause in str(caught.value), caught.value
    assert not hvd.is_initialized()
with pytest.warns(RuntimeWarning):
    hvd.init(comm=[0, 1])
assert hvd.size() == 2
"""
    assert_all_succeed(run(2, body))


def test_a_process_set_listed_twice_is_refused_and_the_job_runs_without_it():
    body = """
for ranks, its_id in (([0], 1), ([1, 0], 0)):
    other, sets = hvd.ProcessSet([1]), [hvd.ProcessSet(ranks), hvd.ProcessSet(ranks[::-1])]
    with pytest.raises(ValueError, match="process_sets entry number 2 is a duplicate of an earlier one"):
        hvd.init(process_sets=[*sets, other])
    assert hvd.is_initialized() and hvd.size() == 2
    assert [one.process_set_id for one in (*sets, other)] == [its_id, None, its_id + 1]
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 2
    hvd.init()
    hvd.barrier()
    hvd.shutdown()
text = "mismatching numbers of process sets"
with pytest.raises(ValueError, match=text):
    hvd.init(process_sets=[hvd.ProcessSet([0])] * (1 + int(os.environ["RUEDA_RANK"])))
assert not hvd.is_initialized()
"""
    assert_all_succeed(run(2, body))


def test_timelines_can_be_started_and_stopped_at_any_time():
    body = """
import json
hvd.init()
hvd.stop_timeline()
with pytest.raises(ValueError, match="The timeline's path .* holds a NUL character; leave it out."):
    hvd.start_timeline("a" + chr(0) + "b")
assert not os.path.exists("a")
hvd.start_timeline("a.json", mark_cycles=True)
hvd.barrier()  # rank 0 writes for all: what reaches it sooner is not seen
hvd.allreduce(torch.ones(2), name='quo"ted')
hvd.stop_timeline()
hvd.barrier()
if hvd.rank() == 0:
    events = json.load(open("a.json"))
    names = {e["args"]["name"] for e in events if e.get("ph") == "M" and "name" in e.get("args", {})}
    assert 'allreduce.quo"ted' in names, names
    assert {"NEGOTIATE_ALLREDUCE", "ALLREDUCE"} <= {e.get("name") for e in events}
hvd.barrier()
"""
    assert_all_succeed(run(2, body))


def test_a_timeline_that_cannot_be_written_does_not_stop_training():
    body = """
hvd.init()
if hvd.rank() == 0:
    with pytest.warns(RuntimeWarning, match="/nowhere/t.json"):
        hvd.start_timeline("/nowhere/t.json")
assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 2
hvd.stop_timeline()
hvd.barrier()
"""
    assert_all_succeed(run(2, body))


@pytest.mark.parametrize("start", ["allreduce_async", "allreduce_async_"])
@pytest.mark.parametrize("raised", ["KeyboardInterrupt", "TimeoutError"])
def test_interrupting_a_wait_keeps_the_operation(raised, start):
    body = (
        f"raised, start = {raised}, hvd.{start}"
        + """
import gc, weakref
hvd.init()
if hvd.rank() == 0:
    def interrupt(signum, frame):
        raise raised
    signal.signal(signal.SIGALRM, interrupt)
    tensor = torch.ones(2)
    alive, handle = weakref.ref(tensor), start(tensor, name="late", op=hvd.Sum)
    del tensor
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    with pytest.raises(raised):
        hvd.synchronize(handle)
    gc.collect()
    assert alive() is not None and hvd.poll(handle) is False
    open("interrupted", "w").close()
    assert hvd.synchronize(handle).tolist() == [2, 2]
else:
    deadline = time.monotonic() + 90
    while not os.path.exists("interrupted") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert hvd.allreduce(torch.ones(2), name="late", op=hvd.Sum).tolist() == [2, 2]
"""
    )
    assert_all_succeed(run(2, body))
