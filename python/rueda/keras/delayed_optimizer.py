"""DelayedOptimizer: the user's Keras optimizer, whose gradients arrive one step late."""

from __future__ import annotations

from typing import Any

import keras

from rueda import _core
from rueda.compression_choices import check_wire_op
from rueda.keras.backends import Compression, Reduction, backend_name, check_choice, check_types
from rueda.keras.delayed import check
from rueda.keras.optimizer import (
    check_optimizer,
    distribute,
    is_loss_scaling,
    next_prefix,
    warn_late,
)
from rueda.operations import check_compression
from rueda.process_sets import ProcessSet, global_process_set
from rueda.pure_compressors import PureCompressor


def DelayedOptimizer(
    optimizer: Any,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = _core.AVERAGE,
    gradient_predivide_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    warn_if_late: bool = True,
) -> Any:
    """Makes the gradients of a step of a Keras optimizer travel while the next step computes.

    A step takes the longer of computing and communicating. Until the reduced gradients arrive, one step
    later, this rank's own stand for them: a step undoes what these did, applies the reduced ones, and then
    the new own ones. The weights differ between ranks by that last step; callbacks.AgreedWeightsCallback
    gives the model those that all ranks have. The optimizer's state has the same bits on all ranks.

    Training begins with a step of zeros, also where a model was loaded. In steps that TensorFlow runs eagerly
    nothing overlaps. Sparse gradients travel as dense ones. Loss scaling, gradient_accumulation_steps and
    compressors that keep a state are refused. Arguments, errors and the returned object as for
    DistributedOptimizer.

    >>> optimizer = hvd.DelayedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9))
    >>> model.compile(optimizer=optimizer, loss="mse")
    """
    backend_name()
    check_optimizer(optimizer, op, gradient_predivide_factor, 1, "DelayedOptimizer")
    if isinstance(compression, PureCompressor):
        check_compression(compression)
    check_choice(compression)
    check_wire_op(compression, op)
    check_types(compression, getattr(optimizer, "_trainable_variables", ()))
    is_scaled = keras.config.dtype_policy().name == "mixed_float16" or is_loss_scaling(optimizer)
    check(is_scaled, getattr(optimizer, "gradient_accumulation_steps", None))
    if warn_if_late:
        warn_late(optimizer, "DelayedOptimizer")
    reduction = Reduction(
        prefix=name or next_prefix(optimizer),
        op=op,
        compression=compression,
        predivide=gradient_predivide_factor,
        process_set=process_set,
        is_delayed=True,
    )
    distribute(optimizer, reduction, 1.0, True)
    return optimizer
