"""Beginnings and ends: init, shutdown, fork, exit, lost ranks. Each test has processes of its own."""

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
optimizer.zero_grad()  # nothing is under way: no hooks in a world of one
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
from rueda import operations
from rueda.torch import handles
hvd.init()
if hvd.rank() == 0:
    engine_handle = handles._in_flight[hvd.allreduce_async(torch.ones(2))].engine_handle
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
        assert not hvd.is_initialized()
        with pytest.raises(ValueError, match="not been initialized"):
            hvd.rank()
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


@pytest.mark.parametrize("transports", ["shm,tcp", "tcp"])
@pytest.mark.parametrize("size", [2, 4])
def test_a_killed_rank_fails_the_others_within_five_seconds(size, transports):
    body = """
hvd.init()
hvd.allreduce(torch.ones(2))
if hvd.rank() == 1:
    print(f"killed at {time.time()}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
with pytest.raises(hvd.HorovodInternalError, match="ank 1") as caught:
    for i in range(1000):
        hvd.allreduce(torch.ones(1000), name=f"after.{i}")
print(f"noticed at {time.time()}", flush=True)
with pytest.raises(hvd.HorovodInternalError):
    hvd.allreduce(torch.ones(1))
assert hvd.size() > 1  # the topology keeps answering
hvd.shutdown()
"""
    finished = run(size, body, transports=transports)
    assert finished[1].status == -9
    assert_all_succeed(finished[:1] + finished[2:])
    killed = float(finished[1].output.split("killed at ")[1].split()[0])
    for one in finished[:1] + finished[2:]:
        assert float(one.output.split("noticed at ")[1].split()[0]) - killed < 5.0


def test_a_killed_rank_is_noticed_without_any_collective_in_flight():
    body = """
hvd.init()
if hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
from rueda import _core
deadline = time.monotonic() + 5
while _core.health() == 0 and time.monotonic() < deadline:
    time.sleep(0.01)
assert _core.health() == _core.PEER_LOST
"""
    finished = run(2, body)
    assert_all_succeed(finished[:1])


def test_operations_after_another_rank_has_finished_raise_the_shut_down_error():
    body = """
hvd.init(process_sets="dynamic")
one = hvd.add_process_set([1])
pending = hvd.allreduce_async(torch.ones(2), name="pending") if hvd.rank() == 0 else None
hvd.barrier()
if hvd.rank() == 1:
    sys.exit(0)
with pytest.raises(hvd.HorovodInternalError) as caught:
    hvd.synchronize(pending)
assert str(caught.value).startswith("Horovod has been shut down."), caught.value
with pytest.raises(hvd.HorovodInternalError, match="Horovod has been shut down."):
    hvd.allreduce(torch.ones(2))
assert hvd.is_initialized() and hvd.size() == 2
with pytest.raises(ValueError, match="Horovod is shutting down."):
    hvd.add_process_set([0])
with pytest.raises(ValueError, match="Horovod is shutting down."):
    hvd.remove_process_set(one)
hvd.shutdown()
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
text = "Horovod initialization failed. Please check log messages above for a more descriptive error."
causes = {(0, 5): "invalid rank: 5", (1, 1): "duplicate rank: 1", (2**32,): "invalid rank: 4294967296"}
for ranks, cause in causes.items():
    with pytest.raises(ValueError) as caught:
        hvd.init(process_sets=[hvd.ProcessSet(ranks)])
    assert str(caught.value).startswith(text) and cause in str(caught.value), caught.value
    assert not hvd.is_initialized()
for sets in ([hvd.ProcessSet([0]), hvd.ProcessSet([0])], [hvd.ProcessSet([0, 1]), hvd.ProcessSet([1, 0])]):
    with pytest.raises(ValueError, match="process_sets entry number 2 is a duplicate"):
        hvd.init(process_sets=sets)
    assert sets[1].process_set_id is None
with pytest.warns(RuntimeWarning):
    hvd.init(comm=[0, 1])
assert hvd.size() == 2
"""
    assert_all_succeed(run(2, body))


def test_a_missing_rank_fails_init_with_its_number():
    body = """
if os.environ["RUEDA_RANK"] == "1":
    sys.exit(0)
with pytest.raises(ValueError, match="Horovod initialization failed") as caught:
    hvd.init()
assert "1" in str(caught.value).split("error.")[1]
"""
    assert_all_succeed(run(2, body, environment={"RUEDA_START_TIMEOUT": "2"}))


def test_a_tensor_that_one_rank_does_not_submit_is_reported_and_ends_the_job_if_asked():
    body = """
hvd.init()
if hvd.rank() == 0:
    with pytest.raises(hvd.HorovodInternalError, match="only here"):
        hvd.allreduce(torch.ones(2), name="only here")
else:
    from rueda import _core
    deadline = time.monotonic() + 20
    while _core.health() == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(hvd.HorovodInternalError, match="only here"):
        hvd.allreduce(torch.ones(2), name="too late")
"""
    limits = {"RUEDA_STALL_CHECK_TIME_SECONDS": "1", "RUEDA_STALL_SHUTDOWN_TIME_SECONDS": "2"}
    finished = run(2, body, environment=limits)
    assert_all_succeed(finished)
    for line in ("allreduce.only here (ALLREDUCE): waiting 1 s for rank 1", "1!: [allreduce.only here]"):
        assert line in finished[0].output.splitlines(), finished[0].output


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
    deadline = time.monotonic() + 20
    while not os.path.exists("interrupted") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert hvd.allreduce(torch.ones(2), name="late", op=hvd.Sum).tolist() == [2, 2]
"""
    )
    assert_all_succeed(run(2, body))


def test_updates_that_cross_the_step_at_shutdown_and_when_a_rank_dies():
    body = """
hvd.init()
net = torch.nn.Linear(3, 2, bias=False)
torch.nn.init.ones_(net.weight)
def made():
    plain = torch.optim.SGD(net.parameters(), lr=1.0)
    return hvd.DistributedOptimizer(plain, net.named_parameters(), cross_step=True, model=net)
optimizer = made()
net(torch.ones(1, 3)).sum().backward()
optimizer.step()
hvd.shutdown()  # makes the update first
assert not net.weight.any()
optimizer.finish()
assert not net.weight.any()
hvd.init()
optimizer = made()
if hvd.rank() == 1:
    time.sleep(0.5)  # usually rank 0 waits for the update by then; the outcome is the same if not
    os._exit(0)
with pytest.raises(hvd.HorovodInternalError, match="rank 1"):
    net(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    net(torch.ones(1, 3))
assert not net.weight.any()
net(torch.ones(1, 3))  # what is lost is not awaited again
print("named")
"""
    finished = run(2, body)
    assert_all_succeed(finished)
    assert "named" in finished[0].output
