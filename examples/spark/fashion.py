"""Fashion-MNIST for the examples beside this file."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np


def read_idx(folder: Path, name: str) -> np.ndarray:
    """One IDX file, `name` or `name.gz`, as a uint8 array of the shape that its header states."""
    path = folder / name
    if path.exists():
        raw = path.read_bytes()
    elif path.with_name(f"{name}.gz").exists():
        raw = gzip.decompress(path.with_name(f"{name}.gz").read_bytes())
    else:
        raise SystemExit(f"{path} does not exist: apt install dataset-fashion-mnist, or pass --data FOLDER.")
    # Header: 2 zero bytes, type 8 (uint8), number of dimensions, then each as big-endian 32 bits.
    shape = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(raw[3])]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape)


def read_images(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """(float32 images [n, 784] from 0 to 1, int64 labels [n]); name: "train" or "t10k"."""
    images = read_idx(folder, f"{name}-images-idx3-ubyte").reshape(-1, 784)
    return images.astype(np.float32) / 255, read_idx(folder, f"{name}-labels-idx1-ubyte").astype(np.int64)


def data_frame(session: Any, folder: Path, name: str, rows: int) -> Any:
    """The first images as a DataFrame: "features" is a vector, "label" a double, as Spark's own readers
    make them.
    """
    from pyspark.ml.linalg import Vectors

    images, labels = read_images(folder, name)
    pairs = zip(images[:rows], labels[:rows])
    return session.createDataFrame(
        [(Vectors.dense(x.tolist()), float(y)) for x, y in pairs], ["features", "label"]
    )
