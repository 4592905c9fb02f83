"""ShardedOptimizer and DiLoCo when a rank is lost, at shutdown, and after another init."""

from harness import NO_PEER_TIMEOUT, assert_all_succeed
from nursery import launch

PREPARE = """
import os, signal, sys
import pytest, torch
import rueda.torch as hvd
from training import adam, batches, loss_of, model, same_everywhere, sgd

def train(net, optimizer, steps):
    for parts in batches(steps, hvd.size()):
        optimizer.zero_grad()
        loss_of(net, parts[hvd.rank()]).backward()
        optimizer.step()

hvd.init()
net = model()
"""

LOST = """
optimizer = {optimizer}
with pytest.raises(hvd.HorovodInternalError, match="ank 1"):
    train(net, optimizer, 2)
    if hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    train(net, optimizer, 9)
with pytest.raises(hvd.HorovodInternalError):
    train(net, optimizer, 9)  # a second attempt says why as well
hvd.shutdown()
"""


def run(size, body, **options):
    return launch(size, PREPARE + body, **options)


def test_a_killed_rank_fails_the_step_or_the_next_forward_pass():
    for optimizer in (
        "hvd.ShardedOptimizer(adam(net), model=net)",
        "hvd.DiLoCo(adam(net), net.named_parameters(), every=2, overlap=True)",
    ):
        finished = run(3, LOST.format(optimizer=optimizer), environment=NO_PEER_TIMEOUT)
        assert finished[1].status == -9
        assert_all_succeed([finished[0], finished[2]])


def test_shutdown_waits_for_parameters_and_training_goes_on_after_init():
    body = """
expected = model()
other = hvd.DistributedOptimizer(adam(expected), expected.named_parameters())
optimizer = hvd.ShardedOptimizer(adam(net), model=net)
for turn in range(3):
    train(net, optimizer, 3)
    train(expected, other, 3)
    hvd.shutdown()  # parameters are on their way
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), expected.parameters()))
    hvd.init()
optimizer.zero_grad()
loss_of(net, batches(1, 2)[0][0]).backward()  # reductions that the shutdown ends
hvd.barrier()  # no rank shuts down before all have started theirs
hvd.shutdown()
hvd.init()
optimizer.zero_grad()
other.zero_grad()
train(net, optimizer, 2)
train(expected, other, 2)
optimizer.finish()
assert all(torch.equal(p, q) for p, q in zip(net.parameters(), expected.parameters()))
"""
    assert_all_succeed(run(2, body))


def test_a_script_that_ends_with_parameters_on_their_way_ends_well():
    body = """
optimizer = hvd.ShardedOptimizer(sgd(net), model=net)
train(net, optimizer, 3)
"""
    assert_all_succeed(run(2, body))


def test_one_rank_trains_as_without_the_wrapper():
    body = """
other = model()
plain = adam(other)
optimizer = hvd.ShardedOptimizer(adam(net), model=net)
for parts in batches(4, 1):
    for one, with_ in ((net, optimizer), (other, plain)):
        with_.zero_grad()
        loss_of(one, parts[0]).backward()
        if with_ is plain:
            torch.nn.utils.clip_grad_norm_(one.parameters(), 0.1)
        else:
            with_.clip_grad_norm_(0.1)
        with_.step()
assert all(torch.allclose(p, q, atol=1e-6) for p, q in zip(net.parameters(), other.parameters()))
mine, whole = optimizer.state_dict(), plain.state_dict()
assert mine["param_groups"] == whole["param_groups"]
assert mine["state"][0]["exp_avg"].shape == whole["state"][0]["exp_avg"].shape
for wrap, options in ((hvd.LocalSGD, {}), (hvd.DiLoCo, {"fragments": 2, "overlap": True})):
    one = model()
    train(one, wrap(adam(one), one.named_parameters(), every=2, **options), 5)
"""
    assert_all_succeed(run(1, body))
