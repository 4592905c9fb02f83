"""The collectives of torch.distributed as requests of the engine, one for each tensor.

Blocks are in the order of group ranks here and in the order of world ranks in the engine; `Members.place`
maps one to the other. The engine compares the requests of ranks. Shapes are chosen so that it refuses what
would not fit: a result is written to the caller's memory only if the shares of all ranks must have one size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from rueda import _core, errors
from rueda.operations import Call
from rueda.torch import tensors as memory
from rueda.torch.distributed.layout import Stage, moved, place_of, reduced, same_type
from rueda.torch.overlaps import Use
from rueda.torch.tensors import device_index


@dataclass(frozen=True)
class Members:
    """The ranks of a group."""

    me: int  # this process's rank in the group
    world_ranks: tuple[int, ...]  # by group rank

    @property
    def count(self) -> int:
        return len(self.world_ranks)

    @property
    def place(self) -> list[int]:
        """Place of each group rank in the engine's set, which is sorted by world rank."""
        in_order = sorted(self.world_ranks)
        return [in_order.index(rank) for rank in self.world_ranks]

    @property
    def is_sorted(self) -> bool:
        return list(self.world_ranks) == sorted(self.world_ranks)

    def to_set(self, blocks: Sequence[Any]) -> list[Any]:
        """Blocks by group rank, put in the engine's order."""
        placed = list(blocks)
        for block, place in zip(blocks, self.place):
            placed[place] = block
        return placed

    def to_group(self, blocks: Sequence[Any]) -> list[Any]:
        """Blocks in the engine's order, put in the order of group ranks."""
        return [blocks[place] for place in self.place]


@dataclass(frozen=True)
class Request:
    """One request, the memory that the engine uses for it, finish(handle, index), called when it has
    succeeded, and what it does with tensors of its caller.
    """

    call: Call
    held: Sequence[torch.Tensor]
    finish: Callable[[int, int], None] | None
    use: Use


def allreduce(tensor: torch.Tensor, op: int, factor: float, like: torch.Tensor | None = None) -> Request:
    """In place. like: the caller's tensor, of which this one is a copy."""
    stage = Stage(tensor, is_output=True)
    dtype, shape = reduced(tensor if like is None else like, tensor.numel(), op)
    where = (stage.address, stage.address)
    call = Call(_core.ALLREDUCE, dtype, shape, *where, op, prescale=factor, **stage.place)
    return Request(call, [stage.buffer], stage.finish, stage.use)


def reduce(tensor: torch.Tensor, op: int, factor: float, is_root: bool) -> Request:
    """An allreduce whose result the other ranks throw away: the engine has no reduction to one rank."""
    if is_root:
        return allreduce(tensor, op, factor)
    use = copying([tensor], ())
    return replace(allreduce(tensor.detach().clone(), op, factor, like=tensor), use=use)


def broadcast(tensor: torch.Tensor, world_root: int, is_root: bool) -> Request:
    """In place."""
    stage = Stage(tensor, is_input=is_root, is_output=not is_root)
    dtype, count = moved(tensor.dtype, tensor.numel())
    where = (stage.address, stage.address)
    call = Call(_core.BROADCAST, dtype, (count,), *where, root_rank=world_root, **stage.place)
    return Request(call, [stage.buffer], None if is_root else stage.finish, stage.use)


def barrier() -> Request:
    return Request(Call(_core.BARRIER, _core.FLOAT32, (), 0), [], None, Use())


# ---- gathering ----


def all_gather_single(output: torch.Tensor, source: torch.Tensor, members: Members) -> Request:
    """Gathers source [k] of each rank into output [ranks, k]."""
    same_type([output, source], "all_gather_into_tensor")
    if output.numel() != members.count * source.numel():
        raise ValueError(
            f"all_gather_into_tensor of {source.numel()} elements in a group of {members.count} needs an "
            f"output of {members.count * source.numel()} elements, but got {output.numel()}."
        )
    if not members.is_sorted:
        copying((), [output])
    result, given = Stage(output, is_input=False, is_output=True), Stage(source)
    if result.is_direct and not members.is_sorted:
        result.buffer = torch.empty_like(output)
    block = source.numel() * source.element_size()
    is_own_block = members.is_sorted and given.address == result.address + members.me * block
    if not is_own_block:
        given.keep_apart_from(result)
    dtype, count = moved(source.dtype, source.numel())
    # With a first dimension of 1 the engine refuses ranks whose counts differ.
    call = Call(_core.ALLGATHER, dtype, (1, count), given.address, result.address, **given.place)

    def finish(handle: int, index: int) -> None:
        if not members.is_sorted:
            blocks = result.buffer.view(members.count, -1)
            result.buffer = torch.stack(members.to_group(list(blocks))).view(output.shape)
        result.bring_back()

    use = joint_use(given, result)
    return Request(call, [result.buffer, given.buffer], None if result.is_direct else finish, use)


def all_gather(outputs: Sequence[torch.Tensor], source: torch.Tensor, members: Members) -> Request:
    """Gathers source of each rank into outputs[rank]. Sizes may differ between ranks if the outputs do."""
    check_list("all_gather", outputs, members)
    same_type([*outputs, source], "all_gather")
    counts = [output.numel() for output in outputs]
    if counts[members.me] != source.numel():
        raise ValueError(
            f"all_gather of {source.numel()} elements got an output of {counts[members.me]} for this rank; "
            "make them equal."
        )
    use = copying([source], outputs)
    if len(set(counts)) == 1:
        place = place_of(source)
        flat = torch.empty(members.count, source.numel(), dtype=source.dtype, device=place)
        in_set = Members(members.place[members.me], tuple(sorted(members.world_ranks)))
        inner = all_gather_single(flat, source.to(place), in_set)

        def finish_even(handle: int, index: int) -> None:
            for output, block in zip(outputs, members.to_group(list(flat))):
                output.detach().copy_(block.view(output.shape))

        inner.call.device = device_index(source)
        return replace(inner, finish=finish_even, use=use)
    given = Stage(source)
    dtype, count = moved(source.dtype, source.numel())
    call = Call(_core.ALLGATHER, dtype, (count,), given.address, **given.place)

    def finish(handle: int, index: int) -> None:
        deal(taken(handle, index, source), members.to_set(outputs), "all_gather")

    return Request(call, [given.buffer], finish, use)


