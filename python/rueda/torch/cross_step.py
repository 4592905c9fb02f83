"""Updates that cross the step: each parameter is updated when the next forward pass comes to its module.

The arithmetic is that of a step that waits for everything; only the time of each update differs. The
idea is that of ByteScheduler (Peng et al., "A generic communication scheduler for distributed DNN
training acceleration", 2019).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from rueda.basics import basics
from rueda.open_operations import Reduction
from rueda.torch.pending_gradients import settle

KEEPS_STATE_IN_GROUPS = (
    "{optimizer} changes its parameter groups ({keys}) when it steps, so it cannot update parameters one at "
    "a time; wrap it with cross_step=False."
)
READ_EARLY = (
    "Parameter {name} got a gradient before its update of the last step was made: forward used it without "
    "calling a module that holds it, and so may have used its old value. Call optimizer.finish() before that "
    "forward pass, or use cross_step=False."
)
COMPILED = (
    "{option} cannot place its waits in a module compiled by Module.compile(); compile it with "
    "torch.compile(module) instead and pass the result as model."
)

# A longer tensor travels in parts of this size, so that tensors needed earlier can overtake it in between.
PART_BYTES = 1 << 20


@dataclass
class OutstandingUpdate:
    """A gradient whose reduction or whose update is outstanding."""

    parameter: torch.Tensor
    grad: torch.Tensor
    reduction: Reduction | None  # leaves its result in grad; None: the result is there
    when_settled: Callable[[], None]
    group: int = 0  # of the optimizer

    def wait(self) -> None:
        """Until grad is reduced. Raises what the reduction raises."""
        if self.reduction is not None:
            settle(self.reduction)
            self.reduction = None


def _nothing(*_: Any) -> None:
    """Replaces a hook in a copy of its module."""


def _no_hook() -> Callable[..., None]:
    return _nothing


class _WaitingHook:
    """A hook of a module that waits. Copies of the module do not have it."""

    def __init__(self, crossing: CrossStep, wait: Callable[[CrossStep, Any], None]) -> None:
        self._crossing = weakref.ref(crossing)
        self._wait = wait

    def __call__(self, *arguments: Any) -> None:
        crossing = self._crossing()
        if crossing is not None:
            self._wait(crossing, arguments[0])

    def __reduce__(self) -> Any:
        return _no_hook, ()


class Outstanding(Protocol):
    """What a step left outstanding."""

    def finish(self) -> None:
        """Waits for it, and makes the updates that must be made now."""


# What steps left outstanding, and their optimizers. They are kept alive, because no update may be lost with
# them and the engine holds their names.
_outstanding: dict[Outstanding, torch.optim.Optimizer] = {}


def keep(one: Outstanding, optimizer: torch.optim.Optimizer) -> None:
    """Until forget(one)."""
    _outstanding[one] = optimizer


def forget(one: Outstanding) -> None:
    """Nothing of it is outstanding any more."""
    _outstanding.pop(one, None)


def finish_all() -> None:
    """Finishes what is outstanding, of all optimizers."""
    for one in list(_outstanding):
        one.finish()


basics.before_shutdown(finish_all)
_before_change: list[Callable[[], None]] = []


def before_change(complete: Callable[[], None]) -> None:
    """Registers what must be done before the program changes parameters."""
    _before_change.append(complete)


def finish_before_change() -> None:
    """Finishes what is outstanding, and all else that would overwrite a change of parameters."""
    finish_all()
    for complete in _before_change:
        complete()


class CrossStep:
    """The outstanding updates of one optimizer, and the hooks of the modules that wait for them. One thread.

    optimizer: its owner; _step_groups(groups) steps it with these groups alone, on the gradients in `.grad`.
    """

    option = "cross_step=True"  # by which users ask for it

    def __init__(self, model: torch.nn.Module, optimizer: Any) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._updates: dict[torch.Tensor, OutstandingUpdate] = {}
        self._options: list[dict[str, Any]] = []  # of the groups, when step() was called
        self._called: dict[torch.nn.Module, int] = {}  # since the last step, in the order of first calls
        self._parents: dict[torch.nn.Module, torch.nn.Module] = {}
        # The modules whose call waits for a parameter: those that hold it, and those that were seen to use
        # it for them.
        self._places: dict[torch.Tensor, list[torch.nn.Module]] = {}
        self._awaited: dict[torch.nn.Module, list[torch.Tensor]] = {}  # the same, by module
        self._watch(model)

    # ---- modules ----

    def _watch(self, model: torch.nn.Module) -> None:
        before_forward = torch.compiler.disable(CrossStep._before_forward)
        inside: set[torch.nn.Module] = set()
        for module in model.modules():
            for child in module.children():
                self._parents.setdefault(child, module)
            if "_orig_mod" in module._modules:  # what torch.compile() makes of a module
                inside.update(part for part in module.modules() if part is not module)
        for module in model.modules():
            if getattr(module, "_compiled_call_impl", None) is not None:
                raise ValueError(COMPILED.format(option=self.option))
            self._awaited[module] = list(module.parameters(recurse=False))
            for parameter in self._awaited[module]:
                self._places.setdefault(parameter, []).append(module)
            finish = _WaitingHook(self, CrossStep._finish_for)
            hooks = [
                module.register_state_dict_pre_hook(finish),
                module._register_load_state_dict_pre_hook(_WaitingHook(self, CrossStep._finish_for)),
            ]
            if module not in inside:  # a wait would break its graph, so its wrapper waits for all of it
                wait = _WaitingHook(self, before_forward)
                hooks.append(module.register_forward_pre_hook(wait, prepend=True))
            for hook in hooks:
                weakref.finalize(self, hook.remove)

    def _before_forward(self, module: torch.nn.Module) -> None:
        self._called.setdefault(module, len(self._called))
        if not self._updates:
            return
        if module.training and torch.is_grad_enabled():
            wanted: Iterable[torch.Tensor] = self._awaited.get(module, ())
        else:  # no gradient will show that another module than its own read a parameter early
            wanted = [*self._awaited.get(module, ()), *module.parameters()]
        self._make_updates([p for p in dict.fromkeys(wanted) if p in self._updates])

    def _finish_for(self, _: Any) -> None:
        self.finish()

    def _place(self, parameter: torch.Tensor) -> torch.nn.Module | None:
        """The module whose call first waits for this parameter; None if no such call was seen."""
        places = self._places.get(parameter, [])
        seen = [module for module in places if module in self._called]
        if seen:
            return min(seen, key=self._called.__getitem__)
        for holder in places:  # used without a call, as torch.nn.MultiheadAttention uses its out_proj
            module: torch.nn.Module | None = holder
            while module is not None and module not in self._called:
                module = self._parents.get(module)
            if module is not None:
                return module
        return None

    def priority_of(self, parameter: torch.Tensor) -> int:
        """A negative number; it is larger if the forward pass of this step came to the parameter earlier."""
        place = self._place(parameter)
        return -1 - (self._called[place] if place is not None else len(self._called))

    # ---- steps ----

    def take_over(self, updates: Iterable[OutstandingUpdate], groups: list[dict[str, Any]]) -> None:
        """Takes over what a step() leaves outstanding. Updates for which no forward pass would wait are
        made at once.

        groups: those of the optimizer; their current options apply to these updates.
        """
        self._options = [
            {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in group.items() if k != "params"}
            for group in groups
        ]
        at_once = []
        for update in updates:
            self._updates[update.parameter] = update
            place = self._place(update.parameter)
            if place is None or update.reduction is None:
                at_once.append(update.parameter)
            elif place not in self._places[update.parameter]:
                self._places[update.parameter].append(place)
                self._awaited[place].append(update.parameter)
        self._called.clear()
        owner = self._optimizer()
        assert owner is not None  # it is on the stack
        keep(self, owner)
        self._make_updates(at_once)

    def finish(self) -> None:
        """Makes all outstanding updates. Raises HorovodInternalError when a reduction failed."""
        self._make_updates(list(self._updates))

    def _make_updates(self, parameters: list[torch.Tensor]) -> None:
        updates = [self._updates[parameter] for parameter in parameters]
        try:
            for update in updates:
                update.wait()
        except KeyboardInterrupt:
            raise  # still outstanding
        except BaseException:
            self.abandon()
            raise
        for update in updates:
            del self._updates[update.parameter]
            update.when_settled()
        if updates:
            self._apply(updates)
        if not self._updates:
            self._forget()

    def _forget(self) -> None:
        self._updates.clear()
        forget(self)

    def abandon(self) -> None:
        """Waits for every reduction, whether it fails or not, and forgets the updates."""
        for update in self._updates.values():
            with suppress(Exception):  # the first failure is reported
                update.wait()
            update.when_settled()
        self._forget()

    def _apply(self, updates: list[OutstandingUpdate]) -> None:
        optimizer = self._optimizer()
        assert optimizer is not None  # it is on the stack, or kept
        by_group: dict[int, list[torch.Tensor]] = {}
        for update in updates:
            by_group.setdefault(update.group, []).append(update.parameter)
        groups = [{**self._options[at], "params": by_group[at]} for at in sorted(by_group)]
        before = [dict(group) for group in groups]
        kept = [update.parameter.grad for update in updates]
        for update in updates:
            update.parameter.grad = update.grad
        try:
            # A forward pass may run in other modes than a step does.
            with torch.inference_mode(False), torch.autocast(updates[0].grad.device.type, enabled=False):
                optimizer._step_groups(groups)
        finally:
            for update, grad in zip(updates, kept):
                update.parameter.grad = grad
        changed = {key for old, new in zip(before, groups) for key in new if new[key] is not old.get(key)}
        if changed:
            keys = ", ".join(sorted(changed))
            raise RuntimeError(KEEPS_STATE_IN_GROUPS.format(optimizer=type(optimizer).__name__, keys=keys))
