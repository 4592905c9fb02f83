"""How training changes when many ranks make the batch large. docs/large_batches.md explains the table.

    rueda run -np 2 python large_batches.py

Emulates a job of --emulate ranks with fewer ranks, which share the large batch. That gives the same
gradients. Every row trains for the same number of epochs. The data are Debian's package
dataset-fashion-mnist; --data names another folder with the four IDX files, compressed or not.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, List, Tuple

import torch
from fashion_mnist import CLASSES, load
from torch import Tensor, nn
from torch.nn import functional

import rueda.torch as hvd

Data = Tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Recipe:
    """How the learning rate of n ranks follows from that of one rank."""

    label: str
    ranks: int  # whose batch is emulated
    is_scaled: bool = False  # linear scaling: n times the rate
    warmup_epochs: float = 0.0  # from the rate of one rank to the full one, step by step
    decays: bool = False  # cosine to zero after the warm-up


def rate(recipe: Recipe, base: float, epoch: float, epochs: int) -> float:
    """Learning rate at a time in epochs, fractions included (Goyal et al. 2017, sections 2.1 and 2.2)."""
    full = base * recipe.ranks if recipe.is_scaled else base
    if epoch < recipe.warmup_epochs:
        return base + (full - base) * epoch / recipe.warmup_epochs
    if not recipe.decays:
        return full
    done = (epoch - recipe.warmup_epochs) / (epochs - recipe.warmup_epochs)
    return full * (1 + math.cos(math.pi * done)) / 2


def make_model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, CLASSES)
    )


def my_batches(count: int, batch: int, epoch: int) -> Iterator[Tensor]:
    """Indices of this rank's share of every whole batch of an epoch."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(epoch))
    for whole in order[: count // batch * batch].split(batch):
        yield whole[hvd.rank() :: hvd.size()]


@dataclass(frozen=True)
class Outcome:
    """The result of a recipe."""

    steps: int
    first_epoch_loss: float  # mean
    worst_loss: float  # of the first epoch's steps, all ranks together
    accuracy: float  # on the test images, after the last epoch


def train(recipe: Recipe, base: float, batch: int, epochs: int, data: Data, test: Data) -> Outcome:
    """Trains one model by the recipe; batch: images of one emulated rank."""
    images, labels = data
    model = make_model()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=base, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    per_epoch = len(images) // (batch * recipe.ranks)
    losses: List[Tensor] = []
    for epoch in range(epochs):
        for step, index in enumerate(my_batches(len(images), batch * recipe.ranks, epoch)):
            optimizer.param_groups[0]["lr"] = rate(recipe, base, epoch + step / per_epoch, epochs)
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images[index]), labels[index])
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    first = hvd.allreduce(torch.stack(losses[:per_epoch]), name="first epoch")
    with torch.no_grad():
        right = (model(test[0]).argmax(1) == test[1]).float().mean()
    return Outcome(len(losses), float(first.mean()), float(first.max()), float(right))


def main() -> None:
    parser = argparse.ArgumentParser(description="learning rates for large batches, on Fashion-MNIST")
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--emulate", type=int, default=32, help="ranks whose batch is emulated")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64, help="images per emulated rank and step")
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate of one rank")
    parser.add_argument("--warmup-epochs", type=float, default=2.0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    if args.emulate % hvd.size() or args.batch_size % hvd.size():
        raise SystemExit(
            f"--emulate and --batch-size must be multiples of {hvd.size()}, the number of ranks."
        )
    n, warmup = args.emulate, args.warmup_epochs
    recipes = [
        Recipe("1 rank", 1),
        Recipe("1 rank, decay", 1, decays=True),
        Recipe(f"{n} ranks, rate of 1", n),
        Recipe(f"{n} ranks, rate x {n}", n, is_scaled=True),
        Recipe(f"{n} ranks, rate x {n}, decay", n, is_scaled=True, decays=True),
        Recipe(f"{n} ranks, rate x {n}, warm-up", n, is_scaled=True, warmup_epochs=warmup),
        Recipe(f"{n} ranks, rate x {n}, warm-up, decay", n, True, warmup, True),
    ]
    data, test = load(args.data, "train"), load(args.data, "t10k")
    if hvd.rank() == 0:
        print("| recipe | batch | steps | loss, epoch 1 | worst step | test accuracy |")
        print("|---|---|---|---|---|---|", flush=True)
    for recipe in recipes:
        found = train(recipe, args.lr, args.batch_size, args.epochs, data, test)
        if hvd.rank() == 0:
            print(
                f"| {recipe.label} | {args.batch_size * recipe.ranks} | {found.steps} | "
                f"{found.first_epoch_loss:.3f} | {found.worst_loss:.2f} | {100 * found.accuracy:.2f} % |",
                flush=True,
            )
    hvd.shutdown()


if __name__ == "__main__":
    main()
