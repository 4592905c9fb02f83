"""When and how the gradients of one optimizer are reduced: the state machine behind DistributedOptimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from rueda import epochs
from rueda.in_flight import of_handle
from rueda.numbering import numbers
from rueda.operations import sent_as
from rueda.policy import Average, Sum
from rueda.torch import arena
from rueda.torch.compressed_reduction import advance_all, start_compressed
from rueda.torch.compression import Compressor, NoneCompressor, wire_type
from rueda.torch.cross_step import READ_EARLY, OutstandingUpdate
from rueda.torch.extra_pass import ExtraPass, too_many_passes
from rueda.torch.gradient_groups import GroupList
from rueda.torch.gradient_hooks import await_all, make_hook
from rueda.torch.pending_gradients import (
    Activity,
    PendingGradient,
    Settings,
    settle,
    watch_gradient,
    weakly,
)
from rueda.torch.reductions import allreduce, allreduce_async_, grouped_allreduce_async_, start_allreduce_
from rueda.torch.sparse import SparseReduction
from rueda.torch.tensors import in_order_of

ZEROED_EARLY = (
    "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
    "optimizer.synchronize(). This is prohibited as it can cause a race condition."
)


class Reducer:
    """Hooks every trained parameter and reduces its gradient after the last pass.

    Hooks run on autograd's threads.
    """

    def __init__(
        self,
        parameters: list[torch.Tensor],
        names: dict[torch.Tensor, str],
        groups: GroupList,
        passes: int,
        settings: Settings,
        has_hooks: bool = True,
    ) -> None:
        """has_hooks: False: backward starts nothing; hand_over() does."""
        self.settings = settings
        self._has_hooks = has_hooks
        self._passes = passes
        self._zeroed_after = 0  # so many passes of this step
        self.extra_pass = ExtraPass()
        self._gradients: dict[torch.Tensor, PendingGradient] = {}
        self._activity = Activity()
        # Gives the reductions of a parameter their priority, when the first begins.
        self.priority_of: Callable[[torch.Tensor], int] | None = None
        self._frozen: dict[torch.Tensor, str] = {}
        self._unwatch: list[Callable[[], object]] = []
        for parameter in parameters:
            self.take(parameter, names[parameter])
        for group in groups:
            members = [self._gradients[parameter] for parameter in group]
            for gradient in members:
                gradient.group = members

    def take(self, parameter: torch.Tensor, name: str) -> None:
        """Reduces this parameter's gradients from now on, or as soon as it is no longer frozen."""
        if parameter.requires_grad:
            self._watch(parameter, name)
        else:
            self._frozen[parameter] = name

    def _watch_unfrozen(self) -> None:
        """Hooks layers unfrozen since the last step, as all ranks do: torch takes no hook before."""
        for parameter in [p for p in self._frozen if p.requires_grad]:
            self._watch(parameter, self._frozen.pop(parameter))

    def _watch(self, parameter: torch.Tensor, name: str) -> None:
        self._gradients[parameter] = PendingGradient(parameter, name, self._passes)
        arena.await_gradients(parameter, self)
        if not self._has_hooks:
            return
        hook = make_hook(self._gradients[parameter], self._activity, weakly(self._after_accumulation))
        self._unwatch.append(watch_gradient(self, parameter, hook))

    def close(self) -> None:
        """Awaits what is under way and reduces nothing any more."""
        self.reset()
        for unwatch in self._unwatch:
            unwatch()

    @property
    def is_busy(self) -> bool:
        """Whether a reduction has been started and not been awaited."""
        return self._activity.is_possible and any(
            gradient.reduction is not None for gradient in self._gradients.values()
        )

    @property
    def is_lost(self) -> bool:
        """Whether a shutdown ended all reductions that have not been awaited."""
        started = [
            gradient.reduction for gradient in self._gradients.values() if gradient.reduction is not None
        ]
        return all(reduction.is_lost for reduction in started)

    @property
    def has_work(self) -> bool:
        """Whether backward has computed gradients that no step has used."""
        gradients = self._gradients.values()
        return any(gradient.passes_left != self._passes or gradient.is_settled for gradient in gradients)

    @property
    def has_settled(self) -> bool:
        """Whether some `.grad` holds a reduced gradient that no step has used."""
        return any(gradient.is_settled for gradient in self._gradients.values())

    def note_zeroed(self) -> None:
        """Gradients are zeroed, and the passes that made them count still."""
        self.extra_pass.forget()
        counted = (self._passes - gradient.passes_left for gradient in self._gradients.values())
        self._zeroed_after = max(counted, default=0)

    def set_passes(self, passes: int) -> None:
        """Changes the number of passes per reduction and starts counting again. Awaits what is under way."""
        self._finish_started()
        self._passes = passes
        self._zeroed_after = 0
        for gradient in self._gradients.values():
            gradient.passes_left = passes
            gradient.is_ready = False

    def reset(self) -> None:
        """Awaits what is under way, whether it fails or not, and forgets it and pass counts.

        Otherwise the engine would still hold the names when the next backward pass uses them.
        """
        self._finish_started()
        for gradient in self._gradients.values():
            self._rearm(gradient)

    def settle(self) -> None:
        """Waits for what has been started and stores the results in `.grad`; starts nothing.

        The next synchronize() does not reduce these gradients again.
        """
        failure = self._finish_started()
        if failure is not None:
            self.reset()
            raise failure

    def _finish_started(self) -> Exception | None:
        """Waits for every reduction under way; all have ended when the first failure is returned."""
        failure: Exception | None = None
        sent = 0
        advance_all(gradient.reduction for gradient in self._gradients.values())
        for gradient in self._gradients.values():
            if gradient.reduction is None:
                continue
            try:
                sent += gradient.is_sent and not gradient.reduction.is_lost
                settle(gradient.reduction)
                gradient.is_settled = True
            except Exception as error:
                failure = failure or error
            gradient.reduction = None
        self._activity.is_possible = False
        self._count(sent)
        return failure

    def _count(self, sent: int) -> None:
        """Of prepared operations nobody has taken a number."""
        set_id = self.settings.process_set.process_set_id
        if sent and set_id is not None:
            with numbers:
                numbers.skip(set_id, sent)

    def hand_over(self) -> dict[torch.Tensor, OutstandingUpdate]:
        """Starts what has not started, and passes everything on with the gradients: `.grad` is None then.

        If some are sparse, all are awaited, because the results of sparse ones are new tensors.
        """
        gradients = self._start_rest()
        if any(gradient.fill().is_sparse for gradient in gradients):
            self.settle()
        updates = {}
        for gradient in gradients:
            updates[gradient.parameter] = self._outstanding_update(gradient)
        self._count(sum(gradient.is_sent for gradient in gradients))
        for gradient in gradients:
            gradient.reduction = None
            gradient.parameter.grad = None
            self._rearm(gradient)
        self._activity.is_possible = False
        return updates

    def _start_rest(self) -> list[PendingGradient]:
        """Starts what has not started. Returns all gradients."""
        self.extra_pass.check()
        self._watch_unfrozen()
        gradients = list(self._gradients.values())
        for gradient in gradients:
            gradient.fill()
            if gradient.reduction is None and not gradient.is_settled:
                self._start(gradient.group)
        return gradients

    def _outstanding_update(self, gradient: PendingGradient) -> OutstandingUpdate:
        gradient.is_outstanding = gradient.reduction is not None
        when_settled = partial(setattr, gradient, "is_outstanding", False)
        return OutstandingUpdate(gradient.parameter, gradient.fill(), gradient.reduction, when_settled)

    def _rearm(self, gradient: PendingGradient) -> None:
        self._zeroed_after = 0
        gradient.passes_left = self._passes
        gradient.is_ready = False
        gradient.is_settled = False

    def _after_accumulation(self, parameter: torch.Tensor) -> None:
        gradient = self._gradients[parameter]
        self._follow_epoch()
        if gradient.is_outstanding:
            raise RuntimeError(READ_EARLY.format(name=gradient.name))
        if gradient.passes_left <= 0:
            self.extra_pass.refuse(too_many_passes(self._passes, self._zeroed_after))
        gradient.passes_left -= 1
        gradient.is_settled = False
        if gradient.passes_left == 0:
            gradient.is_ready = True
            if all(member.is_ready for member in gradient.group):
                try:
                    self._start(gradient.group)
                except BaseException:  # so that the next attempt says why as well
                    gradient.passes_left, gradient.is_ready = 1, False
                    raise

    def _follow_epoch(self) -> None:
        """After a new init: forgets passes and reductions of an earlier epoch, which ended them all."""
        epoch = epochs.current()
        if epoch not in (epochs.NONE, self._activity.epoch):
            self._activity.epoch = epoch
            self.reset()

    def synchronize(self) -> None:
        """Starts what has not started, waits for everything, stores the results in `.grad`."""
        self._watch_unfrozen()
        may_be_usual = self._activity.is_possible and not self.extra_pass.is_known
        if may_be_usual and await_all(list(self._gradients.values()), self._passes):
            self._activity.is_possible = False
            self._zeroed_after = 0
            self._count(len(self._gradients))
            return
        gradients = self._start_rest()
        failure = self._finish_started()
        for gradient in gradients:
            self._rearm(gradient)
        if failure is not None:
            raise failure

    def reduce_loss(self, loss: Any) -> Any:
        """The loss of all ranks, if it is a number and gradients are averaged or summed."""
        op, process_set = self.settings.op, self.settings.process_set
        is_number = isinstance(loss, float) or (isinstance(loss, torch.Tensor) and loss.is_floating_point())
        if op not in (Average, Sum) or not is_number:
            return loss
        local = loss.detach() if isinstance(loss, torch.Tensor) else torch.tensor(loss, dtype=torch.float64)
        everyones = allreduce(local, name="optimizer.closure_loss", op=op, process_set=process_set)
        return everyones if isinstance(loss, torch.Tensor) else everyones.item()

    def _start(self, group: list[PendingGradient]) -> None:
        self._activity.is_possible = True
        for gradient in group:
            gradient.fill()
            gradient.is_settled = False
        dense = []
        for gradient in group:
            grad = gradient.fill()
            gradient.sparse_dim = None
            if not grad.is_sparse:
                dense.append(gradient)
            elif self.settings.sparse_as_dense:
                self._start_densified(gradient, grad)
            else:
                gradient.sparse_dim = grad.sparse_dim()
                self._start_sparse(gradient, grad)
        if self.settings.compressor is not None:
            start_compressed(dense, self.settings)
        elif len(group) > 1 and dense:
            self._start_group(dense)
        elif dense:
            self._start_dense(dense[0])

    def _start_dense(self, gradient: PendingGradient) -> None:
        settings = self.settings
        grad = gradient.parameter.grad
        assert grad is not None
        if self.priority_of is not None and gradient.priority == 0:
            gradient.priority = self.priority_of(gradient.parameter)
        if gradient.prepare(grad, settings):
            gradient.send(grad)
            return
        wire_kind = wire_type(settings.compression, [grad], settings.op)
        compression = NoneCompressor if wire_kind else settings.compression
        sent, context = compression.compress(grad)
        wire, view = in_order_of(gradient.parameter, sent)
        arguments = (settings.op, settings.factors, settings.process_set, gradient.priority)
        with sent_as(wire_kind):
            started = of_handle(start_allreduce_(view, gradient.name, *arguments))
        gradient.reduction = started.then(lambda _: _store(compression, grad, context, wire))

    def _start_group(self, gradients: list[PendingGradient]) -> None:
        settings = self.settings
        grads = [gradient.parameter.grad for gradient in gradients if gradient.parameter.grad is not None]
        wire_kind = wire_type(settings.compression, grads, settings.op)
        compression = NoneCompressor if wire_kind else settings.compression
        sent, contexts = zip(*(compression.compress(grad) for grad in grads))
        pairs = [in_order_of(grad_of.parameter, one) for grad_of, one in zip(gradients, sent)]
        wires, views = zip(*pairs)
        name, process_set = gradients[0].name, settings.process_set
        with sent_as(wire_kind):
            handle = grouped_allreduce_async_(views, None, name, settings.op, *settings.factors, process_set)

        def store_all(_: Sequence[torch.Tensor]) -> None:
            for grad, context, wire in zip(grads, contexts, wires):
                _store(compression, grad, context, wire)

        reduction = of_handle(handle).then(store_all)
        for gradient in gradients:
            gradient.reduction = reduction

    def _start_sparse(self, gradient: PendingGradient, grad: torch.Tensor) -> None:
        settings = self.settings
        replace = partial(setattr, gradient.parameter, "grad")
        gradient.reduction = SparseReduction(grad, gradient.name, settings.op, settings.process_set, replace)

    def _start_densified(self, gradient: PendingGradient, grad: torch.Tensor) -> None:
        settings = self.settings
        dense = grad.to_dense()
        handle = allreduce_async_(
            dense, None, gradient.name, settings.op, *settings.factors, settings.process_set
        )

        def replace(reduced: torch.Tensor) -> None:
            gradient.parameter.grad = reduced.to_sparse(grad.sparse_dim())

        gradient.reduction = of_handle(handle).then(replace)


def _store(compression: type[Compressor], grad: torch.Tensor, context: Any, wire: torch.Tensor) -> None:
    """wire: what was reduced."""
    with torch.no_grad():
        reduced = compression.decompress(wire, context)
        if reduced.data_ptr() != grad.data_ptr():
            grad.copy_(reduced)
