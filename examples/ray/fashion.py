"""What the examples for Ray share: Fashion-MNIST, one pass over it, and the accuracy."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np


def read_images(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """part: "train" or "t10k". Returns images [n, 784], float32 from 0 to 1, and labels [n], int64."""
    with gzip.open(folder / f"{part}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(folder / f"{part}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    return (images / np.float32(255)).astype(np.float32), labels.astype(np.int64)


def learn(model: Any, optimizer: Any, folder: Path, rows: int, batch: int = 64) -> float:
    """One pass over this rank's share of the first rows. Returns the last loss."""
    import torch

    import horovod.torch as hvd

    images, labels = (
        torch.tensor(part[hvd.rank() : rows : hvd.size()]) for part in read_images(folder, "train")
    )
    count = rows // hvd.size() // batch * batch  # the same number of steps on all ranks
    loss = torch.zeros(())
    for chosen in torch.randperm(count).split(batch):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
        loss.backward()
        optimizer.step()
    return loss.item()


def accuracy(model: Any, folder: Path) -> float:
    """The share of test images that all ranks together classify right."""
    import torch

    import horovod.torch as hvd

    images, labels = (torch.tensor(part[hvd.rank() :: hvd.size()]) for part in read_images(folder, "t10k"))
    right = (model(images).argmax(1) == labels).float().mean()
    return float(hvd.allreduce(right, name="accuracy"))
