"""The delta form of DistributedOptimizer: ranks step on their own and combine their weight changes by Adasum.

Maleki et al., "Scaling Distributed Training with Adaptive Summation" (2020).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from rueda import epochs
from rueda.in_flight import of_handle, settle_all
from rueda.open_operations import InFlight
from rueda.policy import Adasum, check_passes
from rueda.process_sets import ProcessSet
from rueda.steps import mark_step
from rueda.torch.arguments import Wrapped
from rueda.torch.compression import Compressor
from rueda.torch.extra_pass import too_many_passes
from rueda.torch.naming import default_names
from rueda.torch.pending_gradients import watch_gradient, weakly
from rueda.torch.reducer import ZEROED_EARLY
from rueda.torch.reductions import allreduce_async_

NO_SKIPPING = "Skipping synchronization is not supported when using Adasum optimizer."


class AdasumMixin(Wrapped):
    """What DistributedOptimizer puts in front of the user's optimizer class for op=Adasum."""

    def _attach(
        self,
        names: dict[torch.Tensor, str],
        compression: type[Compressor],
        passes: int,
        process_set: ProcessSet,
    ) -> None:
        self._parameter_names = names
        self._compression = compression
        self.backward_passes_per_step = passes
        self._process_set = process_set
        self._epoch = epochs.current()  # the one to which the counts of passes belong
        self._trained: list[torch.Tensor] = []
        self._frozen: dict[torch.Tensor, None] = {}
        self._passes_left: dict[torch.Tensor, int] = {}
        self._zeroed_after = 0  # so many passes of this step
        self._start_of: dict[torch.Tensor, torch.Tensor] = {}
        self._pending: dict[torch.Tensor, InFlight] = {}
        for group in self.param_groups:
            self._take(group["params"])

    @property
    def _is_alone(self) -> bool:
        return self._process_set.size() == 1 or not self._process_set.included()

    def _take(self, parameters: list[torch.Tensor]) -> None:
        for parameter in parameters:
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter, requires_grad=False)
                self._watch(parameter)
            else:
                self._frozen[parameter] = None

    def _watch(self, parameter: torch.Tensor) -> None:
        """Sends this parameter's changes from now on."""
        self._trained.append(parameter)
        self._passes_left[parameter] = self.backward_passes_per_step
        self._start_of[parameter] = torch.zeros_like(parameter, requires_grad=False)
        if not self._is_alone:
            watch_gradient(self, parameter, weakly(self._after_accumulation))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters, for instance of layers that were frozen; their changes are combined too."""
        super().add_param_group(param_group)
        if "_trained" not in self.__dict__:  # the wrapper is being built
            return
        added = default_names(self, len(self.param_groups) - 1)
        for parameter, name in added.items():
            self._parameter_names.setdefault(parameter, name)
        self._take(list(added))

    def _follow_epoch(self) -> None:
        """After a new init: forgets passes and changes of an earlier epoch, which ended them all."""
        epoch = epochs.current()
        if epoch not in (epochs.NONE, self._epoch):
            self._epoch = epoch
            self._abandon()

    def _after_accumulation(self, parameter: torch.Tensor) -> None:
        self._follow_epoch()
        if self._passes_left[parameter] <= 0:
            raise too_many_passes(self.backward_passes_per_step, self._zeroed_after)
        self._passes_left[parameter] -= 1
        if self._passes_left[parameter] == 0:
            try:
                self._start(parameter)
            except Exception:  # the weights come back, and the next attempt starts anew
                parameter.data.copy_(self._start_of[parameter])
                self._abandon()
                raise

    @torch.no_grad()
    def _start(self, parameter: torch.Tensor) -> None:
        """Steps this parameter alone and sends its change. Its gradient is final: backward is done with it.

        `.data` keeps the version counter, as every in-place step of an optimizer in a hook must.
        """
        start = self._start_of[parameter]
        start.copy_(parameter)
        members = [group["params"] for group in self.param_groups]
        for group in self.param_groups:
            group["params"] = [parameter] if any(p is parameter for p in group["params"]) else []
        try:
            super().step()
        finally:
            for group, params in zip(self.param_groups, members):
                group["params"] = params
        parameter.data.sub_(start)
        sent, context = self._compression.compress(parameter.data)
        handle = allreduce_async_(
            sent.contiguous(), name=self._parameter_names[parameter], op=Adasum, process_set=self._process_set
        )
        decompress = self._compression.decompress
        self._pending[parameter] = of_handle(handle).then(lambda change: decompress(change, context))

    def synchronize(self) -> None:
        """Does nothing, because step() awaits the changes."""

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Not supported: raises AssertionError."""
        raise AssertionError(NO_SKIPPING)
        yield

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Applies the combined changes of all ranks. A missing gradient counts as zeros."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._is_alone:
            super().step()
            return loss
        for parameter in [p for p in self._frozen if p.requires_grad]:
            del self._frozen[parameter]
            self._watch(parameter)
        for parameter in self._trained:
            if parameter not in self._pending:
                self._start(parameter)
        try:
            changes = settle_all([self._pending[parameter] for parameter in self._trained])
        except Exception:
            for parameter in self._trained:  # they hold changes now, so give the weights back
                parameter.data.copy_(self._start_of[parameter])
            raise
        finally:
            self._rearm()
        for parameter, change in zip(self._trained, changes):
            parameter.data.copy_(self._start_of[parameter] + change.view_as(parameter))
        mark_step(self)
        return loss

    step.hooked = True  # type: ignore[attr-defined]  # the step of the wrapped class runs the step hooks

    def _rearm(self) -> None:
        self._pending.clear()
        self._passes_left = dict.fromkeys(self._trained, self.backward_passes_per_step)
        self._zeroed_after = 0

    @torch.no_grad()
    def _abandon(self) -> None:
        """Gives back the weights whose changes are under way. The engine must have let go of their names."""
        for parameter, change in self._pending.items():
            with suppress(Exception):
                change.settle()
            parameter.data.copy_(self._start_of[parameter])
        self._rearm()

    def local_step(self, closure: Any = None) -> Any:
        """The step of the wrapped optimizer alone, without communication."""
        return super().step(closure)

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Like the wrapped optimizer's; refused while weight changes are being reduced.

        Changes that a shutdown ended are undone.
        """
        if not all(change.is_lost for change in self._pending.values()):
            raise AssertionError(ZEROED_EARLY)
        if self._pending:
            self._abandon()
        self._zeroed_after = max(
            (self.backward_passes_per_step - left for left in self._passes_left.values()), default=0
        )
        super().zero_grad(*args, **kwargs)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes how many backward passes are summed before a step, and starts counting again."""
        check_passes(passes)
        self._abandon()
        self.backward_passes_per_step = passes
        self._passes_left = dict.fromkeys(self._trained, passes)
        self._zeroed_after = 0

    def load_state_dict(self, state_dict: Any) -> None:
        """Awaits changes under way, whether they fail or not, forgets them and the pass counts, and loads."""
        self._abandon()
        super().load_state_dict(state_dict)
