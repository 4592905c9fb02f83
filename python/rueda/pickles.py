"""Python objects as bytes, for the `*_object` functions: cloudpickle where it is installed, else pickle."""

from __future__ import annotations

import pickle
from typing import Any

from rueda import errors

# Of the operations that carry an object nobody named. Not the class: ranks often hold different ones, such as
# None on all but root, and would wait for one another for ever.
DEFAULT_NAME = "object"


class Unsendable:
    """Travels in the place of an object that its rank could not pickle: the others wait for something."""

    def __init__(self, why: str) -> None:
        self.why = why


def dumps(obj: Any) -> bytes:
    """The object as bytes. Without cloudpickle functions and classes of a script itself cannot be sent."""
    try:
        import cloudpickle
    except ImportError:
        return pickle.dumps(obj)
    return bytes(cloudpickle.dumps(obj))


def attempt(obj: Any) -> tuple[bytes, Exception | None]:
    """What to send, and what to raise after it was sent: objects may refuse with any exception."""
    try:
        return dumps(obj), None
    except Exception as error:
        why = f"another rank could not pickle its {type(obj).__name__}: {type(error).__name__}: {error}"
        return pickle.dumps(Unsendable(why)), error


def loads(payload: bytes) -> Any:
    """The object. HorovodInternalError where its rank could not pickle it."""
    obj = pickle.loads(payload)  # cloudpickles are pickles
    if isinstance(obj, Unsendable):
        raise errors.internal_error(obj.why)
    return obj
