"""One parameter of which each rank updates a part: its shard, and the two operations that serve it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from rueda import _core, repeats
from rueda.in_flight import of_handle
from rueda.open_operations import InFlight, Writes, no_result
from rueda.operations import Call
from rueda.process_sets import ProcessSet
from rueda.torch import tensors as memory
from rueda.torch.gathers import allgather_async
from rueda.torch.overlaps import Use
from rueda.torch.pending_gradients import Settings
from rueda.torch.scatters import reducescatter_async
from rueda.torch.tensors import in_order_of, is_direct

NOT_DENSE = (
    "The gradient of parameter {name} is sparse, and ShardedOptimizer cuts dense gradients only; make the "
    "embedding with sparse=False, or use DistributedOptimizer."
)
NOT_CONTIGUOUS = (
    "Parameter {name} of shape {shape} is a view with gaps, so it cannot be cut into shards; make it "
    "contiguous before the optimizer is made."
)
OTHER_LAYOUT = (
    "Parameter {name} has another type, shape, device or order of elements than when its ShardedOptimizer "
    "was made; convert the model before the optimizer is made."
)
RESHAPED = "The compression has changed the shape of the gradient of parameter {name}; use a cast, or none."

# The engine takes the output of an allgather for as large as if all ranks gave as many elements as this one.
# So much may lie behind a tensor that ends before it: no allocator puts the next one closer.
SPARE_BYTES = 16


@dataclass(frozen=True)
class Place:
    """Where this rank is among those that share the parameters."""

    rank: int
    size: int

    def cut(self, count: int) -> tuple[int, int]:
        """The elements of this rank, as the engine's reducescatter gives them: the first ranks have one more
        if they cannot have equally many.
        """
        each, more = divmod(count, self.size)
        start = self.rank * each + min(self.rank, more)
        return start, start + each + (self.rank < more)


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """The elements in the order of memory, [count]; a view if there are no gaps."""
    return in_order_of(tensor, tensor.detach())[1].view(-1)


def layout_of(tensor: torch.Tensor) -> tuple[object, ...]:
    """What must stay, for a shard to be the same elements."""
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.device


class Shard:
    """The elements of one parameter that this rank updates.

    value: [end - start], a view of the parameter's memory; what the wrapped optimizer sees.
    """

    def __init__(self, parameter: torch.Tensor, name: str, place: Place) -> None:
        self.parameter = parameter
        self.name = name
        self.place = place
        self.passes_left = 1
        self.reduction: InFlight | None = None  # under way; its result goes to `grad`
        self.is_reduced = False  # `grad` holds the reduced gradient, which no step has used
        self.is_outstanding = False  # the parts of the other ranks are on their way
        self.grad: torch.Tensor | None = None  # [end - start]
        self._buffer: torch.Tensor | None = None  # for what is received
        self._starts: dict[tuple[Any, ...], repeats.Start] = {}
        whole = flat(parameter)
        if whole.data_ptr() != parameter.data_ptr():
            raise ValueError(NOT_CONTIGUOUS.format(name=name, shape=tuple(parameter.shape)))
        self.start, self.end = place.cut(parameter.numel())
        self.value = whole[self.start : self.end]
        self._address, self._layout = parameter.data_ptr(), layout_of(parameter)

    @property
    def is_whole(self) -> bool:
        return self.place.size == 1 or self.parameter.numel() == 0

    def part_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The elements of this shard in a tensor of the parameter's shape."""
        return in_order_of(self.parameter, tensor.detach())[1].reshape(-1)[self.start : self.end]

    def follow(self) -> None:
        """After `parameter.data = …`: the shard is a view of the new memory."""
        if self.parameter.data_ptr() != self._address:
            if layout_of(self.parameter) != self._layout:
                raise ValueError(OTHER_LAYOUT.format(name=self.name))
            self.value.data = flat(self.parameter)[self.start : self.end]
            self._address = self.parameter.data_ptr()

    def fill(self) -> torch.Tensor:
        """The gradient of this rank; zeros if there is none."""
        grad = self.parameter.grad
        if grad is None:
            grad = torch.zeros_like(self.parameter, requires_grad=False)
            self.parameter.grad = grad
        if grad.layout != torch.strided:
            raise ValueError(NOT_DENSE.format(name=self.name))
        return grad

    # ---- gradients ----

    def reduce(self, settings: Settings) -> None:
        """Starts combining the gradients of all ranks; this rank gets its part of the result."""
        grad = self.fill()
        if self.is_whole:
            self.grad, self.is_reduced = self.part_of(grad), True
            return
        sent, context = settings.compression.compress(grad)
        if sent.shape != grad.shape:
            raise ValueError(RESHAPED.format(name=self.name))
        _, view = in_order_of(self.parameter, sent)
        # Another rank may have the elements in another order; then the shapes differ, and it is said.
        source = view.view(-1) if view.dim() == grad.dim() else view.view(-1, 1)
        arguments = (self.name, settings.op, settings.process_set, *settings.factors)
        if is_direct(source) and (self._buffer is None or is_direct(self._buffer)):
            started = self._reduce_direct(source, settings)
        else:
            started = of_handle(reducescatter_async(source, *arguments))
        self.reduction = started.then(lambda part: self._take(settings, part, context))

    def _reduce_direct(self, source: torch.Tensor, settings: Settings) -> InFlight:
        buffer = self._buffer
        if buffer is None or buffer.dtype != source.dtype or buffer.device != source.device:
            buffer = self._buffer = source.new_empty(self.end - self.start)
        pre, post = settings.factors
        terms = {"op": settings.op, "prescale": pre, "postscale": post}
        start = self._prepared(_core.REDUCESCATTER, "reducescatter", source, terms)
        return start_into(start, settings.process_set, source, buffer)

    def _take(self, settings: Settings, part: torch.Tensor, context: Any) -> None:
        with torch.no_grad():
            self.grad = settings.compression.decompress(part.view(-1), context)
        self.is_reduced = True

    def _prepared(self, what: int, word: str, source: torch.Tensor, terms: dict[str, Any]) -> repeats.Start:
        key = (what, source.dtype, source.shape, source.device)
        start = self._starts.get(key)
        if start is None:
            start = self._starts[key] = prepare(what, word, source, self.name, terms)
        return start

    # ---- parameters ----

    def gather(self, process_set: ProcessSet) -> InFlight:
        """Starts bringing the parts of all ranks into the parameter."""
        whole = flat(self.parameter)
        missing = -whole.numel() % self.place.size * whole.element_size()
        if is_direct(whole) and missing <= SPARE_BYTES:
            start = self._prepared(_core.ALLGATHER, "allgather", self.value, {})
            return start_into(start, process_set, self.value, whole)

        def store(gathered: torch.Tensor) -> None:
            with torch.no_grad():
                flat(self.parameter).copy_(gathered)

        return of_handle(allgather_async(self.value, self.name, process_set)).then(store)


def prepare(what: int, word: str, like: torch.Tensor, name: str, terms: dict[str, Any]) -> repeats.Start:
    """An operation that recurs with direct tensors like this one. terms: as in Call."""
    memory.check(like)
    call = Call(what, memory.DTYPES[like.dtype], tuple(like.shape), input=0, **terms)
    call.device, call.memory = memory.device_index(like), memory.memory_of(like)
    stream = memory.stream_of(like)
    if stream is not None:
        stream.mark([call])
    return repeats.repeat(call, word, name)


def start_into(
    start: Callable[..., tuple[int, int]], process_set: ProcessSet, source: torch.Tensor, output: torch.Tensor
) -> InFlight:
    """Starts it with these direct tensors. Its result is the output."""
    Use([source], [output]).wait_for_others()
    stream = memory.stream_of(output)
    on = 0 if stream is None else stream.handle
    # An empty tensor has no address.
    address = source.data_ptr() or output.data_ptr()
    number, handle = start(process_set, address, output.data_ptr(), on, False)
    del number  # nobody gets a handle
    return InFlight(handle, (source, output), no_result, 0, stream, Writes([output])).then(lambda _: output)
