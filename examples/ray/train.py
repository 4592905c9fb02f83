"""Fashion-MNIST with PyTorch under Ray Train: metrics and checkpoints through Ray, collectives through rueda.

    python train.py                          # starts a Ray on this machine
    python train.py --address auto --storage /nfs/results

If a rank is lost, Ray Train restarts all ranks from the last checkpoint.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import ray
import ray.train
from fashion import accuracy, learn
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig

from rueda.ray import RuedaTrainer


def train(config: dict[str, Any]) -> None:
    """Runs on every rank."""
    import torch

    import horovod.torch as hvd

    hvd.init()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"] * hvd.size(), momentum=0.9)
    first = 1
    if (checkpoint := ray.train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            state = torch.load(Path(folder) / "state.pt")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for epoch in range(first, config["epochs"] + 1):
        loss = learn(model, optimizer, config["data"], config["rows"])
        metrics = {"epoch": epoch, "loss": loss, "accuracy": accuracy(model, config["data"])}
        with tempfile.TemporaryDirectory() as folder:
            saved = None
            if hvd.rank() == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
                torch.save(state, Path(folder) / "state.pt")
                saved = Checkpoint.from_directory(folder)
            ray.train.report(metrics, checkpoint=saved)


def main() -> None:
    parser = argparse.ArgumentParser(description="Fashion-MNIST under Ray Train")
    parser.add_argument("--address", help="of a running Ray; default: start one here")
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--storage", help="where results go; default: Ray's own, ~/ray_results")
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--rows", type=int, default=60000, help="how many training images are used")
    args = parser.parse_args()
    here = str(Path(__file__).parent)  # so that every node finds fashion.py
    ray.init(address=args.address, runtime_env={"working_dir": here})
    result = RuedaTrainer(
        train,
        train_loop_config={"lr": args.lr, "epochs": args.epochs, "data": args.data, "rows": args.rows},
        scaling_config=ScalingConfig(num_workers=args.num_workers),
        run_config=RunConfig(storage_path=args.storage, failure_config=FailureConfig(max_failures=2)),
    ).fit()
    assert result.metrics is not None
    print(f"test accuracy {100 * result.metrics['accuracy']:.2f} %, {result.checkpoint}")
    ray.shutdown()


if __name__ == "__main__":
    main()
