"""Trains on Fashion-MNIST while ranks come and go.

    rueda run -np 2 python elastic.py

Each image of an epoch is used once, however often the number of ranks changes. The lines marked `elastic` are
those that fashion_mnist.py does not have.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from fashion_mnist import accuracy, fingerprint, load, make_model
from torch.nn import functional

import rueda.torch as hvd


@hvd.elastic.run  # elastic: called again when the ranks have changed
def train(state: hvd.elastic.TorchState, images: torch.Tensor, labels: torch.Tensor, epochs: int) -> None:
    while state.sampler.epoch < epochs:
        state.model.train()
        for step, index in enumerate(state.sampler):  # elastic: what is left of the epoch
            state.optimizer.zero_grad()
            loss = functional.cross_entropy(state.model(images[index]), labels[index])
            (
                loss * state.sampler.weight(step)
            ).backward()  # elastic: the last batches may be of different sizes
            state.optimizer.step()
            state.sampler.record_batch(step)  # elastic
            state.commit()  # elastic: here the survivors of a loss go on
        state.sampler.set_epoch(state.sampler.epoch + 1)
        if hvd.rank() == 0:
            print(f"epoch {state.sampler.epoch}  loss {loss.item():.3f}  {hvd.size()} ranks", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Fashion-MNIST with ranks that come and go")
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--images", type=int, help="how many are used in an epoch; default all")
    parser.add_argument("--batch-size", type=int, default=64, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate of one rank")
    options = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    torch.manual_seed(1)
    model = make_model()
    plain = torch.optim.SGD(model.parameters(), lr=options.lr * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    images, labels = (part[: options.images] for part in load(options.data, "train"))
    sampler = hvd.elastic.LedgerSampler(labels, options.batch_size)
    # elastic: DistributedOptimizer raises before it changes parameters, so commits need no copy of them
    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, copy_parameters=False)

    def adapt() -> None:  # elastic: called when the number of ranks has changed
        for group in optimizer.param_groups:
            group["lr"] = options.lr * hvd.size()

    state.register_reset_callbacks([adapt])
    train(state, images, labels, options.epochs)
    reached = accuracy(model, load(options.data, "t10k"))
    same = len(set(hvd.allgather_object(fingerprint(model)))) == 1
    if hvd.rank() == 0:
        print(f"parameters of all ranks: {'equal' if same else 'DIFFERENT'}")
        print(f"test accuracy {100 * reached:.1f} %")


if __name__ == "__main__":
    main()
