"""Steps whose gradients travel while the next step computes: bounded staleness of one step.

A rank takes its own gradients into account at once, and those of the others one step later. The bound is that
of Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server" (2013); own
gradients that the average replaces are from Zhu et al., "Delayed gradient averaging" (2021). Here they never
reach the parameters and the state that all ranks have.
"""

from __future__ import annotations

import copy
import sys
import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from rueda.operations import check_compression
from rueda.policy import Average, Sum, check_gradient_op, check_predivide
from rueda.process_sets import ProcessSet, global_process_set
from rueda.steps import mark_step
from rueda.torch.arguments import check_wire
from rueda.torch.compression import Compression, Compressor
from rueda.torch.cross_step import OutstandingUpdate, before_change, finish_all, forget, keep
from rueda.torch.local_steps import LocalStepsMixin, Rhythm, check_rhythm
from rueda.torch.naming import name_parameters
from rueda.torch.optimizer import DistributedMixin, make_reducer, rewrap
from rueda.torch.pending_gradients import Settings
from rueda.torch.sharding import place_in

DELAYED = "delayed"  # the key in state_dict() of tensors by the number of the parameter
NO_CLOSURE = "DelayedOptimizer: step() takes no closure, because it uses gradients of the step before."
NO_LBFGS = "DelayedOptimizer: LBFGS evaluates a closure several times in a step; use DistributedOptimizer."
SENT_SCALED = (
    "DelayedOptimizer: synchronize() has sent gradients that a GradScaler had scaled; call "
    "scaler.unscale_(optimizer) before optimizer.synchronize()."
)
CHANGED = (
    "DelayedOptimizer: {name} was changed between two steps, while it held a step with this rank's own "
    "gradients that the next step undoes; call optimizer.finish() before parameters are changed or loaded."
)


class _UnderWay:
    """The gradients of one step, on their way to all ranks and then to the next step."""

    def __init__(self) -> None:
        self._updates: list[OutstandingUpdate] = []
        self._names: set[str] = set()
        self.arrived: dict[torch.Tensor, torch.Tensor] = {}  # combined, by parameter

    def free(self, names: set[str]) -> None:
        """Waits, if some of them have one of these names."""
        if self._updates and not self._names.isdisjoint(names):
            self.finish()

    def hold(
        self, updates: Iterable[OutstandingUpdate], names: set[str], owner: torch.optim.Optimizer
    ) -> None:
        """Until they are awaited; owner: stays alive until then."""
        self._updates, self._names = list(updates), names
        keep(self, owner)

    def finish(self) -> None:
        """Waits for all of them. Raises HorovodInternalError when one failed; the others are lost as well."""
        try:
            for update in self._updates:
                update.wait()
        except KeyboardInterrupt:
            raise  # still under way
        except BaseException:
            self.abandon()
            raise
        for update in self._updates:
            update.when_settled()
            self.arrived[update.parameter] = update.grad
        self._updates = []
        forget(self)

    def take(self) -> dict[torch.Tensor, torch.Tensor]:
        """What has arrived, for a step."""
        taken, self.arrived = self.arrived, {}
        return taken

    def abandon(self) -> None:
        """Waits for all of them, whether they fail or not, and forgets them."""
        for update in self._updates:
            with suppress(Exception):
                update.wait()
            update.when_settled()
        self._updates, self.arrived = [], {}
        forget(self)


class _Copies:
    """Copies of tensors, in memory that is used again."""

    def __init__(self) -> None:
        self._kept: dict[Any, torch.Tensor] = {}

    def of(self, key: Any, value: torch.Tensor) -> torch.Tensor:
        """key: overwrites what it had before."""
        mine = self._kept.get(key)
        if mine is None or not _are_alike(mine, value):
            mine = self._kept[key] = value.detach().clone()
        else:
            mine.copy_(value.detach())
        return mine

    def of_all(self, key: Any, values: dict[Any, Any]) -> dict[Any, Any]:
        """Of the tensors among the values, and what else they hold."""
        return {
            name: self.of((key, name), one) if isinstance(one, torch.Tensor) else copy.deepcopy(one)
            for name, one in values.items()
        }


