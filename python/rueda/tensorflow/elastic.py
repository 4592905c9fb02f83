"""Elastic training for TensorFlow: `hvd.elastic` of `import rueda.tensorflow as hvd`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rueda.elastic import exports
from rueda.elastic.exports import *  # noqa: F403
from rueda.elastic.ledger import BlockLedger, rank_and_size
from rueda.elastic.loop import Hooks, decorate
from rueda.elastic.lost import is_lost
from rueda.elastic.variables import VariablesState, check_built
from rueda.errors import internal_error
from rueda.tensorflow.arguments import underlying
from rueda.tensorflow.functions import broadcast_object, broadcast_object_fn, broadcast_variables

__all__ = ["DatasetLedger", "TensorFlowKerasState", "TensorFlowState", "run", *exports.__all__]

NO_SESSION = (
    "TensorFlowState without a session works in eager execution only: pass session=…, or call "
    "tf.compat.v1.enable_eager_execution() first."
)
# By these texts errors of collectives are known in Horovod's programs.
_OURS = "Horovod"


class _TensorFlowVariables(VariablesState):
    """What TensorFlow's states share: their variables may belong to a session."""

    def __init__(self, broadcast: Callable[[Any], Any], session: Any, **kwargs: Any) -> None:
        self._session = session
        super().__init__(broadcast, **kwargs)

    def _broadcast(self) -> None:
        operation = broadcast_variables(self._variables(), root_rank=0)
        if operation is not None and self._session is not None:
            self._session.run(operation)

    def _read(self) -> list[np.ndarray]:
        variables = self._variables()
        if self._session is not None:
            return [np.array(one) for one in self._session.run(variables)]
        return [np.array(one.numpy()) for one in variables]

    def _assign(self, values: Sequence[Any]) -> None:
        for variable, value in zip(self._variables(), values):
            if self._session is not None:
                variable.load(value, self._session)
            else:
                variable.assign(value)

    def _kinds(self) -> list[str]:
        return [f"{tuple(one.shape)}:{tf.as_dtype(one.dtype).name}" for one in self._lasting()]

    def _lasting(self) -> list[Any]:
        """Those variables that are there before the first step."""
        raise NotImplementedError


class TensorFlowState(_TensorFlowVariables):
    """The state of a list of variables. Each keyword becomes an attribute.

    variables: default all global variables, when they are asked for. session: for graphs.

    >>> state = hvd.elastic.TensorFlowState(variables, batch=0, epoch=0)
    """

    def __init__(self, variables: Any = None, session: Any = None, **kwargs: Any) -> None:
        if session is None and not tf.executing_eagerly():
            raise ValueError(NO_SESSION)
        self.variables = variables
        broadcast = broadcast_object_fn(session=session) if session is not None else broadcast_object
        super().__init__(broadcast, session, **kwargs)

    def _variables(self) -> list[Any]:
        chosen = tf.compat.v1.global_variables() if self.variables is None else self.variables
        return [underlying(one) for one in chosen]

    def _lasting(self) -> list[Any]:
        return [] if self.variables is None else list(self.variables)


class TensorFlowKerasState(_TensorFlowVariables):
    """The state of a Keras model and its optimizer, for training loops of one's own.

    model: must be built. optimizer: default the model's. backend: accepted for old scripts, without effect.
    Variables that the optimizer makes later belong to the state as well.

    >>> state = hvd.elastic.TensorFlowKerasState(model, optimizer, batch=0, epoch=0)
    """

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        check_built(model)
        self.model = model
        self.optimizer = optimizer or getattr(model, "optimizer", None)
        _make_variables(self.optimizer, model.trainable_variables)
        super().__init__(broadcast_object, None, **kwargs)

    def _variables(self) -> list[Any]:
        own = getattr(self.optimizer, "variables", ())
        own = own() if callable(own) else own
        seen: dict[int, Any] = {}
        for one in [*self.model.variables, *own]:
            variable = underlying(one)
            if isinstance(variable, tf.Variable) and variable.dtype.is_numpy_compatible:
                seen.setdefault(id(variable), variable)
        return list(seen.values())

    def _lasting(self) -> list[Any]:
        return list(self.model.variables)


def _make_variables(optimizer: Any, variables: Sequence[Any]) -> None:
    """Makes those of an optimizer of Keras, so that the state has all of them from the beginning."""
    if hasattr(optimizer, "build"):
        if not getattr(optimizer, "built", getattr(optimizer, "_built", False)):
            optimizer.build(variables)
    elif hasattr(optimizer, "_create_all_weights"):  # of tf_keras.optimizers.legacy
        optimizer._create_all_weights(variables)


class DatasetLedger(BlockLedger):
    """The elements of a tf.data.Dataset, each used once in an epoch, however often the ranks change.

    make(epoch) returns the dataset, unbatched, in the same order on all ranks: shuffle with a fixed seed and
    reshuffle_each_iteration=False. Iterating yields (batch of this rank, weight). Multiply the mean loss of
    the batch by the weight. All ranks read the whole dataset, as with Dataset.shard.

    >>> data = hvd.elastic.DatasetLedger(lambda epoch: dataset.shuffle(1000, seed=epoch), batch_size=32)
    >>> for i, ((x, y), weight) in enumerate(data):
    ...     step(x, y, weight)
    ...     data.record_batch(i)
    ...     state.commit()
    """

    def __init__(self, make: Callable[[int], Any], batch_size: int) -> None:
        super().__init__(batch_size, rank_and_size)
        self._make = make

    def _blocks(self, start: int) -> Any:
        return self._make(self.epoch).skip(start).batch(self._step_samples)

    def _count(self, block: Any) -> int:
        return int(tf.shape(tf.nest.flatten(block)[0])[0])

    def _part(self, block: Any, start: int, stop: int) -> Any:
        return tf.nest.map_structure(lambda one: one[start:stop], block)


def translate(error: Exception) -> Exception | None:
    """A collective in a graph fails with an error of TensorFlow's; that of a lost rank is ours."""
    is_ours = isinstance(error, tf.errors.UnknownError) and _OURS in str(error)
    if is_ours or (isinstance(error, tf.errors.OpError) and is_lost()):
        return internal_error(str(error))
    return None


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Runs func(state, …) until it returns, through changes of the job.

    When ranks are lost, the others restore the last commit and call func again; when ranks come, all do.
    Errors of TensorFlow that no collective caused are raised. In a job that is not elastic, func is called
    once.

    >>> @hvd.elastic.run
    ... def train(state):
    ...     while state.epoch < 10: ...
    """
    wrapped: Callable[..., Any] = decorate(func, Hooks(translate))
    return wrapped
