"""Worlds whose ranks run Keras on one of its backends, and what the tests of rueda.keras share."""

import importlib.util
import os
from typing import Iterator

import pytest
from harness import ROOT, World

BACKENDS = ["jax", "torch", "tensorflow"]


def quiet_environment(backend: str) -> dict[str, str]:
    return {
        "KERAS_BACKEND": backend,
        "JAX_PLATFORMS": "cpu",
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_ENABLE_ONEDNN_OPTS": "0",
    }


os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("KERAS_BACKEND", "jax")  # of the process that runs pytest, which trains nothing


@pytest.fixture(scope="module", params=BACKENDS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Two ranks with Keras on one backend."""
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"there is no {request.param}")
    if request.param == "tensorflow" and not (ROOT / "python/rueda/tensorflow/gradients.py").exists():
        pytest.skip("this version of rueda has no TensorFlow front end")
    made = World(2, "shm,tcp", quiet_environment(request.param))
    yield made
    made.stop()
