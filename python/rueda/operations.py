"""Submitting collectives and waiting for them, for any framework: names, numbers, errors.

A front end describes each request, keeps the memory alive until the operation has ended, and turns results
into its own tensors. Nothing here knows a framework.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, byref, c_int32, c_int64, cast
from dataclasses import dataclass, field
from typing import Any, NoReturn, Optional, Tuple, TypeVar

from rueda import _core, epochs, errors
from rueda.compression import KeepsState
from rueda.numbering import numbers
from rueda.policy import check_factors, check_name, number_of, root_rank_of
from rueda.process_sets import ProcessSet, global_process_set

# A waiting main thread looks for signals (Ctrl-C) this often.
WAIT_SLICE_S = 0.25

Member = TypeVar("Member")

# What an operation is called: the word with which its key begins ("allreduce", "grouped_allreduce"), and the
# name that the user gave, or None.
Naming = Tuple[str, Optional[str]]


class _Thread(threading.local):
    """What a thread is about to do."""

    will_wait = False
    wire = _core.WIRE_DEFAULT


_thread = _Thread()


@dataclass
class Call:
    """One tensor of a collective, as pointers and numbers."""

    what: int  # _core.ALLREDUCE …
    dtype: int
    shape: tuple[int, ...]
    input: int  # address, 0 for none
    output: int = 0  # address; 0: the engine allocates the result
    op: int = _core.SUM
    root_rank: int = -1
    prescale: float = 1.0
    postscale: float = 1.0
    device: int = -1  # where the framework has the tensor: -1 CPU, else GPU index
    memory: int = _core.HOST_MEMORY  # where input and output are
    stream: int | None = None  # device memory: the stream in whose order input becomes ready; None: it is
    splits: Sequence[int] | None = None
    tag: int = 0
    priority: int = 0  # as in rueda.h
    wire: int = field(default_factory=lambda: _thread.wire)  # the same; see sent_as


@dataclass
class Result:
    """What one tensor of a finished collective became."""

    shape: tuple[int, ...]
    address: int
    size_bytes: int
    received_splits: list[int]
    last_joined_rank: int
    tag: int


@contextmanager
def sent_as(wire: int) -> Iterator[None]:
    """Allreduces that this thread describes within travel between hosts as this type of _core.WIRE_…."""
    before, _thread.wire = _thread.wire, wire
    try:
        yield
    finally:
        _thread.wire = before


def current_wire() -> int:
    """The type of sent_as, or WIRE_DEFAULT."""
    return _thread.wire


@contextmanager
def about_to_wait() -> Iterator[None]:
    """Operations submitted within are waited for at once, by this thread. The thread then does the engine's
    work itself, which saves waking another thread.
    """
    _thread.will_wait = True
    try:
        yield
    finally:
        _thread.will_wait = False


def will_wait() -> bool:
    """Whether this thread is about to wait for what it submits."""
    return _thread.will_wait


def submit(
    calls: Sequence[Call],
    process_set: ProcessSet,
    make_name: Callable[[int, int], str],
    kind: str,
    numbered_at: int = 0,
) -> tuple[int, int]:
    """Submits the calls as one operation.

    make_name(number, index) gives the name of each call. kind is the word with which error texts begin
    ("Allreduce"). numbered_at: the byte at which the number begins in the names, 0 if they contain none.
    Returns (handle number, handle of the engine). Raises if this rank refuses the operation; nothing is
    counted then.
    """
    check_usable()
    set_id = process_set_id(process_set, kind)
    requests = (_core.Request * len(calls))()
    # ctypes keeps what the structs point to alive only through the assigned objects, which the array holds.
    with numbers:
        number = numbers.next_in_set(set_id)
        for index, call in enumerate(calls):
            fill(requests[index], call, set_id, make_name(number, index), numbered_at)
        engine_handle = start(requests, len(calls), _thread.will_wait)
        return numbers.take(set_id), engine_handle


def start(requests: Any, count: int, will_wait: bool = False) -> int:
    """Submits filled requests as one operation and returns the handle of the engine. Raises if this rank
    refuses them. will_wait: this thread waits for the operation next, and does the engine's work meanwhile.
    """
    engine_handle = c_int64(0)
    submit_now = _core.submit_for_wait if will_wait else _core.submit
    status = submit_now(byref(requests), count, byref(engine_handle))
    if status != _core.OK:
        raise_refused(status)
    return engine_handle.value


def is_group(naming: Naming) -> bool:
    """Whether the operation has several tensors, which the user gets as several results."""
    return naming[0].startswith("grouped_")


def submit_named(calls: Sequence[Call], naming: Naming, process_set: ProcessSet) -> tuple[int, int]:
    """Like submit, with the names that every front end uses."""
    word, name = naming
    check_name(name)
    count, has_many = len(calls), is_group(naming)
    before = unnamed(word)

    def make_name(number: int, index: int) -> str:
        base = f"{word}.{name}" if name is not None else f"{before}{number}"
        return f"{base}_{index + 1}of{count}" if has_many else base

    numbered_at = len(before) if name is None else 0
    kind = word.removeprefix("grouped_").capitalize()
    return submit(calls, process_set, make_name, kind, numbered_at)


def unnamed(word: str) -> str:
    """How the name of an operation without a name begins; its number follows."""
    return f"{word}.noname."


def fill(request: _core.Request, call: Call, set_id: int, name: str, numbered_at: int = 0) -> None:
    root_rank = root_rank_of(call.root_rank)
    try:
        request.prescale, request.postscale = call.prescale, call.postscale
    except (TypeError, OverflowError):
        check_factors(call.prescale, call.postscale)
        raise
    if not _core.fits_int32(root_rank):
        raise ValueError(f"broadcast received invalid root rank {root_rank} for provided process set")
    request.struct_size = _core.REQUEST_BYTES
    request.what = call.what
    request.dtype = call.dtype
    request.op = call.op
    request.name = _core.c_text(name, "name")
    request.process_set = set_id
    request.root_rank = root_rank
    request.ndim = len(call.shape)
    request.device = call.device
    request.shape = (c_int64 * len(call.shape))(*call.shape)
    request.input = call.input
    request.output = call.output
    if call.splits is not None:
        # An empty list differs from no list: its pointer must not be null.
        splits = (c_int32 * max(1, len(call.splits)))(*call.splits)
        request.splits = cast(splits, POINTER(c_int32))
        request.split_count = len(call.splits)
    request.tag = call.tag
    request.memory = call.memory
    if call.stream is not None:
        request.ready, request.ready_is_stream = call.stream, 1
    request.priority = call.priority
    request.numbered_at = numbered_at
    request.wire = call.wire


def check_splits(rows: Sequence[int]) -> None:
    """Raises ValueError unless these are numbers of rows. The engine checks their sum and their count."""
    if any(count < 0 for count in rows):
        raise ValueError(f"alltoall expects splits without negative elements, but got {list(rows)}.")
    if not all(_core.fits_int32(count) for count in rows):
        raise ValueError(
            f"alltoall expects splits of at most {_core.LARGEST_INT32} rows, but got {list(rows)}; send "
            "the rest with another alltoall."
        )


def members_of_group(values: Iterable[Member], what: str, is_single: bool) -> Sequence[Member]:
    """The members of a grouped operation, which a generator may give. TypeError for anything else.

    what: the word for a member ("tensor"). is_single: whether a member was given in place of a group.
    """
    if is_single or not isinstance(values, Iterable):
        raise TypeError(
            f"A grouped operation takes a list of {what}s, not {type(values).__name__}; put a single "
            f"{what} into a list."
        )
    return values if isinstance(values, (list, tuple)) else list(values)


def check_usable() -> None:
    """Raises HorovodInternalError before init, after shutdown and in a forked child."""
    if epochs.current() == epochs.NONE:
        raise errors.internal_error(errors.FORKED if epochs.is_forked() else epochs.not_running())


def process_set_id(process_set: ProcessSet, kind: str) -> int:
    """Id of a registered set; ValueError if the set is not registered, TypeError for anything but a set."""
    if not isinstance(process_set, ProcessSet):
        raise TypeError(
            f"{kind}: process_set must be a ProcessSet, such as one that add_process_set returned, not "
            f"{type(process_set).__name__}."
        )
    set_id = process_set.process_set_id
    if set_id is None:
        if kind == "Reducescatter":
            raise ValueError("Invalid process set id for this rank: None")
        text = f"{kind}: Process set provided does not exist, or has not been registered"
        if process_set.is_of_earlier_init:
            text += " since the last init(); register it again with add_process_set or init(process_sets=…)"
        raise ValueError(text + ".")
    return set_id


def rescale_residuals(factor: float) -> None:
    """What wire types have left to be sent later is scaled by factor (docs/wire_types.md). Call it on all
    ranks, between two steps, when gradients grow by this factor, as with a new loss scale.

    Raises ValueError before init, for a factor that is not positive and finite, and if the product of all
    factors since init leaves 1e-50 to 1e50.
    """
    status = _core.rescale_residuals(number_of(factor, "factor"))
    if status != _core.OK:
        raise_refused(status)


def check_compression(compression: Any) -> None:
    """Raises ValueError for anything that cannot compress, such as the name of a compression."""
    if isinstance(compression, KeepsState):
        raise ValueError(
            f"compression={compression!r} keeps state of each gradient, for which only the "
            "DistributedOptimizer of PyTorch, JAX and Keras has a place; use one of Compression.none, "
            ".fp16, .bf16 and .int8 here."
        )
    if not (hasattr(compression, "compress") and hasattr(compression, "decompress")):
        raise ValueError(
            f"compression must be one of Compression.none, .fp16, .bf16, .int8, or have compress and "
            f"decompress, unlike {compression!r}."
        )


def set_size(process_set: ProcessSet, kind: str) -> int:
    """Number of ranks of a registered set; raises as process_set_id does, and ValueError before init."""
    process_set_id(process_set, kind)
    size = process_set.size()
    assert size is not None
    return size


def raise_refused(status: int) -> NoReturn:
    """Raises for a submission that the engine has just refused on this rank alone."""
    text = _core.last_error()
    if status in (_core.INVALID_ARGUMENT, _core.DUPLICATE_NAME):
        raise ValueError(text)
    raise errors.internal_error(text)


def is_done(engine_handle: int) -> bool:
    """Whether waiting would return at once; also true when the operation failed."""
    return bool(_core.poll(engine_handle))


def has_result(engine_handle: int) -> bool:
    """Whether the operation has succeeded or was launched on a device. Does not wait."""
    info = _core.ResultInfo()
    info.struct_size = _core.RESULT_INFO_BYTES
    return bool(_core.result(engine_handle, 0, byref(info)) == _core.OK)


def wait(engine_handle: int) -> None:
    """Waits for the operation; raises HorovodInternalError when it failed. Signals are served meanwhile."""
    while True:
        status = _core.wait(engine_handle, WAIT_SLICE_S)
        if status == _core.TIMEOUT:
            if not _core.poll(engine_handle):
                continue
            status = _core.wait(engine_handle, 0.0)  # it has ended since; this returns how
        if status == _core.OK:
            return
        raise_failed(engine_handle)


def wait_on_stream(engine_handle: int, stream: int) -> None:
    """What is enqueued on the stream afterwards sees the result; otherwise as wait().

    stream: a handle of the device's runtime, such as torch.cuda.current_stream().cuda_stream. An operation in
    device memory is waited for until it was launched, one in host memory until it has ended.
    """
    while True:
        status = _core.wait_on_stream(engine_handle, stream, WAIT_SLICE_S)
        if status == _core.OK:
            return
        if status != _core.TIMEOUT:
            raise_failed(engine_handle)
        if _core.poll(engine_handle):
            return wait(engine_handle)  # it has ended since: how it ended is what counts


def raise_failed(engine_handle: int) -> NoReturn:
    """Raises the error of an operation for which this thread has just waited."""
    why = _core.last_error()  # after a shutdown by another thread nothing else remembers the operation
    raise errors.internal_error(_core.error(engine_handle) or why or errors.SHUTTING_DOWN)


def result(engine_handle: int, index: int) -> Result:
    """The result of one tensor of a finished operation."""
    info = _core.ResultInfo()
    info.struct_size = _core.RESULT_INFO_BYTES
    status = _core.result(engine_handle, index, byref(info))
    if status != _core.OK:
        raise errors.internal_error(_core.last_error())
    return Result(
        shape=tuple(info.shape[axis] for axis in range(info.ndim)),
        address=info.data or 0,
        size_bytes=info.bytes,
        received_splits=[info.received_splits[i] for i in range(info.split_count)],
        last_joined_rank=info.last_joined_rank,
        tag=info.tag,
    )


def join() -> int:
    """Blocks until every rank has joined, adding nothing to the allreduces of the others meanwhile.

    For uneven amounts of data: call it when this rank has no more batches. Returns the world rank that joined
    last. Average still divides by the number of all ranks. Raises HorovodInternalError, which names
    those that have not joined, if nothing moves for RUEDA_STALL_SHUTDOWN_TIME_SECONDS.
    """
    check_usable()
    request = _core.Request()
    with numbers:
        call = Call(what=_core.JOIN, dtype=_core.FLOAT32, shape=(), input=0, tag=numbers.last_handle)
        fill(request, call, 0, "join.noname")
        engine_handle = start(request, 1)
    try:
        wait(engine_handle)
        outcome = result(engine_handle, 0)
    finally:
        _core.release(engine_handle)
    with numbers:
        numbers.align(outcome.tag)  # so that the numbers of unnamed operations agree again
    return outcome.last_joined_rank


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns once every rank of the process set has called it."""
    call = Call(what=_core.BARRIER, dtype=_core.FLOAT32, shape=(), input=0)
    with about_to_wait():
        _, engine_handle = submit([call], process_set, lambda number, index: "barrier.noname", "Barrier")
    try:
        wait(engine_handle)
    finally:
        _core.release(engine_handle)
