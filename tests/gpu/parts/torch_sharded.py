"""Training with rueda.torch on a GPU: ShardedOptimizer against DistributedOptimizer, and wrappers that let
ranks differ for a while.
"""

from __future__ import annotations

import torch
import world
from world import RANK, SIZE, device

import rueda.torch as hvd
from rueda import device as engine

hvd.init()
n, me = SIZE, RANK
world.require_engine()


def make_model():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(6, 33), torch.nn.ReLU(), torch.nn.Linear(33, 17), torch.nn.Linear(17, 2)]
    return torch.nn.Sequential(*layers).to(device)


def flat(net) -> torch.Tensor:
    return torch.cat([value.reshape(-1) for value in net.state_dict().values()])


def assert_same_everywhere(net) -> None:
    everyones = hvd.allgather(flat(net).reshape(1, -1))
    assert (everyones == everyones[0]).all()


def train(net, optimizer, steps=6, scaler=None):
    torch.manual_seed(me)
    data = torch.randn(steps, 4, 6).to(device)
    for batch in data:
        optimizer.zero_grad()
        loss = net(batch).pow(2).mean()
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            optimizer.synchronize()
            with optimizer.skip_synchronize():
                scaler.step(optimizer)
            scaler.update()
    optimizer.zero_grad()


def adam(net):
    return torch.optim.Adam(net.parameters(), lr=0.01)


def both(make, **options):
    """The weights with DistributedOptimizer and with ShardedOptimizer."""
    one, other = make_model(), make_model()
    train(one, hvd.DistributedOptimizer(make(one), one.named_parameters(), **options))
    train(other, hvd.ShardedOptimizer(make(other), model=other, **options))
    assert_same_everywhere(other)
    return flat(one), flat(other)


def check_weights_are_those_of_distributed_optimizer():
    for make in (lambda net: torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), adam):
        expected, mine = both(make)
        torch.testing.assert_close(mine, expected)  # NCCL keeps no order of sums
        if engine.support().backend != "nccl":
            assert torch.equal(mine, expected)
    torch.testing.assert_close(*both(adam, compression=hvd.Compression.bf16), rtol=1e-2, atol=1e-3)


def check_clipping_and_scaling():
    one, other = make_model(), make_model()
    scaler = torch.amp.GradScaler(device.type, init_scale=8.0)
    train(one, hvd.DistributedOptimizer(adam(one), one.named_parameters()), scaler=scaler)
    scaler = torch.amp.GradScaler(device.type, init_scale=8.0)
    optimizer = hvd.ShardedOptimizer(adam(other), model=other)
    train(other, optimizer, scaler=scaler)
    torch.testing.assert_close(flat(other), flat(one))
    other(torch.ones(1, 6).to(device)).sum().backward()
    norm = optimizer.clip_grad_norm_(1e-3)
    assert float(norm) > 1e-3 and float(optimizer.clip_grad_norm_(1.0)) < 1.1e-3
    optimizer.step()
    assert_same_everywhere(other)


def check_state_is_whole_and_loads():
    net = make_model()
    optimizer = hvd.ShardedOptimizer(adam(net), model=net)
    train(net, optimizer)
    state = optimizer.state_dict()
    assert state["state"][0]["exp_avg"].shape == net[0].weight.shape
    other = make_model()
    other.load_state_dict(net.state_dict())
    resumed = hvd.ShardedOptimizer(adam(other), model=other)
    resumed.load_state_dict(state)
    train(net, optimizer)
    train(other, resumed)
    assert torch.equal(flat(net), flat(other))


def check_local_steps_agree():
    for make in (
        lambda net: hvd.LocalSGD(adam(net), net.named_parameters(), every=3, average_state=True),
        lambda net: hvd.DiLoCo(adam(net), net.named_parameters(), every=3, compression=hvd.Compression.fp16),
    ):
        net = make_model()
        train(net, make(net))
        assert_same_everywhere(net)


def check_delayed_gradients_agree():
    for compression in (hvd.Compression.none, hvd.Compression.fp16):
        net = make_model()
        optimizer = hvd.DelayedOptimizer(
            adam(net), net.named_parameters(), warmup_steps=2, compression=compression
        )
        train(net, optimizer)
        optimizer.finish()
        assert_same_everywhere(net)
        assert bool(torch.isfinite(flat(net)).all())


world.run_checks(dict(globals()))
