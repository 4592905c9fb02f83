"""Trains a small convolutional network on Fashion-MNIST with any number of ranks.

    rueda run -np 2 python fashion_mnist.py

The lines marked `rueda` are what a script for one process needs in addition to train with many. The data
are Debian's package dataset-fashion-mnist; --data names another folder with the four IDX files,
compressed or not.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import time
from pathlib import Path
from typing import Iterator, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional

import rueda.torch as hvd  # rueda

CLASSES = 10


def read_idx(folder: Path, name: str) -> Tensor:
    """One IDX file, `name` or `name.gz`, as a uint8 tensor of the shape its header states."""
    path = folder / name
    if path.exists():
        raw = path.read_bytes()
    elif path.with_name(f"{name}.gz").exists():
        raw = gzip.decompress(path.with_name(f"{name}.gz").read_bytes())
    else:
        raise SystemExit(
            f"{path} and {path}.gz do not exist: apt install dataset-fashion-mnist, or pass --data FOLDER."
        )
    # Header: 2 zero bytes, type 8 (uint8), number of dimensions, then each as big-endian 32 bits.
    dims = raw[3]
    shape = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(dims)]
    return torch.frombuffer(bytearray(raw[4 + 4 * dims :]), dtype=torch.uint8).reshape(shape)


def load(folder: Path, part: str) -> Tuple[Tensor, Tensor]:
    """Images [count, 1, 28, 28] around 0, and labels [count]. part is "train" or "t10k"."""
    images = read_idx(folder, f"{part}-images-idx3-ubyte").float().div_(255).sub_(0.286).div_(0.353)
    return images.unsqueeze(1), read_idx(folder, f"{part}-labels-idx1-ubyte").long()


def make_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),  # [batch, 16, 28, 28]
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),  # [batch, 32, 14, 14]
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 128),
        nn.ReLU(),
        nn.Linear(128, CLASSES),
    )


def my_batches(count: int, batch: int, epoch: int) -> Iterator[Tensor]:
    """Indices of this rank's batches: all ranks shuffle equally, then each takes every size-th image."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(epoch))
    per_rank = count // hvd.size()
    mine = order[hvd.rank() :: hvd.size()][:per_rank]
    yield from mine.split(batch)


def train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, data: Tuple[Tensor, Tensor], epoch: int, batch: int
) -> float:
    """One pass over the data; samples per second of all ranks together."""
    images, labels = data
    model.train()
    steps = -(-(len(images) // hvd.size()) // batch)
    started = time.perf_counter()
    for step, index in enumerate(my_batches(len(images), batch, epoch), 1):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images[index]), labels[index])
        loss.backward()
        optimizer.step()
        if hvd.rank() == 0 and (step % -(-steps // 5) == 0 or step == steps):
            speed = step * batch * hvd.size() / (time.perf_counter() - started)
            done = f"{100 * step // steps:3d} %"
            print(f"epoch {epoch}  {done}  loss {loss.item():.3f}  {speed:.0f} samples/s", flush=True)
    return len(images) / (time.perf_counter() - started)


@torch.no_grad()
def accuracy(model: nn.Module, data: Tuple[Tensor, Tensor]) -> float:
    """Share of correct answers. Each rank evaluates its part of the images."""
    model.eval()
    images, labels = (part[hvd.rank() :: hvd.size()] for part in data)
    right = sum((model(x).argmax(1) == y).sum() for x, y in zip(images.split(500), labels.split(500)))
    totals = hvd.allreduce(torch.tensor([float(right), float(len(labels))]), op=hvd.Sum, name="accuracy")
    return float(totals[0] / totals[1])


def fingerprint(model: nn.Module) -> str:
    """SHA-256 of every parameter's bits."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description="Fashion-MNIST with any number of ranks")
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate of one rank")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads per rank")
    parser.add_argument("--report", type=Path, help="rank 0 writes its results here, as JSON")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    hvd.init()  # rueda: join the other ranks

    train, test = load(args.data, "train"), load(args.data, "t10k")
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)  # rueda: start from the same model
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())  # rueda: average the gradients

    # The rate falls linearly to a tenth, because larger worlds start with larger rates.
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=max(1, args.epochs - 1))
    speeds = []
    for epoch in range(1, args.epochs + 1):
        speeds.append(train_epoch(model, optimizer, train, epoch, args.batch_size))
        schedule.step()
        reached = accuracy(model, test)
        if hvd.rank() == 0:
            print(f"epoch {epoch}  test accuracy {100 * reached:.2f} %", flush=True)

    prints = hvd.allgather_object(fingerprint(model))
    if hvd.rank() == 0:
        is_same = len(set(prints)) == 1
        verdict = "identical" if is_same else "DIFFERENT"
        print(f"{hvd.size()} rank(s), parameters {verdict} on all: {prints[0][:16]}…")
        if args.report:
            result = {
                "ranks": hvd.size(),
                "accuracy": reached,
                "samples_per_s": sum(speeds) / len(speeds),
                "parameters_sha256": prints,
            }
            args.report.write_text(json.dumps(result))
    hvd.shutdown()


if __name__ == "__main__":
    main()
