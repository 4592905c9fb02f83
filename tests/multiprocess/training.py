"""A small model, its data, and what tests of optimizers ask of them."""

import torch

import rueda.torch as hvd


def model(seed=0):
    torch.manual_seed(seed)
    first = torch.nn.Linear(6, 8)
    return torch.nn.Sequential(
        first, torch.nn.Tanh(), torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
    )


def batches(steps, ranks, rows=4):
    torch.manual_seed(99)
    return [[(torch.randn(rows, 6), torch.randn(rows, 1)) for _ in range(ranks)] for _ in range(steps)]


def loss_of(net, batch):
    x, y = batch
    return torch.nn.functional.mse_loss(net(x), y)


def sgd(net):
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def adam(net):
    return torch.optim.Adam(net.parameters(), lr=0.01)


def same_everywhere(net):
    flat = torch.cat([p.detach().reshape(-1) for p in net.parameters()]).reshape(1, -1)
    everyones = hvd.allgather(flat)
    return bool((everyones == everyones[0]).all())
