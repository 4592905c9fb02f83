"""Operations that recur with other memory, with as little work for each start as Python allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import addressof, byref, c_int64
from typing import Any, Tuple

from rueda import _core, epochs, operations, policy
from rueda.device import Stream
from rueda.numbering import numbers
from rueda.operations import Call
from rueda.process_sets import ProcessSet

_AT_READY = _core.Request.ready.offset // 8


class Recurring:
    """One operation that is submitted again and again under its names, so that only the address of its memory
    changes. One thread at a time.

    start(address) submits it and returns the handle of the engine. The hook in C, gradient_hook.cc, does the
    same with what else is here: the address and the number of the filled requests, the process set, and the
    epoch in which that was last found to have the number in the requests.
    """

    __slots__ = ("address", "checked_in", "count", "process_set", "start")

    def __init__(
        self,
        start: Callable[[int], int],
        requests: Any,
        process_set: ProcessSet,
    ) -> None:
        self.start = start  # keeps the requests alive
        self.address, self.count = addressof(requests), len(requests)
        self.process_set = process_set
        self.checked_in = epochs.NONE


def prepare(
    parts: Sequence[tuple[str, int, Call]],
    process_set: ProcessSet,
    kind: str,
    stream: Stream | None = None,
) -> Recurring:
    """Prepares an operation that recurs.

    parts: name, offset in bytes and call of each part of the memory; usually there is one. start runs in
    place on the memory at address and returns the handle of the engine; otherwise it is like
    operations.submit(). It counts nothing: numbers.skip counts many operations at once. stream: of memory of
    a device; start takes that of the calling thread.
    """
    requests, handle = (_core.Request * len(parts))(), c_int64(0)
    # Plain memory and locals: fields of a ctypes struct and attributes of an object take longer.
    words, result = memoryview(requests).cast("B").cast("Q"), memoryview(handle).cast("B").cast("q")
    at_input, at_output = _core.Request.input.offset // 8, _core.Request.output.offset // 8
    places = []
    if stream is not None:
        stream.mark([call for _, _, call in parts])
    for index, (name, offset, call) in enumerate(parts):
        operations.fill(requests[index], call, 0, name)
        first = index * _core.REQUEST_BYTES // 8
        places.append((first + at_input, first + at_output, first + _AT_READY, offset))
    arguments = (byref(requests), len(parts), byref(handle))
    known_set = -1

    def start(address: int) -> int:
        nonlocal known_set
        if process_set.process_set_id != known_set:
            known_set = -1  # if there is none any more
            known_set = operations.process_set_id(process_set, kind)
            for request in requests:
                request.process_set = known_set
        on = None if stream is None else stream.move()
        for to_input, to_output, to_ready, offset in places:
            words[to_input] = words[to_output] = address + offset
            if on is not None:
                words[to_ready] = on
        status = _core.submit(*arguments)
        if status == 0:
            return result[0]
        operations.check_usable()
        operations.raise_refused(status)

    return Recurring(start, requests, process_set)


# start(process_set, input, output, stream, will_wait); see repeat().
Start = Callable[[ProcessSet, int, int, int, bool], Tuple[int, int]]


def repeat(call: Call, word: str, name: str | None) -> Start:
    """Makes the function that starts an operation of one tensor, which recurs with other memory. Any thread.

    word, name: as in Naming. stream: of device memory, where the call has one; else 0. will_wait: as in
    operations.start(). Otherwise it is like operations.submit().
    """
    requests, handle = (_core.Request * 1)(), c_int64(0)
    policy.check_name(name)
    request, kind, before = requests[0], word.capitalize(), operations.unnamed(word)
    if name is None:
        operations.fill(request, call, 0, before, numbered_at=len(before))
    else:
        operations.fill(request, call, 0, f"{word}.{name}")
    words, result = memoryview(requests).cast("B").cast("Q"), memoryview(handle).cast("B").cast("q")
    at_input, at_output = _core.Request.input.offset // 8, _core.Request.output.offset // 8
    arguments = (byref(requests), 1, byref(handle))

    def start(
        process_set: ProcessSet, source: int, target: int, stream: int, will_wait: bool
    ) -> tuple[int, int]:
        operations.check_usable()
        set_id = operations.process_set_id(process_set, kind)
        with numbers:
            if name is None:
                request.name = b"%s%d" % (before.encode(), numbers.next_in_set(set_id))
            request.process_set = set_id
            words[at_input], words[at_output], words[_AT_READY] = source, target, stream
            status = (_core.submit_for_wait if will_wait else _core.submit)(*arguments)
            if status == 0:
                return numbers.take(set_id), result[0]
        operations.raise_refused(status)

    return start
