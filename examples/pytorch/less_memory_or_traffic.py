"""Trains Fashion-MNIST with less memory for the optimizer's state, or with less traffic between ranks.

    rueda run -np 4 python less_memory_or_traffic.py --method sharded

--method plain: DistributedOptimizer, to compare with. sharded: each rank keeps a part of the state. local:
parameters are averaged every --every steps. diloco: as local, with an outer optimizer. The model and the
data are those of fashion_mnist.py, which lies beside this file.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import fashion_mnist
import torch
from torch.nn.functional import cross_entropy

import rueda.torch as hvd

METHODS = ("plain", "sharded", "local", "diloco")


def make_optimizer(method: str, model: torch.nn.Module, lr: float, every: int) -> Any:
    """lr: of one rank. Ranks that average gradients take larger batches together, and larger steps."""
    names = list(model.named_parameters())
    if method in ("plain", "sharded"):
        sgd = torch.optim.SGD(model.parameters(), lr=lr * hvd.size(), momentum=0.9)
        if method == "sharded":
            return hvd.ShardedOptimizer(sgd, names, model=model)
        return hvd.DistributedOptimizer(sgd, names)
    sgd = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    if method == "local":
        return hvd.LocalSGD(sgd, names, every=every)
    return hvd.DiLoCo(sgd, names, every=every, fragments=2, compression=hvd.Compression.fp16)


def main() -> None:
    parser = argparse.ArgumentParser(description="Fashion-MNIST with less memory or less traffic")
    parser.add_argument("--method", choices=METHODS, default="sharded")
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=0, help="of each epoch; 0: all images")
    parser.add_argument("--every", type=int, default=10, help="steps from one exchange to the next")
    parser.add_argument("--batch-size", type=int, default=64, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate of one rank")
    args = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(1)
    hvd.init()
    images, labels = fashion_mnist.load(args.data, "train")
    test = fashion_mnist.load(args.data, "t10k")
    model = fashion_mnist.make_model()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = make_optimizer(args.method, model, args.lr, args.every)

    for epoch in range(1, args.epochs + 1):
        model.train()
        for step, index in enumerate(fashion_mnist.my_batches(len(images), args.batch_size, epoch), 1):
            optimizer.zero_grad()
            cross_entropy(model(images[index]), labels[index]).backward()
            optimizer.step()
            if step == args.steps:
                break
        if args.method in ("local", "diloco"):
            optimizer.synchronize_parameters()  # the ranks evaluate one model
        reached = fashion_mnist.accuracy(model, test)
        if hvd.rank() == 0:
            print(f"epoch {epoch}  test accuracy {100 * reached:.2f} %", flush=True)

    model.state_dict()  # waits for parameters that are on their way
    prints = hvd.allgather_object(fashion_mnist.fingerprint(model))
    kept = sum(t.numel() * t.element_size() for s in optimizer.state.values() for t in s.values())
    if hvd.rank() == 0:
        verdict = "identical" if len(set(prints)) == 1 else "DIFFERENT"
        print(f"{hvd.size()} rank(s), parameters {verdict} on all; state of rank 0: {kept} bytes")
    hvd.shutdown()


if __name__ == "__main__":
    main()
