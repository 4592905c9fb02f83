"""Training with and without gradients in the arena."""

import os

import torch
from torch import nn

import rueda.torch as hvd
from rueda import _core


def compare(scenario):
    """Runs scenario(is_on) without and with the arena; it returns tensors."""
    results = []
    for setting in ("0", "1"):
        os.environ["RUEDA_TORCH_ARENA"] = setting
        try:
            results.append([tensor.detach().clone() for tensor in scenario(setting == "1")])
        finally:
            del os.environ["RUEDA_TORCH_ARENA"]
    without, with_arena = results
    assert len(without) == len(with_arena) > 0
    for one, other in zip(without, with_arena):
        assert torch.equal(one, other), (one, other)


def wide(seed=1):
    """Gradients from 4 bytes to 64 KiB."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1))


def batch(step, columns=64):
    torch.manual_seed(100 * step + hvd.rank())
    return torch.randn(8, columns)


def wrap(net, **options):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    return hvd.DistributedOptimizer(optimizer, net.named_parameters(), **options)


def are_in_arena(net):
    return {p.grad is not None and _core.is_shared_buffer(p.grad.data_ptr()) == 1 for p in net.parameters()}


def train(net, is_on, steps=4, loss=lambda net, x: net(x).square().mean(), set_to_none=True, **options):
    """Parameters and last gradients. Every gradient is where it should be."""
    optimizer = wrap(net, **options)
    for step in range(steps):
        optimizer.zero_grad(set_to_none=set_to_none)
        loss(net, batch(step)).backward()
        assert are_in_arena(net) == {is_on}
        optimizer.step()
    return [*net.parameters(), *(p.grad for p in net.parameters())]