def _are_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    are_dense = one.layout == other.layout == torch.strided
    return are_dense and (one.shape, one.stride(), one.dtype, one.device) == (
        other.shape,
        other.stride(),
        other.dtype,
        other.device,
    )


_living: weakref.WeakSet[_DelayedMixin] = weakref.WeakSet()


def finish_steps() -> None:
    """Before parameters are changed: what finish() does, for all optimizers. Where some were changed before,
    the next step says so.
    """
    for optimizer in list(_living):
        if optimizer._changed() is None:
            optimizer.finish()


before_change(finish_steps)


class _DelayedMixin(LocalStepsMixin):
    is_delayed = True
    _settings: Settings
    _under_way: _UnderWay
    _is_synchronous: bool | None = None  # whether the reducer is that of the warm-up; None: there is none yet
    _is_scaled = False  # whether a GradScaler made the last step
    _has_arrived = False  # whether `.grad` holds what synchronize() put there
    _own: dict[torch.Tensor, torch.Tensor]  # gradients of this rank that are sent, for a step to come
    # The parameters that all ranks have, where those of the model have made a step with own gradients.
    _agreed: dict[torch.Tensor, torch.Tensor]
    _versions: dict[torch.Tensor, int]  # of the model's parameters after that step
    _copies: _Copies

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """As that of DistributedOptimizer."""
        is_sent = self.__dict__.get("_synchronized", False) and not self._waits
        if is_sent and sys._getframe(1).f_code.co_name == "_unscale_grads_":
            raise ValueError(SENT_SCALED)  # the scale may have changed since they were scaled
        groups: list[dict[str, Any]] = super().param_groups
        return groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.__dict__["param_groups"] = groups

    def _choose_reducer(self) -> None:
        """Gradients are reduced in backward at first, then when step() is called. A rank that trains alone
        waits for nobody.
        """
        is_synchronous = self._steps < self._rhythm.warmup_steps
        if is_synchronous is self._is_synchronous:
            return
        if self._reducer is not None:
            self._reducer.close()
        self._is_synchronous = is_synchronous
        self._reducer = make_reducer(self, self._parameter_names, None, 1, self._settings, is_synchronous)

    @property
    def _waits(self) -> bool:
        """Whether a step waits for its own gradients."""
        return bool(self._is_synchronous) or self._reducer is None

    def synchronize(self) -> None:
        """Sends the gradients of this step, waits for those of the step before, and puts these into `.grad`.

        `.grad` is None in the first step, for which there are none. Gradients missing on this rank count as
        zeros. For use before clipping, with skip_synchronize(); step() does it otherwise.
        """
        if self._waits:
            super().synchronize()
            return
        if self._synchronized:
            return
        self._under_way.finish()
        self._own = {
            one: self._copies.of(("own", one), one.grad) for one in self._trained() if one.grad is not None
        }
        names = {self._parameter_names[parameter] for parameter in self._trained()}
        for optimizer in list(_living):  # another model may have the same
            optimizer._under_way.free(names)
        assert self._reducer is not None
        sent = self._reducer.hand_over()
        arrived = self._under_way.take()
        for parameter in self._trained():
            parameter.grad = arrived.get(parameter)
        self._under_way.hold(sent.values(), names, self)
        self._has_arrived = bool(arrived)
        self._synchronized = True

    def _trained(self) -> list[torch.Tensor]:
        return [parameter for parameter in self._all_parameters() if parameter.requires_grad]

    def step(self, closure: Any = None) -> Any:
        """A step of the wrapped optimizer with the gradients of the step before, while those of this step
        travel; then one with this rank's own, which the next step undoes. Steps of the warm-up use their own
        gradients, combined.
        """
        if closure is not None:
            raise ValueError(NO_CLOSURE)
        if self._waits:
            return super().step()
        scale, is_scaled = self._take_scale()
        if self._should_synchronize and not self._synchronized:
            self._unscale(scale)
            self.synchronize()
        elif scale is not None:
            raise ValueError(SENT_SCALED)
        has_gradients = self._has_arrived or not self._synchronized
        self._return_to_agreed()
        self._synchronized = self._has_arrived = False
        if has_gradients and not (is_scaled and _has_overflown(one.grad for one in self._trained())):
            with self.skip_synchronize():
                DistributedMixin.step(self)
        else:
            mark_step(self)
        self._anticipate(is_scaled)
        self._is_scaled = is_scaled
        self._steps += 1
        return None

    step.hooked = True  # type: ignore[attr-defined]

    def _take_scale(self) -> tuple[torch.Tensor | None, bool]:
        """The scale by which to divide gradients, and whether a GradScaler makes this step."""
        scale = getattr(self, "grad_scale", None)
        is_scaled = scale is not None or getattr(self, "found_inf", None) is not None
        if is_scaled:
            self.grad_scale = self.found_inf = None  # a fused step would use them again
        return scale, is_scaled

    @torch.no_grad()
    def _return_to_agreed(self) -> None:
        """Undoes the step with own gradients. Raises RuntimeError if the program has changed a parameter."""
        changed = self._changed()
        if changed is not None:
            raise RuntimeError(CHANGED.format(name=self._parameter_names[changed]))
        for parameter, value in self._agreed.items():
            parameter.copy_(value)
        self._agreed, self._versions = {}, {}

    def _changed(self) -> torch.Tensor | None:
        """A parameter that the program has changed since the step with own gradients."""
        now = {parameter: parameter._version for parameter in self._agreed}
        return next((one for one in now if self._versions.get(one, now[one]) != now[one]), None)

    def _anticipate(self, is_scaled: bool) -> None:
        """A step with this rank's own gradients, of which only the parameters keep something."""
        own, self._own = self._own, {}
        if not own:
            return
        if self._settings.op == Sum:  # as much as the ranks together
            for grad in own.values():
                grad.mul_(place_in(self._settings.process_set).size)
        self._agreed = {one: self._copies.of(("agreed", one), one) for one in self._trained()}
        with self._with_gradients(own), self._with_copied_state():
            if not (is_scaled and _has_overflown(own.values())):
                self.local_step()
        self._versions = {parameter: parameter._version for parameter in self._agreed}

    @contextmanager
    def _with_gradients(self, gradients: dict[torch.Tensor, torch.Tensor]) -> Iterator[None]:
        mine = {parameter: parameter.grad for parameter in self._all_parameters()}
        for parameter in mine:
            parameter.grad = gradients.get(parameter)
        try:
            yield
        finally:
            for parameter, grad in mine.items():
                parameter.grad = grad

    @contextmanager
    def _with_copied_state(self) -> Iterator[None]:
        state, groups = self.state, self.__dict__["param_groups"]
        copied = {one: self._copies.of_all(one, mine) for one, mine in state.items()}
        self.state = defaultdict(dict, copied)
        self.__dict__["param_groups"] = [
            {**self._copies.of_all(number, _options(group)), "params": group["params"]}
            for number, group in enumerate(groups)
        ]
        try:
            yield
        finally:
            self.state, self.__dict__["param_groups"] = state, groups

    def finish(self) -> None:
        """Waits for the gradients that are under way, and makes a step with them: all ranks then have equal
        parameters, which lack nothing. The next step() has no gradients of a step before it. All ranks must
        call it alike, before a model is evaluated, saved or changed.
        """
        if self._waits:
            return
        if self._synchronized:  # of a step that was begun
            with self.skip_synchronize():
                self.step()
        self._under_way.finish()
        self._return_to_agreed()
        arrived = self._under_way.take()
        if arrived and not (self._is_scaled and _has_overflown(arrived.values())):
            with self._with_gradients(arrived):
                self.local_step()

    def _after_local_step(self, number: int) -> None:
        """Of a rank that trains alone: there is nothing to exchange."""

    def synchronize_parameters(self) -> None:
        """As finish()."""
        self.finish()

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Like the wrapped optimizer's. What synchronize() put into `.grad` is forgotten."""
        if not self._waits:
            self._synchronized = self._has_arrived = False
        super().zero_grad(*args, **kwargs)

    def state_dict(self) -> Any:
        """Like the wrapped optimizer's. Waits for the gradients that are under way, which are part of it, as
        are the parameters that all ranks have: both are the same on all ranks.
        """
        self._under_way.finish()
        numbers = {parameter: number for number, parameter in enumerate(self._all_parameters())}
        delayed = [
            {numbers[parameter]: value for parameter, value in kept.items()}
            for kept in (self._under_way.arrived, self._agreed)
        ]
        return {**super().state_dict(), DELAYED: dict(zip(("gradients", "agreed"), delayed))}

    def load_state_dict(self, state_dict: Any) -> None:
        """Like the wrapped optimizer's. What is under way is forgotten. A state of another optimizer has no
        gradients of a step before.
        """
        self._under_way.abandon()
        super().load_state_dict({key: part for key, part in state_dict.items() if key != DELAYED})
        delayed = state_dict.get(DELAYED, {})
        parameters = list(self._all_parameters())
        self._own, self._versions = {}, {}
        self._under_way.arrived, self._agreed = (
            {
                parameters[number]: value.detach().clone().to(parameters[number])
                for number, value in delayed.get(key, {}).items()
            }
            for key in ("gradients", "agreed")
        )


