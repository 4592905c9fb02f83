"""Collectives of torch.distributed that run as alltoall: every rank says how much goes to whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from rueda import _core, errors, operations
from rueda.operations import Call
from rueda.torch.distributed.layout import Stage, moved, place_of, same_type
from rueda.torch.distributed.requests import Members, Request, check_list, copying, deal, joint_use, taken
from rueda.torch.overlaps import Use


def gather(
    outputs: Sequence[torch.Tensor] | None, source: torch.Tensor, root: int, members: Members
) -> Request:
    """Sends source of each rank to outputs[rank] on root: an alltoall in which only root receives."""
    if outputs is not None:
        check_list("gather", outputs, members)
        same_type([*outputs, source], "gather")
    given = Stage(source)
    use = given.use if outputs is None else copying([source], outputs)
    dtype, count = moved(source.dtype, source.numel())
    splits = [count if place == members.place[root] else 0 for place in range(members.count)]

    def finish(handle: int, index: int) -> None:
        if outputs is not None:
            _unpack(handle, index, members.to_set(outputs), "gather")

    return _alltoall("gather", given, (dtype, (count,), splits), use, finish)


def scatter(output: torch.Tensor, sources: Sequence[torch.Tensor] | None, members: Members) -> Request:
    """Sends sources[rank] of root to output: an alltoall in which only root sends. Others pass None."""
    blocks: list[torch.Tensor] = []
    if sources is not None:
        check_list("scatter", sources, members)
        same_type([*sources, output], "scatter")
        blocks = members.to_set(sources)
    use = copying(blocks, [output])
    given = Stage(_joined(blocks, output))
    splits = [moved(block.dtype, block.numel())[1] for block in blocks] or [0] * members.count
    dtype = moved(output.dtype, 0)[0]

    def finish(handle: int, index: int) -> None:
        deal(taken(handle, index, output), [output], "scatter")

    return _alltoall("scatter", given, (dtype, (sum(splits),), splits), use, finish)


def all_to_all_single(
    output: torch.Tensor,
    source: torch.Tensor,
    splits: tuple[Sequence[int], Sequence[int]],
    members: Members,
) -> Request:
    """Sends rows of source to all ranks and receives rows from all ranks into output.

    splits: those of output and of source; empty: equal parts.
    """
    same_type([output, source], "all_to_all_single")
    out_splits, in_splits = list(splits[0]), list(splits[1])
    if not out_splits and not in_splits and members.is_sorted:
        return _all_to_all_even(output, source, members)
    in_splits = in_splits or _even_rows(source, members)
    out_splits = out_splits or _even_rows(output, members)
    _check_splits(output, out_splits, members)
    _check_splits(source, in_splits, members)
    row = source.shape[1:].numel()
    rows = source.detach()
    use = copying([source], [output])
    if not members.is_sorted:
        rows = torch.cat(members.to_set(list(rows.split(in_splits))))
    given = Stage(rows)
    dtype, width = moved(source.dtype, row)

    def finish(handle: int, index: int) -> None:
        on = place_of(output)
        counts = members.to_set(out_splits)
        blocks = [torch.empty(count * row, dtype=output.dtype, device=on) for count in counts]
        _unpack(handle, index, blocks, "all_to_all_single", width)
        output.detach().copy_(torch.cat(members.to_group(blocks)).view(output.shape))

    what = (dtype, (rows.shape[0], width), members.to_set(in_splits))
    return _alltoall("all_to_all_single", given, what, use, finish)


def _all_to_all_even(output: torch.Tensor, source: torch.Tensor, members: Members) -> Request:
    if source.numel() % members.count or output.numel() != source.numel():
        raise ValueError(
            f"all_to_all_single without split sizes got {source.numel()} elements for {members.count} ranks "
            f"and an output of {output.numel()}; both must be equal and divide evenly."
        )
    result, given = Stage(output, is_input=False, is_output=True), Stage(source)
    given.keep_apart_from(result)
    dtype, count = moved(source.dtype, source.numel() // members.count)
    # As many rows as ranks, so that the engine refuses ranks whose rows have other lengths.
    shape = (members.count, count)
    call = Call(_core.ALLTOALL, dtype, shape, given.address, result.address, **given.place)
    return Request(call, [result.buffer, given.buffer], result.finish, joint_use(given, result))


def all_to_all(outputs: Sequence[torch.Tensor], sources: Sequence[torch.Tensor], members: Members) -> Request:
    """Sends sources[rank] to each rank, and receives outputs[rank] from it."""
    check_list("all_to_all", outputs, members)
    check_list("all_to_all", sources, members)
    same_type([*outputs, *sources], "all_to_all")
    blocks = members.to_set(sources)
    use = copying(blocks, outputs)
    given = Stage(_joined(blocks, outputs[0]))
    dtype = moved(outputs[0].dtype, 0)[0]
    splits = [moved(block.dtype, block.numel())[1] for block in blocks]

    def finish(handle: int, index: int) -> None:
        _unpack(handle, index, members.to_set(outputs), "all_to_all")

    return _alltoall("all_to_all", given, (dtype, (sum(splits),), splits), use, finish)


# ---- shared helpers ----


def _alltoall(
    word: str,
    given: Stage,
    what: tuple[int, tuple[int, ...], list[int]],
    use: Use,
    finish: Callable[[int, int], None],
) -> Request:
    """what: type, shape and splits."""
    dtype, shape, splits = what
    if not _core.fits_int32(max(splits)):
        raise ValueError(
            f"{word} of {max(splits)} elements to one rank is more than {_core.LARGEST_INT32}; send it in "
            "several parts."
        )
    call = Call(_core.ALLTOALL, dtype, shape, given.address, splits=splits, **given.place)
    return Request(call, [given.buffer], finish, use)


def _joined(blocks: Sequence[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    if not blocks:
        return like.new_empty(0)
    return torch.cat([block.detach().reshape(-1) for block in blocks])


def _even_rows(tensor: torch.Tensor, members: Members) -> list[int]:
    rows = tensor.shape[0] if tensor.dim() > 0 else 1
    if rows % members.count:
        raise ValueError(
            f"all_to_all_single of {rows} rows in a group of {members.count} needs split sizes, because "
            "the rows do not divide evenly."
        )
    return [rows // members.count] * members.count


def _check_splits(tensor: torch.Tensor, splits: Sequence[int], members: Members) -> None:
    rows = tensor.shape[0] if tensor.dim() > 0 else 1
    if len(splits) != members.count or sum(splits) != rows or min(splits) < 0:
        raise ValueError(
            f"all_to_all_single got split sizes {list(splits)} for {rows} rows in a group of "
            f"{members.count}; give one number for each rank; their sum must be the number of rows."
        )


def _unpack(handle: int, index: int, outputs: Sequence[torch.Tensor], word: str, width: int = 1) -> None:
    """Cuts what all ranks sent into the outputs, in the engine's order. width: of one row, in elements."""
    rows = operations.result(handle, index).received_splits
    got = [count * width for count in rows]
    expected = [moved(output.dtype, output.numel())[1] for output in outputs]
    if got != expected:
        raise errors.internal_error(
            f"{word} received {got} elements from the ranks of the group, but its outputs have room for "
            f"{expected}; make the sizes agree on all ranks."
        )
    deal(taken(handle, index, outputs[0]), outputs, word)
