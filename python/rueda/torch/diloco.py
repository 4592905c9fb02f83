"""DiLoCo: many local steps, then one step of an outer optimizer with the averaged change of all ranks.

Douillard et al., "DiLoCo: Distributed low-communication training of language models" (2023). Fragments that
take turns, and changes that travel during the next step, are those of Douillard et al., "Streaming DiLoCo
with overlapping communication" (2025).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch

from rueda.diloco import Turns
from rueda.in_flight import of_handle, settle_all, start_all
from rueda.open_operations import InFlight
from rueda.operations import check_compression, sent_as
from rueda.policy import Average, check_outer
from rueda.process_sets import ProcessSet, global_process_set
from rueda.torch.arguments import check_wire
from rueda.torch.compression import Compression, Compressor, wire_type
from rueda.torch.cross_step import finish_all, forget, keep
from rueda.torch.local_steps import LocalStepsMixin, Rhythm, check_rhythm
from rueda.torch.naming import name_parameters
from rueda.torch.optimizer import rewrap
from rueda.torch.pending_gradients import Settings
from rueda.torch.reductions import allreduce_async_
from rueda.torch.tensors import in_order_of

PREFIX = "diloco."  # of the names of changes that travel
ADDED_LATE = "DiLoCo takes no parameters after it was made, because its fragments are fixed; make a new one."
OTHER_FRAGMENTS = (
    "The loaded state is of {theirs} fragments, but this DiLoCo has {mine}; give fragments={theirs}."
)


class Fragment:
    """Parameters that are exchanged together. Its outer parameters are what all ranks agreed on last."""

    def __init__(self, named: list[tuple[str, torch.Tensor]], outer: dict[str, Any]) -> None:
        self.named = named
        self._outer_options = outer
        self.agreed: list[torch.Tensor] = []  # empty until the first local step
        self._outer: torch.optim.Optimizer | None = None
        self._started: list[InFlight] = []
        self._changes: list[torch.Tensor] | None = None  # of all ranks; they have arrived and are not applied

    @torch.no_grad()
    def agree(self) -> None:
        """Takes the parameters for those of all ranks."""
        if not self.agreed:
            self._set([parameter.detach().clone() for _, parameter in self.named])

    def _set(self, agreed: list[torch.Tensor]) -> None:
        self.agreed = agreed
        self._outer = torch.optim.SGD(agreed, **self._outer_options)

    @property
    def is_under_way(self) -> bool:
        return bool(self._started) or self._changes is not None

    def start(
        self, process_set: ProcessSet | None, compression: type[Compressor], owner: torch.optim.Optimizer
    ) -> None:
        """Starts averaging the change since the last agreement. process_set: None: of this rank alone. owner:
        stays alive until the change is awaited.
        """
        changes = [agreed - parameter for agreed, (_, parameter) in zip(self.agreed, self.named)]
        if process_set is None:
            self._changes = changes
            return
        self._started = start_all(
            _start(change, f"{PREFIX}{name}", parameter, process_set, compression)
            for change, (name, parameter) in zip(changes, self.named)
        )
        keep(self, owner)

    def finish(self) -> None:
        """Waits for changes that are on their way, before the other ranks lose this one."""
        if self._started:
            self.await_changes()

    def await_changes(self) -> list[torch.Tensor]:
        if self._started:
            started, self._started = self._started, []
            forget(self)
            self._changes = settle_all(started)
        assert self._changes is not None
        return self._changes

    def apply(self) -> None:
        """The outer step. The parameters are then the agreed ones."""
        changes = self.await_changes()
        assert self._outer is not None
        for agreed, change in zip(self.agreed, changes):
            agreed.grad = change
        self._outer.step()
        for agreed, (_, parameter) in zip(self.agreed, self.named):
            agreed.grad = None
            parameter.copy_(agreed)
        self._changes = None

    def state_dict(self) -> dict[str, Any]:
        if not self.agreed:
            return {}
        assert self._outer is not None
        changes = self.await_changes() if self.is_under_way else None
        return {"agreed": list(self.agreed), "outer": self._outer.state_dict(), "changes": changes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.agreed, self._outer, self._started, self._changes = [], None, [], None
        if not state:
            return
        places = [parameter.device for _, parameter in self.named]
        self._set([value.detach().clone().to(place) for value, place in zip(state["agreed"], places)])
        assert self._outer is not None
        self._outer.load_state_dict(_copied(state["outer"]))
        changes = state["changes"]
        if changes is not None:
            self._changes = [change.clone().to(place) for change, place in zip(changes, places)]


def _start(
    change: torch.Tensor, name: str, parameter: torch.Tensor, process_set: ProcessSet, compression: Any
) -> InFlight:
    wire = wire_type(compression, [change], Average)
    compression = Compression.none if wire else compression
    sent, context = compression.compress(change)
    dense, view = in_order_of(parameter, sent)
    with sent_as(wire):
        handle = allreduce_async_(view, None, name, Average, 1.0, 1.0, process_set)
    return of_handle(handle).then(lambda _: compression.decompress(dense, context))


def _copied(outer: dict[str, Any]) -> dict[str, Any]:
    """A state whose tensors an optimizer may change."""
    return {**outer, "state": copy.deepcopy(outer["state"])}


class _DiLoCoMixin(LocalStepsMixin):
    _fragments: list[Fragment]
    _compression: type[Compressor]
    _turns: Turns

    def _before_local_step(self) -> None:
        for fragment in self._fragments:
            fragment.agree()

    def _after_local_step(self, number: int) -> None:
        self._apply_what_is_under_way()
        due = [one for place, one in enumerate(self._fragments) if self._turns.is_due(place, number)]
        self._start(due)
        if not self._turns.overlap:
            self._apply_what_is_under_way()

    def _start(self, fragments: list[Fragment]) -> None:
        process_set = None if self._is_alone else self._rhythm.process_set
        for fragment in fragments:
            fragment.start(process_set, self._compression, self)

    def _apply_what_is_under_way(self) -> None:
        for fragment in self._fragments:
            if fragment.is_under_way:
                fragment.apply()

    @torch.no_grad()
    def synchronize_parameters(self) -> None:
        """Makes an outer step with all fragments now, whatever the number of the step. Collective."""
        self._before_local_step()
        self._apply_what_is_under_way()
        self._start(self._fragments)
        self._apply_what_is_under_way()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refused once the optimizer is made."""
        if "_fragments" in self.__dict__:
            raise ValueError(ADDED_LATE)
        super().add_param_group(param_group)

    def state_dict(self) -> Any:
        """Like the wrapped optimizer's, of this rank, with the outer parameters and the outer optimizer's
        state, which are the same on all ranks, and with what wire types have left to be sent. Waits for
        changes that are on their way.
        """
        fragments = [fragment.state_dict() for fragment in self._fragments]  # first: they await
        return {**super().state_dict(), "diloco": fragments}

    def _what_travels(self) -> tuple[Settings, list[str]]:
        settings = Settings(self._compression, Average, 1.0, False, self._rhythm.process_set)
        gradients = super()._what_travels()  # of the warm-up
        changes = [f"{PREFIX}{name}" for fragment in self._fragments for name, _ in fragment.named]
        return settings, changes + ([] if gradients is None else gradients[1])

    def load_state_dict(self, state_dict: Any) -> None:
        """Like the wrapped optimizer's. A state without outer parameters begins with those of the model."""
        states = state_dict.get("diloco", [{} for _ in self._fragments])
        if len(states) != len(self._fragments):
            raise ValueError(OTHER_FRAGMENTS.format(theirs=len(states), mine=len(self._fragments)))
        for fragment in self._fragments:
            if fragment.is_under_way:
                fragment.await_changes()
        super().load_state_dict(state_dict)
        for fragment, state in zip(self._fragments, states):
            fragment.load_state_dict(state)


