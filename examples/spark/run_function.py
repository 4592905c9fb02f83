"""Fashion-MNIST with PyTorch on the tasks of a Spark application: `horovod.spark.run(train)`.

    spark-submit --master 'local[2]' run_function.py
    python run_function.py                               # the same

Written against the import name horovod, as existing scripts are; `import rueda.spark` is the same. The data
are Debian's package dataset-fashion-mnist, which every machine of the cluster must have; --data names
another folder.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import horovod.spark

sys.path.insert(0, str(Path(__file__).parent))
from fashion import read_images


def train(data: Path, epochs: int, rows: int) -> float:
    """Runs on every rank. Returns the accuracy on the test images."""
    import torch

    import horovod.torch as hvd

    hvd.init()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    images, labels = (
        torch.tensor(part[hvd.rank() : rows : hvd.size()]) for part in read_images(data, "train")
    )
    model = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05 * hvd.size(), momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    for epoch in range(1, epochs + 1):
        for chosen in torch.randperm(len(images) // 64 * 64).split(64):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
            loss.backward()
            optimizer.step()
        if hvd.rank() == 0:
            print(f"epoch {epoch}  loss {loss.item():.3f}", flush=True)
    images, labels = (torch.tensor(part[hvd.rank() :: hvd.size()]) for part in read_images(data, "t10k"))
    right = (model(images).argmax(1) == labels).float().mean()
    return float(hvd.allreduce(right, name="accuracy"))


def main() -> None:
    parser = argparse.ArgumentParser(description="Fashion-MNIST on Spark, with a function of your own")
    parser.add_argument("--master", default="local[2]", help="where Spark runs, unless spark-submit says it")
    parser.add_argument("--num-proc", type=int, default=2)
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=60000, help="how many training images are used")
    args = parser.parse_args()
    session = SparkSession.builder.master(args.master).appName("run_function").getOrCreate()
    session.sparkContext.addPyFile(str(Path(__file__).with_name("fashion.py")))
    results = horovod.spark.run(train, args=(args.data, args.epochs, args.rows), num_proc=args.num_proc)
    print(f"{len(results)} ranks, test accuracy {100 * results[0]:.2f} %")
    session.stop()


if __name__ == "__main__":
    main()
