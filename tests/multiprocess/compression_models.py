"""Top-k and PowerSGD of all ranks in one process, to compare with."""

import math

import numpy


class ModelOfTopK:
    """Top-k with feedback of all ranks, in float32 and in rank order, by numpy's sort."""

    def __init__(self, ratio, ranks, divisor):
        self.ratio, self.ranks, self.divisor = ratio, ranks, divisor
        self.residuals = {}

    def reduce(self, name, gradients):
        """The result, and the residual of each rank, flat. gradients: arrays of every rank."""
        size = gradients[0].size
        before = self.residuals.setdefault(name, [numpy.zeros(size, numpy.float32)] * self.ranks)
        total = numpy.zeros(size, numpy.float32)
        after = []
        for gradient, residual in zip(gradients, before):
            values = gradient.ravel() + residual
            count = math.ceil(self.ratio * len(values))
            # What is no number counts as the largest.
            magnitude = numpy.where(numpy.isnan(values), numpy.inf, numpy.abs(values))
            chosen = numpy.argsort(-magnitude, kind="stable")[:count]
            total[chosen] += values[chosen]
            values[chosen] = 0
            after.append(values)
        total /= numpy.float32(self.divisor)
        if numpy.isfinite(total).all():
            self.residuals[name] = after
        return total.reshape(gradients[0].shape), self.residuals[name]


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
