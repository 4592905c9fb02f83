"""The classic digits tutorial, on Fashion-MNIST, with Keras on TensorFlow and any number of ranks.

    rueda run -np 2 python fashion_mnist.py

Written against the import name horovod, as existing scripts are; `import rueda.keras as hvd` is the same.
The lines marked `rueda` are what a script for one process needs in addition to train with many. The data
are Debian's package dataset-fashion-mnist; --data names another folder with the four IDX files,
compressed or not. Nothing is written unless --checkpoints names a folder.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

import numpy as np
import tensorflow as tf

import horovod.tensorflow.keras as hvd  # rueda


def read_idx(folder: Path, name: str) -> np.ndarray:
    """One IDX file, `name` or `name.gz`, as a uint8 array of the shape its header states."""
    path = folder / name
    if path.exists():
        raw = path.read_bytes()
    elif path.with_name(f"{name}.gz").exists():
        raw = gzip.decompress(path.with_name(f"{name}.gz").read_bytes())
    else:
        raise SystemExit(
            f"{path} and {path}.gz do not exist: apt install dataset-fashion-mnist, or pass --data FOLDER."
        )
    # Header: 2 zero bytes, type 8 (uint8), number of dimensions, then each as big-endian 32 bits.
    shape = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(raw[3])]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape)


def make_model() -> tf.keras.Model:
    return tf.keras.Sequential(
        [
            tf.keras.Input((28, 28, 1)),
            tf.keras.layers.Conv2D(32, [3, 3], activation="relu"),
            tf.keras.layers.Conv2D(64, [3, 3], activation="relu"),
            tf.keras.layers.MaxPooling2D(pool_size=(2, 2)),
            tf.keras.layers.Dropout(0.25),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dropout(0.5),
            tf.keras.layers.Dense(10, activation="softmax"),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Fashion-MNIST with Keras and any number of ranks")
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--steps", type=int, default=500, help="batches per epoch, of all ranks together")
    parser.add_argument("--checkpoints", type=Path, help="folder for rank 0's checkpoint of each epoch")
    args = parser.parse_args()

    hvd.init()  # rueda: join the other ranks
    gpus = tf.config.experimental.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], "GPU")  # rueda: one GPU per rank
    tf.config.threading.set_intra_op_parallelism_threads(1)  # ranks share the cores

    images = read_idx(args.data, "train-images-idx3-ubyte")[..., None].astype(np.float32) / 255.0
    labels = read_idx(args.data, "train-labels-idx1-ubyte").astype(np.int64)
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    dataset = dataset.repeat().shuffle(10000, seed=hvd.rank()).batch(128)

    model = make_model()
    scaled_lr = 0.001 * hvd.size()
    opt = tf.optimizers.Adam(scaled_lr)
    opt = hvd.DistributedOptimizer(opt)  # rueda: average the gradients

    model.compile(
        loss=tf.losses.SparseCategoricalCrossentropy(),
        optimizer=opt,
        metrics=["accuracy"],
        experimental_run_tf_function=False,  # of Keras 2, taken and ignored
    )
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),  # rueda: start from the same model
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=scaled_lr, warmup_epochs=3, verbose=1),
    ]
    if hvd.rank() == 0 and args.checkpoints is not None:
        args.checkpoints.mkdir(parents=True, exist_ok=True)
        callbacks.append(
            tf.keras.callbacks.ModelCheckpoint(str(args.checkpoints / "checkpoint-{epoch}.keras"))
        )
    steps = max(1, args.steps // hvd.size())
    model.fit(
        dataset,
        steps_per_epoch=steps,
        callbacks=callbacks,
        epochs=args.epochs,
        verbose=2 if hvd.rank() == 0 else 0,
    )
    test_x = read_idx(args.data, "t10k-images-idx3-ubyte")[hvd.rank() :: hvd.size(), ..., None] / np.float32(
        255
    )
    test_y = read_idx(args.data, "t10k-labels-idx1-ubyte")[hvd.rank() :: hvd.size()].astype(np.int64)
    reached = hvd.allreduce(model.evaluate(test_x, test_y, verbose=0)[1], name="accuracy")
    prints = hvd.allgather_object(b"".join(value.tobytes() for value in model.get_weights()))
    if hvd.rank() == 0:
        verdict = "identical" if len(set(prints)) == 1 else "DIFFERENT"
        print(f"{hvd.size()} rank(s), test accuracy {100 * reached:.2f} %, weights {verdict} on all")


if __name__ == "__main__":
    main()
