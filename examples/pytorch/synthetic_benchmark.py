"""Training speed on random data: images per second of one rank and of all ranks.

    rueda run -np 2 python synthetic_benchmark.py --model resnet50 --batch-size 8

The models are defined here, so that nothing but PyTorch is needed. For --model transformer an "image" is one
sequence of tokens.
"""

from __future__ import annotations

import argparse
import timeit
from typing import Callable, Dict, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional

import rueda.torch as hvd

CLASSES = 1000
VOCABULARY, SEQUENCE, WIDTH = 8192, 128, 512  # transformer: tokens, positions, features


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions around a shortcut (He et al. 2015; the stride in the 3x3)."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        channels_out = 4 * channels
        self.body = nn.Sequential(
            nn.Conv2d(channels_in, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels_out, 1, bias=False),
            nn.BatchNorm2d(channels_out),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride, bias=False), nn.BatchNorm2d(channels_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.shortcut(x))


def resnet50() -> nn.Module:
    """25.6 million parameters in 161 tensors."""
    layers = [
        nn.Conv2d(3, 64, 7, 2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, padding=1),
    ]
    channels_in = 64
    for channels, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(channels_in, channels, stride if block == 0 else 1))
            channels_in = 4 * channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels_in, CLASSES))


def small_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, 2, padding=1),
        nn.ReLU(),
        nn.Conv2d(64, 128, 3, 2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(128 * 16, CLASSES),
    )


class Transformer(nn.Module):
    """Six encoder layers that predict a class of a sequence of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(torch.zeros(SEQUENCE, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, 8, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:  # [batch, SEQUENCE] of token numbers
        return self.head(self.layers(self.tokens(x) + self.positions).mean(1))


def random_images(count: int, side: int) -> Tensor:
    return torch.randn(count, 3, side, side)


MODELS: Dict[str, Tuple[Callable[[], nn.Module], Callable[[int], Tensor]]] = {
    "resnet50": (resnet50, lambda count: random_images(count, 224)),
    "small_cnn": (small_cnn, lambda count: random_images(count, 64)),
    "transformer": (Transformer, lambda count: torch.randint(VOCABULARY, (count, SEQUENCE))),
}


def say(text: str) -> None:
    if hvd.rank() == 0:
        print(text, flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="training speed on random data")
    parser.add_argument("--model", choices=sorted(MODELS), default="resnet50")
    parser.add_argument("--batch-size", type=int, default=32, help="per rank")
    parser.add_argument("--num-warmup-batches", type=int, default=10)
    parser.add_argument("--num-batches-per-iter", type=int, default=10)
    parser.add_argument("--num-iters", type=int, default=10)
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as 16-bit floats")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads per rank; 0 = PyTorch's choice")
    return parser.parse_args()


def main() -> None:
    args = parse()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    hvd.init()
    make_model, make_data = MODELS[args.model]
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), compression=compression)
    data, target = make_data(args.batch_size), torch.randint(CLASSES, (args.batch_size,))

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(data), target).backward()
        optimizer.step()

    say(f"Model: {args.model}")
    say(f"Batch size: {args.batch_size}")
    say(f"Number of CPUs: {hvd.size()}")
    say("Running warmup...")
    timeit.timeit(step, number=args.num_warmup_batches)
    say("Running benchmark...")
    speeds = []
    for i in range(args.num_iters):
        seconds = timeit.timeit(step, number=args.num_batches_per_iter)
        speeds.append(args.batch_size * args.num_batches_per_iter / seconds)
        say(f"Iter #{i}: {speeds[-1]:.1f} img/sec per CPU")
    speed = torch.tensor(speeds, dtype=torch.float64)
    mean, spread = float(speed.mean()), float(1.96 * speed.std(correction=0))
    say(f"Img/sec per CPU: {mean:.1f} +-{spread:.1f}")
    say(f"Total img/sec on {hvd.size()} CPU(s): {hvd.size() * mean:.1f} +-{hvd.size() * spread:.1f}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
