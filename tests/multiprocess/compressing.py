"""Parameters whose gradients tests choose, and compressors of one process to compare with."""

import math

import numpy
import torch

import rueda.torch as hvd

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


class ModelOfTopK:
    """Top-k with feedback of all ranks in one process, in float32 and in rank order, by numpy's sort."""

    def __init__(self, ratio, ranks, divisor):
        self.ratio, self.ranks, self.divisor = ratio, ranks, divisor
        self.residuals = {}

    def reduce(self, name, gradients):
        """The result and whether it is finite. gradients: of every rank."""
        before = self.residuals.get(name, [numpy.zeros(gradients[0].numel(), numpy.float32)] * self.ranks)
        total = numpy.zeros(gradients[0].numel(), numpy.float32)
        after = []
        for gradient, residual in zip(gradients, before):
            values = gradient.numpy().ravel() + residual
            count = math.ceil(self.ratio * len(values))
            # What is no number counts as the largest.
            size = numpy.where(numpy.isnan(values), numpy.inf, numpy.abs(values))
            chosen = numpy.argsort(-size, kind="stable")[:count]
            total[chosen] += values[chosen]
            values[chosen] = 0
            after.append(values)
        total /= numpy.float32(self.divisor)
        if numpy.isfinite(total).all():
            self.residuals[name] = after
        return torch.from_numpy(total).view(gradients[0].shape)


def step_of_powersgd(matrices, q):
    """One step in float64 for the mean of the matrices of all ranks: the result, what each has not sent, and
    the next Q. q: [columns, rank].
    """
    q, _ = numpy.linalg.qr(q)
    p, _ = numpy.linalg.qr(sum(matrix @ q for matrix in matrices))
    shares = [matrix.T @ p for matrix in matrices]
    mean = sum(shares) / len(matrices)
    unsent = [matrix - p @ share.T for matrix, share in zip(matrices, shares)]
    return p @ mean.T, unsent, mean
