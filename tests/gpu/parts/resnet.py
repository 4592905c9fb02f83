"""ResNet-50 in bfloat16 with made-up images: a plain loop, DistributedOptimizer, and DDP over NCCL.

Also how long the host takes for each part of a step, and the processor time of rueda's engine in it.
RUEDA_GPU_COMPILE=1: torch.compile compiles the model.

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
BATCH, SIDE, STEPS, WARM_UP, TURNS = (64, 224, 12, 8, 5) if not world.IS_STAND_IN else (2, 32, 2, 0, 1)
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


class Loop:
    """One way to train, with a model of its own."""

    def __init__(self, wrap) -> None:
        """wrap(model) returns the model and the optimizer to train with."""
        torch.manual_seed(world.RANK)
        self.model, self.optimizer = wrap(resnet().to(world.device, memory_format=torch.channels_last))
        images = torch.randn(BATCH, 3, SIDE, SIDE, device=world.device)
        self.images = images.to(memory_format=torch.channels_last)
        self.labels = torch.randint(0, 1000, (BATCH,), device=world.device)
        self.loss_of = nn.CrossEntropyLoss()
        self.rates: list = []
        self.engine_ms: list = []
        self.host_ms: dict = {"forward": [], "backward": [], "step": []}

    def step(self) -> None:
        began = time.perf_counter()
        self.optimizer.zero_grad()
        with torch.autocast(world.device.type, dtype=torch.bfloat16):
            loss = self.loss_of(self.model(self.images), self.labels)
        after_forward = time.perf_counter()
        loss.backward()
        after_backward = time.perf_counter()
        self.optimizer.step()
        times = (began, after_forward, after_backward, time.perf_counter())
        for part, first, last in zip(self.host_ms.values(), times, times[1:]):
            part.append((last - first) * 1e3)

    def take_turn(self) -> None:
        before = world.engine_cpu_ms()
        self.rates.append(BATCH / world.seconds_on_gpu(self.step, STEPS))
        self.engine_ms.append((world.engine_cpu_ms() - before) / STEPS)

    def facts(self, way: str) -> dict:
        medians = {part: round(statistics.median(times), 2) for part, times in self.host_ms.items()}
        rates = [round(rate, 1) for rate in self.rates]
        return {
            f"{way}_images_per_s": statistics.median(rates),
            f"{way}_turns": rates,
            f"{way}_host_ms": medians,
            f"{way}_engine_ms": round(statistics.median(self.engine_ms), 2),
        }


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


WAYS = {"plain": ("plain", plain), "rueda": ("rueda", with_rueda), "ddp": ("ddp_over_nccl", with_ddp)}

chosen = os.environ.get("RUEDA_GPU_RESNET", "plain,rueda").split(",")
if "rueda" in chosen:
    hvd.init()
    world.require_engine()
if "ddp" in chosen:
    dist.init_process_group("nccl", device_id=world.device)
loops = {name: Loop(wrap) for name, wrap in (WAYS[way] for way in chosen)}
for loop in loops.values():
    for _ in range(WARM_UP):
        loop.step()
    loop.host_ms = {part: [] for part in loop.host_ms}
for _ in range(TURNS):  # in turns, because the host has slow times
    for loop in loops.values():
        loop.take_turn()
for name, loop in loops.items():
    world.say(**loop.facts(name))
if "ddp" in chosen:
    dist.destroy_process_group()
if "rueda" in chosen:
    hvd.shutdown()
