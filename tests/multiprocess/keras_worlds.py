"""Worlds whose ranks run Keras on one of its backends, and what the tests of rueda.keras share."""

import importlib.util
import os
from typing import Dict

import pytest
from harness import QUIET_TENSORFLOW, World
from nursery import ForkedWorld, Imports

BACKENDS = ["jax", "torch", "tensorflow"]


def imports_of(backend: str) -> Imports:
    environment = {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", **QUIET_TENSORFLOW}
    return Imports(("rueda.keras", "pytest"), tuple(environment.items()))


os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("KERAS_BACKEND", "jax")  # of the process that runs pytest, which trains nothing


@pytest.fixture(scope="module", params=BACKENDS)
def world(request: pytest.FixtureRequest, keras_worlds: Dict[str, World]) -> World:
    """Two ranks with Keras on one backend. The ranks serve all modules."""
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"there is no {request.param}")
    if request.param not in keras_worlds:
        keras_worlds[request.param] = ForkedWorld(2, "shm,tcp", imports=imports_of(request.param))
    return keras_worlds[request.param]
