"""A small training program of PyTorch, as users write them: what `rueda simulate --validate` predicts.

    sudo rueda simulate --validate --program 'python bench/torch_steps.py'
    rueda run -np 2 python bench/torch_steps.py

Twelve layers of 1024 x 1024 have 50 MB of gradients, which take 0.4 s between two hosts of 1 Gbit/s. Each
rank computes with one thread.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn

import rueda.torch as hvd

WIDTH, LAYERS = 1024, 12


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=512, help="per rank")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    torch.manual_seed(1)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    net = nn.Sequential(*layers)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.01), named_parameters=net.named_parameters()
    )
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    torch.manual_seed(hvd.rank())
    data = torch.randn(arguments.batch_size, WIDTH)
    for _ in range(arguments.steps):
        optimizer.zero_grad()
        net(data).square().mean().backward()
        optimizer.step()
        hvd.mark_step()
    hvd.shutdown()


if __name__ == "__main__":
    main()
