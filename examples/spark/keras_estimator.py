"""Fashion-MNIST with Keras on rows of a DataFrame: KerasEstimator, and Spark's evaluator for its predictions.

    python keras_estimator.py --work-dir /folder/that/all/machines/share

Written against the import name horovod, as existing scripts are; `rueda.spark` is the same. The data are
Debian's package dataset-fashion-mnist, which only the driver reads. KERAS_BACKEND chooses what Keras runs
on, ranks included.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import keras
import numpy as np
from fashion import data_frame
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import OneHotEncoder
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import DoubleType

from horovod.spark.common.backend import SparkBackend
from horovod.spark.common.store import Store
from horovod.spark.keras import KerasEstimator


def make_model() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(16, (3, 3), activation="relu"),
            keras.layers.MaxPooling2D((2, 2)),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Fashion-MNIST with KerasEstimator")
    parser.add_argument("--master", default="local[2]", help="where Spark runs, unless spark-submit says it")
    parser.add_argument("--num-proc", type=int, default=2)
    parser.add_argument("--work-dir", help="where the store keeps its files; default: a temporary folder")
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=20000, help="how many training images are used")
    args = parser.parse_args()
    session = SparkSession.builder.master(args.master).appName("keras_estimator").getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        train = data_frame(session, args.data, "train", args.rows)
        test = data_frame(session, args.data, "t10k", args.rows // 6)
        encoder = OneHotEncoder(inputCols=["label"], outputCols=["label_vec"], dropLast=False).fit(train)
        estimator = KerasEstimator(
            backend=SparkBackend(num_proc=args.num_proc),
            store=Store.create(args.work_dir or folder),
            model=make_model(),
            optimizer=keras.optimizers.Adam(0.001 * args.num_proc),
            loss="categorical_crossentropy",
            metrics=["accuracy"],
            feature_cols=["features"],
            label_cols=["label_vec"],
            batch_size=64,
            epochs=args.epochs,
            validation=0.1,
            verbose=1,
        )
        trained = estimator.fit(encoder.transform(train)).setOutputCols(["label_prob"])
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
