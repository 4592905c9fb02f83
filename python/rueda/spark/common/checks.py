"""What the parameters of an estimator may be. Others are refused before data are written and ranks start."""

from __future__ import annotations

import numbers
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

# Least value of the parameters that are whole numbers; those that are None by default may stay so.
_LEAST = {
    "num_proc": 1,
    "batch_size": 1,
    "val_batch_size": 1,
    "epochs": 1,
    "random_seed": 0,
    "partitions_per_process": 1,
    "train_steps_per_epoch": 1,
    "validation_steps_per_epoch": 1,
    "train_reader_num_workers": 0,
    "val_reader_num_workers": 0,
    "backward_passes_per_step": 1,
}
_MAY_BE_NONE = {
    "num_proc",
    "val_batch_size",
    "random_seed",
    "partitions_per_process",
    "train_steps_per_epoch",
    "validation_steps_per_epoch",
}


def check_parameters(given: Mapping[str, Any]) -> None:
    """TypeError or ValueError that names the first parameter that cannot be meant."""
    for name, least in _LEAST.items():
        if name in given and not (given[name] is None and name in _MAY_BE_NONE):
            check_whole(name, given[name], least)
    for name in ("feature_cols", "label_cols"):
        _check_names(name, given[name])
    for name in ("sample_weight_col", "run_id"):
        if given[name] is not None and not isinstance(given[name], str):
            raise TypeError(f"{name} must be a string, not {given[name]!r}.")
    if given["transformation_fn"] is not None and not callable(given["transformation_fn"]):
        raise TypeError(f"transformation_fn must be a function, not {given['transformation_fn']!r}.")


def check_whole(name: str, value: Any, least: int) -> None:
    """Refuses what is not a whole number from `least` on."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number, not {value!r}.")
    if value < least:
        raise ValueError(f"{name} is {value}; it must be at least {least}.")


def check_kind(name: str, value: Any, kind: type, word: str) -> None:
    """Refuses an object of another class."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {word}, not {type(value).__name__} ({value!r}).")


def check_callables(name: str, values: Any) -> None:
    """Refuses what is not a list of functions."""
    if not isinstance(values, (list, tuple)) or not all(map(callable, values)):
        raise TypeError(f"{name} must be a list of functions, not {values!r}.")


def _check_names(name: str, value: Any) -> None:
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    if not is_list or not all(isinstance(one, str) for one in value):
        raise TypeError(f"{name} must be a list of names of columns, not {value!r}.")
    if not value:
        raise ValueError(f"{name} is empty; name at least one column.")


_NUMBERS = re.compile(
    r"(array<)*(boolean|tinyint|smallint|int|bigint|float|double|decimal\(\d+,-?\d+\)|vector)>*"
)


def check_types(kinds: Mapping[str, str], columns: Sequence[str]) -> None:
    """ValueError that names a column which holds no numbers. kinds: types by column, as Spark prints them."""
    for name in columns:
        if not _NUMBERS.fullmatch(kinds[name]):
            raise ValueError(
                f"The column {name} has the type {kinds[name]}; estimators take numbers, arrays and vectors: "
                'cast it, for example to "double", or encode it.'
            )


def check_rows(train: int, val: Optional[int], size: int) -> None:
    """ValueError if a rank would have no row; val: None without validation."""
    for name, rows in (("training", train), ("validation", val)):
        if rows is not None and rows < size:
            raise ValueError(f"There are {rows} {name} rows for {size} ranks; each rank needs at least one.")


def wrapped(action: Callable[[], Any], what: str) -> Any:
    """Calls the action. RuntimeError with one sentence for what Spark or a file system raises there."""
    try:
        return action()
    except (ValueError, TypeError):
        raise
    except Exception as error:  # of py4j, and of the libraries behind fsspec
        reason = innermost(str(error)) or type(error).__name__
        raise RuntimeError(f"{what}: {reason}") from error


def innermost(text: str) -> str:
    """The line of an error that says the cause: those of the JVM come with all that they have led to."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by:") for line in lines if line.startswith("Caused by:")]
    thrown = [line for line in lines if line.startswith(": ")]
    return (causes[-1:] or thrown[:1] or lines[:1] or [""])[0].strip(": ")
