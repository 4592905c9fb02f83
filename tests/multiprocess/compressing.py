"""Parameters whose gradients tests choose, and compressors of one process to compare with."""

import compression_models
import torch
from compression_models import step_of_powersgd

import rueda.torch as hvd

__all__ = ["step_of_powersgd"]  # beside what is defined here

SHAPES = {"matrix": (12, 10), "kernel": (6, 4, 3, 3), "vector": (5,), "square": (9, 9)}


def parameters(shapes=None):
    made = {name: torch.nn.Parameter(torch.zeros(shape)) for name, shape in (shapes or SHAPES).items()}
    for one in made.values():
        if one.dim() == 4:
            one.data = one.data.to(memory_format=torch.channels_last)
    return made


def optimizer_of(made, compression, **options):
    sgd = torch.optim.SGD(made.values(), lr=1.0)
    return hvd.DistributedOptimizer(sgd, made.items(), compression=compression, **options)


def backward(made, gradients):
    """Gives parameters these gradients, by backward; parameters without one are not used."""
    losses = [(made[name] * gradient).sum() for name, gradient in gradients.items()]
    if losses:
        sum(losses).backward()


def reduce(made, optimizer, gradients):
    """The combined gradients by name."""
    optimizer.zero_grad()
    backward(made, gradients)
    optimizer.synchronize()
    with optimizer.skip_synchronize():
        optimizer.step()
    return {name: one.grad.clone() for name, one in made.items()}


def gradients_of(generator, names, scale=1.0):
    """Gradients of one rank: as draws of `generator`, which all ranks make alike."""
    return {name: scale * torch.randn(SHAPES[name], generator=generator) for name in names}


def kept(optimizer, name, key):
    return optimizer.state_dict()["compression"]["tensors"].get(name, {}).get(key)


def equal_everywhere(tensor):
    rows = hvd.allgather(tensor.detach().reshape(1, -1).contiguous())
    return all(torch.equal(row.view(torch.uint8), rows[0].view(torch.uint8)) for row in rows)


class ModelOfTopK(compression_models.ModelOfTopK):
    """With tensors of PyTorch."""

    def reduce(self, name, gradients):
        total, _ = super().reduce(name, [gradient.numpy() for gradient in gradients])
        return torch.from_numpy(total)
