"""Optimizers that cross the step, and what their tests ask of them."""

import torch
from training import batches, loss_of

import rueda.torch as hvd

OPTIMIZERS = {
    "sgd": lambda ps: torch.optim.SGD(ps, lr=0.1),
    "momentum": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "dampening": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, dampening=0.5, foreach=True),
    "adam": lambda ps: torch.optim.Adam(ps, lr=0.01, amsgrad=True),
    "adam foreach": lambda ps: torch.optim.Adam(ps, lr=0.01, foreach=True),
    "adam fused": lambda ps: torch.optim.Adam(ps, lr=0.01, fused=True),
    "adamw": lambda ps: torch.optim.AdamW(ps, lr=torch.tensor(0.01), weight_decay=0.1, foreach=False),
    "rmsprop": lambda ps: torch.optim.RMSprop(ps, lr=0.01, momentum=0.5),
    "adagrad": lambda ps: torch.optim.Adagrad(ps, lr=0.05),
}


def wrap(optimizer, net, crosses, **options):
    if crosses:
        options |= {"cross_step": True, "model": net}
    return hvd.DistributedOptimizer(optimizer, net.named_parameters(), **options)


def train(net, optimizer, steps=4, scheduler=None, zero=True, passes=1):
    for step, parts in enumerate(batches(steps * passes, hvd.size())):
        loss_of(net, parts[hvd.rank()]).backward()
        if (step + 1) % passes:
            continue
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        optimizer.zero_grad(set_to_none=zero)
    return optimizer


def values(net, optimizer=None):
    tensors = {f"model.{name}": tensor.clone() for name, tensor in net.state_dict().items()}
    if optimizer is not None:
        for index, state in optimizer.state_dict()["state"].items():
            for key, value in state.items():
                if isinstance(value, torch.Tensor):
                    tensors[f"{index}.{key}"] = value.clone()
    return tensors


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def outstanding(optimizer):
    return len(optimizer._crossing._updates)
