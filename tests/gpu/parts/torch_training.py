"""Training with rueda.torch on a GPU: DistributedOptimizer in its forms, scalers, SyncBatchNorm, Adasum."""

from __future__ import annotations

import torch
import world
from world import RANK, SIZE, device

import rueda.torch as hvd

hvd.init()
n, me = SIZE, RANK
world.require_engine()


def model_and_data():
    torch.manual_seed(me)
    layers = [torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16), torch.nn.Linear(16, 2)]
    net = torch.nn.Sequential(*layers).to(device)
    hvd.broadcast_parameters(net.state_dict(), 0)
    return net, torch.randn(4, 6, device=device)


def flat(net) -> torch.Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in net.parameters()])


def assert_same_everywhere(net) -> None:
    everyones = hvd.allgather(flat(net).reshape(1, -1))
    assert (everyones == everyones[0]).all()


def trained(settings) -> torch.Tensor:
    """The parameters after four steps. settings: of DistributedOptimizer; None: gradients by allreduce."""
    net, data = model_and_data()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    if settings is not None:
        model = {"model": net} if settings.get("cross_step") else {}
        optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters(), **settings, **model)
    for _ in range(4):
        optimizer.zero_grad()
        net(data).pow(2).mean().backward()
        if settings is None:
            for parameter in net.parameters():
                hvd.allreduce_(parameter.grad)
        optimizer.step()
    if settings is not None and settings.get("cross_step"):
        optimizer.finish()
    assert_same_everywhere(net)
    return flat(net)


def check_optimizers_average_alike():
    expected = trained(None)
    for settings in ({}, {"groups": 2}, {"cross_step": True}, {"gradient_predivide_factor": 2.0}):
        world.waits_of_host.clear()
        torch.testing.assert_close(trained(settings), expected, msg=str(settings))
    halved = trained({"compression": hvd.Compression.bf16})
    torch.testing.assert_close(halved, expected, rtol=2e-2, atol=2e-3)


def check_a_step_makes_no_host_wait():
    net, data = model_and_data()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters())
    for step in range(8):
        optimizer.zero_grad()
        net(data).pow(2).mean().backward()
        if step:
            world.waits_of_host.clear()
        optimizer.step()
        assert not (step and world.waits_of_host), step
    assert_same_everywhere(net)


def check_scaled_losses_and_accumulated_passes():
    net, data = model_and_data()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters(), backward_passes_per_step=2)
    hvd.broadcast_optimizer_state(optimizer, 0)
    scaler = torch.amp.GradScaler(device.type, init_scale=8.0)
    for step in range(4):
        optimizer.zero_grad()
        for _ in range(2):
            with torch.autocast(device.type, dtype=torch.bfloat16):
                loss = net(data).pow(2).mean()
            is_overflow = step == 1 and me == n - 1
            scaler.scale(loss * (float("inf") if is_overflow else 1.0)).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
    assert_same_everywhere(net)
    assert scaler.get_scale() == 4.0


def check_sparse_gradients():
    torch.manual_seed(0)
    table = torch.nn.Embedding(10, 4, sparse=True).to(device)
    optimizer = torch.optim.SGD(table.parameters(), lr=1.0)
    optimizer = hvd.DistributedOptimizer(optimizer, table.named_parameters())
    before = table.weight.detach().clone()
    table(torch.tensor([me], device=device)).sum().backward()
    optimizer.step()
    change = before - table.weight.detach()
    torch.testing.assert_close(change[:n], torch.full_like(change[:n], 1 / n))
    assert (change[n:] == 0).all()


def check_adasum():
    net, data = model_and_data()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters(), op=hvd.Adasum)
    for _ in range(3):
        optimizer.zero_grad()
        net(data).sum().backward()
        optimizer.step()
    assert_same_everywhere(net)


def check_batch_normalisation_sees_all_batches():
    torch.manual_seed(1)
    whole = torch.randn(3 * n, 4, 5, device=device)
    weights = torch.randn(3 * n, 4, 5, device=device)
    mine = slice(3 * me, 3 * me + 3)
    ours, theirs = hvd.SyncBatchNorm(4).to(device), torch.nn.BatchNorm1d(4).to(device)
    x, y = whole[mine].clone().requires_grad_(), whole.clone().requires_grad_()
    world.waits_of_host.clear()
    (ours(x) * weights[mine]).sum().backward()
    assert n == 1 or not world.waits_of_host
    (theirs(y) * weights).sum().backward()
    torch.testing.assert_close(x.grad, y.grad[mine], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)


world.run_checks(dict(globals()))
