"""One rank of `rueda.spark.run`: calls the function, and leaves its outcome in memory that its task reads."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from typing import NamedTuple, Optional

from rueda.pickles import dumps, pickled_error

FDS = "RUEDA_SPARK_FDS"  # the call, the outcome and the note, as descriptors that this process has inherited
MAX_TRACEBACK_BYTES = 200_000
_MAX_HEADLINE = 500  # characters


class Outcome(NamedTuple):
    """What one rank left; the pickles inside are made with cloudpickle."""

    value: Optional[bytes]  # pickled return value; None if the function raised or did not return
    error: Optional[bytes]  # pickled exception; None if it could not be pickled
    traceback: str


def _call(fd: int) -> bytes:
    """The pickled result of the function that is described there."""
    with open(fd, "rb", closefd=False) as file:
        path, body = pickle.load(file)
    sys.path += [entry for entry in path if entry not in sys.path]  # the executor's own packages come first
    function, args, kwargs = pickle.loads(body)
    result = function(*args, **kwargs)
    try:
        return dumps(result)
    except Exception as error:
        kind = type(result).__name__
        raise TypeError(f"The {kind} that the function returned cannot be pickled: {error}") from None


def headline(error: BaseException) -> str:
    """Class and first line of an exception: the last line of its traceback may be any line of its text."""
    kind = type(error)
    name = (
        kind.__qualname__
        if kind.__module__ in ("builtins", "__main__")
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    try:
        text = str(error).strip().partition("\n")[0]
    except Exception:  # of a class of the user
        text = ""
    return (f"{name}: {text}" if text else name)[:_MAX_HEADLINE]


def _end_of(text: str) -> bytes:
    return text.encode(errors="replace")[-MAX_TRACEBACK_BYTES:]


def main() -> int:
    """Returns the exit status."""
    call, outcome, note = (int(text) for text in os.environ.pop(FDS).split(","))
    for fd in (call, outcome, note):
        os.set_inheritable(fd, False)  # the function may start processes
    status, first_line = 0, ""
    try:
        found = Outcome(_call(call), None, "")
    except BaseException as error:
        own_frames = (
            error.__traceback__ and error.__traceback__.tb_next and error.__traceback__.tb_next.tb_next
        )
        text = "".join(traceback.format_exception(type(error), error, own_frames))
        sys.stderr.write(text)
        is_exit = isinstance(error, SystemExit) and isinstance(error.code, int) and error.code != 0
        status = int(error.code) if is_exit else 1  # type: ignore[attr-defined]
        first_line = headline(error)
        found = Outcome(None, pickled_error(error), text)
    with open(outcome, "wb", closefd=False) as file:
        pickle.dump(tuple(found), file)
    if found.value is None:
        # Before this process ends, so that the driver hears of the cause before the other ranks notice the
        # effect.
        os.write(note, f"{first_line}\n".encode(errors="replace") + _end_of(found.traceback))
    os.close(note)
    return status
