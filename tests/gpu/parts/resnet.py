"""ResNet-50 in bfloat16 with made-up images: a plain loop, DistributedOptimizer, and DDP over NCCL.

Also how long the host takes for each part of a step. RUEDA_GPU_COMPILE=1: torch.compile compiles the model.

The network is that of He et al., "Deep Residual Learning for Image Recognition" (2015), with the stride in
the 3x3 convolution as torchvision has it. RUEDA_GPU_RESNET lists the ways to measure.
"""

from __future__ import annotations

import os
import statistics
import time

import torch
import torch.distributed as dist
import world
from torch import nn

import rueda.torch as hvd

DEPTHS, WIDTHS = ((3, 4, 6, 3), (64, 128, 256, 512)) if not world.IS_STAND_IN else ((1,), (8,))
BATCH, SIDE, STEPS, WARM_UP, ROUNDS = (64, 224, 15, 8, 3) if not world.IS_STAND_IN else (2, 32, 2, 0, 1)
IS_COMPILED = os.environ.get("RUEDA_GPU_COMPILE") == "1"


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()

        def block(inputs: int, outputs: int, size: int, step: int = 1) -> list:
            convolution = nn.Conv2d(inputs, outputs, size, step, padding=size // 2, bias=False)
            return [convolution, nn.BatchNorm2d(outputs)]

        relu = nn.ReLU(inplace=True)
        layers = [*block(channels, width, 1), relu, *block(width, width, 3, stride), relu]
        self.branch = nn.Sequential(*layers, *block(width, 4 * width, 1))
        is_same = channels == 4 * width and stride == 1
        self.shortcut = nn.Identity() if is_same else nn.Sequential(*block(channels, 4 * width, 1, stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.branch(x) + self.shortcut(x))


def resnet() -> nn.Module:
    first = WIDTHS[0]
    layers: list = [nn.Conv2d(3, first, 7, 2, padding=3, bias=False), nn.BatchNorm2d(first), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, padding=1))
    channels = first
    for stage, (depth, width) in enumerate(zip(DEPTHS, WIDTHS)):
        for place in range(depth):
            layers.append(Bottleneck(channels, width, 2 if stage and not place else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def measure(way: str, wrap) -> None:
    """Says how many images a second this way trains. wrap(model) returns the model and the optimizer to train
    with.
    """
    torch.manual_seed(world.RANK)
    model, optimizer = wrap(resnet().to(world.device, memory_format=torch.channels_last))
    images = torch.randn(BATCH, 3, SIDE, SIDE, device=world.device).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (BATCH,), device=world.device)
    loss_of = nn.CrossEntropyLoss()
    host_ms: dict = {"forward": [], "backward": [], "step": []}

    def step() -> None:
        began = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast(world.device.type, dtype=torch.bfloat16):
            loss = loss_of(model(images), labels)
        after_forward = time.perf_counter()
        loss.backward()
        after_backward = time.perf_counter()
        optimizer.step()
        times = (began, after_forward, after_backward, time.perf_counter())
        for part, first, last in zip(host_ms.values(), times, times[1:]):
            part.append((last - first) * 1e3)

    for _ in range(WARM_UP):
        step()
    rates = [BATCH / world.seconds_on_gpu(step, STEPS) for _ in range(ROUNDS)]
    world.say(**{f"{way}_images_per_s": round(statistics.median(rates), 1)})
    world.say(**{f"{way}_rounds": [round(rate) for rate in rates]})
    medians = {part: round(statistics.median(times), 2) for part, times in host_ms.items()}
    world.say(**{f"{way}_host_ms": medians})


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def compiled(model: nn.Module) -> nn.Module:
    return torch.compile(model) if IS_COMPILED else model


def plain(model: nn.Module):
    return compiled(model), sgd(model)


def with_rueda(model: nn.Module):
    hvd.broadcast_parameters(model.state_dict(), 0)
    return compiled(model), hvd.DistributedOptimizer(sgd(model), model.named_parameters())


def with_ddp(model: nn.Module):
    return compiled(nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)), sgd(model)


ways = os.environ.get("RUEDA_GPU_RESNET", "plain,rueda").split(",")
if "plain" in ways:
    measure("plain", plain)
if "rueda" in ways:
    hvd.init()
    world.require_engine()
    measure("rueda", with_rueda)
    hvd.shutdown()
if "ddp" in ways:
    dist.init_process_group("nccl", device_id=world.device)
    measure("ddp_over_nccl", with_ddp)
    dist.destroy_process_group()
