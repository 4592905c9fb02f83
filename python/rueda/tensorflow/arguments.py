"""Checks of arguments that several functions of the front end have."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from rueda import operations, policy
from rueda.basics import basics
from rueda.process_sets import ProcessSet, process_set_table

UNKNOWN_SET = "{kind}: Process set provided does not exist, or has not been registered."
BAD_GROUPS = "groups should be a non-negative integer or a list of list of tf.Variable."


def _unknown_op(op: int) -> Exception:
    return ValueError(
        f"Reduction op {op} is not supported; use hvd.Average, Sum, Adasum, Min, Max or Product."
    )


# A partial function has no frame of its own, so the warning names the caller's caller, as elsewhere.
handle_average_backwards_compatibility = functools.partial(
    policy.handle_average_backwards_compatibility, unknown=_unknown_op
)


def group_of(tensors: Iterable[Any]) -> Sequence[Any]:
    """The tensors of a grouped operation. TypeError for a single tensor, which would be taken apart."""
    return operations.members_of_group(tensors, "tensor", hasattr(tensors, "__array__"))


def set_id(process_set: ProcessSet, kind: str) -> int:
    """Id of a registered set; kind is the word the error begins with ("Allreduce")."""
    known = operations.process_set_id(process_set, kind)
    if known != 0 and basics.is_initialized() and process_set_table.ranks_of(known) is None:
        raise ValueError(UNKNOWN_SET.format(kind=kind))
    return known


def check_num_rank_power_of_2(num_rank: int) -> bool:
    """Whether num_rank is a power of two. (Adasum here takes any number of ranks.)"""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def check_groups(groups: Any) -> list[list[Any]] | int | None:
    """The argument `groups`; ValueError unless it is None, a number, or lists of variables."""
    if groups is None:
        return None
    if isinstance(groups, int):
        if groups <= 0:
            raise ValueError(BAD_GROUPS)
        return groups
    if not isinstance(groups, Sequence):
        raise ValueError(BAD_GROUPS)
    lists: list[list[Any]] = []
    for group in groups:
        if not isinstance(group, Iterable) or isinstance(group, (str, bytes)) or is_variable(group):
            raise ValueError(BAD_GROUPS)
        lists.append(list(group))
    members = [variable_key(variable) for group in lists for variable in group]
    if not all(is_variable(variable) for group in lists for variable in group):
        raise ValueError("groups must consist of tf.Variable.")
    if len(members) != len(set(members)):
        raise ValueError("A variable can only appear once in groups.")
    return lists


def by_kind(values: Iterable[Any], kind_of: Callable[[Any], Any]) -> dict[Any, list[int]]:
    """Positions of the values of each kind, since one operation takes one type, on one device."""
    positions: dict[Any, list[int]] = {}
    for position, value in enumerate(values):
        positions.setdefault(kind_of(value), []).append(position)
    return positions


def type_of(value: Any) -> Any:
    """The type of a tensor or of a variable, Keras's included."""
    return tf.as_dtype(value.dtype).base_dtype


def is_variable(value: Any) -> bool:
    """Whether this is a variable of TensorFlow or of Keras."""
    return isinstance(underlying(value), tf.Variable)


def underlying(variable: Any) -> Any:
    """The tf.Variable behind a Keras 3 variable; anything else itself."""
    inner = getattr(variable, "_value", None)
    return inner if isinstance(inner, tf.Variable) else variable


def variable_key(variable: Any) -> int:
    """A key that is equal for all references to one variable."""
    return id(underlying(variable))
