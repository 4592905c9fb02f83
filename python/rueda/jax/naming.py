"""Names of traced collectives, unique within a program and equal on all ranks that run the same one.

A rank may trace a function again when others do not (other shapes, an evicted cache). Calls are therefore not
counted over the life of the process, but within one trace and by the line of code that makes them. Programs
of one thread run one after the other, so names need to be unique only within a program.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

_OURS = "rueda."
_JAX = ("jax.", "jax_", "jaxlib.")
_calls: weakref.WeakKeyDictionary[Any, Counter[str]] = weakref.WeakKeyDictionary()


def name_of_call(tracer: Any) -> str:
    """For instance "traced.train.py:31.1": the first call on that line within the current trace."""
    site = _calling_line()
    return f"traced.{site}{_count(site, _trace_of(tracer))}"


def name_in_program(name: str, tracer: Any) -> str:
    """The name itself, or "name#2" for its second use within the current trace."""
    trace = _trace_of(tracer)
    if trace is _process:
        return name  # each use ends before the next begins
    uses = _count(f"named.{name}", trace)
    return name if uses == 1 else f"{name}#{uses}"


def _count(key: str, trace: Any) -> int:
    """How many times this key was counted within the trace, including this time."""
    counter = _calls.setdefault(trace, Counter())
    counter[key] += 1
    return counter[key]


def _calling_line() -> str:
    """File and line of the caller outside rueda; empty if JAX itself called, as in jax.jit(hvd.allreduce)."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OURS):
        frame = frame.f_back
    if frame.f_globals.get("__name__", "").startswith(_JAX):
        return ""
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}."


class _Process:
    """Stands for all traces that have no identity of their own."""


_process = _Process()


def _trace_of(tracer: Any) -> Any:
    """An object that lives as long as the innermost jitted function is being traced."""
    trace: Any = getattr(tracer, "_trace", None)
    while not hasattr(trace, "frame") and getattr(trace, "parent_trace", None) is not None:
        trace = trace.parent_trace  # grad and vmap work on top of the trace that has a frame
    try:
        weakref.ref(trace)
    except TypeError:
        return _process
    return trace
