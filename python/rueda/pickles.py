"""Python objects as bytes, for the `*_object` functions: cloudpickle where it is installed, else pickle."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterable
from typing import Any

from rueda import errors, policy

# The name of operations that carry an unnamed object. The class is not part of it, because ranks often hold
# different ones, such as None on all but root, and would then wait for one another forever.
DEFAULT_NAME = "object"


def key_of(name: str | None) -> str:
    """The name of the operations that carry an object, from the one that the user gave."""
    policy.check_name(name)
    return DEFAULT_NAME if name is None else name


class Unsendable:
    """Sent instead of an object that its rank could not pickle, because the other ranks wait for one."""

    def __init__(self, why: str) -> None:
        self.why = why


def dumps(obj: Any) -> bytes:
    """The object as bytes. Without cloudpickle, functions and classes of the script itself cannot be sent."""
    try:
        import cloudpickle
    except ImportError:
        return pickle.dumps(obj)
    return bytes(cloudpickle.dumps(obj))


def pickler_class() -> Any:
    """The class of picklers that dumps() uses, for subclasses."""
    try:
        import cloudpickle
    except ImportError:
        return pickle.Pickler
    return cloudpickle.Pickler


def pickled_error(error: BaseException) -> bytes | None:
    """The pickled exception without its traceback; None if it cannot be pickled and loaded again."""
    try:
        body = dumps(error.with_traceback(None))
        pickle.loads(body)
    except Exception:
        return None
    return body


def attempt(obj: Any) -> tuple[bytes, Exception | None]:
    """What to send, and what to raise afterwards: pickling may raise any exception."""
    try:
        return dumps(obj), None
    except Exception as error:
        why = f"another rank could not pickle its {type(obj).__name__}: {type(error).__name__}: {error}"
        return pickle.dumps(Unsendable(why)), error


def loads(payload: Any) -> Any:
    """The object in this buffer. Raises HorovodInternalError if its rank could not pickle it."""
    obj = pickle.loads(payload)  # cloudpickles are pickles
    if isinstance(obj, Unsendable):
        raise errors.internal_error(obj.why)
    return obj


def broadcast(
    obj: Any,
    is_root: bool,
    send_size: Callable[[int], int],
    send: Callable[[bytes | None, int], Any],
) -> Any:
    """Root's object on every rank; root gets its own back.

    send_size(bytes), send(payload or None, bytes): root's number and root's payload, by broadcasts of a front
    end. Raises what pickling raises, and HorovodInternalError on the other ranks then.
    """
    payload, error = attempt(obj) if is_root else (None, None)
    size = send_size(len(payload or b""))
    received = send(payload, size)
    if error is not None:
        raise error
    return obj if is_root else loads(received)


def allgather(
    obj: Any, gather_sizes: Callable[[int], Iterable[int]], gather: Callable[[bytes], Any]
) -> list[Any]:
    """Every rank's object, in rank order; by allgathers of a front end. Errors as for broadcast."""
    payload, error = attempt(obj)
    sizes = [int(size) for size in gather_sizes(len(payload))]
    everything = memoryview(gather(payload))
    if error is not None:
        raise error
    ends = itertools.accumulate(sizes)
    return [loads(everything[end - size : end]) for size, end in zip(sizes, ends)]
