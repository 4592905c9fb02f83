"""The delta form of DistributedOptimizer, op=Adasum."""

import pytest
import torch
from harness import on_every_rank
from training import batches, loss_of, model, same_everywhere, sgd

import rueda.torch as hvd


@on_every_rank
def test_adasum_optimizer_applies_the_combined_changes():
    n = hvd.size()
    net = torch.nn.Linear(4, 1, bias=False)
    torch.nn.init.ones_(net.weight)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.5), net.named_parameters(), op=hvd.Adasum
    )
    assert isinstance(optimizer, torch.optim.SGD) and not net.weight.grad.any()
    x = torch.zeros(1, 4)
    x[0, hvd.rank()] = 1.0  # orthogonal gradients add up
    net(x).sum().backward()
    optimizer.synchronize()
    optimizer.step()
    assert torch.allclose(net.weight[0, :n], torch.full((n,), 0.5))
    optimizer.zero_grad()
    net(torch.ones(1, 4)).sum().backward()  # parallel gradients are averaged
    optimizer.step()
    if n & (n - 1) == 0:
        assert torch.allclose(net.weight[0, :n], torch.zeros(n), atol=1e-6)
    assert same_everywhere(net)


@on_every_rank
def test_adasum_optimizer_trains_with_passes_compression_and_several_groups():
    net = model()
    groups = [{"params": net[0].parameters()}, {"params": [*net[2].parameters(), *net[4].parameters()]}]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(groups, lr=0.01),
        op=hvd.Adasum,
        backward_passes_per_step=2,
        compression=hvd.Compression.fp16,
    )
    losses = []
    for parts in batches(1, hvd.size()) * 10:
        for _ in range(2):
            loss = loss_of(net, parts[hvd.rank()])
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(hvd.allreduce(loss.detach()).item())
    assert losses[-1] < losses[0] and same_everywhere(net)


@on_every_rank
def test_adasum_optimizer_refuses_skipping_and_early_zero_grad():
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net), net.named_parameters(), op=hvd.Adasum)
    text = "Skipping synchronization is not supported when using Adasum optimizer."
    with pytest.raises(AssertionError, match=text), optimizer.skip_synchronize():
        pass
    batch = batches(1, hvd.size())[0][hvd.rank()]
    loss_of(net, batch).backward()
    with pytest.raises(AssertionError, match=r"optimizer.zero_grad\(\) was called after loss.backward\(\)"):
        optimizer.zero_grad()
    with pytest.raises(
        AssertionError, match="Gradients were computed more than backward_passes_per_step times"
    ):
        loss_of(net, batch).backward()
    optimizer.step()
    assert same_everywhere(net)
    hvd.broadcast_optimizer_state(optimizer, 0)
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.set_backward_passes_per_step(1)
