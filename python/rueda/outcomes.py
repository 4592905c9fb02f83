"""What the ranks of `rueda.run` and its launcher have left in a folder: results, exceptions, sentences."""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Optional

FAILURE = (
    "Horovod detected that one or more processes exited with non-zero status, thus causing the job to be "
    "terminated. The first process to do so was:\nProcess name: {}\nExit code: {}\n"
)
USAGE_ERROR = 2  # exit status of `rueda run` for arguments that it does not accept
OTHER_BUILD = (
    "The rueda command at {} is of another build than the Python package and does not accept its options: "
    "reinstall rueda, or set RUEDA_BIN to the command of this build."
)
_PREFIX = "result."


class RemoteTraceback(Exception):
    """Shows where in the other process an exception was raised; it is that exception's cause."""

    def __init__(self, rank: int, text: str) -> None:
        super().__init__(rank, text)
        self.rank = rank
        self.text = text

    def __str__(self) -> str:
        return f'\n"""on rank {self.rank}:\n{self.text}"""'


class Outcome(NamedTuple):
    """What one rank left in its result file; the pickles inside are made with cloudpickle or pickle."""

    value: Optional[bytes]  # pickled return value; None if the function raised
    error: Optional[bytes]  # pickled exception; None if it could not be pickled
    traceback: str
    view: int = 0  # the last in which it was a member, and its rank there
    rank: int = 0


def _read(path: str) -> Optional[Outcome]:
    """None if the rank ended without one."""
    try:
        with open(path, "rb") as file:
            return Outcome(*pickle.load(file))
    except (FileNotFoundError, EOFError, pickle.UnpicklingError):
        return None


def _sentence(directory: str, name: str) -> str:
    with contextlib.suppress(FileNotFoundError), open(os.path.join(directory, name)) as file:
        return file.read().strip()
    return ""


def _refusal(directory: str, command: str) -> Exception:
    """The error to raise when the launcher did not accept its arguments; it leaves its sentence in a file."""
    sentence = _sentence(directory, "refusal")
    # These options come from here and not from the caller, so only another build can reject one of them.
    if not sentence or "is no option of" in sentence or "not expected" in sentence:
        return RuntimeError(OTHER_BUILD.format(command))
    return ValueError(sentence)


def _numbers(directory: str) -> Iterator[int]:
    """Of the processes that have left an outcome."""
    names = (name for name in os.listdir(directory) if name.startswith(_PREFIX))
    return iter(sorted(int(name[len(_PREFIX) :]) for name in names if name[len(_PREFIX) :].isdigit()))


def failure(directory: str, status: int, command: str) -> Exception:
    """The error to raise, with the exception of the rank that failed first as its cause, if there is one."""
    verdict = _sentence(directory, "verdict")
    try:
        first, code = (int(word) for word in _sentence(directory, "failure").split())
    except ValueError:
        if status == USAGE_ERROR:
            return _refusal(directory, command)
        return RuntimeError(
            verdict or f"rueda run ended with status {status} before all ranks had started; see its messages."
        )
    found = RuntimeError(verdict or FAILURE.format(first, code))
    # A rank that was killed raised nothing. The exception of another rank then says what that rank noticed.
    for number in [first, *(other for other in _numbers(directory) if other != first)]:
        outcome = _read(os.path.join(directory, f"{_PREFIX}{number}"))
        if outcome is None or not outcome.traceback:
            continue
        cause: Optional[BaseException] = None
        if outcome.error is not None:
            with contextlib.suppress(Exception):  # its class may not exist here, so the text has to do
                cause = pickle.loads(outcome.error)
        if isinstance(cause, BaseException):
            cause.__cause__ = RemoteTraceback(number, outcome.traceback)
        found.__cause__ = cause or RemoteTraceback(number, outcome.traceback)
        break
    return found


def of_all(size: int) -> Callable[[str], list[Any]]:
    """Reads the results of all ranks of a job of this size, in rank order."""

    def read(directory: str) -> list[Any]:
        values: list[Any] = []
        for rank in range(size):
            outcome = _read(os.path.join(directory, f"{_PREFIX}{rank}"))
            if outcome is None or outcome.value is None:
                raise RuntimeError(f"Rank {rank} ended well but left no result; did func call os._exit?")
            values.append(pickle.loads(outcome.value))
        return values

    return read


def of_last_view(directory: str) -> list[Any]:
    """The results of the members of the last view, in the order of their ranks there."""
    found = [_read(os.path.join(directory, f"{_PREFIX}{number}")) for number in _numbers(directory)]
    ended = [one for one in found if one is not None and one.value is not None]
    if not ended:
        raise RuntimeError("All ranks ended well but left no result; did func call os._exit?")
    last = max(one.view for one in ended)
    members = sorted((one for one in ended if one.view == last), key=lambda one: one.rank)
    return [pickle.loads(one.value) for one in members if one.value is not None]
