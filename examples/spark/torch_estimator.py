"""Fashion-MNIST with PyTorch on rows of a DataFrame: TorchEstimator, and Spark's evaluator for its
predictions.

    python torch_estimator.py --work-dir /folder/that/all/machines/share

Written against the import name horovod, as existing scripts are; `rueda.spark` is the same. The data are
Debian's package dataset-fashion-mnist, which only the driver reads.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from fashion import data_frame
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import DoubleType
from torch import nn

from horovod.spark.common.backend import SparkBackend
from horovod.spark.common.store import Store
from horovod.spark.torch import TorchEstimator


def make_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 13 * 13, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
        nn.LogSoftmax(dim=1),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Fashion-MNIST with TorchEstimator")
    parser.add_argument("--master", default="local[2]", help="where Spark runs, unless spark-submit says it")
    parser.add_argument("--num-proc", type=int, default=2)
    parser.add_argument("--work-dir", help="where the store keeps its files; default: a temporary folder")
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=20000, help="how many training images are used")
    args = parser.parse_args()
    session = SparkSession.builder.master(args.master).appName("torch_estimator").getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        train = data_frame(session, args.data, "train", args.rows)
        test = data_frame(session, args.data, "t10k", args.rows // 6)
        model = make_model()
        estimator = TorchEstimator(
            backend=SparkBackend(num_proc=args.num_proc),
            store=Store.create(args.work_dir or folder),
            model=model,
            optimizer=torch.optim.Adam(model.parameters(), lr=0.001 * args.num_proc),
            loss=lambda output, label: nn.functional.nll_loss(output, label.long()),
            input_shapes=[[-1, 1, 28, 28]],
            feature_cols=["features"],
            label_cols=["label"],
            batch_size=64,
            epochs=args.epochs,
            validation=0.1,
            verbose=1,
        )
        trained = estimator.fit(train).setOutputCols(["label_prob"])
        predicted = trained.transform(test)
        argmax = udf(lambda values: float(np.argmax(values)), returnType=DoubleType())
        predicted = predicted.withColumn("label_pred", argmax(predicted.label_prob))
        evaluator = MulticlassClassificationEvaluator(
            predictionCol="label_pred", labelCol="label", metricName="accuracy"
        )
        print(f"{args.num_proc} ranks, test accuracy {100 * evaluator.evaluate(predicted):.2f} %")
    session.stop()


if __name__ == "__main__":
    main()