def DiLoCo(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    *,
    every: int,
    outer_lr: float = 0.7,
    outer_momentum: float = 0.9,
    nesterov: bool = True,
    fragments: int = 1,
    overlap: bool = False,
    compression: type[Compressor] = Compression.none,
    warmup_steps: int = 0,
    process_set: ProcessSet = global_process_set,
    local_set: ProcessSet | None = None,
    backward_passes_per_step: int = 1,
) -> Any:
    """Wraps an optimizer so that each rank takes `every` steps of its own; then an outer optimizer, SGD with
    Nesterov momentum, makes one step with the average of how far the ranks have come.

    Returns a new object as DistributedOptimizer does. After each outer step all ranks have the same bits of
    the parameters that were exchanged.

    fragments: the parameters are exchanged in so many parts, which take turns, so that the traffic spreads.
    overlap: a part travels during one more step, which is then lost for this part. compression: of what
    travels. warmup_steps, process_set, local_set, backward_passes_per_step: as for LocalSGD.
    Raises ValueError for arguments that do not fit; step raises HorovodInternalError.

    >>> optimizer = torch.optim.AdamW(model.parameters(), lr=4e-4)
    >>> optimizer = hvd.DiLoCo(optimizer, model.named_parameters(), every=50)
    """
    rhythm = Rhythm(every, warmup_steps, process_set, local_set, backward_passes_per_step)
    check_rhythm("DiLoCo", optimizer, rhythm)
    check_compression(compression)
    turns = Turns("DiLoCo", every, fragments, bool(overlap))
    lr, momentum = check_outer(outer_lr, outer_momentum)
    # torch takes Nesterov's form only with momentum; without it, it is the same.
    outer = {"lr": lr, "momentum": momentum, "nesterov": bool(nesterov) and momentum > 0}
    finish_all()
    names = name_parameters(optimizer, named_parameters)
    check_wire(compression, Average, names)
    trained = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    parts = turns.split([(names[parameter], parameter) for parameter in trained])
    wrapped = rewrap(optimizer, _DiLoCoMixin)
    wrapped._attach_rhythm(rhythm, names)
    wrapped._compression, wrapped._turns = compression, turns
    wrapped._fragments = [Fragment(part, outer) for part in parts]
    return wrapped
