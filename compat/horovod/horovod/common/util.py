"""Helpers that third-party code imports from here."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Callable

from rueda.extensions import extension_available, gpu_available  # noqa: F401 (third parties look here)

_FRONT_ENDS = ("torch", "tensorflow", "keras")


def _front_end() -> Any:
    """The basics of the engine if any front end can be loaded, else None. Imports a framework only if none
    is imported yet.
    """
    in_use = [name for name in _FRONT_ENDS if name in sys.modules]
    if not any(extension_available(name) for name in in_use or _FRONT_ENDS):
        return None
    return importlib.import_module("rueda.basics").basics


def _query(name: str) -> Callable[..., Any]:
    def ask(verbose: bool = False) -> Any:
        engine = _front_end()
        return None if engine is None else getattr(engine, name)()

    ask.__name__ = name
    ask.__doc__ = f"The answer of {name}(), or None if no front end can be loaded."
    return ask


mpi_built = _query("mpi_built")
gloo_built = _query("gloo_built")
nccl_built = _query("nccl_built")
ddl_built = _query("ddl_built")
ccl_built = _query("ccl_built")


@contextlib.contextmanager
def env(**kwargs: Any) -> Iterator[None]:
    """Sets environment variables within the block, and restores them. Those given as None are left alone."""
    before = {name: os.environ.get(name) for name, value in kwargs.items() if value is not None}
    for name in before:
        os.environ[name] = str(kwargs[name])
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: Any) -> None:
    """Raises ImportError if the front end named like "horovod.torch" cannot be loaded."""
    name = ext_name.rpartition(".")[2]
    if not extension_available(name):
        raise ImportError(f"Extension {ext_name} is not available: install the framework it serves.")


def check_installed_version(name: str, version: str, exception: BaseException | None = None) -> None:
    """Nothing to check: the engine is built against no framework."""


def get_average_backwards_compatibility_fun(reduce_ops: Any) -> Callable[[int | None, bool | None], int]:
    """The function that turns the arguments `op` and (older) `average` into an op."""
    from rueda.policy import handle_average_backwards_compatibility

    return handle_average_backwards_compatibility


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether the number is a power of two."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(items: Sequence[Any], parts: int) -> list[list[Any]]:
    """Consecutive parts whose lengths differ by one at most, the longer ones first."""
    from rueda.policy import split_evenly

    return split_evenly(items, parts)


def is_iterable(x: Any) -> bool:
    """Whether iter(x) works."""
    return isinstance(x, Iterable)


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Compares versions; target must be major.minor.patch. Raises ValueError for anything but strings."""
    from packaging.version import Version

    if not isinstance(ver, str) or not isinstance(target, str):
        raise ValueError(f"Versions must be strings, not {ver!r} and {target!r}.")
    if len(target.split(".")) != 3:
        raise ValueError(f"The target version {target!r} must have the form major.minor.patch.")
    return Version(ver) >= Version(target)