# ---- reduce-scatter ----


def reduce_scatter_single(
    output: torch.Tensor, source: torch.Tensor, reduction: tuple[int, float], members: Members
) -> Request:
    """Reduces source [ranks, k]; each rank gets its row as output [k]."""
    same_type([output, source], "reduce_scatter_tensor")
    if source.numel() != members.count * output.numel():
        raise ValueError(
            f"reduce_scatter_tensor to {output.numel()} elements in a group of {members.count} needs an "
            f"input of {members.count * output.numel()} elements, but got {source.numel()}."
        )
    op, factor = reduction
    is_rearranged = not members.is_sorted or not source.is_contiguous()
    use = copying([source], [output]) if is_rearranged else None
    rows = source.detach().reshape(members.count, -1)
    if op not in (_core.SUM, _core.AVERAGE):
        return _reduce_all_keep_own(list(rows), output, reduction, members)
    if not members.is_sorted:
        rows = torch.stack(members.to_set(list(rows)))
    result, given = Stage(output, is_input=False, is_output=True), Stage(rows)
    given.keep_apart_from(result)
    dtype, row = reduced(source, output.numel(), op)
    shape, where = (members.count, *row), (given.address, result.address)
    call = Call(_core.REDUCESCATTER, dtype, shape, *where, op, prescale=factor, **given.place)
    return Request(call, [result.buffer, given.buffer], result.finish, use or joint_use(given, result))


def reduce_scatter(
    output: torch.Tensor, sources: Sequence[torch.Tensor], reduction: tuple[int, float], members: Members
) -> Request:
    """Reduces sources[rank] of all ranks; each rank gets its own. Sizes may differ between ranks."""
    check_list("reduce_scatter", sources, members)
    same_type([*sources, output], "reduce_scatter")
    if sources[members.me].numel() != output.numel():
        raise ValueError(
            f"reduce_scatter to {output.numel()} elements got {sources[members.me].numel()} for this rank; "
            "make them equal."
        )
    if len({source.numel() for source in sources}) > 1:
        return _reduce_all_keep_own(list(sources), output, reduction, members)
    use = copying(sources, [output])
    rows = torch.stack([source.detach().reshape(-1) for source in sources])
    return replace(reduce_scatter_single(output, rows, reduction, members), use=use)


def _reduce_all_keep_own(
    blocks: Sequence[torch.Tensor], output: torch.Tensor, reduction: tuple[int, float], members: Members
) -> Request:
    """For what the engine's reducescatter does not do (operations other than sums, unequal parts): an
    allreduce of which each rank keeps its block. It moves as many times the bytes as the group has ranks.
    """
    use = copying(blocks, [output])
    everything = torch.cat([block.detach().reshape(-1) for block in blocks])
    everything = everything.to(place_of(output))
    start = sum(block.numel() for block in blocks[: members.me])
    inner = allreduce(everything, *reduction)
    inner.call.device = device_index(output)

    def finish(handle: int, index: int) -> None:
        mine = everything[start : start + output.numel()]
        output.detach().copy_(mine.view(output.shape))

    return replace(inner, finish=finish, use=use)


# ---- shared helpers ----


def copying(reads: Sequence[torch.Tensor], writes: Sequence[torch.Tensor]) -> Use:
    """The use by a request that works on copies of these tensors, which may be taken now."""
    use = Use(reads, writes, is_copied=True)
    use.wait_for_others()
    return use


def joint_use(given: Stage, result: Stage) -> Use:
    """The use of an input and an output."""
    is_copied = given.use.is_copied or result.use.is_copied
    return Use(given.use.reads, result.use.writes, is_copied)


def check_list(word: str, tensors: Sequence[torch.Tensor], members: Members) -> None:
    if len(tensors) != members.count:
        raise ValueError(
            f"{word} in a group of {members.count} ranks got a list of {len(tensors)} tensors; "
            "give one for each rank."
        )


def taken(handle: int, index: int, like: torch.Tensor) -> torch.Tensor:
    """The result that the engine allocated, flat, with the type of another tensor of the operation."""
    is_known = moved(like.dtype, 1)[1] == 1
    kind = memory.kind_of(like)
    on = torch.device("cpu") if kind.stream is None else kind.device
    kind = memory.Kind(like.dtype if is_known else torch.uint8, on, kind.stream)
    tensor, _ = memory.take(handle, index, kind)
    return tensor.reshape(-1) if is_known else tensor.reshape(-1).view(like.dtype)


def deal(flat: torch.Tensor, outputs: Sequence[torch.Tensor], word: str) -> None:
    """Cuts a flat result into the outputs, in their order."""
    counts = [output.numel() for output in outputs]
    if flat.numel() != sum(counts):
        raise errors.internal_error(
            f"{word} received {flat.numel()} elements, but its outputs have {sum(counts)}; make the sizes "
            "agree on all ranks."
        )
    for output, block in zip(outputs, flat.split(counts)):
        output.detach().copy_(block.view(output.shape))
