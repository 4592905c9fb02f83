"""How values of PyTorch are kept, put back and sent: a handler for each kind, and those without copies."""

from __future__ import annotations

import copy
import ctypes
import warnings
from typing import Any

import torch

from rueda.elastic import frozen
from rueda.residuals import RESIDUALS
from rueda.torch.elastic.sampler import ElasticSampler
from rueda.torch.functions import broadcast_object, broadcast_optimizer_state, broadcast_parameters


class StateHandler:
    """Keeps one attribute of a TorchState. Subclasses define save, restore and sync."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Keeps the current values."""
        raise NotImplementedError(f"{type(self).__name__} must define save().")

    def restore(self) -> None:
        """Puts back what was kept last."""
        raise NotImplementedError(f"{type(self).__name__} must define restore().")

    def sync(self) -> None:
        """Collective: takes the values of rank 0."""
        raise NotImplementedError(f"{type(self).__name__} must define sync().")

    def set_value(self, value: Any) -> None:
        """Another object is to be kept."""
        self.value = value
        self.save()

    def kept(self) -> Any:
        """What was kept last, as a tree of tensors and plain values."""
        self.save()
        return {}

    def take(self, kept: Any) -> None:
        """The reverse, with what another rank kept."""
        self.sync()


class _DictHandler(StateHandler):
    """Keeps a copy of the value's state_dict()."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        """Copies the state_dict()."""
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        """Loads the copy."""
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def kept(self) -> Any:
        """The copy."""
        return self._saved

    def take(self, kept: Any) -> None:
        """Loads it, and keeps a copy."""
        self.value.load_state_dict(kept)
        self.save()


class ModelStateHandler(_DictHandler):
    """Of modules."""

    def sync(self) -> None:
        """Takes rank 0's parameters and buffers, and keeps a copy."""
        broadcast_parameters(self.value.state_dict(), root_rank=0)
        self.save()


class OptimizerStateHandler(_DictHandler):
    """Of optimizers, wrapped or not. Reductions under way are awaited and forgotten by load_state_dict.

    Residuals of wire types are each rank's own, and kept by State.
    """

    def save(self) -> None:
        """Copies the state_dict(), without residuals."""
        state = self.value.state_dict()
        self._saved = copy.deepcopy({key: part for key, part in state.items() if key != RESIDUALS})

    def sync(self) -> None:
        """Takes rank 0's options and state, and keeps a copy."""
        broadcast_optimizer_state(self.value, root_rank=0)
        self.save()


class SamplerStateHandler(_DictHandler):
    """Of an ElasticSampler. Its ranks agree on what was processed: all of it, by all of them."""

    def sync(self) -> None:
        """Takes what rank 0 has processed; the rest is divided anew."""
        self.take(broadcast_object(self.value.state_dict(), root_rank=0))


# The first entry whose type fits is taken.
_registry: list[tuple[type, type]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> list[tuple[type, type]]:
    """The list of (type, class of its handler); the first that fits is taken. It may be extended."""
    return _registry


def set_handler_registry(registry: list[tuple[type, type]]) -> None:
    """Puts another list in its place."""
    global _registry
    _registry = registry


def handler_of(value: Any) -> StateHandler | None:
    """A handler for this value; None if it is a plain one."""
    for kind, handler in _registry:
        if isinstance(value, kind):
            made: StateHandler = handler(value)
            return made
    return None


# ---- tensors as buffers ----


def _reduce(tensor: torch.Tensor) -> Any:
    if tensor.layout != torch.strided:
        return tensor.__reduce_ex__(5)
    flat = tensor.detach().to("cpu").contiguous()
    return _rebuild, (_buffer_of(flat), str(flat.dtype).rpartition(".")[2], tuple(flat.shape), flat.nbytes)


class _Bytes:
    """The memory of a tensor, which lives as long as a view of it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        address = tensor.data_ptr() if tensor.nbytes else 0
        self.array: Any = (ctypes.c_uint8 * tensor.nbytes).from_address(address) if address else bytearray()


def _buffer_of(tensor: torch.Tensor) -> Any:
    import pickle

    memory = _Bytes(tensor)
    if not isinstance(memory.array, bytearray):
        memory.array._memory = memory  # a view keeps the array, and the array this
    return pickle.PickleBuffer(memoryview(memory.array).cast("B"))


def _rebuild(buffer: Any, dtype: str, shape: tuple[int, ...], size_bytes: int) -> torch.Tensor:
    kind: torch.dtype = getattr(torch, dtype)
    if size_bytes == 0:
        return torch.empty(shape, dtype=kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a buffer that may not be written, which nobody does
        return torch.frombuffer(buffer, dtype=torch.uint8)[:size_bytes].view(kind).reshape(shape)


frozen.register(torch.Tensor, _reduce)
