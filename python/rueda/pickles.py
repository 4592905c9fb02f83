"""Python objects as bytes, for the `*_object` functions: cloudpickle where it is installed, else pickle."""

from __future__ import annotations

import pickle
from typing import Any


def dumps(obj: Any) -> bytes:
    """The object as bytes. Without cloudpickle functions and classes of a script itself cannot be sent."""
    try:
        import cloudpickle
    except ImportError:
        return pickle.dumps(obj)
    return bytes(cloudpickle.dumps(obj))


loads = pickle.loads  # cloudpickles are pickles
