"""What DiLoCo makes of known local steps: all ranks in one process, in float64."""

import numpy as np


class OuterModel:
    """SGD with momentum on the mean change of all ranks.

    agreed: the parameters that all ranks begin with. due: which of them are exchanged after which update, the
    first being 1. overlap: changes are applied one update later.
    """

    def __init__(self, agreed, due, overlap, lr, momentum, nesterov):
        self._agreed = [np.asarray(one, np.float64) for one in agreed]
        self._velocity = [np.zeros_like(one) for one in self._agreed]
        self._due, self._overlap = due, overlap
        self._outer = lr, momentum, nesterov
        self._updates, self._changes = 0, {}

    def after(self, ranks):
        """The parameters of each rank after an update. ranks: before it."""
        ranks = [[np.asarray(one, np.float64) for one in rank] for rank in ranks]
        self._updates += 1
        self._apply(ranks)
        for at in self._due.get(self._updates, ()):
            self._changes[at] = self._agreed[at] - np.mean([rank[at] for rank in ranks], 0)
        if not self._overlap:
            self._apply(ranks)
        return ranks

    def _apply(self, ranks):
        lr, momentum, nesterov = self._outer
        for at, change in self._changes.items():
            velocity = self._velocity[at] = momentum * self._velocity[at] + change
            self._agreed[at] = self._agreed[at] - lr * (
                change + momentum * velocity if nesterov else velocity
            )
            for rank in ranks:
                rank[at] = self._agreed[at]
        self._changes = {}
