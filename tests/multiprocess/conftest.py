"""The worlds every distributed test runs in. pytest groups tests by world, so that one exists at a time."""

from typing import Iterator

import pytest
from harness import World

WORLDS = [(2, "shm,tcp"), (3, "shm,tcp"), (4, "shm,tcp"), (2, "tcp"), (3, "tcp"), (4, "tcp")]


@pytest.fixture(scope="session", params=WORLDS, ids=lambda world: f"{world[0]}-ranks-{world[1]}")
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A job of 2, 3 or 4 ranks over shared memory or TCP."""
    made = World(*request.param)
    yield made
    made.stop()
