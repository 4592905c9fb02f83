"""ShardedOptimizer: each rank keeps the state of a part of every parameter, and updates that part.

Rajbhandari et al., "ZeRO: Memory optimizations toward training trillion parameter models" (2020), stage 1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from rueda.basics import basics
from rueda.errors import HorovodInternalError
from rueda.policy import Average, Max, Sum, check_gradient_op, check_passes
from rueda.process_sets import ProcessSet, global_process_set
from rueda.steps import mark_step
from rueda.torch.arguments import Wrapped, check_kinds, check_model, check_reduction
from rueda.torch.compression import Compression, Compressor
from rueda.torch.cross_step import finish_all
from rueda.torch.elementwise import check_element_wise
from rueda.torch.naming import default_names, name_parameters
from rueda.torch.optimizer import rewrap
from rueda.torch.pending_gradients import Settings, settle
from rueda.torch.reducer import ZEROED_EARLY
from rueda.torch.sharded_state import check_shapes, cut_state, gather_state
from rueda.torch.sharding import Gathering, Sharding
from rueda.torch.shards import Shard

NO_MODEL = (
    "ShardedOptimizer with overlap=True needs model=, the module whose forward passes wait for their "
    "parameters; give it, or overlap=False."
)


class _ShardedMixin(Wrapped):
    """What ShardedOptimizer puts in front of the user's optimizer class.

    `param_groups` has the whole parameters. While the wrapped class steps, saves or loads, it has the shards,
    and the state is that of the shards.
    """

    _sharding: Sharding
    _gathering: Gathering | None
    _is_checked: bool  # the shapes of the state, after the first step

    def _attach(self, sharding: Sharding, model: torch.nn.Module | None) -> None:
        self._sharding = sharding
        self._is_checked = False
        self._gathering = None if model is None or sharding.is_alone else Gathering(model, self)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of the wrapped optimizer, with the whole parameters.

        torch's GradScaler reads them to unscale gradients. These are then reduced first.
        """
        groups: list[dict[str, Any]] = self.__dict__["param_groups"]
        if "_sharding" in self.__dict__ and sys._getframe(1).f_code.co_name == "_unscale_grads_":
            self.synchronize()
        return groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.__dict__["param_groups"] = groups

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """False: what GradScaler finds on other ranks, a fused step would not know."""
        return False

    @_step_supports_amp_scaling.setter
    def _step_supports_amp_scaling(self, _: bool) -> None:
        pass

    @property
    def backward_passes_per_step(self) -> int:
        return self._sharding.passes

    def _shards(self) -> list[Shard]:
        """In the order of the groups."""
        shards = self._sharding.shards
        return [shards[parameter] for group in self.__dict__["param_groups"] for parameter in group["params"]]

    @contextmanager
    def _on_shards(self) -> Iterator[None]:
        shards = self._sharding.shards
        kept = [group["params"] for group in self.__dict__["param_groups"]]
        for group in self.__dict__["param_groups"]:
            group["params"] = [shards[parameter].value for parameter in group["params"]]
        try:
            yield
        finally:  # the groups may be new ones
            for group, parameters in zip(self.__dict__["param_groups"], kept):
                group["params"] = parameters

    # ---- steps ----

    def synchronize(self) -> None:
        """Waits for the reduced gradients. This rank's part of each is in `.grad` then, and may be changed.

        The rest of `.grad` is what this rank has computed. If one rank has an infinite or undefined number,
        all have one, so that a GradScaler decides alike. Collective; step() needs no such call.
        """
        self.finish()
        self._sharding.reduce()
        self._sharding.show()

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Does nothing, as step() reduces only what is not reduced: for scripts of DistributedOptimizer."""
        yield

    def clip_grad_norm_(
        self, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
    ) -> torch.Tensor:
        """torch.nn.utils.clip_grad_norm_ for the reduced gradients, whose parts are on all ranks. Returns
        their norm before. Collective; to be called before step().
        """
        order = float(norm_type)
        self.finish()
        self._sharding.reduce()
        grads = list(self._sharding.grads())
        device = grads[0].device if grads else torch.device("cpu")
        wide = torch.float32 if device.type == "mps" else torch.float64
        norms = [torch.linalg.vector_norm(grad, order, dtype=_wide(grad)).to(device, wide) for grad in grads]
        own = torch.stack(norms) if norms else torch.zeros(1, dtype=wide)
        if order == float("inf"):
            total = self._sharding.sum_of_all(own.max(), "sharded_optimizer.norm", Max)
        else:
            total = self._sharding.sum_of_all(own.pow(order).sum(), "sharded_optimizer.norm", Sum)
            total = total.pow(1.0 / order)
        if error_if_nonfinite and not bool(torch.isfinite(total)):
            raise RuntimeError(
                f"The norm of order {order} of the gradients is {total.item()}, so they cannot be clipped; "
                "give error_if_nonfinite=False to scale them all the same."
            )
        factor = torch.clamp(float(max_norm) / (total + 1e-6), max=1.0)
        for grad in grads:
            grad.mul_(factor.to(grad.device, grad.dtype))
        return total

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Waits for the reduced gradients, updates the shards of this rank and brings together all parts.

        closure: computes gradients and returns the loss, which is reduced too. Called once.
        """
        sharding = self._sharding
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = sharding.reduce_loss(closure())
        self.finish()
        sharding.reduce()
        shards = self._shards()
        for shard in shards:
            shard.value.grad = shard.grad
        try:
            with self._on_shards():
                super().step()
        finally:
            for shard in shards:
                shard.value.grad = None
        if not self._is_checked:
            check_shapes(self, shards)
            self._is_checked = True
        self._gather()
        sharding.rearm()
        mark_step(self)
        return loss

    # The step of the wrapped class runs the step hooks. Without this mark they would run twice.
    step.hooked = True  # type: ignore[attr-defined]

    def _gather(self) -> None:
        updates = self._sharding.gather()
        if self._gathering is not None:
            self._gathering.take_over(updates, [])
            return
        failure: Exception | None = None
        for update in updates:
            try:
                settle(update.reduction)  # type: ignore[arg-type]
            except Exception as error:
                failure = failure or error
            update.when_settled()
        if failure is not None:
            raise failure

    def finish(self) -> None:
        """Waits until all parameters are whole: to be called before they are read other than through the
        model. Raises HorovodInternalError when a rank was lost.
        """
        if self._gathering is not None:
            self._gathering.finish()

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Like the wrapped optimizer's; refused while gradients are being reduced."""
        if self._sharding.extra_pass.is_known:
            self._sharding.reset()
        if self._sharding.is_busy:
            raise AssertionError(ZEROED_EARLY)
        self._sharding.note_zeroed()
        super().zero_grad(*args, **kwargs)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters, for instance of layers that were frozen; they are sharded too."""
        if "_sharding" in self.__dict__:
            self.finish()
        super().add_param_group(param_group)
        if "_sharding" in self.__dict__:  # otherwise the wrapper is being built
            self._sharding.take(default_names(self, len(self.__dict__["param_groups"]) - 1).items())

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes how many backward passes are summed before a reduction, and starts counting again."""
        check_passes(passes)
        self._sharding.passes = passes
        self._sharding.reset()

    # ---- state ----

    def state_dict(self, root_rank: int | None = None) -> Any:
        """The whole state, as the wrapped optimizer has it in one process: to be saved by one rank.

        Collective: every rank calls it. root_rank: the world rank that gets the state, the others get None;
        by default all get it. Any number of ranks can load it, and an optimizer that is not sharded.
        """
        ranks = self._sharding.settings.process_set.ranks or list(range(basics.size()))
        if root_rank is not None and root_rank not in ranks:
            raise ValueError(
                f"state_dict: root_rank is {root_rank}, but the optimizer's process set has ranks {ranks}."
            )
        self.finish()
        with self._on_shards():
            packed = super().state_dict()
        return gather_state(packed, self._shards(), self._sharding, root_rank)

    def load_state_dict(self, state_dict: Any) -> None:
        """Takes this rank's part of a whole state. Every rank must be given the same whole state."""
        with suppress(HorovodInternalError):
            self.finish()
        self._sharding.reset()
        part = cut_state(state_dict, self._shards())
        with self._on_shards():
            super().load_state_dict(part)


