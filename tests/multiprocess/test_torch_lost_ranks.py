"""Ranks that are killed, leave, are missing or fall behind. Each test has processes of its own."""

import re

import pytest
from harness import NO_PEER_TIMEOUT, assert_all_succeed
from nursery import launch

PREPARE = """
import os, signal, sys, time
import pytest, torch
import rueda.torch as hvd
"""


def run(size, body, **options):
    return launch(size, PREPARE + body, **options)


@pytest.mark.parametrize("transports", ["shm,tcp", "tcp"])
@pytest.mark.parametrize("size", [2, 4])
def test_a_killed_rank_fails_the_others_at_once(size, transports):
    body = """
hvd.init()
if hvd.rank() == 1:
    hvd.allreduce(torch.ones(2), name="first")
    os.kill(os.getpid(), signal.SIGKILL)
with pytest.raises(hvd.HorovodInternalError, match="ank 1") as caught:
    hvd.allreduce(torch.ones(2), name="first")  # its last bytes may still be on their way
    for i in range(1000):
        hvd.allreduce(torch.ones(1000), name=f"after.{i}")
with pytest.raises(hvd.HorovodInternalError):
    hvd.allreduce(torch.ones(1))
assert hvd.size() > 1  # the topology keeps answering
hvd.shutdown()
"""
    finished = run(size, body, environment=NO_PEER_TIMEOUT, transports=transports)
    assert finished[1].status == -9
    assert_all_succeed(finished[:1] + finished[2:])


def test_a_killed_rank_is_noticed_without_any_collective_in_flight():
    body = """
hvd.init()
if hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
from rueda import _core
while _core.health() == 0:
    time.sleep(0.01)
assert _core.health() == _core.PEER_LOST
"""
    finished = run(2, body, environment=NO_PEER_TIMEOUT)
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
    deadline = time.monotonic() + 60
    while _core.health() == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(hvd.HorovodInternalError, match="only here"):
        hvd.allreduce(torch.ones(2), name="too late")
"""
    limits = {"RUEDA_STALL_CHECK_TIME_SECONDS": "1", "RUEDA_STALL_SHUTDOWN_TIME_SECONDS": "5"}
    finished = run(2, body, environment=limits)
    assert_all_succeed(finished)
    only_here = r"allreduce\.only here"
    for line in (rf"{only_here} \(ALLREDUCE\): waiting \d s for rank 1", rf"1!: \[{only_here}\]"):
        assert re.search(f"^{line}$", finished[0].output, re.M), finished[0].output


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
