"""Samplers of a DataLoader that go on where the last commit was."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sized
from typing import Any

import torch

from rueda.elastic.ledger import Ledger
from rueda.torch.mpi_ops import rank, size


class ElasticSampler(torch.utils.data.Sampler[int]):
    """Horovod's sampler: the samples that are left of an epoch, divided between the ranks.

    Where they cannot be divided evenly, some are given out twice; LedgerSampler gives out each once. Put it
    into a TorchState, call record_batch after each batch, and set_epoch at the end of each epoch.

    >>> sampler = hvd.elastic.ElasticSampler(dataset)
    >>> loader = torch.utils.data.DataLoader(dataset, batch_size=32, sampler=sampler)
    >>> state = hvd.elastic.TorchState(model, optimizer, sampler=sampler)
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = 0
        self.processed_num = 0  # samples that all ranks together have used
        self.num_replicas, self.rank = 0, 0
        self.remaining_indices: list[int] = []
        self.num_samples, self.total_size = 0, 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch, with another order. To be called at the end of the one before, so that a commit
        in between does not take the samples of one for those of the other.
        """
        self.epoch, self.processed_num = epoch, 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """All ranks have used a batch of so many samples each."""
        self.processed_num += batch_size * self.num_replicas

    def reset(self) -> None:
        """Divides what is left between the ranks of the current view."""
        self.num_replicas, self.rank = size(), rank()
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        self.remaining_indices = order[self.processed_num :]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def state_dict(self) -> dict[str, Any]:
        """What a commit keeps."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes back to a commit, and divides what was left then between the ranks of the current view."""
        self.epoch, self.processed_num = state_dict["epoch"], state_dict["processed_num"]
        self.reset()

    def __iter__(self) -> Iterator[int]:
        left = self.remaining_indices
        padding = self.total_size - len(left)
        padded = left + [left[i % len(left)] for i in range(padding)]
        return iter(padded[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples


class LedgerSampler(Ledger):
    """A batch sampler that gives out each sample of an epoch once, however often the ranks change.

    The last batch of an epoch may have different sizes on the ranks; multiply its loss by weight(i), and the
    average over the ranks is that over the samples. Put it into a TorchState.

    dataset: has a length. batch_size: of one rank.

    >>> sampler = hvd.elastic.LedgerSampler(dataset, batch_size=32)
    >>> for i, (x, y) in enumerate(torch.utils.data.DataLoader(dataset, batch_sampler=sampler)):
    ...     (loss_of(model(x), y) * sampler.weight(i)).backward()
    ...     optimizer.step()
    ...     sampler.record_batch(i)
    ...     state.commit()
    >>> sampler.set_epoch(sampler.epoch + 1)
    """

    def __init__(self, dataset: Sized, batch_size: int, shuffle: bool = True, seed: int = 0) -> None:
        super().__init__(len(dataset), batch_size, shuffle, seed, world=lambda: (rank(), size()))
