"""Steps without communication, and what ranks exchange after so many of them: LocalSGD.

Stich, "Local SGD converges fast and communicates little" (2019); Lin et al., "Don't use large mini-batches,
use local SGD" (2020), from which the synchronous steps at the beginning come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from rueda.basics import basics
from rueda.in_flight import of_handle, settle_all, start_all
from rueda.open_operations import InFlight
from rueda.policy import Average, check_count, check_every, check_passes
from rueda.process_sets import ProcessSet, global_process_set
from rueda.torch.arguments import check_kinds
from rueda.torch.compression import Compression
from rueda.torch.cross_step import finish_all
from rueda.torch.naming import default_names, name_parameters
from rueda.torch.optimizer import DistributedMixin, make_reducer, rewrap
from rueda.torch.pending_gradients import Settings
from rueda.torch.reductions import allreduce_async_
from rueda.torch.sharding import place_in
from rueda.torch.tensors import in_order_of

NOT_WITHIN = (
    "{what}: local_set has the ranks {local}, but process_set has {ranks}; all of the first must be in the "
    "second."
)
NOT_MINE = (
    "{what}: local_set has the ranks {ranks}, but this is rank {rank}; give each rank the set to which it "
    "belongs."
)


@dataclass(frozen=True)
class Rhythm:
    """When ranks communicate."""

    every: int  # steps
    warmup_steps: int  # the first steps, in which gradients of all ranks are averaged
    process_set: ProcessSet
    local_set: ProcessSet | None  # in which gradients are averaged in every step
    passes: int = 1  # of backward for each step


class LocalStepsMixin(DistributedMixin):
    """What LocalSGD and DiLoCo put in front of the user's optimizer class."""

    # GradScaler then calls step() on every rank, also on one that found an infinite gradient.
    _step_supports_amp_scaling = True

    grad_scale: Any
    found_inf: Any
    _rhythm: Rhythm
    _steps: int  # taken until now
    _averaged_in: ProcessSet | None  # the set of the reducer

    def _attach_rhythm(self, rhythm: Rhythm, names: dict[torch.Tensor, str]) -> None:
        self._attach(None, names, rhythm.passes)
        self._rhythm = rhythm
        self._steps = 0
        self._averaged_in = None
        self._choose_reducer()

    @property
    def _is_alone(self) -> bool:
        return place_in(self._rhythm.process_set).size == 1

    def _choose_reducer(self) -> None:
        """Gradients are averaged among all ranks at first, then among those of the host, or not at all."""
        rhythm = self._rhythm
        wanted = rhythm.process_set if self._steps < rhythm.warmup_steps else rhythm.local_set
        if wanted is self._averaged_in:
            return
        if self._reducer is not None:
            self._reducer.close()
        self._averaged_in, self._reducer = wanted, None
        if wanted is not None:
            settings = Settings(Compression.none, Average, 1.0, False, wanted)
            self._reducer = make_reducer(
                self, self._parameter_names, None, self.backward_passes_per_step, settings
            )

    def step(self, closure: Any = None) -> Any:
        """A step of the wrapped optimizer, after which this rank may exchange parameters with the others."""
        is_local = self._steps >= self._rhythm.warmup_steps
        if is_local:
            self._before_local_step()
        is_scaled = (
            getattr(self, "grad_scale", None) is not None or getattr(self, "found_inf", None) is not None
        )
        result = self._scaled_step() if is_scaled else super().step(closure)
        self._steps += 1
        if is_local:
            with torch.no_grad():
                self._after_local_step(self._steps - self._rhythm.warmup_steps)
        self._choose_reducer()
        return result

    step.hooked = True  # type: ignore[attr-defined]

    @torch.no_grad()
    def _scaled_step(self) -> Any:
        """A step of GradScaler, which leaves to us to unscale gradients and to skip the update."""
        scale, found = self.grad_scale, self.found_inf
        if self._should_synchronize and not self._synchronized:
            self.synchronize()
        self._unscale(scale)
        self.grad_scale = self.found_inf = None  # a fused step would use them again
        if found is not None and bool(found.item()):
            self._synchronized = False
            return None
        with self.skip_synchronize():
            return super().step()

    @torch.no_grad()
    def _unscale(self, scale: torch.Tensor | None) -> None:
        if scale is not None:
            for parameter in self._all_parameters():
                if parameter.grad is not None:
                    parameter.grad.div_(scale.to(parameter.grad.device))

    def _all_parameters(self) -> Iterator[torch.Tensor]:
        for group in self.__dict__["param_groups"]:
            yield from group["params"]

    def _before_local_step(self) -> None:
        """Called before each step after those of the warm-up."""

    def _after_local_step(self, number: int) -> None:
        """Called after it. number: 1 for the first."""
        raise NotImplementedError

    def synchronize_parameters(self) -> None:
        """Makes the parameters of all ranks equal now, whatever the number of the step. Collective."""
        raise NotImplementedError

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters; every rank must do so."""
        super().add_param_group(param_group)
        if "_rhythm" in self.__dict__:  # otherwise the wrapper is being built
            added = default_names(self, len(self.__dict__["param_groups"]) - 1)
            self._parameter_names = {**added, **self._parameter_names}

    def state_dict(self) -> Any:
        """Like the wrapped optimizer's, of this rank, with the number of steps."""
        return {**super().state_dict(), "local_steps": self._steps}

    def load_state_dict(self, state_dict: Any) -> None:
        """Like the wrapped optimizer's. A state without a number of steps begins anew."""
        super().load_state_dict(state_dict)
        self._steps = int(state_dict.get("local_steps", 0))
        self._choose_reducer()


