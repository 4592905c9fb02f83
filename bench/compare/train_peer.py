"""A rank that really trains a small network: alone, with DDP over Gloo, and with rueda, in turns.

    rueda run -np 2 python bench/compare/train_peer.py OUT ROUNDS

Rank 0 writes one JSON line per round to OUT: for each way, the images per second of all ranks together.
"alone" does not communicate, so it shows what the cores can do.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Callable, Dict

import torch
import torch.distributed as dist
from torch import nn

import rueda.torch as hvd

BATCH, IMAGE, STEPS = 16, 64, 6


def network() -> nn.Module:
    torch.manual_seed(1)
    widths = [3, 32, 64, 128, 256]
    layers = []
    for inner, outer in zip(widths, widths[1:]):
        layers += [nn.Conv2d(inner, outer, 3, stride=2, padding=1), nn.BatchNorm2d(outer), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256 * 16, 512), nn.ReLU(), nn.Linear(512, 100))


def trainer(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    images, labels = torch.randn(BATCH, 3, IMAGE, IMAGE), torch.randint(100, (BATCH,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def main() -> None:
    out, rounds = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    hvd.init()
    dist.init_process_group(
        "gloo", init_method=f"file://{out}.meeting", rank=hvd.rank(), world_size=hvd.size()
    )
    ways: Dict[str, Callable[[], None]] = {}
    plain = network()
    ways["alone"] = trainer(plain, torch.optim.SGD(plain.parameters(), lr=1e-3))
    ddp = nn.parallel.DistributedDataParallel(network(), gradient_as_bucket_view=True)
    ways["ddp"] = trainer(ddp, torch.optim.SGD(ddp.parameters(), lr=1e-3))
    ours = network()
    sgd = torch.optim.SGD(ours.parameters(), lr=1e-3)
    ways["rueda"] = trainer(ours, hvd.DistributedOptimizer(sgd, ours.named_parameters()))
    for turn in range(-1, rounds):  # the first warms up
        speeds = {}
        for name, step in ways.items():
            hvd.barrier()
            start = time.monotonic()
            for _ in range(STEPS):
                step()
            hvd.barrier()
            speeds[name] = hvd.size() * BATCH * STEPS / (time.monotonic() - start)
        if hvd.rank() == 0 and turn >= 0:
            with open(out, "a") as file:
                file.write(json.dumps(speeds) + "\n")
    dist.destroy_process_group()
    hvd.shutdown()


if __name__ == "__main__":
    main()
