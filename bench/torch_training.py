"""Training steps of PyTorch with rueda, as a share of the speed of ranks that do not communicate.

    rueda run -np 2 python bench/torch_training.py --model resnet50 --report out.json

The ways take turns in the same processes, so that disturbances by the machine affect all of them: "silent"
trains without communication, "pointer" reduces gradients where torch put them, "arena" allocates them in
memory that all ranks map, and "ddp-gloo" is DistributedDataParallel over gloo. A share is the silent time of
a turn over the time of the way in that turn, so 1.00 is the throughput of independent processes. Times are
those of the slower rank. "gradients" is one allreduce of all gradients, without computation.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Callable, Dict, List

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import rueda.torch as hvd
from rueda import _core
from rueda.torch import arena

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "pytorch" / "synthetic_benchmark.py"
Step = Callable[[], None]


def load_models() -> ModuleType:
    spec = importlib.util.spec_from_file_location("synthetic_benchmark", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Owner:
    """While an instance exists, the gradients of its model are placed in the arena."""

    def __init__(self, net: torch.nn.Module) -> None:
        os.environ["RUEDA_TORCH_ARENA"] = "1"
        for parameter in net.parameters():
            arena.await_gradients(parameter, self)
        del os.environ["RUEDA_TORCH_ARENA"]


class Bench:
    """One model in several ways."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        example = load_models()
        self._make, make_data = example.MODELS[arguments.model]
        torch.manual_seed(hvd.rank())
        self._data = make_data(arguments.batch_size)
        self._target = torch.randint(example.CLASSES, (arguments.batch_size,))
        self._nets: Dict[str, torch.nn.Module] = {}
        self._steps: Dict[str, Step] = {}
        gloo = dist.new_group(backend="gloo") if "ddp-gloo" in arguments.ways else None
        for way in arguments.ways:
            torch.manual_seed(1)
            net = self._nets[way] = self._make()
            optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
            trained: torch.nn.Module = net
            if way in ("pointer", "arena"):
                named = [(f"{way}.{name}", parameter) for name, parameter in net.named_parameters()]
                optimizer = hvd.DistributedOptimizer(optimizer, named)
            elif way == "ddp-gloo":
                trained = DistributedDataParallel(net, process_group=gloo)
            self._steps[way] = self._stepper(trained, optimizer)

    def _stepper(self, net: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Step:
        def step() -> None:
            optimizer.zero_grad()
            cross_entropy(net(self._data), self._target).backward()
            optimizer.step()

        return step

    def turn(self, way: str, steps: int) -> float:
        """Seconds per step of a turn that all ranks begin together, on the slower rank."""
        owner = Owner(self._nets[way]) if way == "arena" else None
        self._steps[way]()
        gradients = [p.grad for p in self._nets[way].parameters() if p.grad is not None]
        placed = [_core.is_shared_buffer(gradient.data_ptr()) for gradient in gradients]
        if way in ("pointer", "arena") and set(placed) != {int(way == "arena")}:
            raise SystemExit(f"{way}: {sum(placed)} of {len(placed)} gradients lie in the arena")
        del gradients
        hvd.barrier()
        started = time.perf_counter()
        for _ in range(steps):
            self._steps[way]()
        seconds = slower(time.perf_counter() - started) / steps
        del owner
        return seconds

    def gradients(self, way: str, rounds: int) -> float:
        """Seconds of reducing all gradients of the model at once."""
        owner = Owner(self._nets[way]) if way == "arena" else None
        self._steps[way]()
        gradients = [p.grad for p in self._nets[way].parameters() if p.grad is not None]
        times = []
        for _ in range(rounds):
            hvd.barrier()
            started = time.perf_counter()
            handles = [hvd.allreduce_async_(g, name=f"{way}.only.{i}") for i, g in enumerate(gradients)]
            for handle in handles:
                hvd.synchronize(handle)
            times.append(slower(time.perf_counter() - started))
        del owner
        return statistics.median(times)


def slower(seconds: float) -> float:
    return float(hvd.allreduce(torch.tensor(seconds, dtype=torch.float64), op=hvd.Max, name="slower"))


def at(values: List[float], share: float) -> float:
    return sorted(values)[round(share * (len(values) - 1))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch-size", type=int, default=8, help="per rank")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3, help="timed steps of a turn")
    parser.add_argument("--ways", default="silent,pointer,arena,ddp-gloo", type=lambda text: text.split(","))
    parser.add_argument("--report", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    with tempfile.TemporaryDirectory() as own:  # a file, because host names are unknown in the namespaces
        meeting = hvd.broadcast_object(own)
        world = {"rank": hvd.rank(), "world_size": hvd.size()}
        dist.init_process_group("rueda", init_method=f"file://{meeting}/store", **world)
        measure(arguments)
        hvd.barrier()
        dist.destroy_process_group()


def measure(arguments: argparse.Namespace) -> None:
    bench = Bench(arguments)
    ways = arguments.ways
    seconds: Dict[str, List[float]] = {way: [] for way in ways}
    reducing: Dict[str, List[float]] = {way: [] for way in ("pointer", "arena") if way in ways}
    for turn in range(arguments.turns + 1):
        for way in ways[turn % len(ways) :] + ways[: turn % len(ways)]:
            seconds[way].append(bench.turn(way, arguments.steps))
        for way in reducing:
            reducing[way].append(bench.gradients(way, 5))
    rows = []
    for way in ways:
        shares = [silent / own for silent, own in zip(seconds["silent"][1:], seconds[way][1:])]
        row = {"model": arguments.model, "way": way, "step_ms": 1e3 * statistics.median(seconds[way][1:])}
        row.update(share=statistics.median(shares), p10=at(shares, 0.1), p90=at(shares, 0.9))
        if way in reducing:
            row["gradients_ms"] = 1e3 * statistics.median(reducing[way][1:])
        rows.append(row)
    if dist.get_rank() == 0:
        print(f"{arguments.model}, {hvd.size()} ranks, batch {arguments.batch_size}, {arguments.turns} turns")
        for row in rows:
            text = f"{row['way']:<9} step {row['step_ms']:8.1f} ms   share {row['share']:.3f}"
            text += f"   {row['p10']:.3f} .. {row['p90']:.3f}"
            text += f"   gradients {row['gradients_ms']:.2f} ms" if "gradients_ms" in row else ""
            print(text, flush=True)
        if arguments.report:
            arguments.report.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
