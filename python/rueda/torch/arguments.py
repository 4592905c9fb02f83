"""The arguments of DistributedOptimizer: what is refused, and how."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from rueda.compression import StatefulCompressor
from rueda.compression_choices import check_wire_op, check_wire_types
from rueda.operations import check_compression
from rueda.policy import (
    ALREADY_DISTRIBUTED,
    OPS,
    Adasum,
    Average,
    Sum,
    check_op,
    check_passes,
    check_predivide,
)
from rueda.process_sets import ProcessSet
from rueda.torch import devices
from rueda.torch.compression import Compression, Compressor

OTHER_MODEL = (
    "model holds none of the optimizer's parameters, so its forward passes wait for nothing; give the module "
    "that this optimizer trains."
)
NO_MODEL = "cross_step=True needs model=, the module whose forward passes must wait for their parameters."


def check_reduction(compression: Any, op: int, predivide: float, passes: int) -> None:
    """Raises ValueError or TypeError for arguments that no reduction can satisfy."""
    check_compression(compression)
    if op not in OPS:
        raise ValueError(f"op must be one of Average, Sum, Adasum, Min, Max and Product, not {op!r}.")
    check_predivide(op, predivide)
    check_passes(passes)


def split_compression(
    compression: Any, op: int, cross_step: bool
) -> tuple[type[Compressor], StatefulCompressor | None]:
    """The compressor of the usual kind, and the one with state if that is what was given. Raises ValueError
    or TypeError if one with state cannot combine gradients so.
    """
    if isinstance(compression, type) and issubclass(compression, StatefulCompressor):
        name = compression.__name__
        raise TypeError(f"compression must be an object of class {name}, not the class; write {name}(...).")
    if not isinstance(compression, StatefulCompressor):
        return compression, None
    check_op(op, (Average, Sum), f"compression={compression!r}")
    if cross_step:
        raise ValueError(
            f"compression={compression!r} needs all gradients at once; use it with cross_step=False."
        )
    return Compression.none, compression


def check_wire(compression: Any, op: int, names: dict[torch.Tensor, str]) -> None:
    """Raises ValueError for what the wire type does not do, where it is known before the first step."""
    check_wire_op(compression, op)
    trained = ((name, _kind(one)) for one, name in names.items() if one.requires_grad)
    check_wire_types(compression, trained)


def _kind(parameter: torch.Tensor) -> str:
    kind = str(parameter.dtype).rpartition(".")[2]
    return f"{kind} in GPU memory" if devices.is_on_gpu(parameter) else kind


def check_groups(groups: Any) -> None:
    """Raises ValueError or TypeError unless groups is None, a number, or lists of parameters."""
    if groups is None:
        return
    if isinstance(groups, list):
        for group in groups:
            if isinstance(group, torch.Tensor) or not isinstance(group, Iterable):
                raise TypeError(
                    f"groups should be an integer or a list of list of torch.Tensor, not a list with "
                    f"{type(group).__name__}."
                )
        return
    if not isinstance(groups, int) or isinstance(groups, bool):
        raise TypeError(
            f"groups should be an integer or a list of list of torch.Tensor, not {type(groups).__name__}."
        )
    if groups <= 0:
        raise ValueError("groups should be a non-negative integer or a list of list of torch.Tensor.")


class Wrapped(torch.optim.Optimizer):
    """What DistributedOptimizer and its like make of an optimizer. None of them wraps it again."""


def check_kinds(optimizer: Any, process_set: Any) -> None:
    """Raises TypeError if one of these is something else, and ValueError if the optimizer is wrapped."""
    if not isinstance(process_set, ProcessSet):
        raise TypeError(f"process_set must be a ProcessSet, not {type(process_set).__name__}.")
    if not hasattr(optimizer, "param_groups"):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, not {type(optimizer).__name__}.")
    if isinstance(optimizer, Wrapped):
        raise ValueError(ALREADY_DISTRIBUTED)


def check_model(model: Any, optimizer: torch.optim.Optimizer, missing: str) -> None:
    """Raises ValueError unless forward passes of the model wait for parameters of the optimizer. missing:
    what to say where there is no model.
    """
    if not isinstance(model, torch.nn.Module):
        raise ValueError(missing)
    mine = set(model.parameters())
    if not any(p in mine for group in optimizer.param_groups for p in group["params"]):
        raise ValueError(OTHER_MODEL)


def check_cross_step(
    cross_step: bool,
    optimizer: torch.optim.Optimizer,
    model: torch.nn.Module | None,
    op: int,
    groups: Any,
) -> None:
    """Raises ValueError if step() cannot return while gradients are being reduced, and is to."""
    if not cross_step:
        if model is not None:
            raise ValueError("model is for cross_step=True only; leave it out.")
        return
    check_model(model, optimizer, NO_MODEL)
    if op == Adasum or isinstance(optimizer, torch.optim.LBFGS):
        what = "op=Adasum" if op == Adasum else "LBFGS"
        raise ValueError(f"{what} needs all gradients at once; use it with cross_step=False.")
    if groups is not None:
        raise ValueError("groups are reduced as a whole; leave them out, or use cross_step=False.")
