"""When gradients are reduced to shards and parameters gathered: the state behind ShardedOptimizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import torch

from rueda import epochs
from rueda.operations import set_size
from rueda.policy import Average, Max, Sum
from rueda.process_sets import ProcessSet
from rueda.torch.cross_step import CrossStep, OutstandingUpdate
from rueda.torch.extra_pass import ExtraPass, too_many_passes
from rueda.torch.pending_gradients import Settings, settle, watch_gradient, weakly
from rueda.torch.reductions import allreduce
from rueda.torch.shards import Place, Shard
from rueda.torch.tensors import in_order_of

READ_EARLY = (
    "Parameter {name} got a gradient before all of it had arrived from the last step: forward used it "
    "without calling a module that holds it, and so may have used old values. Call optimizer.finish() before "
    "that forward pass, or use overlap=False."
)
REDUCED_ALREADY = (
    "Parameter {name} got a gradient after its reduced gradient was asked for (synchronize, clip_grad_norm_) "
    "and before a step used it; call step() or zero_grad() first."
)
OTHER_WORLD = (
    "This ShardedOptimizer was made for rank {rank} of {size}, but the process set now has this process as "
    "rank {new_rank} of {new_size}; make a new one, and load the state into it."
)


class Gathering(CrossStep):
    """The parameters on their way after a step, and the hooks of the modules that wait for them."""

    option = "overlap=True"

    def _apply(self, updates: list[OutstandingUpdate]) -> None:
        """Nothing is left to do: what arrived lies in the parameters."""


def place_in(process_set: ProcessSet, what: str = "ShardedOptimizer") -> Place:
    """Alone where this rank is no member: it trains by itself then."""
    size = set_size(process_set, what)
    if process_set.included() is False:
        return Place(0, 1)
    return Place(process_set.rank() or 0, size)


class Sharding:
    """The shards of one optimizer. Hooks run on autograd's threads."""

    def __init__(self, settings: Settings, passes: int) -> None:
        self.settings = settings
        self.passes = passes
        self.place = place_in(settings.process_set)
        self.shards: dict[torch.Tensor, Shard] = {}
        self._trained: list[Shard] = []
        self._frozen: list[Shard] = []
        self._epoch = epochs.current()
        self._zeroed_after = 0  # so many passes of this step
        self.extra_pass = ExtraPass()

    @property
    def is_alone(self) -> bool:
        return self.place.size == 1

    def take(self, parameters: Iterable[tuple[torch.Tensor, str]]) -> None:
        """Shards these parameters as well. Those that are frozen wait until they are not."""
        for parameter, name in parameters:
            shard = Shard(parameter, name, self.place)
            self.shards[parameter] = shard
            self._frozen.append(shard)
        self._watch_unfrozen()

    def _watch_unfrozen(self) -> None:
        for shard in [one for one in self._frozen if one.parameter.requires_grad]:
            self._frozen.remove(shard)
            shard.passes_left = self.passes
            self._trained.append(shard)
            watch_gradient(self, shard.parameter, weakly(self._after_accumulation))

    def check_place(self) -> None:
        """After a new init: forgets what an earlier epoch ended. ValueError if the shards are others now."""
        epoch = epochs.current()
        if epoch in (epochs.NONE, self._epoch):
            return
        now = place_in(self.settings.process_set)
        if now != self.place:
            old = self.place
            raise ValueError(
                OTHER_WORLD.format(rank=old.rank, size=old.size, new_rank=now.rank, new_size=now.size)
            )
        self._epoch = epoch
        self.reset()

    # ---- gradients ----

    def _after_accumulation(self, parameter: torch.Tensor) -> None:
        shard = self.shards[parameter]
        self.check_place()
        if shard.is_outstanding:
            raise RuntimeError(READ_EARLY.format(name=shard.name))
        if shard.is_reduced:
            self.extra_pass.refuse(RuntimeError(REDUCED_ALREADY.format(name=shard.name)))
        if shard.passes_left <= 0:
            self.extra_pass.refuse(too_many_passes(self.passes, self._zeroed_after))
        shard.passes_left -= 1
        if shard.passes_left == 0 and not self.is_alone:
            try:
                shard.reduce(self.settings)
            except BaseException:  # so that the next attempt says why as well
                shard.passes_left = 1
                raise

    @property
    def is_busy(self) -> bool:
        """Whether a reduction has been started and not been awaited."""
        return any(shard.reduction is not None and not shard.reduction.is_lost for shard in self._trained)

    def reduce(self) -> None:
        """Starts what has not started, and waits for all. A gradient missing on this rank counts as zeros."""
        self.extra_pass.check()
        self.check_place()
        self._watch_unfrozen()
        for shard in self._trained:
            shard.follow()
            if shard.reduction is None and not shard.is_reduced:
                shard.reduce(self.settings)
        failure = self._await_started()
        if failure is not None:
            self.reset()
            raise failure

    def _await_started(self) -> Exception | None:
        """All have ended when the first failure is returned."""
        failure: Exception | None = None
        for shard in self._trained:
            if shard.reduction is None:
                continue
            try:
                settle(shard.reduction)
            except Exception as error:
                failure = failure or error
            shard.reduction = None
        return failure

    def reset(self) -> None:
        """Awaits what is under way, whether it fails or not, and forgets it and the counts of passes."""
        self._await_started()
        self.rearm()

    def rearm(self) -> None:
        self._zeroed_after = 0
        for shard in self._trained:
            shard.passes_left = self.passes
            shard.is_reduced = False
            shard.grad = None

    def note_zeroed(self) -> None:
        """Gradients are zeroed, and the passes that made them count still, unless they were reduced."""
        self.extra_pass.forget()
        for shard in self._trained:
            if shard.is_reduced:
                shard.is_reduced, shard.grad, shard.passes_left = False, None, self.passes
        self._zeroed_after = max((self.passes - shard.passes_left for shard in self._trained), default=0)

    def show(self) -> None:
        """Puts the reduced part into `.grad`, where it is used from now on. The other parts stay as they were
        computed here, except that all ranks have an infinite or undefined number if one of them has.
        """
        for shard in self._trained:
            grad = shard.fill()
            dense, _ = in_order_of(shard.parameter, grad)
            shard.parameter.grad = dense
            with torch.no_grad():
                part = shard.part_of(dense)
                if shard.grad is not None and shard.grad.data_ptr() != part.data_ptr():
                    part.copy_(shard.grad)
            shard.grad = part
        if not self.is_alone:
            self._share_faults()

    def _share_faults(self) -> None:
        """GradScaler decides on each rank whether to step, so all must see the same."""
        has_fault = not all(bool(torch.isfinite(grad).all()) for grad in self.grads())
        everyones = allreduce(
            torch.tensor([float(has_fault)]),
            name="sharded_optimizer.has_fault",
            op=Max,
            process_set=self.settings.process_set,
        )
        if everyones.item() > 0 and not has_fault:
            for shard in self._trained:
                grad = shard.fill()
                outside = self._part_outside(shard, grad)
                if outside.numel() > 0:
                    outside.fill_(float("nan"))
                    return

    @staticmethod
    def _part_outside(shard: Shard, grad: torch.Tensor) -> torch.Tensor:
        whole = in_order_of(shard.parameter, grad.detach())[1].view(-1)
        return whole[:1] if shard.start > 0 else whole[shard.end : shard.end + 1]

    def grads(self) -> Iterator[torch.Tensor]:
        """The reduced parts on this rank."""
        for shard in self._trained:
            if shard.grad is not None and shard.grad.numel() > 0:
                yield shard.grad

    def sum_of_all(self, value: torch.Tensor, name: str, op: int = Sum) -> torch.Tensor:
        """A number of all ranks."""
        if self.is_alone:
            return value
        return allreduce(value, name=name, op=op, process_set=self.settings.process_set)

    def reduce_loss(self, loss: Any) -> Any:
        """The loss of all ranks, if it is a number."""
        is_number = isinstance(loss, float) or (isinstance(loss, torch.Tensor) and loss.is_floating_point())
        if self.is_alone or not is_number:
            return loss
        local = loss.detach() if isinstance(loss, torch.Tensor) else torch.tensor(loss, dtype=torch.float64)
        op = Sum if self.settings.op == Sum else Average
        everyones = self.sum_of_all(local, "optimizer.closure_loss", op)
        return everyones if isinstance(loss, torch.Tensor) else everyones.item()

    # ---- parameters ----

    def gather(self) -> list[OutstandingUpdate]:
        """Starts bringing together what the ranks have updated."""
        if self.is_alone:
            return []
        started = []
        try:
            for shard in self._trained:
                if not shard.is_whole:
                    started.append(self._start_gathering(shard))
        except BaseException:
            for update in started:
                with suppress(Exception):
                    settle(update.reduction)  # type: ignore[arg-type]
                update.when_settled()
            raise
        return started

    def _start_gathering(self, shard: Shard) -> OutstandingUpdate:
        reduction = shard.gather(self.settings.process_set)
        shard.is_outstanding = True
        when_settled = partial(setattr, shard, "is_outstanding", False)
        return OutstandingUpdate(shard.parameter, shard.value, reduction, when_settled)
