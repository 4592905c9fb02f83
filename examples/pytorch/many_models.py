"""Trains the models of a sweep side by side in one job: each process set trains one model at a time.

    rueda run -np 4 python many_models.py --sets 2

With 4 ranks and 2 sets, ranks 0 and 1 train the first model while ranks 2 and 3 train the second, then each
set takes its next one. The data are Debian's package dataset-fashion-mnist; --data names another folder with
the four IDX files, compressed or not.
"""

from __future__ import annotations

import argparse
import itertools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import List, Tuple

import torch
from fashion_mnist import CLASSES, load
from torch import Tensor, nn
from torch.nn import functional

import rueda.torch as hvd

Data = Tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Trial:
    """One model of the sweep."""

    width: int
    rate: float


@dataclass(frozen=True)
class Result:
    """The result of one trial."""

    trial: Trial
    ranks: List[int]
    loss: float  # mean over the last tenth of the steps and over the set's ranks
    accuracy: float
    seconds: float


def split_ranks(size: int, sets: int) -> List[List[int]]:
    """Ranks 0 … size - 1 in sets of consecutive ranks, as equal as possible."""
    return [list(range(i * size // sets, (i + 1) * size // sets)) for i in range(sets)]


def make_model(width: int) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.ReLU(), nn.Linear(width, CLASSES))


def train(trial: Trial, team: hvd.ProcessSet, data: Data, steps: int, batch: int) -> Tuple[nn.Module, float]:
    """Trains one model on the ranks of team, which see different images; the model and its last loss."""
    images, labels = data
    model = make_model(trial.width)
    hvd.broadcast_parameters(model.state_dict(), root_rank=team.ranks[0], process_set=team)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=trial.rate * team.size(), momentum=0.9),
        model.named_parameters(),
        process_set=team,
    )
    draw = torch.Generator().manual_seed(team.rank())
    losses = []
    for _ in range(steps):
        index = torch.randint(len(images), (batch,), generator=draw)
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images[index]), labels[index])
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    last = torch.stack(losses[-max(1, steps // 10) :]).mean()
    return model, float(hvd.allreduce(last, name="loss", process_set=team))


@torch.no_grad()
def accuracy(model: nn.Module, team: hvd.ProcessSet, data: Data) -> float:
    """Share of correct answers. Each rank of team evaluates its part of the images."""
    images, labels = (part[team.rank() :: team.size()] for part in data)
    right = (model(images).argmax(1) == labels).sum()
    totals = torch.tensor([float(right), float(len(labels))])
    totals = hvd.allreduce(totals, op=hvd.Sum, name="accuracy", process_set=team)
    return float(totals[0] / totals[1])


def main() -> None:
    parser = argparse.ArgumentParser(description="a sweep of models, several at a time in one job")
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--sets", type=int, default=2, help="models that are trained at the same time")
    parser.add_argument("--widths", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.001, 0.01, 0.1])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=64, help="images per rank and step")
    args = parser.parse_args()
    torch.set_num_threads(1)

    hvd.init(process_sets="dynamic")
    if not 1 <= args.sets <= hvd.size():
        raise SystemExit(f"--sets is {args.sets}, but must be 1 to {hvd.size()}, the number of ranks.")
    # Every rank registers every set, in the same order, and then works in the one it belongs to.
    teams = [hvd.add_process_set(ranks) for ranks in split_ranks(hvd.size(), args.sets)]
    mine = next(i for i, team in enumerate(teams) if team.included())

    train_data, test_data = load(args.data, "train"), load(args.data, "t10k")
    trials = [Trial(*pair) for pair in itertools.product(args.widths, args.rates)]
    results = []
    for trial in trials[mine :: len(teams)]:
        began = time.perf_counter()
        model, loss = train(trial, teams[mine], train_data, args.steps, args.batch_size)
        reached = accuracy(model, teams[mine], test_data)
        results.append(Result(trial, teams[mine].ranks, loss, reached, time.perf_counter() - began))

    # Sets end at different times and meet here. The first rank of each set reports its results.
    found = hvd.allgather_object(results if teams[mine].rank() == 0 else [], name="results")
    if hvd.rank() == 0:
        print(f"{'width':>5}  {'rate':>6}  {'ranks':<8}  {'loss':>6}  {'accuracy':>8}  seconds")
        for one in sorted(itertools.chain(*found), key=lambda one: -one.accuracy):
            ranks = ",".join(map(str, one.ranks))
            print(
                f"{one.trial.width:>5}  {one.trial.rate:>6g}  {ranks:<8}  {one.loss:>6.3f}  "
                f"{100 * one.accuracy:>6.2f} %  {one.seconds:.1f}"
            )
    hvd.shutdown()


if __name__ == "__main__":
    main()
