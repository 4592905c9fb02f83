"""TorchState: models, optimizers, samplers and plain values of an elastic job."""

from __future__ import annotations

import sys
from typing import Any

import torch

from rueda import operations
from rueda.elastic import pieces
from rueda.elastic.membership import NO_COMMIT, View
from rueda.elastic.state import NOBODY_HOLDS, ObjectState
from rueda.process_sets import global_process_set
from rueda.torch.elastic import live
from rueda.torch.elastic.handlers import (
    ModelStateHandler,
    OptimizerStateHandler,
    SamplerStateHandler,
    StateHandler,
    get_handler_registry,
    handler_of,
    set_handler_registry,
)
from rueda.torch.functions import broadcast_object
from rueda.torch.mpi_ops import rank

__all__ = [
    "ModelStateHandler",
    "OptimizerStateHandler",
    "SamplerStateHandler",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "set_handler_registry",
]


class TorchState(ObjectState):
    """The state of a training with PyTorch. Each keyword becomes an attribute.

    Modules, optimizers and ElasticSampler are kept as copies of their state_dict; a new object that is
    assigned to such an attribute takes the place of the old one. Plain values are kept as they are.
    copy_parameters=False: keeps no copy of parameters and of the optimizer's state (see docs/elastic.md); the
    program must then commit directly after each step.

    >>> state = hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=0, batch=0)
    """

    _handlers: dict[str, StateHandler]  # by the names of attributes
    _watch: live.StepWatch | None

    def __init__(
        self, model: Any = None, optimizer: Any = None, *, copy_parameters: bool = True, **kwargs: Any
    ) -> None:
        kwargs.update(model=model, optimizer=optimizer)
        handlers: dict[str, StateHandler] = {}
        self.__dict__["_handlers"] = handlers
        self.__dict__["_watch"] = None
        if not copy_parameters:
            self._live(handlers, kwargs)
        for name, value in kwargs.items():
            if name not in handlers and (handler := handler_of(value)) is not None:
                handlers[name] = handler
        for name, handler in handlers.items():
            self.__dict__[name] = handler.value
        super().__init__(
            bcast_object=broadcast_object,
            get_rank=rank,
            **{name: value for name, value in kwargs.items() if name not in handlers},
        )

    def _live(self, handlers: dict[str, StateHandler], kwargs: dict[str, Any]) -> None:
        problem = live.why_not(kwargs["model"], kwargs["optimizer"])
        if problem is not None:
            raise ValueError(live.NOT_LIVE.format(what=problem))
        handlers["model"] = live.LiveModelHandler(kwargs["model"])
        handlers["optimizer"] = live.LiveOptimizerHandler(kwargs["optimizer"])
        self.__dict__["_watch"] = live.StepWatch(kwargs["optimizer"])

    def __setattr__(self, name: str, value: Any) -> None:
        handlers: dict[str, StateHandler] = self.__dict__.get("_handlers", {})
        if name in handlers:
            handlers[name].set_value(value)
        super().__setattr__(name, value)

    def save(self) -> None:
        """Copies everything. Where parameters are on a GPU, waits until all ranks have computed them: a sum
        that a lost rank ended leaves garbage there without an error.
        """
        self._leave_live_mode(self._watch.at_commit() if self._watch else None)
        if self._is_on_gpu():
            torch.cuda.synchronize()
            operations.barrier(global_process_set)
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        """Puts back what the last commit has."""
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        """Makes all ranks equal to those that hold the newest commit; before there is a view, to rank 0."""
        if self._view is None:
            if self._watch is not None:
                self._watch.is_dirty = True  # until all of it is there
            for handler in self._handlers.values():
                handler.sync()
            if self._watch is not None:
                self._watch.at_commit()
        super().sync()

    def reset(self) -> None:
        """Samplers divide what is left between the ranks of the new view."""
        super().reset()
        for handler in self._handlers.values():
            if isinstance(handler, SamplerStateHandler):
                handler.value.reset()

    # ---- without copies ----

    def _leave_live_mode(self, why: str | None) -> None:
        if why is None:
            return
        print(f"rueda: {live.NOT_AT_STEPS.format(what=why)}", file=sys.stderr, flush=True)
        self.__dict__["_watch"] = None
        for name in ("model", "optimizer"):
            handler = handler_of(self._handlers[name].value)
            assert handler is not None
            self._handlers[name] = handler

    def _is_dirty(self) -> bool:
        return self._watch is not None and bool(self._watch.is_dirty)

    def _begin_view(self, view: View) -> None:
        if view.commit == NO_COMMIT and view.rank == 0 and self._is_dirty():
            why = "rank 0 had received a part of the first state when a rank was lost"
            raise RuntimeError(NOBODY_HOLDS.format(view=view.number, why=why))
        super()._begin_view(view)

    @property
    def _held(self) -> int:
        return NO_COMMIT if self._is_dirty() else self._commit

    # ---- the transfer ----

    def _holds(self, view: View) -> bool:
        return super()._holds(view) and not self._is_dirty()

    def _capture(self) -> dict[str, Any]:
        kept = {name: handler.kept() for name, handler in self._handlers.items()}
        return {**super()._capture(), **kept}

    def _adopt(self, tree: dict[str, Any]) -> None:
        if self._watch is not None:
            self._watch.is_dirty = True  # until all of it is there
        for name, handler in self._handlers.items():
            handler.take(tree[name])
        super()._adopt(tree)
        if self._watch is not None:
            self._watch.at_commit()

    def _may_differ(self, name: str) -> bool:
        place, _, inner = name.partition(".")
        module = getattr(self, place, None)
        return isinstance(module, torch.nn.Module) and any(inner == one for one, _ in module.named_buffers())

    def _layout(self) -> bytes:
        parts = [super()._layout()]
        for name, value in sorted(self.__dict__.items()):
            if name in self._handlers and isinstance(value, torch.nn.Module):
                shapes = ((n, tuple(p.shape), str(p.dtype)) for n, p in value.named_parameters())
                parts += [f"{name}.{n}:{shape}:{dtype}".encode() for n, shape, dtype in shapes]
        return pieces.digest_of(parts)

    def _is_on_gpu(self) -> bool:
        models = (one.value for one in self._handlers.values() if isinstance(one.value, torch.nn.Module))
        return any(p.is_cuda for model in models for p in model.parameters())
