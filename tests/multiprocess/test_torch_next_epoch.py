"""DistributedOptimizer goes on after a new init, whatever was under way when the last epoch ended."""

import pytest
from harness import assert_all_succeed
from nursery import launch

PREPARE = """
import os, signal, time
import pytest, torch
import rueda.torch as hvd
from rueda import _core
hvd.init()
net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
def make(**options):
    plain = torch.optim.SGD(net.parameters(), lr=0.0)
    return hvd.DistributedOptimizer(plain, net.named_parameters(), **options)
def backward():
    net(torch.full((1, 2), 1.0 + hvd.rank())).sum().backward()
"""


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("groups", ["None", "1"])
def test_steps_work_after_a_shutdown_between_steps(groups: str, passes: int) -> None:
    body = f"""
passes = {passes}
optimizer = make(groups={groups}, backward_passes_per_step=passes, op=hvd.Average)
hvd.broadcast_parameters(net.state_dict(), root_rank=0)
def step():
    optimizer.zero_grad()
    for _ in range(passes):
        backward()
    optimizer.step()
    n = hvd.size()
    expected = net[1].weight.detach()[0] * (n + 1) / 2 * passes
    assert torch.allclose(net[0].weight.grad, expected[:, None].expand(2, 2)), net[0].weight.grad
for turn in range(3):
    for _ in range(3):
        step()
    hvd.barrier()
    hvd.shutdown()
    optimizer.zero_grad()
    with pytest.raises((hvd.HorovodInternalError, ValueError)):
        for _ in range(passes):
            net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    hvd.init()
step()
hvd.barrier()
"""
    assert_all_succeed(launch(2, PREPARE + body))


def test_every_attempt_after_a_loss_between_steps_names_the_loss() -> None:
    body = """
optimizer = make()
for _ in range(2):
    optimizer.zero_grad()
    backward()
    optimizer.step()
hvd.barrier()
if hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
deadline = time.monotonic() + 90
while _core.health() == 0 and time.monotonic() < deadline:
    time.sleep(0.01)
for _ in range(3):
    optimizer.zero_grad()
    with pytest.raises(hvd.HorovodInternalError):
        backward()
"""
    assert_all_succeed(launch(2, PREPARE + body)[:1])


def test_adasum_gives_weights_back_and_goes_on_after_a_new_init() -> None:
    body = """
hvd.broadcast_parameters(net.state_dict(), root_rank=0)
plain = torch.optim.SGD(net.parameters(), lr=0.5)
optimizer = hvd.DistributedOptimizer(plain, net.named_parameters(), op=hvd.Adasum)
def step():
    optimizer.zero_grad()
    backward()
    optimizer.step()
step()
hvd.barrier()
hvd.shutdown()
before = [p.detach().clone() for p in net.parameters()]
optimizer.zero_grad()
with pytest.raises((hvd.HorovodInternalError, ValueError)):
    net(torch.ones(1, 2)).sum().backward()
assert all(torch.equal(a, b) for a, b in zip(before, net.parameters()))
hvd.init()
step()
assert not all(torch.equal(a, b) for a, b in zip(before, net.parameters()))
hvd.barrier()
"""
    assert_all_succeed(launch(2, PREPARE + body))


def test_adasum_forgets_passes_of_an_earlier_epoch() -> None:
    body = """
hvd.broadcast_parameters(net.state_dict(), root_rank=0)
plain = torch.optim.SGD(net.parameters(), lr=0.5)
optimizer = hvd.DistributedOptimizer(plain, net.named_parameters(), op=hvd.Adasum, backward_passes_per_step=2)
if hvd.rank() == 0:  # this rank alone is in the middle of a step
    backward()
hvd.barrier()
hvd.shutdown()
hvd.init()
optimizer.zero_grad()
for _ in range(2):
    backward()
optimizer.step()
mine = torch.cat([p.detach().flatten() for p in net.parameters()])
assert torch.equal(hvd.broadcast(mine, root_rank=0, name="weights"), mine)
"""
    assert_all_succeed(launch(2, PREPARE + body))


@pytest.mark.parametrize("op", ["Average", "Adasum"])
def test_gradients_are_zeroed_after_a_shutdown_in_the_middle_of_a_step(op: str) -> None:
    body = f"""
hvd.broadcast_parameters(net.state_dict(), root_rank=0)
plain = torch.optim.SGD(net.parameters(), lr=0.5)
optimizer = hvd.DistributedOptimizer(plain, net.named_parameters(), op=hvd.{op})
before = [p.detach().clone() for p in net.parameters()]
if hvd.rank() == 0:  # the other rank never starts these reductions
    backward()
    with pytest.raises(AssertionError, match="before optimizer.step"):
        optimizer.zero_grad()
    hvd.allreduce(torch.ones(1), name="started")
else:
    hvd.allreduce(torch.ones(1), name="started")
hvd.shutdown()
optimizer.zero_grad()
assert all(torch.equal(a, b) for a, b in zip(before, net.parameters()))
hvd.init()
backward()
optimizer.step()
assert not any(torch.equal(a, b) for a, b in zip(before, net.parameters()))
mine = torch.cat([p.detach().flatten() for p in net.parameters()])
assert torch.equal(hvd.broadcast(mine, root_rank=0, name="weights"), mine)
"""
    assert_all_succeed(launch(2, PREPARE + body))
