"""Layers that were frozen or added after wrapping: their gradients stayed each rank's own, so that ranks
drifted apart in silence (Average), or they were never trained (Adasum). And an Adasum optimizer that was
dropped left its hooks behind, which sent gradients under names that the next one uses.
"""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "multiprocess"))

from harness import on_every_rank
from nursery import ForkedWorld

import horovod.torch as hvd


@pytest.fixture(scope="module")
def world():
    """Two ranks."""
    made = ForkedWorld(2, "shm,tcp")
    yield made
    made.stop()


def make_model():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))


def one_step(model, optimizer):
    optimizer.zero_grad()
    torch.manual_seed(hvd.rank())
    model(torch.randn(5, 4)).pow(2).sum().backward()
    optimizer.step()


def assert_trained_alike(model, layer, before):
    everyones = hvd.allgather(torch.cat([p.detach().flatten() for p in model.parameters()])[None])
    assert torch.equal(everyones[0], everyones[1])
    assert not torch.equal(layer.weight, before)


WAYS = [{}, {"op": hvd.Sum}, {"op": hvd.Adasum}, {"cross_step": True}, {"compression": hvd.Compression.fp16}]


@on_every_rank
def test_an_unfrozen_layer_is_trained_alike():
    for options in WAYS:
        model = make_model()
        options = {**options, "model": model} if "cross_step" in options else options
        model[0].requires_grad_(False)
        before = model[0].weight.detach().clone()
        wrapped = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), **options
        )
        one_step(model, wrapped)
        model.state_dict()
        assert torch.equal(model[0].weight, before)
        model[0].requires_grad_(True)
        for _ in range(3):
            one_step(model, wrapped)
        model.state_dict()  # awaits what crosses the step
        assert_trained_alike(model, model[0], before)


@on_every_rank
def test_a_layer_added_later_is_trained_alike():
    for options in WAYS:
        model = make_model()
        options = {**options, "model": model} if "cross_step" in options else options
        before = model[0].weight.detach().clone()
        wrapped = hvd.DistributedOptimizer(torch.optim.SGD(model[1].parameters(), lr=0.1), **options)
        one_step(model, wrapped)
        wrapped.add_param_group({"params": list(model[0].parameters())})
        for _ in range(3):
            one_step(model, wrapped)
        model.state_dict()
        assert_trained_alike(model, model[0], before)


@on_every_rank
def test_a_dropped_optimizer_sends_nothing():
    model = make_model()
    for options in ({"op": hvd.Adasum}, {}, {"op": hvd.Adasum}, {"op": hvd.Adasum}):
        before = model[0].weight.detach().clone()
        wrapped = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), **options
        )
        for _ in range(2):
            one_step(model, wrapped)
        assert_trained_alike(model, model[0], before)
        del wrapped
