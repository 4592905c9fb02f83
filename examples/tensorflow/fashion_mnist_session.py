"""TensorFlow 1 style with Horovod's import name: Adagrad, a broadcast hook and MonitoredTrainingSession.

    rueda run -np 2 python fashion_mnist_session.py

Runs unchanged on the alias package `horovod`. The data are Debian's package dataset-fashion-mnist;
--data names another folder with the four IDX files, compressed. Only rank 0 writes checkpoints; started
again, it goes on from them.
"""

import argparse
import gzip
from pathlib import Path

import numpy as np
import tensorflow.compat.v1 as tf

import horovod.tensorflow as hvd

tf.disable_v2_behavior()


def load(folder: Path, part: str):
    """Images [count, 784] in 0 … 1 and labels [count]."""
    images = np.frombuffer(
        gzip.decompress((folder / f"{part}-images-idx3-ubyte.gz").read_bytes())[16:], np.uint8
    )
    labels = np.frombuffer(
        gzip.decompress((folder / f"{part}-labels-idx1-ubyte.gz").read_bytes())[8:], np.uint8
    )
    return images.reshape(-1, 784).astype(np.float32) / 255, labels.astype(np.int64)


def make_model(images):
    """Logits [batch, 10]."""
    weights = tf.get_variable(
        "hidden", [784, 128], initializer=tf.glorot_uniform_initializer(seed=hvd.rank())
    )
    bias = tf.get_variable("hidden_bias", [128], initializer=tf.zeros_initializer())
    hidden = tf.nn.relu(tf.matmul(images, weights) + bias)
    return tf.matmul(hidden, tf.get_variable("output", [128, 10])) + tf.get_variable("output_bias", [10])


def main() -> None:
    parser = argparse.ArgumentParser(description="Fashion-MNIST, TensorFlow 1 style")
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--checkpoints", default=None, help="folder for rank 0's checkpoints")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch-size", type=int, default=100)
    args = parser.parse_args()

    hvd.init()
    config = tf.ConfigProto()
    config.gpu_options.visible_device_list = str(hvd.local_rank())  # one GPU per rank, if there are GPUs

    x, y = load(args.data, "train")
    images, labels = tf.placeholder(tf.float32, [None, 784]), tf.placeholder(tf.int64, [None])
    logits = make_model(images)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    right = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))

    optimizer = tf.train.AdagradOptimizer(0.01 * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer)
    step = tf.train.get_or_create_global_step()
    train = optimizer.minimize(loss, global_step=step)
    mean_right = hvd.allreduce(right, name="accuracy")

    hooks = [
        hvd.BroadcastGlobalVariablesHook(0),  # ranks that did not load the checkpoint get rank 0's variables
        tf.train.StopAtStepHook(last_step=args.steps // hvd.size()),
        tf.train.LoggingTensorHook({"step": step, "loss": loss}, every_n_iter=100),
    ]
    test_x, test_y = (one[hvd.rank() :: hvd.size()] for one in load(args.data, "t10k"))
    verdict = Evaluation(mean_right, {images: test_x, labels: test_y})
    checkpoint_dir = args.checkpoints if hvd.rank() == 0 else None
    random = np.random.RandomState(hvd.rank())
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=checkpoint_dir, config=config, hooks=[*hooks, verdict], save_checkpoint_steps=200
    ) as session:
        while not session.should_stop():
            picked = random.randint(0, len(x), args.batch_size)
            session.run(train, {images: x[picked], labels: y[picked]})
    if hvd.rank() == 0:
        print(f"{hvd.size()} rank(s), test accuracy {100 * verdict.result:.2f} %", flush=True)


class Evaluation(tf.train.SessionRunHook):
    """Runs a tensor after training has ended."""

    def __init__(self, tensor, feed):
        self.tensor, self.feed, self.result = tensor, feed, None

    def end(self, session):
        self.result = session.run(self.tensor, self.feed)


if __name__ == "__main__":
    main()
