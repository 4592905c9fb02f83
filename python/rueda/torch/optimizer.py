"""DistributedOptimizer: a torch optimizer whose gradients are averaged while backward still runs."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from rueda.basics import basics, may_grow
from rueda.compression import StatefulCompressor
from rueda.errors import HorovodInternalError
from rueda.policy import Adasum, Average, check_passes, groups_of
from rueda.process_sets import ProcessSet, global_process_set
from rueda.residuals import RESIDUALS
from rueda.steps import mark_step
from rueda.torch import wire_state
from rueda.torch.adasum_optimizer import AdasumMixin
from rueda.torch.arguments import (
    Wrapped,
    check_cross_step,
    check_groups,
    check_kinds,
    check_reduction,
    check_wire,
    split_compression,
)
from rueda.torch.compressed_reduction import check_saved
from rueda.torch.compression import Compression, Compressor
from rueda.torch.cross_step import PART_BYTES, CrossStep, OutstandingUpdate, finish_all
from rueda.torch.gradient_groups import GroupList, resolve_groups
from rueda.torch.naming import default_names, name_parameters
from rueda.torch.pending_gradients import Settings
from rueda.torch.reducer import ZEROED_EARLY, Reducer

TWICE = (
    "optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize(). "
    "This can cause training slowdown. You may want to consider using optimizer.skip_synchronize() context "
    "if you use optimizer.synchronize() in your code."
)
NO_CLOSURE = (
    "step() takes no closure with cross_step=True: it needs all updates at once; use cross_step=False."
)
COMPRESSION = "compression"  # the key of a compressor's state in state_dict()
# The module that classes of wrapped optimizers show. Programs recognise Horovod's classes by it, so the alias
# package puts its own name here.
class_module = __name__


class DistributedMixin(Wrapped):
    """What DistributedOptimizer puts in front of the user's optimizer class."""

    _reducer: Reducer | None
    _should_synchronize: bool
    _synchronized: bool
    _parameter_names: dict[torch.Tensor, str]  # Horovod's programs read it
    backward_passes_per_step: int
    _compressor: StatefulCompressor | None = None

    def _attach(self, reducer: Reducer | None, names: dict[torch.Tensor, str], passes: int) -> None:
        self._reducer = reducer
        self._parameter_names = names
        self.backward_passes_per_step = passes
        self._should_synchronize = True
        self._synchronized = False

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of the wrapped optimizer. Reading them awaits the reductions that have been started.

        Other code reaches `.grad` through this property, above all torch's GradScaler. It must not see or
        change gradients that are being reduced, and what it looks for in them must be the same on all ranks.
        Gradients that backward has not computed are not reduced before synchronize(): if parameters are
        unused on some ranks only, call synchronize() before unscaling.
        """
        reducer: Reducer | None = self.__dict__.get("_reducer")  # None while the wrapper is being built
        if reducer is not None and reducer.is_busy:
            reducer.settle()
        groups: list[dict[str, Any]] = self.__dict__["param_groups"]
        return groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.__dict__["param_groups"] = groups

    def synchronize(self) -> None:
        """Reduces what is not reduced yet, waits for all gradients and stores the results in `.grad`.

        Gradients missing on this rank count as zeros, since another rank may have one.
        """
        if self._reducer is not None:
            self._reducer.synchronize()
        self._synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within it, step() does not synchronize: for use after synchronize(), as to clip gradients."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Any = None) -> Any:
        """Waits for the reduced gradients, then steps.

        A closure may run backward: its gradients are reduced each time it is called, and its loss is reduced
        too (averaged; summed for op=Sum), so that optimizers which decide by the loss decide alike.
        """
        if self._reducer is not None:
            self._reducer.extra_pass.check()
        if self._should_synchronize and self._reducer is not None:
            if self._synchronized:
                warnings.warn(TWICE, stacklevel=2)
            if closure is None:
                self.synchronize()
            else:
                closure = self._synchronizing(closure, self._reducer)
        self._synchronized = False
        try:
            result = super().step(closure)
        finally:
            self._synchronized = False
        mark_step(self)
        return result

    def _synchronizing(self, closure: Callable[[], Any], reducer: Reducer) -> Callable[[], Any]:
        """The closure, followed by a reduction. First reduces what was computed before it."""
        is_current = reducer.has_work
        if is_current:
            self.synchronize()

        def synchronized() -> Any:
            nonlocal is_current
            loss = closure()
            if reducer.has_work or not is_current:
                self.synchronize()
                is_current = True
            return reducer.reduce_loss(loss)

        return synchronized

    # The step of the wrapped class runs the step hooks. Without this mark they would run twice.
    step.hooked = True  # type: ignore[attr-defined]

    def local_step(self, closure: Any = None) -> Any:
        """The step of the wrapped optimizer alone, without communication."""
        return super().step(closure)

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Like the wrapped optimizer's; refused while gradients are being reduced.

        Reduced gradients that no step has used are forgotten: a GradScaler skips steps that overflow. So are
        reductions that a shutdown ended, and gradients to which a pass too many was added.
        """
        if self._reducer is not None:
            if self._reducer.extra_pass.is_known:
                self._reducer.reset()
            if self._reducer.is_busy and not self._reducer.is_lost:
                raise AssertionError(ZEROED_EARLY)
            if self._reducer.has_settled or self._reducer.is_busy:
                self._reducer.reset()
            self._reducer.note_zeroed()
        super().zero_grad(*args, **kwargs)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters, for instance of layers that were frozen; their gradients are reduced too."""
        super().add_param_group(param_group)
        reducer = getattr(self, "_reducer", None)  # None while the wrapper is being built
        if reducer is not None:
            for parameter, name in default_names(self, len(self.param_groups) - 1).items():
                reducer.take(parameter, name)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes how many backward passes are summed before a reduction, and starts counting again. Awaits
        reductions under way.
        """
        check_passes(passes)
        self.backward_passes_per_step = passes
        if self._reducer is not None:
            self._reducer.set_passes(passes)

    def state_dict(self) -> Any:
        """Like the wrapped optimizer's, with what a compressor keeps under "compression", and what wire types
        have left to be sent under "residuals", as bytes of this rank.
        """
        state = super().state_dict()
        travels = self._what_travels()
        kept = None if travels is None else wire_state.of(*travels)
        state |= {} if kept is None else {RESIDUALS: kept}
        if self._compressor is not None:
            state[COMPRESSION] = self._compressor.state_dict()
        return state

    def _what_travels(self) -> tuple[Settings, list[str]] | None:
        """How, and under which names, what it sends that may leave residuals; None: nothing is sent."""
        if self._reducer is None:
            return None
        return self._reducer.settings, list(self._parameter_names.values())

    def load_state_dict(self, state_dict: Any) -> None:
        """Awaits reductions under way, whether they fail or not, forgets them and pass counts, then loads.

        A compressor with state continues from "compression", or starts anew where that is missing. Raises
        ValueError, and changes nothing, if it is of another compressor or of parameters of other shapes.
        What wire types had left to be sent is dropped with a warning where gradients travel exactly now.
        """
        shapes = {name: tuple(one.shape) for one, name in self._parameter_names.items()}
        check_saved(self._compressor, state_dict.get(COMPRESSION, {}), shapes)
        if self._reducer is not None:
            self._reducer.reset()
        self._should_synchronize = True
        self._synchronized = False
        mine = (COMPRESSION, RESIDUALS)
        super().load_state_dict({key: part for key, part in state_dict.items() if key not in mine})
        travels = self._what_travels()
        if RESIDUALS in state_dict and travels is not None:
            wire_state.put_back(state_dict[RESIDUALS], travels[0])
        if self._compressor is not None:
            self._compressor.load_state_dict(state_dict.get(COMPRESSION, {}))


