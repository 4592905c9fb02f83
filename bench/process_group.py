"""DDP and FSDP2 with the backend "rueda", with gloo, and without communication: ratios of step times.

    rueda run -np 2 python bench/process_group.py --report out.json

The models are a small CNN with the buckets of DDP, 20 small layers with one bucket each, which show the
cost of an operation, and eight layers of 1 MiB that FSDP2 shards, each by itself. All three ways take turns
in the same processes. A ratio compares the two halves of one turn, so disturbances by the machine affect
both; the spread is over turns. Times are measured on rank 0, for forward, backward and step of one batch.
gloo uses TCP over loopback, with its defaults.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Callable, Dict, List, Optional

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import rueda.torch as hvd

TURNS, STEPS = 15, 4
BATCH = 8
Wrap = Callable[[torch.nn.Module, dist.ProcessGroup], torch.nn.Module]


def cnn() -> torch.nn.Module:
    """1.2 million parameters in 8 tensors."""
    torch.manual_seed(0)
    nn = torch.nn
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(64 * 8 * 8, 256), nn.ReLU(), nn.Linear(256, 512), nn.ReLU()),
        nn.Linear(512, 10),
    )


def layers() -> torch.nn.Module:
    """20 tensors of 4 KiB."""
    torch.manual_seed(0)
    nn = torch.nn
    return nn.Sequential(nn.Flatten(), nn.AvgPool1d(96), *(nn.Linear(32, 32, bias=False) for _ in range(20)))


def wide_layers() -> torch.nn.Module:
    """8 tensors of 1 MiB."""
    torch.manual_seed(0)
    nn = torch.nn
    return nn.Sequential(nn.Flatten(), nn.AvgPool1d(6), *(nn.Linear(512, 512, bias=False) for _ in range(8)))


def over_ddp(bucket_mb: Optional[float]) -> Wrap:
    return lambda net, group: DistributedDataParallel(net, process_group=group, bucket_cap_mb=bucket_mb)


def shard(net: torch.nn.Module, group: dist.ProcessGroup) -> torch.nn.Module:
    """By FSDP2: a unit for each layer, and one for the whole."""
    mesh = DeviceMesh.from_group(group, "cpu")
    for layer in net.children():
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return net


def stepper(net: torch.nn.Module) -> Callable[[], None]:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    images, labels = torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()

    return step


def seconds(step: Callable[[], None]) -> float:
    """Of one step, averaged over a turn that both ranks begin together."""
    hvd.barrier()
    step()
    started = time.perf_counter()
    for _ in range(STEPS):
        step()
    return (time.perf_counter() - started) / STEPS


def at(values: List[float], share: float) -> float:
    return sorted(values)[round(share * (len(values) - 1))]


def compare(
    model: str, make: Callable[[], torch.nn.Module], wrap: Wrap, groups: Dict[str, dist.ProcessGroup]
) -> List[Dict[str, object]]:
    """The rows of one model."""
    steps = {"alone": stepper(make())}
    steps.update({name: stepper(wrap(make(), group)) for name, group in groups.items()})
    times: Dict[str, List[float]] = {name: [] for name in steps}
    for _ in range(TURNS + 1):
        for name, step in steps.items():
            times[name].append(seconds(step))
    rows: List[Dict[str, object]] = []
    for name, against in (("rueda", "gloo"), ("rueda", "alone"), ("gloo", "alone")):
        ratios = [one / other for one, other in zip(times[name][1:], times[against][1:])]
        row = {"model": model, "step": name, "against": against, "ms": 1e3 * at(times[name][1:], 0.5)}
        rows.append({**row, "p10": at(ratios, 0.1), "median": at(ratios, 0.5), "p90": at(ratios, 0.9)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("rueda")
    world = dist.distributed_c10d._get_default_group()
    groups = {"rueda": world, "gloo": dist.new_group(backend="gloo")}
    rows = [
        *compare("small CNN, DDP", cnn, over_ddp(None), groups),
        *compare("20 buckets, DDP", layers, over_ddp(0.004), groups),
        *compare("8 layers, FSDP2", wide_layers, shard, groups),
    ]
    if dist.get_rank() == 0:
        for row in rows:
            spread = f"{row['p10']:.2f} .. {row['p90']:.2f}"
            what = f"{row['model']:<16} over {row['step']:<6} / {row['against']:<6}"
            print(f"{what}{row['median']:>8.2f}   {spread:>16}")
        if arguments.report:
            arguments.report.write_text(json.dumps(rows))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
