"""Commits without a copy of the parameters.

DistributedOptimizer raises the error of a lost rank in synchronize(), before step() changes any parameter. If
the program commits directly after each step, the parameters in the model are therefore those of the last
commit whenever a collective fails: only what forward changes (buffers) and the options must be kept. Between
step() and commit() the parameters are newer than the commit, so no operation may be started there. Whoever
does that, or steps more than once for a commit, is told so, and commits keep copies from then on.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from rueda.numbering import numbers
from rueda.torch.elastic.handlers import StateHandler
from rueda.torch.functions import broadcast_optimizer_state, broadcast_parameters
from rueda.torch.local_steps import LocalStepsMixin
from rueda.torch.optimizer import DistributedMixin, _CrossStepMixin

NOT_LIVE = (
    "TorchState(copy_parameters=False) needs an optimizer of hvd.DistributedOptimizer on CPU tensors, "
    "without cross_step, Adasum or a compression that has state, and not {what}: other optimizers may change "
    "parameters before a failure is known. Leave out copy_parameters."
)
NOT_AT_STEPS = (
    "TorchState(copy_parameters=False): {what} between two commits, so the parameters in the model are not "
    "always those of a commit. Call state.commit() directly after each optimizer.step(). Commits keep copies "
    "from now on."
)


class LiveModelHandler(StateHandler):
    """Of a module whose parameters are the commit. Keeps its buffers."""

    def __init__(self, value: torch.nn.Module) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        """Copies the buffers."""
        self._buffers = {name: one.detach().clone() for name, one in self.value.named_buffers()}

    def restore(self) -> None:
        """Puts the buffers back."""
        for name, one in self.value.named_buffers():
            one.detach().copy_(self._buffers[name])

    def sync(self) -> None:
        """Takes rank 0's parameters and buffers."""
        broadcast_parameters(self.value.state_dict(), root_rank=0)
        self.save()

    def kept(self) -> Any:
        """The parameters themselves."""
        return self.value.state_dict()

    def take(self, kept: Any) -> None:
        """Overwrites them."""
        self.value.load_state_dict(kept)
        self.save()


class LiveOptimizerHandler(StateHandler):
    """Of a DistributedOptimizer whose state is the commit. Keeps its options."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        """Copies the options."""
        groups = self.value.param_groups
        self._options = [{k: copy.deepcopy(v) for k, v in one.items() if k != "params"} for one in groups]

    def restore(self) -> None:
        """Puts the options back, and forgets reductions under way."""
        if self.value._reducer is not None:
            self.value._reducer.reset()
        for group, options in zip(self.value.__dict__["param_groups"], self._options):
            group.update(copy.deepcopy(options))

    def sync(self) -> None:
        """Takes rank 0's options and state."""
        broadcast_optimizer_state(self.value, root_rank=0)
        self.save()

    def kept(self) -> Any:
        """The state itself."""
        return self.value.state_dict()

    def take(self, kept: Any) -> None:
        """Overwrites it."""
        self.value.load_state_dict(kept)
        self.save()


def why_not(model: Any, optimizer: Any) -> str | None:
    """Why a commit must copy the parameters; None if it need not."""
    if not isinstance(optimizer, DistributedMixin):
        return f"a {type(optimizer).__name__} that is none"
    if isinstance(optimizer, _CrossStepMixin):
        return "one with cross_step=True"
    if isinstance(optimizer, LocalStepsMixin):
        return "one of LocalSGD, DiLoCo or DelayedOptimizer"
    if optimizer._compressor is not None:
        return "one whose compression has state"
    trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if not isinstance(model, torch.nn.Module):
        return "one without a model"
    if any(p.requires_grad and id(p) not in trained for p in model.parameters()):
        return "one that lacks parameters of the model"
    return "one on a GPU" if any(p.is_cuda for p in model.parameters()) else None


class StepWatch:
    """Whether the parameters are those of the last commit. Follows the steps of one optimizer."""

    def __init__(self, optimizer: Any) -> None:
        self._steps = 0
        self._operations = 0
        self.is_dirty = False  # the parameters are newer than the commit
        optimizer.register_step_post_hook(self._after_step)

    def _after_step(self, *_: Any) -> None:
        self._steps += 1
        self._operations = numbers.last_handle
        self.is_dirty = True

    def at_commit(self) -> str | None:
        """What the program did that needs copies; None if the parameters are a commit now."""
        problem = None
        if self._steps > 1:
            problem = f"there were {self._steps} steps"
        elif self._steps == 1 and numbers.last_handle != self._operations:
            problem = "an operation was started after the step"
        self._steps, self.is_dirty = 0, False
        return problem
