"""Trains a small convolutional network on Fashion-MNIST with JAX and optax, on any number of ranks.

    rueda run -np 2 python fashion_mnist.py

The lines marked `rueda` are what a script for one process needs in addition to train with many. The data
are Debian's package dataset-fashion-mnist; --data names another folder with the four IDX files,
compressed or not.
"""

from __future__ import annotations

import argparse
import gzip
import time
from pathlib import Path
from typing import Any, Dict, Iterator, Tuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import rueda.jax as hvd  # rueda

CLASSES = 10
Params = Dict[str, Any]


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


def load(folder: Path, part: str) -> Tuple[np.ndarray, np.ndarray]:
    """Images [count, 28, 28, 1] around 0, and labels [count]. part is "train" or "t10k"."""
    images = (read_idx(folder, f"{part}-images-idx3-ubyte")[..., None] / 255.0 - 0.286) / 0.353
    return images.astype(np.float32), read_idx(folder, f"{part}-labels-idx1-ubyte").astype(np.int32)


def make_params(seed: int) -> Params:
    rng = np.random.default_rng(seed)

    def layer(*shape: int) -> Dict[str, jax.Array]:
        scale = np.sqrt(2 / np.prod(shape[:-1]))
        return {"w": jnp.asarray(rng.normal(0, scale, shape), jnp.float32), "b": jnp.zeros(shape[-1])}

    return {
        "conv1": layer(3, 3, 1, 16),
        "conv2": layer(3, 3, 16, 32),
        "dense": layer(7 * 7 * 32, 128),
        "logits": layer(128, CLASSES),
    }


def logits_of(params: Params, images: jax.Array) -> jax.Array:
    """[batch, 28, 28, 1] -> [batch, CLASSES]"""
    x = images
    for name in ("conv1", "conv2"):
        axes = ("NHWC", "HWIO", "NHWC")
        x = jax.lax.conv_general_dilated(x, params[name]["w"], (1, 1), "SAME", dimension_numbers=axes)
        x = jax.nn.relu(x + params[name]["b"])
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = jax.nn.relu(x.reshape(len(x), -1) @ params["dense"]["w"] + params["dense"]["b"])
    return x @ params["logits"]["w"] + params["logits"]["b"]


def loss_of(params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
    losses = optax.softmax_cross_entropy_with_integer_labels(logits_of(params, images), labels)
    return losses.mean()


def my_batches(count: int, batch: int, epoch: int) -> Iterator[np.ndarray]:
    """Indices of this rank's batches: all ranks shuffle equally, then each takes every size-th image."""
    order = np.random.default_rng(epoch).permutation(count)
    mine = order[hvd.rank() :: hvd.size()]
    for i in range(count // hvd.size() // batch):  # all of one size, because each size is compiled separately
        yield mine[i * batch : (i + 1) * batch]


def accuracy(params: Params, data: Tuple[np.ndarray, np.ndarray]) -> float:
    """Share of correct answers. Each rank evaluates its part of the images."""
    images, labels = (part[hvd.rank() :: hvd.size()] for part in data)
    guess = jax.jit(lambda params, x: logits_of(params, x).argmax(-1))
    parts = range(0, len(images), 1000)
    right = sum(int((guess(params, images[i : i + 1000]) == labels[i : i + 1000]).sum()) for i in parts)
    total = hvd.allreduce(jnp.array([float(right), float(len(labels))]), "accuracy", hvd.Sum)
    return float(total[0] / total[1])


def main() -> None:
    parser = argparse.ArgumentParser(description="Fashion-MNIST with JAX and any number of ranks")
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=0.02, help="learning rate of one rank")
    parser.add_argument("--steps", type=int, help="stop each epoch after so many steps")
    args = parser.parse_args()

    hvd.init()  # rueda: join the other ranks
    train, test = load(args.data, "train"), load(args.data, "t10k")
    params = make_params(seed=hvd.rank())
    optimizer = optax.sgd(args.lr * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer)  # rueda: average the gradients
    params = hvd.broadcast_parameters(params, root_rank=0)  # rueda: start from the same parameters
    state = optimizer.init(params)

    @jax.jit
    def step(
        params: Params, state: Any, images: jax.Array, labels: jax.Array
    ) -> Tuple[Params, Any, jax.Array]:
        loss, grads = jax.value_and_grad(loss_of)(params, images, labels)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    for epoch in range(1, args.epochs + 1):
        started, done = time.perf_counter(), 0
        for index in my_batches(len(train[0]), args.batch_size, epoch):
            params, state, loss = step(params, state, train[0][index], train[1][index])
            done += 1
            if done == args.steps:
                break
        speed = done * args.batch_size * hvd.size() / (time.perf_counter() - started)
        reached = accuracy(params, test)
        if hvd.rank() == 0:
            text = f"epoch {epoch}  loss {float(loss):.3f}  test accuracy {100 * reached:.2f} %"
            print(f"{text}  {speed:.0f} samples/s", flush=True)

    prints = hvd.allgather_object(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(params)))
    if hvd.rank() == 0:
        verdict = "identical" if len(set(prints)) == 1 else "DIFFERENT"
        print(f"{hvd.size()} rank(s), parameters {verdict} on all")
    hvd.shutdown()


if __name__ == "__main__":
    main()
