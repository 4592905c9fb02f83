"""What `rueda.spark.run` accepts: a wrong argument is refused by name, before anything is started."""

from __future__ import annotations

import numbers
import os
from collections.abc import Iterable, Mapping
from typing import Any, Optional

from rueda.placement import check_variables


def check(given: Mapping[str, Any]) -> None:
    """Raises TypeError or ValueError for arguments that cannot be meant. given: those of `run`, by name."""
    _check_kinds(given)
    size, port = given["num_proc"], given["driver_port"]
    if size is not None and size < 1:
        raise ValueError(f"num_proc is {size}; a job has at least one rank.")
    if not 0 <= port <= 65535:
        raise ValueError(f"driver_port is {port}; ports are numbers from 0 to 65535.")
    check_variables(given["env"] or {})


# Types, the word for them, and whether a string is meant too where its characters would be a list.
_KINDS: Mapping[str, tuple[Any, str, bool]] = {
    "args": (Iterable, "a list or tuple", False),
    "kwargs": (Mapping, "a dict", False),
    "num_proc": (numbers.Integral, "a whole number", False),
    "driver_port": (numbers.Integral, "a whole number", False),
    "env": (Mapping, "a dict of strings", False),
    "nics": (Iterable, "a list of names", True),
    "executable": ((str, os.PathLike), "a path", True),
}


def _check_kinds(given: Mapping[str, Any]) -> None:
    if not callable(given["fn"]):
        raise TypeError(_wrong("fn", "a function", given["fn"]))
    for name, (types, word, may_be_text) in _KINDS.items():
        value = given[name]
        is_bad = not isinstance(value, types) or isinstance(value, bool)
        if value is not None and (is_bad or (isinstance(value, (str, bytes)) and not may_be_text)):
            raise TypeError(_wrong(name, word, value))
    for name in ("stdout", "stderr"):
        if given[name] is not None and not hasattr(given[name], "write"):
            raise TypeError(_wrong(name, "a text stream", given[name]))


def _wrong(name: str, word: str, value: Optional[Any]) -> str:
    return f"rueda.spark.run: {name} must be {word}, not {type(value).__name__} ({value!r})."
