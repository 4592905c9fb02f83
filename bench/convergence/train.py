"""One training of the convergence check, started on every rank by run.py beside it.

A seed chooses the first weights and the order of the data, for every method alike. Each rank is a host of its
own, so that wire types encode what travels. Rank 0 writes the figure of the task as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any, Callable, Dict

import torch
from tasks import TASKS

import rueda.torch as hvd

Wrap = Callable[[torch.optim.Optimizer, torch.nn.Module, argparse.Namespace], Any]


def names(model: torch.nn.Module) -> Any:
    return model.named_parameters()


def compressed(make: Callable[[argparse.Namespace], Any]) -> Wrap:
    """Gradients of all ranks, through a compressor."""
    return lambda o, m, args: hvd.DistributedOptimizer(o, names(m), compression=make(args))


# Those that take one step with the gradients of all ranks.
TOGETHER: Dict[str, Wrap] = {
    "plain": lambda o, m, args: hvd.DistributedOptimizer(o, names(m)),
    "cross-step": lambda o, m, args: hvd.DistributedOptimizer(o, names(m), cross_step=True, model=m),
    "bf16": compressed(lambda args: hvd.Compression.bf16),
    "fp16": lambda o, m, args: hvd.DistributedOptimizer(o, names(m)),  # RUEDA_WIRE: see main
    "fp16-cast": compressed(lambda args: hvd.Compression.fp16),
    "int8": compressed(lambda args: hvd.Compression.int8),
    "powersgd": compressed(lambda args: hvd.PowerSGD(rank=4)),
    "powersgd-1": compressed(lambda args: hvd.PowerSGD(rank=1)),
    "powersgd-8": compressed(lambda args: hvd.PowerSGD(rank=8)),
    "powersgd-16": compressed(lambda args: hvd.PowerSGD(rank=16)),
    "powersgd-late": compressed(lambda args: hvd.PowerSGD(rank=4, start_after=args.start_after)),
    "topk": compressed(lambda args: hvd.TopK(ratio=0.01)),
    "topk-late": compressed(lambda args: hvd.TopK(ratio=0.01, start_after=args.start_after)),
    # The control of the compressors, which must lose.
    "topk-starved": compressed(lambda args: hvd.TopK(ratio=0.001, error_feedback=False)),
    "delayed": lambda o, m, args: hvd.DelayedOptimizer(o, names(m)),
    "delayed-int8": lambda o, m, args: hvd.DelayedOptimizer(o, names(m), compression=hvd.Compression.int8),
    "sharded": lambda o, m, args: hvd.ShardedOptimizer(o, names(m), model=m),
}
# Those whose ranks step alone most of the time. "silent" never communicates: the control that must lose.
ALONE: Dict[str, Wrap] = {
    "local": lambda o, m, args: hvd.LocalSGD(o, names(m), every=args.every),
    "local-state": lambda o, m, args: hvd.LocalSGD(o, names(m), every=args.every, average_state=True),
    "post-local": lambda o, m, args: hvd.LocalSGD(
        o, names(m), every=args.every, warmup_steps=args.total_steps // 2
    ),
    "diloco": lambda o, m, args: hvd.DiLoCo(o, names(m), every=args.every),
    "diloco-short": lambda o, m, args: hvd.DiLoCo(  # for fewer exchanges than its defaults are made for
        o, names(m), every=args.every, outer_lr=1.0, outer_momentum=0.5
    ),
    "diloco-fp16": lambda o, m, args: hvd.DiLoCo(
        o, names(m), every=args.every, compression=hvd.Compression.fp16
    ),
    "diloco-int8": lambda o, m, args: hvd.DiLoCo(
        o, names(m), every=args.every, compression=hvd.Compression.int8
    ),
    "diloco-stream": lambda o, m, args: hvd.DiLoCo(o, names(m), every=args.every, fragments=4, overlap=True),
    "silent": lambda o, m, args: o,
}


def train(args: argparse.Namespace) -> float:
    """The figure of the task."""
    torch.manual_seed(args.seed)
    task = TASKS[args.task](args)
    args.total_steps = task.steps
    model = task.model()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    inner = task.optimizer(model, args.method in TOGETHER)
    optimizer = {**TOGETHER, **ALONE}[args.method](inner, model, args)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, task.rate)
    for loss in task.losses(model):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        schedule.step()
    if hasattr(optimizer, "synchronize_parameters"):
        optimizer.synchronize_parameters()
    return task.figure(model)


def be_a_host() -> None:
    """Before init: this rank is the only one of its host."""
    os.environ["RUEDA_HOSTNAME"] = f"host{os.environ['RUEDA_RANK']}"
    os.environ["RUEDA_LOCAL_RANK"], os.environ["RUEDA_LOCAL_SIZE"] = "0", "1"


def main() -> None:
    parser = argparse.ArgumentParser(description="one training of the convergence check")
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--method", choices=[*TOGETHER, *ALONE], required=True)
    for name in ("seed", "images", "epochs", "steps", "every", "start-after", "batch-size", "sequences"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("lr", "local-lr"):
        parser.add_argument(f"--{name}", type=float, required=True)
    parser.add_argument("--optimizer", choices=["sgd"])
    for name in ("report", "data"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    be_a_host()
    if args.method == "fp16":
        os.environ["RUEDA_WIRE"] = "fp16"
    hvd.init()
    started = time.perf_counter()
    figure = train(args)
    if hvd.rank() == 0:
        args.report.write_text(json.dumps({"figure": figure, "seconds": time.perf_counter() - started}))
    hvd.shutdown()


if __name__ == "__main__":
    main()
