"""The worlds every distributed test runs in. pytest groups tests by world, so that one exists at a time."""

import os
import pathlib
import shutil
from typing import Any, Dict, Iterator

import launch_support
import pytest
from harness import World
from nursery import TENSORFLOW, ForkedWorld
from worlds import WORLDS, name_of


@pytest.fixture(autouse=True)
def no_run_outlives_its_test() -> Iterator[None]:
    """A test of the launcher that fails leaves no job behind."""
    yield
    launch_support.end_open_runs()


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    """The private folder of a user, with a short path, because sockets lie in it."""
    path = pathlib.Path(f"/tmp/rst-{os.getpid()}")
    path.mkdir(mode=0o700)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session", params=WORLDS, ids=name_of)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A job of 2, 3 or 4 ranks over shared memory or TCP."""
    made = ForkedWorld(*request.param)
    yield made
    made.stop()


# These worlds live as long as the tests, side by side, and their ranks are forked with TensorFlow imported.


@pytest.fixture(scope="session")
def tensorflow_world_of_2() -> Iterator[World]:
    """A job of 2 ranks for the TensorFlow tests."""
    made = ForkedWorld(2, "shm,tcp", imports=TENSORFLOW)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def tensorflow_world_of_2_over_tcp() -> Iterator[World]:
    """The same over TCP."""
    made = ForkedWorld(2, "tcp", imports=TENSORFLOW)
    yield made
    made.stop()


@pytest.fixture(params=["shm,tcp", "tcp"])
def tensorflow_world(request: pytest.FixtureRequest) -> World:
    """Each of the two."""
    suffix = "_over_tcp" if request.param == "tcp" else ""
    made: World = request.getfixturevalue(f"tensorflow_world_of_2{suffix}")
    return made


@pytest.fixture(scope="session")
def tensorflow_world_of_3() -> Iterator[World]:
    """A job of 3 ranks for the TensorFlow tests in which 2 would hide something."""
    made = ForkedWorld(3, "shm,tcp", imports=TENSORFLOW)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def keras_worlds() -> Iterator[Dict[str, World]]:
    """The jobs of the Keras tests by backend, made when they are first needed."""
    made: Dict[str, World] = {}
    yield made
    for one in made.values():
        one.stop()


# A Spark application with two slots for each module that asks for it, and the rows of spark_rows.py in it.


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An application with two slots."""
    import spark_support

    with spark_support.application("local[2]", tmp_path_factory.mktemp("spark")) as made:
        yield made


@pytest.fixture(scope="module")
def numbers() -> Any:
    """Features and labels."""
    import spark_rows

    return spark_rows.make_numbers()


@pytest.fixture(scope="module")
def frame(spark: Any, numbers: Any) -> Any:
    """The same as rows of the application."""
    import spark_rows

    return spark_rows.make_frame(spark.session, numbers)


@pytest.fixture
def store(tmp_path: pathlib.Path) -> Any:
    """A store in a folder of the test."""
    from horovod.spark.common.store import Store

    return Store.create(str(tmp_path))
