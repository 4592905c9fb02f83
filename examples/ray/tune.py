"""A sweep with Ray Tune: many trials, each of them a job of its own with two ranks.

    python tune.py                           # starts a Ray on this machine; as many trials at once as fit
    python tune.py --address auto --trials 16

Each trial asks for a placement group with a bundle for every rank; `rueda.ray.run` uses those. Rank 0 reports
after every epoch, and Tune stops trials that do badly (ASHA).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import ray
from fashion import accuracy, learn
from ray import tune
from ray.tune.schedulers import ASHAScheduler

import rueda.ray


def train(config: dict[str, Any]) -> None:
    """Runs on every rank of one trial."""
    import torch

    import horovod.torch as hvd

    hvd.init()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(784, config["width"]), torch.nn.ReLU(), torch.nn.Linear(config["width"], 10)
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    for _ in range(config["epochs"]):
        loss = learn(model, optimizer, config["data"], config["rows"])
        rueda.ray.log({"loss": loss, "accuracy": accuracy(model, config["data"])})


def trial(config: dict[str, Any]) -> None:
    """Runs in the process of a trial, which is the driver of its ranks."""
    rueda.ray.run(train, (config,), num_workers=config["ranks"], callbacks=[tune.report], verbose=0)


def main() -> None:
    parser = argparse.ArgumentParser(description="A sweep of jobs with Ray Tune")
    parser.add_argument("--address", help="of a running Ray; default: start one here")
    parser.add_argument("--ranks", type=int, default=2, help="of each trial")
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--storage", help="where results go; default: Ray's own, ~/ray_results")
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=60000, help="how many training images are used")
    args = parser.parse_args()
    here = str(Path(__file__).parent)  # so that every node finds fashion.py
    ray.init(address=args.address, runtime_env={"working_dir": here})
    fixed = {"data": args.data, "rows": args.rows, "epochs": args.epochs, "ranks": args.ranks}
    group = tune.PlacementGroupFactory([{"CPU": 0}] + [{"CPU": 1}] * args.ranks)
    results = tune.Tuner(
        tune.with_resources(trial, group),
        param_space={**fixed, "lr": tune.loguniform(1e-3, 1e-1), "width": tune.choice([64, 128])},
        tune_config=tune.TuneConfig(
            metric="accuracy", mode="max", num_samples=args.trials, scheduler=ASHAScheduler()
        ),
        run_config=tune.RunConfig(storage_path=args.storage),
    ).fit()
    best = results.get_best_result()
    assert best.metrics is not None and best.config is not None
    accuracy_percent = 100 * best.metrics["accuracy"]
    print(
        f"{len(results)} trials, best test accuracy {accuracy_percent:.2f} % with lr {best.config['lr']:.4f}"
    )
    ray.shutdown()


if __name__ == "__main__":
    main()