class _CrossStepMixin(DistributedMixin):
    """A step that returns while gradients are being reduced; see DistributedOptimizer."""

    _crossing: CrossStep | None = None

    def _cross(self, model: torch.nn.Module) -> None:
        if self._reducer is None:
            return
        self._crossing = CrossStep(model, self)
        self._reducer.priority_of = self._crossing.priority_of

    def _step_groups(self, groups: list[dict[str, Any]]) -> None:
        """The wrapped optimizer's step with these groups instead of its own."""
        mine = self.__dict__["param_groups"]
        self.__dict__["param_groups"] = groups
        try:
            super().local_step()
        finally:
            self.__dict__["param_groups"] = mine

    def finish(self) -> None:
        """Makes the updates that step() left outstanding: to be called before reading parameters directly.

        Forward passes, state_dict() and load_state_dict() of the model and of the optimizer, and the next
        step() need no call. Raises HorovodInternalError when a reduction failed.
        """
        if self._crossing is not None:
            self._crossing.finish()

    def synchronize(self) -> None:
        """Makes outstanding updates, then acts as without cross_step: the following step is made at once."""
        self.finish()
        super().synchronize()

    def step(self, closure: Any = None) -> Any:
        """Returns while gradients are being reduced. The current options apply to the updates.

        `.grad` is None afterwards. A closure is refused: it would need all updates at once.
        """
        if closure is not None:
            raise ValueError(NO_CLOSURE)
        self.finish()
        if self._crossing is None or self._reducer is None or self._must_be_whole():
            super().step()
            for group in self.__dict__["param_groups"]:
                for parameter in group["params"]:
                    parameter.grad = None
            return None
        groups: list[dict[str, Any]] = self.__dict__["param_groups"]
        frozen = [p for group in groups for p in group["params"] if p.grad is not None]
        updates = self._reducer.hand_over()
        for parameter in frozen:  # gradients that nobody reduces
            if parameter not in updates:
                updates[parameter] = OutstandingUpdate(parameter, parameter.grad, None, lambda: None)
                parameter.grad = None
        for at, group in enumerate(groups):
            for parameter in group["params"]:
                if parameter in updates:
                    updates[parameter].group = at
        self._crossing.take_over(updates.values(), groups)
        mark_step(self)
        return None

    def _must_be_whole(self) -> bool:
        """Whether something looks at this step as a whole: hooks, clipping, a scaler inside the step."""
        has_hooks = self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks
        is_scaled = (
            getattr(self, "grad_scale", None) is not None or getattr(self, "found_inf", None) is not None
        )
        return bool(has_hooks) or is_scaled or self._synchronized or not self._should_synchronize

    step.hooked = True  # type: ignore[attr-defined]

    def local_step(self, closure: Any = None) -> Any:
        """The step of the wrapped optimizer alone, without communication, after outstanding updates."""
        self.finish()
        return super().local_step(closure)

    def state_dict(self) -> Any:
        """Like the wrapped optimizer's, after outstanding updates."""
        self.finish()
        return super().state_dict()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Like without cross_step, after outstanding updates."""
        self.finish()
        super().add_param_group(param_group)

    def load_state_dict(self, state_dict: Any) -> None:
        """Makes outstanding updates, or forgets them when a reduction fails; then as without cross_step."""
        with suppress(HorovodInternalError):
            self.finish()
        super().load_state_dict(state_dict)


def rewrap(
    optimizer: torch.optim.Optimizer,
    mixin: type[torch.optim.Optimizer],
    groups: list[dict[str, Any]] | None = None,
) -> Any:
    """A new optimizer of a subclass of the same name, with mixin in front: same options, no state. groups:
    None: its own.
    """
    groups = optimizer.param_groups if groups is None else groups
    cls = optimizer.__class__
    wrapper: Any = type(cls.__name__, (mixin, cls), {"__module__": class_module, "__doc__": cls.__doc__})
    wrapped = wrapper.__new__(wrapper)
    own = set(torch.optim.Optimizer([torch.zeros(1)], {}).__dict__) | {"state", "param_groups", "defaults"}
    own |= {"step"}  # learning-rate schedulers replace it on the instance
    extra = {key: value for key, value in optimizer.__dict__.items() if key not in own}
    known = inspect.signature(cls.__init__).parameters
    options = {name: value for name, value in optimizer.defaults.items() if name in known}
    try:
        cls.__init__(wrapped, groups, **options)  # some make their first state here
    except TypeError:  # it has required arguments that are not options; the groups hold all that matters
        torch.optim.Optimizer.__init__(wrapped, groups, optimizer.defaults)
    wrapped.__dict__.update(extra)
    return wrapped


def make_reducer(
    optimizer: torch.optim.Optimizer,
    names: dict[torch.Tensor, str],
    groups: GroupList | int | None,
    passes: int,
    settings: Settings,
    has_hooks: bool = True,
) -> Reducer | None:
    """None if this rank trains alone, or is not among those that train together."""
    is_alone = basics.size() == 1 and not may_grow()
    if is_alone or settings.process_set.included() is False:
        resolve_groups(groups, [], names, None)  # the checks must not depend on the number of ranks
        return None
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    trained = [p for p in parameters if p.requires_grad]
    members = resolve_groups(groups, trained, names, settings.process_set)
    return Reducer(parameters, names, members, passes, settings, has_hooks)


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: type[Compressor] | StatefulCompressor = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: GroupList | int | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
    *,
    cross_step: bool = False,
    model: torch.nn.Module | None = None,
) -> Any:
    """Wraps an optimizer so that every rank steps with the gradients of all ranks combined.

    Returns a new object of a subclass of the optimizer's class with the same name and options and no state:
    load state and build schedulers after wrapping. A gradient is reduced as soon as backward has finished it.

    named_parameters: (name, parameter) pairs covering every parameter, usually model.named_parameters().
    compression: of dense gradients: Compression.none, fp16, bf16, PowerSGD(...) or TopK(...).
    backward_passes_per_step: gradients of so many passes are summed locally before one reduction. op:
    Average, Sum, Min, Max, Product or Adasum (which reduces weight changes instead of gradients).
    gradient_predivide_factor f: multiply by 1/f before and f/n after the sum. groups: number of groups, or
    lists of parameters, reduced as a whole. num_groups: the older name. sparse_as_dense: reduce sparse
    gradients as dense ones. process_set: the ranks that train together. cross_step: step() returns while
    gradients are being reduced; each parameter is updated when the next forward pass comes to a module of
    `model` that holds it, to the same bits.
    Raises ValueError for arguments that do not fit; step and synchronize raise HorovodInternalError.

    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size())
    >>> optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    """
    groups = groups_of(groups, num_groups)
    compression, compressor = split_compression(compression, op, cross_step)
    check_reduction(compression, op, gradient_predivide_factor, backward_passes_per_step)
    check_groups(groups)
    check_kinds(optimizer, process_set)
    check_cross_step(cross_step, optimizer, model, op, groups)
    finish_all()  # names of another model's gradients may be the same
    names = name_parameters(optimizer, named_parameters)
    check_wire(compression, op, names)
    if op == Adasum and basics.size() > 1:
        wrapped = rewrap(optimizer, AdasumMixin)
        wrapped._attach(names, compression, backward_passes_per_step, process_set)
        return wrapped
    wrapped = rewrap(optimizer, _CrossStepMixin if cross_step else DistributedMixin)
    if compressor is not None:
        compressor.belong_to(wrapped)
    wrapped._compressor = compressor
    rest = sparse_as_dense, process_set, PART_BYTES if cross_step else 0, compressor
    settings = Settings(compression, op, gradient_predivide_factor, *rest)
    reducer = make_reducer(wrapped, names, groups, backward_passes_per_step, settings)
    wrapped._attach(reducer, names, backward_passes_per_step)
    if cross_step:
        wrapped._cross(model)
    return wrapped
