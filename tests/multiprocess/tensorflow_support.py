"""What the TensorFlow tests share: TensorFlow itself (quiet, on the CPU, with one inter-op thread), worlds,
and running one piece of code in every mode.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Iterator, List, Tuple

import numpy as np
import pytest
from harness import QUIET_TENSORFLOW, World

os.environ.update({**QUIET_TENSORFLOW, **os.environ})  # who has set them is not overruled

tf = pytest.importorskip("tensorflow")

import rueda.tensorflow as hvd  # noqa: E402

# One thread runs operations: whatever blocks it blocks everything, which is the hardest case for any order.
tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(1)

tf.get_logger().setLevel("ERROR")  # every case traces functions of its own

MODES = ("eager", "function", "session")
FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
INTEGERS = (tf.uint8, tf.int8, tf.uint16, tf.int16, tf.int32, tf.int64)

__all__ = [
    "FLOATS",
    "INTEGERS",
    "MODES",
    "every_mode",
    "hvd",
    "np",
    "on_every_transport",
    "on_ranks",
    "on_three_ranks",
    "outcomes",
    "tf",
]


def on_ranks(body: Callable[[], None]) -> Callable[[World], None]:
    """Makes a test of a function that is to run on 2 ranks over shared memory."""

    def test(tensorflow_world_of_2: World) -> None:
        tensorflow_world_of_2.run(body.__code__.co_filename, body.__name__)

    return _as_test(test, body)


def on_every_transport(body: Callable[[], None]) -> Callable[[World], None]:
    """As on_ranks, once over shared memory and once over TCP."""

    def test(tensorflow_world: World) -> None:
        tensorflow_world.run(body.__code__.co_filename, body.__name__)

    return _as_test(test, body)


def on_three_ranks(body: Callable[[], None]) -> Callable[[World], None]:
    """As on_ranks, on 3 ranks."""

    def test(tensorflow_world_of_3: World) -> None:
        tensorflow_world_of_3.run(body.__code__.co_filename, body.__name__)

    return _as_test(test, body)


def _as_test(test: Any, body: Callable[[], None]) -> Any:
    test.__name__ = body.__name__
    test.__doc__ = body.__doc__
    test.__module__ = body.__module__
    test.body = body  # what the worker calls
    return test


def outcomes(mode: str, build: Callable[..., Any], *arrays: Any) -> List[Any]:
    """numpy values of the tensors that build(*tensors) returns, in one mode of TensorFlow."""
    if mode == "eager":
        built = build(*[tf.convert_to_tensor(array) for array in arrays])
        return [np.asarray(tf.convert_to_tensor(one).numpy()) for one in _listed(built)]
    if mode == "function":
        function = tf.function(
            lambda *tensors: [tf.convert_to_tensor(one) for one in _listed(build(*tensors))]
        )
        return [
            np.asarray(one.numpy()) for one in function(*[tf.convert_to_tensor(array) for array in arrays])
        ]
    with tf.Graph().as_default():
        given = [
            tf.compat.v1.placeholder(np.asarray(array).dtype, [None] * np.ndim(array)) for array in arrays
        ]
        built = [tf.convert_to_tensor(one) for one in _listed(build(*given))]
        config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=1)
        with tf.compat.v1.Session(config=config) as session:
            return session.run(built, dict(zip(given, arrays)))


def _listed(built: Any) -> List[Any]:
    return list(built) if isinstance(built, (list, tuple)) and not tf.is_tensor(built) else [built]


def every_mode(build: Callable[..., Any], *arrays: Any) -> Iterator[Tuple[str, List[Any]]]:
    """(mode, numpy values) for eager execution, tf.function and a session."""
    for mode in MODES:
        yield mode, outcomes(mode, build, *arrays)
