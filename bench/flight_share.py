"""What the flight record costs in a training step: the records of a step times the time of one record.

    cmake --build build/release --target trace_bench
    rueda run -np 2 python bench/flight_share.py --model resnet50 --trace-bench build/release/trace_bench

A step of 2 ranks varies by more than the record costs, so both are not compared with a clock. Rank 0 counts
the records of its last steps in its flight record, `trace_bench` measures one of each kind on the idle
machine, and the share is their product over the median step of a loop with DistributedOptimizer.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Dict

import torch
from torch.nn.functional import cross_entropy
from torch_training import load_models

import rueda.torch as hvd

# src/rueda/trace/record_format.h: slots of 32 bytes, each begins with its kind; a text takes several.
SLOT, NAME, NAME_HEADER = 32, 3, 8
KINDS = {6: "a_tensor", 7: "a_span", 8: "a_call/160"}  # slot kind: its benchmark


def count_records() -> Counter[int]:
    """Records that this rank keeps, by the kind of their slot."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "flight"
        hvd.write_flight_record(str(path))
        (file,) = Path(folder).iterdir()
        data = file.read_bytes()
    counts: Counter[int] = Counter()
    at = 0
    while at + SLOT <= len(data):
        kind = data[at]
        counts[kind] += 1
        text_bytes = int.from_bytes(data[at + 2 : at + 4], "little") if kind == NAME else 0
        at += SLOT * max(1, -(-(NAME_HEADER + text_bytes) // SLOT)) if kind == NAME else SLOT
    return counts


def nanoseconds(program: str) -> Dict[str, float]:
    """Of one record of each kind; the reads of the clock are included."""
    out = subprocess.run(
        [
            program,
            "--benchmark_format=json",
            "--benchmark_repetitions=5",
            "--benchmark_filter=^a_[a-z_]*(/160)?$",
        ],
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    found = [row for row in json.loads(out)["benchmarks"] if row.get("aggregate_name") == "median"]
    return {row["run_name"]: float(row["real_time"]) for row in found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="resnet50", help="of examples/pytorch/synthetic_benchmark.py")
    parser.add_argument("--batch-size", type=int, default=8, help="per rank")
    parser.add_argument("--steps", type=int, default=20, help="counted and timed steps")
    parser.add_argument("--trace-bench", required=True, help="the built program")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    make, make_data = load_models().MODELS[arguments.model]
    torch.manual_seed(1)
    net, data = make(), make_data(arguments.batch_size)
    target = torch.randint(10, (arguments.batch_size,))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.01), net.named_parameters())

    def step() -> float:
        started = time.perf_counter()
        optimizer.zero_grad()
        cross_entropy(net(data), target).backward()
        optimizer.step()
        return time.perf_counter() - started

    for _ in range(10):  # a plan has been learned
        step()
    before = count_records()
    seconds = statistics.median(step() for _ in range(arguments.steps))
    new = count_records() - before
    hvd.barrier()
    if hvd.rank() == 0:
        report(arguments, seconds, {name: new[kind] / arguments.steps for kind, name in KINDS.items()})
    hvd.shutdown()


def report(arguments: argparse.Namespace, seconds: float, per_step: Dict[str, float]) -> None:
    costs = nanoseconds(os.path.abspath(arguments.trace_bench))
    total_us = sum(count * costs[name] for name, count in per_step.items()) / 1e3
    for name, count in per_step.items():
        print(f"{name:>15}: {count:6.1f} a step, {costs[name]:5.0f} ns each")
    share = total_us / seconds / 1e4
    print(f"{arguments.model}: {total_us:.1f} us of a step of {seconds * 1e3:.1f} ms, {share:.4f} %")


if __name__ == "__main__":
    main()