def start_averaging(
    tensors: Iterable[tuple[str, torch.Tensor]], process_set: ProcessSet, prefix: str
) -> list[InFlight]:
    """Starts averaging these tensors in place. Their elements lie without gaps, or in copies."""

    def start(name: str, tensor: torch.Tensor) -> InFlight:
        dense, view = in_order_of(tensor, tensor.detach())
        operation = of_handle(
            allreduce_async_(view, None, f"{prefix}.{name}", Average, 1.0, 1.0, process_set)
        )
        return operation if dense.data_ptr() == tensor.data_ptr() else operation.then(_copier(tensor, dense))

    return start_all(start(name, tensor) for name, tensor in tensors)


def _copier(tensor: torch.Tensor, dense: torch.Tensor) -> Any:
    def copy(_: Any) -> None:
        with torch.no_grad():
            tensor.detach().copy_(dense)

    return copy


class _LocalSGDMixin(LocalStepsMixin):
    _averages_state: bool

    def _after_local_step(self, number: int) -> None:
        if number % self._rhythm.every == 0:
            self.synchronize_parameters()

    @torch.no_grad()
    def synchronize_parameters(self) -> None:
        """Averages the parameters of all ranks now, whatever the number of the step. Collective."""
        if self._is_alone:
            return
        settle_all(start_averaging(self._averaged_tensors(), self._rhythm.process_set, "local_sgd"))

    def _averaged_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        for parameter in self._all_parameters():
            name = self._parameter_names[parameter]
            if parameter.requires_grad:
                yield name, parameter
            if self._averages_state:
                for key, value in sorted(self.state.get(parameter, {}).items()):
                    is_like = isinstance(value, torch.Tensor) and value.shape == parameter.shape
                    if is_like and value.is_floating_point() and value.dim() > 0:
                        yield f"{name}.{key}", value


def check_rhythm(what: str, optimizer: Any, rhythm: Rhythm) -> None:
    """Raises ValueError or TypeError for what cannot be wrapped, or not so. what: the name of the wrapper."""
    check_kinds(optimizer, rhythm.process_set)
    check_every(what, rhythm.every)
    check_passes(rhythm.passes)
    check_count(what, "warmup_steps", rhythm.warmup_steps, 0, "so many steps at first average gradients")
    if rhythm.local_set is not None and not isinstance(rhythm.local_set, ProcessSet):
        raise TypeError(f"local_set must be a ProcessSet, not {type(rhythm.local_set).__name__}.")
    local, ranks = rhythm.local_set, rhythm.process_set.ranks
    if local is not None and ranks is not None and not set(local.ranks or []) <= set(ranks):
        raise ValueError(NOT_WITHIN.format(what=what, local=local.ranks, ranks=ranks))
    place_in(rhythm.process_set, what)  # refuses sets that are not registered
    if local is not None and rhythm.process_set.included() is not False:
        if local.included() is False:
            raise ValueError(NOT_MINE.format(what=what, ranks=local.ranks, rank=basics.rank()))
        place_in(local, what)


def LocalSGD(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    *,
    every: int,
    warmup_steps: int = 0,
    average_state: bool = False,
    process_set: ProcessSet = global_process_set,
    local_set: ProcessSet | None = None,
    backward_passes_per_step: int = 1,
) -> Any:
    """Wraps an optimizer so that each rank takes steps of its own, and parameters are averaged now and then.

    Returns a new object as DistributedOptimizer does. After each averaging all ranks have the same bits.

    every: steps from one averaging to the next. warmup_steps: so many steps at first are synchronous:
    gradients are averaged, as by DistributedOptimizer (post-local SGD). average_state: average momentum and
    other state of the parameters' shapes as well. process_set: the ranks that train together. local_set: the
    ranks of this host, among which gradients are averaged in every step; only parameters then travel between
    hosts. backward_passes_per_step: as for DistributedOptimizer, where gradients are averaged.
    Raises ValueError for arguments that do not fit; step raises HorovodInternalError.

    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    >>> optimizer = hvd.LocalSGD(optimizer, model.named_parameters(), every=8, warmup_steps=500)
    """
    rhythm = Rhythm(every, warmup_steps, process_set, local_set, backward_passes_per_step)
    check_rhythm("LocalSGD", optimizer, rhythm)
    finish_all()
    names = name_parameters(optimizer, named_parameters)
    wrapped = rewrap(optimizer, _LocalSGDMixin)
    wrapped._averages_state = average_state
    wrapped._attach_rhythm(rhythm, names)
    return wrapped
