"""Worlds whose ranks run Keras on one of its backends, and what the tests of rueda.keras share."""

import importlib.util
import os
from typing import Any, Dict, List

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


def fit(model: Any, callbacks: List[Any], batches: int = 4, epochs: int = 1, **options: Any) -> Any:
    """A training on the same sample again and again, another one on each rank."""
    import numpy as np

    import rueda.keras as hvd

    x = np.full((batches * 2, 4), hvd.rank() + 1.0, "float32")
    y = np.zeros((batches * 2, 1), "float32")
    return model.fit(x, y, batch_size=2, epochs=epochs, verbose=0, callbacks=callbacks, **options)
