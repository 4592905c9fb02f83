"""Small helpers under the names that existing code imports."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rueda.tensorflow.arguments import check_num_rank_power_of_2
from rueda.tensorflow.tape import local_variables_of


def _executing_eagerly() -> bool:
    return bool(tf.executing_eagerly())


def _make_subgraph(function: Callable[..., Any]) -> Callable[..., Any]:
    """tf.function, which is what code for TensorFlow 1 and 2 asks for here."""
    wrapped: Callable[..., Any] = tf.function(function)
    return wrapped


def _normalize_name(name: str) -> str:
    return re.sub("[^a-zA-Z0-9_]", "_", name)


def vars_to_refs(variables: Any) -> Any:
    """Hashable references of variables, nested lists included."""
    if isinstance(variables, list):
        return tuple(vars_to_refs(variable) for variable in variables)
    return variables.ref()


def refs_to_vars(refs: Any) -> Any:
    """The variables behind vars_to_refs."""
    if isinstance(refs, tuple):
        return [refs_to_vars(ref) for ref in refs]
    return refs.deref()


__all__ = ["check_num_rank_power_of_2", "local_variables_of", "refs_to_vars", "vars_to_refs"]
