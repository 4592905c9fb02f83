"""When and how the gradients of one optimizer are reduced: the state machine behind DistributedOptimizer."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rueda.operations import Prepared
from rueda.process_sets import ProcessSet
from rueda.torch.compression import Compression, Compressor
from rueda.torch.functions import broadcast_object
from rueda.torch.handles import start_prepared, synchronize
from rueda.torch.reductions import allreduce_async_, grouped_allreduce_async_, prepare_allreduce_
from rueda.torch.sparse import sparse_allreduce_async
from rueda.torch.tensors import DTYPES

GroupList = list[list[torch.Tensor]]

TOO_MANY_PASSES = (
    "Gradients were computed more than backward_passes_per_step times before call to step(). "
    "Increase backward_passes_per_step to accumulate gradients locally."
)


@dataclass(frozen=True)
class Settings:
    """How gradients are reduced."""

    compression: type[Compressor]
    op: int
    predivide_factor: float
    sparse_as_dense: bool
    process_set: ProcessSet

    @property
    def factors(self) -> tuple[float, float]:
        """Factors before and after the reduction; Average divides by the number of ranks itself."""
        return 1.0 / self.predivide_factor, self.predivide_factor


class _Slot:
    """One parameter between two steps."""

    __slots__ = (
        "_prepared_for",
        "finish",
        "group",
        "is_ready",
        "name",
        "parameter",
        "passes_left",
        "prepared",
    )

    def __init__(self, parameter: torch.Tensor, name: str, passes: int) -> None:
        self.parameter = parameter
        self.name = name
        self.passes_left = passes
        self.group: list[_Slot] = [self]
        self.is_ready = False  # its last pass is done; a group waits for all of its members
        self.finish: Callable[[], Any] | None = None  # set while a reduction is under way
        self.prepared: Prepared
        self._prepared_for: tuple[torch.dtype, torch.Size] | None = None

    def can_send(self, grad: torch.Tensor, settings: Settings) -> bool:
        """Whether `prepared` may be submitted for this gradient: dense, on the CPU, as it is."""
        if settings.compression is not Compression.none or grad.device.type != "cpu":
            return False
        if grad.layout != torch.strided or not grad.is_contiguous():
            return False
        kind = (grad.dtype, grad.shape)
        if kind != self._prepared_for:
            if grad.dtype not in DTYPES:
                return False  # the ordinary way says so
            arguments = (self.name, settings.op, settings.factors, settings.process_set)
            self.prepared = prepare_allreduce_(grad, *arguments)
            self._prepared_for = kind
        return True


def split_evenly(items: Sequence[Any], parts: int) -> Iterator[list[Any]]:
    """Consecutive parts whose lengths differ by one at most, the longer ones first."""
    length, longer = divmod(len(items), parts)
    start = 0
    for part in range(parts):
        stop = start + length + (part < longer)
        yield list(items[start:stop])
        start = stop


def resolve_groups(
    groups: GroupList | int | None,
    parameters: list[torch.Tensor],
    names: dict[torch.Tensor, str],
    process_set: ProcessSet | None,
) -> GroupList:
    """Groups of parameters to reduce as a whole, the same on every rank; parameters in no group are left
    out.
    """
    if groups is None:
        return []
    if isinstance(groups, list):
        flat = [member for group in groups for member in group]
        if not all(isinstance(member, torch.Tensor) for member in flat):
            raise ValueError("groups must consist of torch.Tensor.")
        if len({id(member) for member in flat}) != len(flat):
            raise ValueError("A parameter can only appear once in groups.")
        trained = {id(parameter) for parameter in parameters}
        return [[member for member in group if id(member) in trained] for group in groups]
    if process_set is None:
        return []
    # Ranks may have built the model in different orders; they must agree on the groups.
    root = (process_set.ranks or [0])[0]
    order = broadcast_object([names[p] for p in parameters], root, "optimizer.parameter_order", process_set)
    by_name = {names[p]: p for p in parameters}
    if sorted(by_name) != sorted(order):
        raise ValueError(
            f"Rank {root} trains other parameters than this rank, so groups={groups} cannot be formed; "
            "build the same model on every rank."
        )
    ordered = [by_name[name] for name in order]
    return [part for part in split_evenly(ordered, min(groups, max(1, len(ordered)))) if part]


class Reducer:
    """Hooks every trained parameter and reduces its gradient after the last pass. Hooks run on autograd's
    threads.
    """

    def __init__(
        self,
        parameters: list[torch.Tensor],
        names: dict[torch.Tensor, str],
        groups: GroupList,
        passes: int,
        settings: Settings,
    ) -> None:
        self._settings = settings
        self._passes = passes
        self._slots: dict[torch.Tensor, _Slot] = {}
        for parameter in parameters:
            self.watch(parameter, names[parameter])
        for group in groups:
            members = [self._slots[parameter] for parameter in group]
            for slot in members:
                slot.group = members

    def watch(self, parameter: torch.Tensor, name: str) -> None:
        """Reduces this parameter's gradients from now on."""
        self._slots[parameter] = _Slot(parameter, name, self._passes)
        # Parameters outlive optimizers: hooks must neither keep this object alive nor act once it is gone.
        me = weakref.ref(self)

        def hook(parameter: torch.Tensor) -> None:
            reducer = me()
            if reducer is not None:
                reducer._after_accumulation(parameter)

        weakref.finalize(self, parameter.register_post_accumulate_grad_hook(hook).remove)

    @property
    def is_busy(self) -> bool:
        """Whether a reduction has been started and not been awaited."""
        return any(slot.finish is not None for slot in self._slots.values())

    def set_passes(self, passes: int) -> None:
        """Changes the number of passes per reduction and starts counting again."""
        self._passes = passes
        for slot in self._slots.values():
            slot.passes_left = passes

    def reset(self) -> None:
        """Forgets reductions under way (their memory is kept until they end) and pass counts."""
        for slot in self._slots.values():
            self._rearm(slot)

    def _rearm(self, slot: _Slot) -> None:
        slot.passes_left = self._passes
        slot.is_ready = False
        slot.finish = None

    def _after_accumulation(self, parameter: torch.Tensor) -> None:
        slot = self._slots[parameter]
        if slot.passes_left <= 0:
            raise AssertionError(TOO_MANY_PASSES)
        slot.passes_left -= 1
        if slot.passes_left == 0:
            slot.is_ready = True
            if all(member.is_ready for member in slot.group):
                self._start(slot.group)

    def synchronize(self) -> None:
        """Starts what has not started, waits for everything, stores the results in `.grad`."""
        slots = list(self._slots.values())
        for slot in slots:
            if slot.parameter.grad is None:
                slot.parameter.grad = torch.zeros_like(slot.parameter, requires_grad=False)
            if slot.finish is None:
                self._start(slot.group)
        failure: BaseException | None = None
        for slot in slots:
            try:
                if slot.finish is not None:
                    slot.finish()
            except Exception as error:
                failure = failure or error  # await the others too: they end as well
            self._rearm(slot)
        if failure is not None:
            raise failure

    def _start(self, group: list[_Slot]) -> None:
        for slot in group:
            if slot.parameter.grad is None:
                slot.parameter.grad = torch.zeros_like(slot.parameter, requires_grad=False)
        dense = []
        for slot in group:
            grad = slot.parameter.grad
            assert grad is not None
            if not grad.is_sparse:
                dense.append(slot)
            elif self._settings.sparse_as_dense:
                self._start_densified(slot, grad)
            else:
                self._start_sparse(slot, grad)
        if len(group) > 1 and dense:
            self._start_group(dense)
        elif dense:
            self._start_dense(dense[0])

    def _start_dense(self, slot: _Slot) -> None:
        settings = self._settings
        grad = slot.parameter.grad
        assert grad is not None
        if slot.can_send(grad, settings):
            # The usual case, within backward: a few microseconds instead of twenty.
            quick = start_prepared(slot.prepared, grad)
            slot.finish = lambda: synchronize(quick)
            return
        sent, context = settings.compression.compress(grad)
        wire = sent if sent.is_contiguous() else sent.contiguous()
        handle = allreduce_async_(wire, None, slot.name, settings.op, *settings.factors, settings.process_set)
        slot.finish = lambda: self._store(grad, synchronize(handle), context)

    def _start_group(self, slots: list[_Slot]) -> None:
        settings = self._settings
        grads = [slot.parameter.grad for slot in slots if slot.parameter.grad is not None]
        sent, contexts = zip(*(settings.compression.compress(grad) for grad in grads))
        wires = [wire if wire.is_contiguous() else wire.contiguous() for wire in sent]
        name, process_set = slots[0].name, settings.process_set
        handle = grouped_allreduce_async_(wires, None, name, settings.op, *settings.factors, process_set)

        def finish_all() -> None:
            for grad, output, context in zip(grads, synchronize(handle), contexts):
                self._store(grad, output, context)

        # The first member finishes for all; the others are only marked as under way.
        for slot in slots:
            slot.finish = _nothing
        slots[0].finish = finish_all

    def _store(self, grad: torch.Tensor, output: torch.Tensor, context: Any) -> None:
        with torch.no_grad():
            reduced = self._settings.compression.decompress(output, context)
            if reduced.data_ptr() != grad.data_ptr():
                grad.copy_(reduced)

    def _start_sparse(self, slot: _Slot, grad: torch.Tensor) -> None:
        settings = self._settings
        wait = sparse_allreduce_async(grad, slot.name, settings.op, settings.process_set)

        def finish() -> None:
            slot.parameter.grad = wait()

        slot.finish = finish

    def _start_densified(self, slot: _Slot, grad: torch.Tensor) -> None:
        settings = self._settings
        dense = grad.to_dense()
        handle = allreduce_async_(
            dense, None, slot.name, settings.op, *settings.factors, settings.process_set
        )

        def finish() -> None:
            slot.parameter.grad = synchronize(handle).to_sparse(grad.sparse_dim())

        slot.finish = finish


def _nothing() -> None:
    """A group's members other than the first have nothing of their own to await."""
