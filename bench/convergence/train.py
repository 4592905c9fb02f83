"""One training of the convergence check, started on every rank by run.py beside it.

The model and the data are those of examples/pytorch/fashion_mnist.py. A seed chooses the first weights and
the order of the images, for every method alike. Rank 0 writes the test accuracy as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Callable, Dict

import torch
from torch.nn.functional import cross_entropy

import rueda.torch as hvd

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "examples" / "pytorch"))
import fashion_mnist  # noqa: E402 (found beside the examples)

Wrap = Callable[[torch.optim.Optimizer, torch.nn.Module, int], Any]


def names(model: torch.nn.Module) -> Any:
    return model.named_parameters()


def compressed(compression: Any) -> Wrap:
    """Gradients of all ranks, by a compressor with state. compression: makes one."""
    return lambda o, m, every: hvd.DistributedOptimizer(o, names(m), compression=compression())


# Those that take one step with the gradients of all ranks; their learning rate grows with the ranks.
TOGETHER: Dict[str, Wrap] = {
    "plain": lambda o, m, every: hvd.DistributedOptimizer(o, names(m)),
    "cross-step": lambda o, m, every: hvd.DistributedOptimizer(o, names(m), cross_step=True, model=m),
    "fp16": lambda o, m, every: hvd.DistributedOptimizer(o, names(m), compression=hvd.Compression.fp16),
    "powersgd": compressed(lambda: hvd.PowerSGD(rank=4)),
    "powersgd-1": compressed(lambda: hvd.PowerSGD(rank=1)),
    "powersgd-late": compressed(lambda: hvd.PowerSGD(rank=4, start_after=100)),
    "topk": compressed(lambda: hvd.TopK(ratio=0.01)),
    "topk-late": compressed(lambda: hvd.TopK(ratio=0.01, start_after=100)),
    # The control of the compressors, which must lose.
    "topk-starved": compressed(lambda: hvd.TopK(ratio=0.001, error_feedback=False)),
    "sharded": lambda o, m, every: hvd.ShardedOptimizer(o, names(m), model=m),
}
# Those whose ranks step alone most of the time. "silent" never communicates: the control that must lose.
ALONE: Dict[str, Wrap] = {
    "local": lambda o, m, every: hvd.LocalSGD(o, names(m), every=every),
    "local-state": lambda o, m, every: hvd.LocalSGD(o, names(m), every=every, average_state=True),
    "post-local": lambda o, m, every: hvd.LocalSGD(o, names(m), every=every, warmup_steps=10 * every),
    "diloco": lambda o, m, every: hvd.DiLoCo(o, names(m), every=every),
    "diloco-fp16": lambda o, m, every: hvd.DiLoCo(o, names(m), every=every, compression=hvd.Compression.fp16),
    "diloco-stream": lambda o, m, every: hvd.DiLoCo(o, names(m), every=every, fragments=4, overlap=True),
    "silent": lambda o, m, every: o,
}


def train(args: argparse.Namespace) -> float:
    """The test accuracy."""
    torch.manual_seed(args.seed)
    images, labels = (part[: args.images] for part in fashion_mnist.load(args.data, "train"))
    model = fashion_mnist.make_model()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    is_together = args.method in TOGETHER
    lr = args.lr * hvd.size() if is_together else args.local_lr
    sgd = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    optimizer = {**TOGETHER, **ALONE}[args.method](sgd, model, args.every)
    steps = args.epochs * -(-(len(images) // hvd.size()) // args.batch_size)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=steps)
    for epoch in range(args.epochs):
        order = 1000 * args.seed + epoch
        for index in fashion_mnist.my_batches(len(images), args.batch_size, order):
            optimizer.zero_grad()
            cross_entropy(model(images[index]), labels[index]).backward()
            optimizer.step()
            schedule.step()
    if hasattr(optimizer, "synchronize_parameters"):
        optimizer.synchronize_parameters()
    return fashion_mnist.accuracy(model, fashion_mnist.load(args.data, "t10k"))


def main() -> None:
    parser = argparse.ArgumentParser(description="one training of the convergence check")
    parser.add_argument("--method", choices=[*TOGETHER, *ALONE], required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--images", type=int, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--every", type=int, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--local-lr", type=float, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    reached = train(args)
    if hvd.rank() == 0:
        args.report.write_text(json.dumps({"accuracy": reached}))
    hvd.shutdown()


if __name__ == "__main__":
    main()
