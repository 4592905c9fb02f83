"""Worlds whose ranks run Keras on one of its backends, and what the tests of rueda.keras share."""

import importlib.util
import os
from typing import Dict

import pytest
from harness import World

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
def world(request: pytest.FixtureRequest, keras_worlds: Dict[str, World]) -> World:
    """Two ranks with Keras on one backend. Importing it takes seconds: the ranks serve all modules."""
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"there is no {request.param}")
    if request.param not in keras_worlds:
        keras_worlds[request.param] = World(2, "shm,tcp", quiet_environment(request.param))
    return keras_worlds[request.param]
