"""One parameter between two steps, and the hook that starts reducing its gradient within backward."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass

import torch

from rueda import epochs
from rueda.compression import StatefulCompressor
from rueda.errors import internal_error
from rueda.open_operations import Reduction, Repeated, open_operations, writing_back
from rueda.operations import sent_as
from rueda.policy import predivide_factors
from rueda.process_sets import ProcessSet
from rueda.torch.compression import Compression, Compressor, wire_type
from rueda.torch.overlaps import Use
from rueda.torch.reductions import prepare_allreduce_
from rueda.torch.sparse import empty_like
from rueda.torch.tensors import DTYPES, in_order_of, is_direct, is_in_order_of

LOST = (
    "Gradients were being reduced when Horovod was shut down, so their values are lost; load the state of "
    "the last good step and compute them again."
)


@dataclass(frozen=True)
class Settings:
    """How gradients are reduced."""

    compression: type[Compressor]
    op: int
    predivide_factor: float
    sparse_as_dense: bool
    process_set: ProcessSet
    part_bytes: int = 0  # longer gradients travel in parts; 0: whole
    compressor: StatefulCompressor | None = None  # takes the place of `compression` for dense gradients

    @property
    def factors(self) -> tuple[float, float]:
        """Factors before and after the reduction; Average divides by the number of ranks itself."""
        return predivide_factors(self.predivide_factor)


class PendingGradient:
    """One parameter between two steps."""

    __slots__ = (
        "__weakref__",
        "device",
        "dtype",
        "group",
        "is_outstanding",
        "is_ready",
        "is_settled",
        "name",
        "parameter",
        "passes_left",
        "prepared",
        "priority",
        "reduction",
        "shape",
        "sparse_dim",
        "strides",
    )

    def __init__(self, parameter: torch.Tensor, name: str, passes: int) -> None:
        self.parameter = parameter
        self.name = name
        self.passes_left = passes
        self.group: list[PendingGradient] = [self]
        self.is_ready = False  # its last pass is done; a group waits for all of its members
        self.reduction: Reduction | None = None  # under way; its result goes to `.grad`
        self.is_settled = False  # `.grad` holds the reduced gradient, which no step has used yet
        self.is_outstanding = False  # its update of the last step is not made yet
        self.priority = 0  # of its reductions, as in rueda.h
        self.sparse_dim: int | None = None  # of the last gradient, if that was sparse
        self.prepared: Repeated | None = None  # the reduction of gradients of this type and shape
        self.dtype: torch.dtype | None = None
        self.shape: torch.Size | None = None
        self.strides: tuple[int, ...] = ()
        self.device = -1  # as get_device() gives it

    def fill(self) -> torch.Tensor:
        """The gradient. If there is none: zeros, of the kind that other ranks are likely to have."""
        grad = self.parameter.grad
        if grad is None:
            if self.sparse_dim is None:
                grad = torch.zeros_like(self.parameter, requires_grad=False)
            else:
                grad = empty_like(self.parameter, self.sparse_dim)
            self.parameter.grad = grad
        return grad

    def prepare(self, grad: torch.Tensor, settings: Settings) -> bool:
        """Whether `send` may be called with this gradient: it is dense and direct, and needs no change."""
        wire = wire_type(settings.compression, [grad], settings.op)
        if not (wire or settings.compression is Compression.none) or not is_direct(grad):
            return False
        if grad.layout != torch.strided:
            return False
        kind = (grad.dtype, grad.shape, grad.stride(), grad.get_device())
        if kind != (self.dtype, self.shape, self.strides, self.device):
            if grad.dtype not in DTYPES or not is_in_order_of(self.parameter, grad):
                return False  # the ordinary way reports the type, or sends a copy
            _, view = in_order_of(self.parameter, grad)
            arguments = (self.name, settings.op, settings.factors, settings.process_set)
            with sent_as(wire):
                self.prepared = prepare_allreduce_(view, *arguments, (self.priority, settings.part_bytes))
            self.dtype, self.shape, self.strides, self.device = kind
        return True

    def send(self, grad: torch.Tensor) -> None:
        """Starts reducing a gradient for which the operation was prepared."""
        assert self.prepared is not None
        if writing_back:
            Use([grad], [grad]).wait_for_others()
        self.prepared.send(grad.data_ptr(), grad)
        self.reduction = self.prepared

    @property
    def is_sent(self) -> bool:
        """Whether the reduction under way was started by `send`, or by the hook that does the same."""
        return self.reduction is not None and self.reduction is self.prepared


def settle(reduction: Reduction) -> None:
    """Waits until the result is where it belongs. HorovodInternalError when it failed or was lost."""
    if reduction.is_lost:
        raise internal_error(LOST)
    reduction.settle()


class Activity:
    """Whether some gradient of a reducer may be under way. Asked often, and usually not so."""

    __slots__ = ("epoch", "is_possible")

    def __init__(self) -> None:
        self.is_possible = False
        self.epoch = epochs.current()  # the one to which the counts of passes belong


def weakly(method: Callable[[torch.Tensor], None]) -> Callable[[torch.Tensor], None]:
    """The method as a hook of parameters, which outlive its object. It does nothing once that is gone."""
    held = weakref.WeakMethod(method)

    def hook(parameter: torch.Tensor) -> None:
        alive = held()
        if alive is not None:
            alive(parameter)

    return hook


def watch_gradient(
    owner: object, parameter: torch.Tensor, hook: Callable[[torch.Tensor], None]
) -> Callable[[], object]:
    """Calls the hook after each accumulation, until the owner is gone or what is returned is called."""
    return weakref.finalize(owner, parameter.register_post_accumulate_grad_hook(hook).remove)


def weak_slot(gradient: PendingGradient) -> Callable[[], PendingGradient | None]:
    """The gradient as a hook holds it."""
    return weakref.ref(gradient)


def make_hook(
    gradient: PendingGradient, activity: Activity, in_general: Callable[[torch.Tensor], None]
) -> Callable[[torch.Tensor], None]:
    """What autograd calls when a gradient is complete. It keeps neither the gradient nor its owner alive.

    The usual case is handled here, without any call that can be avoided, because backward waits for it.
    in_general handles the others: more passes to come, members of a group, gradients that need a change,
    the first gradient.
    """
    get_slot = weak_slot(gradient)
    strided = torch.strided
    current_epoch = epochs.current

    def hook(parameter: torch.Tensor) -> None:
        gradient = get_slot()
        if gradient is None:
            return
        grad, prepared = parameter.grad, gradient.prepared
        if (
            gradient.passes_left != 1
            or activity.epoch != current_epoch()
            or gradient.is_outstanding
            or grad is None
            or prepared is None
            or grad.dtype is not gradient.dtype
            or grad.shape != gradient.shape
            or grad.get_device() != gradient.device
            or grad.layout is not strided
            or grad.stride() != gradient.strides
            or grad.is_neg()
            or writing_back
        ):
            in_general(parameter)
            return
        prepared.engine_handle = engine_handle = prepared.start(
            grad.data_ptr()
        )  # changes nothing if it raises
        gradient.passes_left = 0
        gradient.is_ready = True
        gradient.is_settled = False
        gradient.sparse_dim = None
        activity.is_possible = True
        prepared.borrowed = grad
        open_operations[engine_handle] = gradient.reduction = prepared

    return hook
