"""One parameter between two steps, and the hook that starts reducing its gradient within backward."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from rueda.policy import predivide_factors
from rueda.process_sets import ProcessSet
from rueda.torch.compression import Compression, Compressor
from rueda.torch.handles import finish_prepared, lent
from rueda.torch.reductions import prepare_allreduce_
from rueda.torch.sparse import empty_like
from rueda.torch.tensors import DTYPES, is_direct


@dataclass(frozen=True)
class Settings:
    """How gradients are reduced."""

    compression: type[Compressor]
    op: int
    predivide_factor: float
    sparse_as_dense: bool
    process_set: ProcessSet
    part_bytes: int = 0  # longer gradients travel in parts; 0: whole

    @property
    def factors(self) -> tuple[float, float]:
        """Factors before and after the reduction; Average divides by the number of ranks itself."""
        return predivide_factors(self.predivide_factor)


class Slot:
    """One parameter between two steps."""

    __slots__ = (
        "__weakref__",
        "dtype",
        "engine_handle",
        "finish",
        "group",
        "is_outstanding",
        "is_ready",
        "is_settled",
        "name",
        "parameter",
        "passes_left",
        "priority",
        "shape",
        "shutdowns",
        "sparse_dim",
        "start",
    )

    def __init__(self, parameter: torch.Tensor, name: str, passes: int) -> None:
        self.parameter = parameter
        self.name = name
        self.passes_left = passes
        self.group: list[Slot] = [self]
        self.is_ready = False  # its last pass is done; a group waits for all of its members
        self.finish: Callable[[], Any] | None = None  # set while a reduction is under way
        self.engine_handle = 0  # of a reduction under way that was started by `start`
        self.is_settled = False  # `.grad` holds the reduced gradient, which no step has used yet
        self.is_outstanding = False  # its update of the last step is not made yet
        self.priority = 0  # of its reductions, as in rueda.h
        self.shutdowns = 0  # when a reduction that has no engine_handle was started
        self.sparse_dim: int | None = None  # of the last gradient, if that was sparse
        self.start: Callable[[int], int]  # for gradients of this type and shape, by address
        self.dtype: torch.dtype | None = None
        self.shape: torch.Size | None = None

    def fill(self) -> torch.Tensor:
        """The gradient; one that says zero, of the kind other ranks are likely to have, if there is none."""
        grad = self.parameter.grad
        if grad is None:
            if self.sparse_dim is None:
                grad = torch.zeros_like(self.parameter, requires_grad=False)
            else:
                grad = empty_like(self.parameter, self.sparse_dim)
            self.parameter.grad = grad
        return grad

    def prepare(self, grad: torch.Tensor, settings: Settings) -> bool:
        """Whether `send` may be called with this gradient: dense, on the CPU, as it is."""
        if settings.compression is not Compression.none or not is_direct(grad):
            return False
        if grad.layout != torch.strided or not grad.is_contiguous():
            return False
        if (grad.dtype, grad.shape) != (self.dtype, self.shape):
            if grad.dtype not in DTYPES:
                return False  # the ordinary way says so
            arguments = (self.name, settings.op, settings.factors, settings.process_set)
            self.start = prepare_allreduce_(grad, *arguments, (self.priority, settings.part_bytes))
            self.dtype, self.shape = grad.dtype, grad.shape
        return True

    def send(self, grad: torch.Tensor) -> None:
        """Starts reducing a gradient that was prepared for."""
        self.engine_handle = handle = self.start(grad.data_ptr())
        lent[handle] = grad
        self.finish = self.finish_sent

    def finish_sent(self) -> None:
        """Waits for what `send` started."""
        finish_prepared(self.engine_handle)


class Activity:
    """Whether some slot of a reducer may be under way: asked often, and mostly in vain."""

    __slots__ = ("is_possible",)

    def __init__(self) -> None:
        self.is_possible = False


def weakly(method: Callable[[torch.Tensor], None]) -> Callable[[torch.Tensor], None]:
    """The method as a hook of parameters, which outlive its object: does nothing once that is gone."""
    held = weakref.WeakMethod(method)

    def hook(parameter: torch.Tensor) -> None:
        alive = held()
        if alive is not None:
            alive(parameter)

    return hook


def watch_gradient(owner: object, parameter: torch.Tensor, hook: Callable[[torch.Tensor], None]) -> None:
    """Calls the hook after each accumulation, until the owner is gone."""
    weakref.finalize(owner, parameter.register_post_accumulate_grad_hook(hook).remove)


def make_hook(
    slot: Slot, activity: Activity, in_general: Callable[[torch.Tensor], None]
) -> Callable[[torch.Tensor], None]:
    """What autograd calls when a gradient is complete. It keeps neither the slot nor its owner alive.

    The usual case is done here, without a call that can be spared: backward waits for it. in_general does the
    others: more passes to come, members of a group, gradients that cannot be sent as they are, the first one.
    """
    get_slot = weakref.ref(slot)
    strided = torch.strided

    def hook(parameter: torch.Tensor) -> None:
        slot = get_slot()
        if slot is None:
            return
        grad = parameter.grad
        if (
            slot.passes_left != 1
            or slot.is_outstanding
            or grad is None
            or grad.dtype is not slot.dtype
            or grad.shape != slot.shape
            or not grad.is_cpu
            or grad.layout is not strided
            or not grad.is_contiguous()
            or grad.is_neg()
        ):
            in_general(parameter)
            return
        slot.passes_left = 0
        slot.is_ready = True
        slot.is_settled = False
        slot.sparse_dim = None
        activity.is_possible = True
        slot.engine_handle = handle = slot.start(grad.data_ptr())
        lent[handle] = grad
        slot.finish = slot.finish_sent

    return hook
