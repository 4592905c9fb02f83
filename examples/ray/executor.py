"""Fashion-MNIST with PyTorch on a Ray cluster: Horovod's RayExecutor.

    python executor.py                       # starts a Ray on this machine
    python executor.py --address auto        # on a running cluster

Written against the import name horovod, as existing scripts are; `rueda.ray` has the same class. The data are
Debian's package dataset-fashion-mnist, which every node must have; --data names another folder.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import ray
from fashion import accuracy, learn

from horovod.ray import RayExecutor


class Trainer:
    """What each rank holds between calls."""

    def __init__(self, data: Path, rows: int) -> None:
        import torch

        import horovod.torch as hvd

        hvd.init()
        torch.manual_seed(1)
        torch.set_num_threads(1)
        self.data, self.rows = data, rows
        self.model = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05 * hvd.size(), momentum=0.9)
        self.optimizer = hvd.DistributedOptimizer(optimizer, self.model.named_parameters())

    def train(self) -> float:
        """One pass over the rows of this rank. Returns the last loss."""
        return learn(self.model, self.optimizer, self.data, self.rows)

    def test(self) -> float:
        """The accuracy of all ranks on the test images."""
        return accuracy(self.model, self.data)


def main() -> None:
    parser = argparse.ArgumentParser(description="Fashion-MNIST on Ray, with a RayExecutor")
    parser.add_argument("--address", help="of a running Ray; default: start one here")
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=60000, help="how many training images are used")
    args = parser.parse_args()
    here = str(Path(__file__).parent)  # so that every node finds fashion.py
    ray.init(address=args.address, runtime_env={"working_dir": here})
    executor = RayExecutor(RayExecutor.create_settings(), num_workers=args.num_workers)
    executor.start(executable_cls=Trainer, executable_args=[args.data, args.rows])
    for epoch in range(1, args.epochs + 1):
        losses = executor.execute(lambda trainer: trainer.train())
        print(f"epoch {epoch}  loss {losses[0]:.3f}", flush=True)
    results = executor.execute(lambda trainer: trainer.test())
    print(f"{len(results)} ranks, test accuracy {100 * results[0]:.2f} %")
    executor.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
