"""A training script as users of Horovod have it, from pinning a GPU to a checkpoint that is read again."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
import world
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import rueda.torch as hvd

FOLDER = tempfile.TemporaryDirectory()  # removed at the end of the process
CHECKPOINT = Path(FOLDER.name) / "checkpoint.pt"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Dropout(0.1), nn.Flatten())
        self.head = nn.Linear(8 * 6 * 6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def metric_average(value: float, name: str) -> float:
    return hvd.allreduce(torch.tensor(value), name=name).item()


def make(fp16: bool):
    model = Net().to(world.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02 * hvd.size(), momentum=0.5)
    compression = hvd.Compression.fp16 if fp16 else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), compression=compression
    )
    return model, optimizer


def train_epoch(model, optimizer, loader) -> float:
    model.train()
    total = 0.0
    for data, target in loader:
        data, target = data.to(world.device), target.to(world.device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return metric_average(total / len(loader), "avg_loss")


def check_a_script_trains_and_resumes():
    torch.manual_seed(42)
    labels = torch.randint(0, 4, (256,))
    images = torch.randn(256, 1, 8, 8) + labels[:, None, None, None]
    dataset = TensorDataset(images, labels)
    sampler = DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank())
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    for fp16 in (False, True):
        model, optimizer = make(fp16)
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        losses = []
        for epoch in range(4):
            sampler.set_epoch(epoch)
            losses.append(train_epoch(model, optimizer, loader))
        assert losses[-1] < 0.7 * losses[0], losses
        if hvd.rank() == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, CHECKPOINT)
        again, optimizer_again = make(fp16)
        if hvd.rank() == 0:
            state = torch.load(CHECKPOINT, map_location=world.device)
            again.load_state_dict(state["model"])
            optimizer_again.load_state_dict(state["optimizer"])
        hvd.broadcast_parameters(again.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer_again, root_rank=0)
        for mine, saved in zip(again.parameters(), model.parameters()):
            assert torch.equal(mine, saved)
        assert train_epoch(again, optimizer_again, loader) < losses[0]
    world.say(losses=[round(loss, 3) for loss in losses])


hvd.init()
if not world.IS_STAND_IN:
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
world.require_engine()
world.run_checks(dict(globals()))
hvd.shutdown()
