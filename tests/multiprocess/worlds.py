"""The worlds of the tests of collectives, and two that are enough for what a rank does by itself."""

from typing import Tuple

import pytest

WORLDS = [(2, "shm,tcp"), (3, "shm,tcp"), (4, "shm,tcp"), (2, "tcp"), (3, "tcp"), (4, "tcp")]


def name_of(world: Tuple[int, str]) -> str:
    return f"{world[0]}-ranks-{world[1]}"


in_two_worlds = pytest.mark.parametrize("world", [WORLDS[0], WORLDS[4]], indirect=True, ids=name_of)
