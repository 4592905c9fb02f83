"""Making ranks agree on variables and Python objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from rueda import pickles
from rueda.basics import basics
from rueda.policy import variables_of
from rueda.process_sets import ProcessSet, global_process_set
from rueda.tensorflow.arguments import by_kind, type_of
from rueda.tensorflow.mpi_ops import _grouped_broadcast, allgather, broadcast, broadcast_
from rueda.tensorflow.plugin import default_name

# ---- variables ----


def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Overwrites variables with root's, for instance a model's and its optimizer's before training.

    In eager execution at once (all as one operation per type), in tf.function with the rest of the function;
    in graphs for sessions returns one operation to be run.
    inplace: by broadcast_, one operation per device and type.
    """
    variables = variables_of(variables, "broadcast_variables")
    if inplace:
        return _broadcast_in_place(variables, root_rank, process_set)
    if tf.executing_eagerly():
        # Named by number and not after the type, so that ranks whose types differ meet and get an error.
        for number, positions in enumerate(by_kind(variables, type_of).values()):
            mine = [variables[i] for i in positions]
            values = [tf.convert_to_tensor(variable) for variable in mine]
            name = f"broadcast_variables_{number}"
            for variable, value in zip(mine, _grouped_broadcast(values, root_rank, name, process_set)):
                variable.assign(value)
        return None
    assigned = []
    for variable in variables:
        node = default_name("HorovodBroadcast", variable)
        value = broadcast(tf.convert_to_tensor(variable), root_rank, node, process_set=process_set)
        assigned.append(variable.assign(value))
    if tf.inside_function():
        return None  # the function runs the assignments by itself, and cannot return operations
    return tf.group(*[one for one in assigned if one is not None])


def _broadcast_in_place(variables: list[Any], root_rank: int, process_set: ProcessSet) -> Any:
    together = by_kind(variables, lambda one: (str(getattr(one, "device", "")), type_of(one)))
    operations = []
    for number, positions in enumerate(together.values()):
        group = [variables[i] for i in positions]
        updates = broadcast_(group, root_rank, f"broadcast_variables_{number}", process_set)
        operations += [] if tf.executing_eagerly() else [update.op for update in updates]
    return None if tf.executing_eagerly() or tf.inside_function() else tf.group(*operations)


def broadcast_global_variables(root_rank: int) -> Any:
    """An operation that overwrites all global variables with root's; RuntimeError outside of graphs."""
    if tf.executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() does not support eager execution. Please use "
            "`hvd.broadcast_variables(<model/optimizer variables>)` instead."
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Overwrites all global variables with root's once a session has been made (new or from a checkpoint).

    >>> hooks = [hvd.BroadcastGlobalVariablesHook(0)]
    >>> with tf.compat.v1.train.MonitoredTrainingSession(hooks=hooks) as session: ...
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.bcast_op: Any = None

    def begin(self) -> None:
        """Builds the operation, and builds it again for another default graph."""
        if self.bcast_op is None or self.bcast_op.graph is not tf.compat.v1.get_default_graph():
            with tf.device(self.device or None):
                self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Runs it."""
        session.run(self.bcast_op)


# ---- objects ----


class _Channel:
    """Sends bytes by collectives: eagerly, or in a session through placeholders that are built once."""

    def __init__(self, session: Any, name: str, process_set: ProcessSet) -> None:
        self._name = name
        self._process_set = process_set
        self._session = session
        self._built: dict[Any, tuple[Any, Any]] = {}

    def broadcast(self, value: Any, root_rank: int, suffix: str) -> Any:
        """value: numpy array; root's on all ranks."""

        def build(x: Any) -> Any:
            return broadcast(x, root_rank, f"{self._name}.{suffix}", process_set=self._process_set)

        return self._run(build, value, suffix)

    def allgather(self, value: Any, suffix: str) -> Any:
        """value: numpy array [n]; all ranks' in rank order."""

        def build(x: Any) -> Any:
            return allgather(x, f"{self._name}.{suffix}", process_set=self._process_set)

        return self._run(build, value, suffix)

    def _run(self, build: Callable[[Any], Any], value: Any, suffix: str) -> Any:
        if tf.executing_eagerly():
            return build(tf.convert_to_tensor(value)).numpy()
        if suffix not in self._built:
            given = tf.compat.v1.placeholder(value.dtype, [None] * value.ndim)
            self._built[suffix] = (given, build(given))
        given, output = self._built[suffix]
        session = self._session or tf.compat.v1.get_default_session()
        if session is not None:
            return session.run(output, {given: value})
        with tf.compat.v1.Session(graph=output.graph) as own:
            return own.run(output, {given: value})


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns root's object on every rank; root gets its own back.

    The object travels as a cloudpickle. session: for graphs; else the default session, else one of its own.
    Raises what pickling raises, and HorovodInternalError on the other ranks then.
    """
    key = pickles.key_of(name)
    return broadcast_object_fn(root_rank, session, key, process_set)(obj)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """A function that does what broadcast_object does, building its graph once."""
    channel = _Channel(session, name or "broadcast_object_fn", process_set)

    def content(payload: bytes | None, size: int) -> Any:
        mine = np.zeros(size, np.uint8) if payload is None else np.frombuffer(payload, np.uint8)
        return np.asarray(channel.broadcast(mine, root_rank, "t"))

    def send(obj: Any = None) -> Any:
        return pickles.broadcast(
            obj,
            basics.rank() == root_rank,
            lambda size: int(channel.broadcast(np.array([size], np.int64), root_rank, "sz")[0]),
            content,
        )

    return send


def allgather_object(
    obj: Any,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Returns every rank's object, in rank order of the set. The objects travel as cloudpickles."""
    channel = _Channel(session, pickles.key_of(name), process_set)
    return pickles.allgather(
        obj,
        lambda size: channel.allgather(np.array([size], np.int64), "sz"),
        lambda payload: np.asarray(channel.allgather(np.frombuffer(payload, np.uint8), "t")),
    )


__all__ = [
    "BroadcastGlobalVariablesHook",
    "allgather_object",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
]
