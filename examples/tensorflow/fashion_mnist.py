"""A custom training loop in TensorFlow 2, with tf.function and DistributedGradientTape.

    rueda run -np 2 python fashion_mnist.py

The lines marked `rueda` are what a script for one process needs in addition to train with many. The data are
Debian's package dataset-fashion-mnist; --data names another folder with the four IDX files, compressed.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
from pathlib import Path
from typing import Tuple

import numpy as np
import tensorflow as tf

import rueda.tensorflow as hvd  # rueda


def load(folder: Path, part: str) -> Tuple[np.ndarray, np.ndarray]:
    """Images [count, 28, 28, 1] in 0 … 1 and labels [count]."""
    images = np.frombuffer(
        gzip.decompress((folder / f"{part}-images-idx3-ubyte.gz").read_bytes())[16:], np.uint8
    )
    labels = np.frombuffer(
        gzip.decompress((folder / f"{part}-labels-idx1-ubyte.gz").read_bytes())[8:], np.uint8
    )
    return images.reshape(-1, 28, 28, 1).astype(np.float32) / 255, labels.astype(np.int64)


class Model(tf.Module):
    """Two convolutions and two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        shapes = [(3, 3, 1, 16), (3, 3, 16, 32), (7 * 7 * 32, 128), (128, 10)]
        start = tf.random_normal_initializer(stddev=0.05)
        self.weights = [tf.Variable(start(shape), name=f"w{i}") for i, shape in enumerate(shapes)]
        self.biases = [tf.Variable(tf.zeros(shape[-1:]), name=f"b{i}") for i, shape in enumerate(shapes)]

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        for weight, bias in zip(self.weights[:2], self.biases[:2]):
            x = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(x, weight, 1, "SAME") + bias), 2, 2, "SAME")
        x = tf.reshape(x, [-1, 7 * 7 * 32])
        x = tf.nn.relu(x @ self.weights[2] + self.biases[2])
        return x @ self.weights[3] + self.biases[3]


def make_step(model: Model, lr: float, momentum: float):
    """One step of momentum SGD, traced once."""
    variables = model.trainable_variables
    speeds = [tf.Variable(tf.zeros_like(variable), trainable=False) for variable in variables]

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x))
            loss = tf.reduce_mean(losses)
        tape = hvd.DistributedGradientTape(tape)  # rueda: average the gradients, while backward still runs
        for variable, speed, gradient in zip(variables, speeds, tape.gradient(loss, variables)):
            speed.assign(momentum * speed + gradient)
            variable.assign_sub(lr * speed)
        return loss

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description="Fashion-MNIST with any number of ranks")
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--steps", type=int, default=900, help="steps of one rank; n ranks take 1/n of them")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.02)
    args = parser.parse_args()

    hvd.init()  # rueda
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")  # rueda: one GPU per rank
    tf.random.set_seed(hvd.rank())

    x, y = load(args.data, "train")
    model = Model()
    hvd.broadcast_variables(model.variables, root_rank=0)  # rueda: start from the same model
    step = make_step(model, args.lr * hvd.size(), 0.9)
    random = np.random.RandomState(hvd.rank())
    count = args.steps // hvd.size()
    for number in range(1, count + 1):
        picked = random.randint(0, len(x), args.batch_size)
        loss = step(x[picked], y[picked])
        if hvd.rank() == 0 and number % max(1, count // 5) == 0:
            print(f"step {number} of {count}  loss {float(loss):.3f}", flush=True)

    test_x, test_y = (one[hvd.rank() :: hvd.size()] for one in load(args.data, "t10k"))
    right = tf.reduce_mean(tf.cast(tf.argmax(model(test_x), 1) == test_y, tf.float32))
    reached = float(hvd.allreduce(right, name="accuracy"))
    prints = {hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.variables)).hexdigest()}
    prints = set().union(*hvd.allgather_object(prints))
    if hvd.rank() == 0:
        verdict = "identical" if len(prints) == 1 else "DIFFERENT"
        print(f"{hvd.size()} rank(s), test accuracy {100 * reached:.2f} %, parameters {verdict}", flush=True)


if __name__ == "__main__":
    main()