def _options(group: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key != "params"}


def _has_overflown(gradients: Iterable[torch.Tensor | None]) -> bool:
    return not all(bool(torch.isfinite(_values(grad)).all()) for grad in gradients if grad is not None)


def _values(grad: torch.Tensor) -> torch.Tensor:
    return grad.coalesce().values() if grad.is_sparse else grad


def DelayedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    *,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    sparse_as_dense: bool = False,
    warmup_steps: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Wraps an optimizer so that the gradients of a step travel while the next one computes.

    Returns a new object as DistributedOptimizer does. A step takes the longer of computing, forward and
    backward, and communicating. Until the combined gradients arrive, one step later, this rank's own stand
    for them: step() first undoes what these did, steps with the combined ones, and then steps with its own
    new ones. The parameters differ between ranks by that last step; finish() makes them equal. What all ranks
    have, parameters and the optimizer's state, has the same bits on all.

    warmup_steps: so many steps at first use their own gradients, as by DistributedOptimizer. The other
    arguments are those of DistributedOptimizer; op: Average or Sum. To sum several passes, call step() after
    the last. Raises ValueError for arguments that do not fit; step raises HorovodInternalError.

    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    >>> optimizer = hvd.DelayedOptimizer(optimizer, model.named_parameters(), warmup_steps=500)
    """
    rhythm = Rhythm(1, warmup_steps, process_set, None)
    check_rhythm("DelayedOptimizer", optimizer, rhythm)
    check_gradient_op(op, "DelayedOptimizer")
    check_predivide(op, gradient_predivide_factor)
    check_compression(compression)
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError(NO_LBFGS)
    finish_all()
    names = name_parameters(optimizer, named_parameters)
    check_wire(compression, op, names)
    wrapped = rewrap(optimizer, _DelayedMixin)
    wrapped._settings = Settings(
        compression, op, gradient_predivide_factor, bool(sparse_as_dense), process_set
    )
    wrapped._under_way, wrapped._copies = _UnderWay(), _Copies()
    wrapped._own, wrapped._agreed, wrapped._versions = {}, {}, {}
    _living.add(wrapped)
    wrapped._attach_rhythm(rhythm, names)
    return wrapped