def _wide(grad: torch.Tensor) -> torch.dtype:
    """In which norms are computed."""
    return torch.float64 if grad.dtype == torch.float64 else torch.float32


def _check(optimizer: Any, model: Any, op: int, process_set: Any, overlap: bool) -> None:
    check_kinds(optimizer, process_set)
    check_gradient_op(op, "ShardedOptimizer")
    check_element_wise(optimizer)
    if overlap:
        check_model(model, optimizer, NO_MODEL)


def _names(
    optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, torch.Tensor]] | None, model: Any
) -> dict[torch.Tensor, str]:
    if named_parameters is None and model is not None:
        names = {parameter: name for name, parameter in model.named_parameters()}
        if all(parameter in names for group in optimizer.param_groups for parameter in group["params"]):
            return names
    return name_parameters(optimizer, named_parameters)


def ShardedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    model: torch.nn.Module | None = None,
    overlap: bool = True,
) -> Any:
    """Wraps an optimizer so that each of n ranks keeps 1/n of its state, and updates 1/n of each parameter.

    Gradients are reduce-scattered as soon as backward has finished them; parameters are all-gathered after
    the update. The weights have the bits that DistributedOptimizer gives (docs/sharded_optimizer.md says
    where not). Returns a new object of a subclass of the optimizer's class with the same name and options and
    no state: load state and build schedulers after wrapping.

    named_parameters: (name, parameter) pairs covering every parameter; by default those of the model. model:
    the module whose forward passes wait for their parameters. overlap: step() returns while parameters are
    on their way; each is awaited when the next forward pass comes to a module that holds it. Otherwise step()
    waits, and no model is needed. compression, backward_passes_per_step, gradient_predivide_factor,
    process_set: as for DistributedOptimizer. op: Average or Sum. The optimizer must update each element by
    itself, as SGD, Adam and AdamW do.
    Raises ValueError for arguments that do not fit; step and synchronize raise HorovodInternalError.

    >>> optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    >>> optimizer = hvd.ShardedOptimizer(optimizer, model=model)
    """
    check_reduction(compression, op, gradient_predivide_factor, backward_passes_per_step)
    if compression is Compression.int8:
        Compression.int8.compress(None)  # says what it is for
    _check(optimizer, model, op, process_set, overlap)
    finish_all()  # names of another model's parameters may be the same
    names = _names(optimizer, named_parameters, model)
    settings = Settings(compression, op, gradient_predivide_factor, False, process_set)
    sharding = Sharding(settings, backward_passes_per_step)
    parameters = [group["params"] for group in optimizer.param_groups]
    sharding.take((parameter, names[parameter]) for some in parameters for parameter in some)
    groups = [
        {**group, "params": [sharding.shards[parameter].value for parameter in group["params"]]}
        for group in optimizer.param_groups
    ]
    wrapped = rewrap(optimizer, _ShardedMixin, groups)
    for group, some in zip(wrapped.__dict__["param_groups"], parameters):
        group["params"] = some
    wrapped._attach(sharding, model if overlap else None)
    return wrapped
