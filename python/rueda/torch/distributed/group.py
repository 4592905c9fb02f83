"""The process group itself: what torch.distributed and its C++ parts call on backend "rueda".

Methods have the names of PyTorch 2.9 (`_allgather_base`, `alltoall_base`) and those of 2.13 and later
(`all_gather_single`, `all_to_all_single`). Which of them are called depends on the version and on the caller.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from rueda import _core, epochs, errors, operations
from rueda.basics import basics
from rueda.open_operations import Writes
from rueda.operations import Call
from rueda.torch.distributed import exchanges, group_operations, names, profiling, requests, sets
from rueda.torch.distributed.group_operations import GroupOperation
from rueda.torch.distributed.reductions import reduction
from rueda.torch.distributed.requests import Members, Request
from rueda.torch.distributed.work import RuedaWork
from rueda.torch.overlaps import check_apart

Tensors = Sequence[torch.Tensor]


class RuedaProcessGroup(dist.ProcessGroup):
    """Ranks of torch.distributed that run collectives on the engine. Any thread.

    All ranks of a group call the same collectives in the same order, as torch.distributed demands. Every
    method returns a Work. Wrong arguments raise ValueError at once; all other errors come from the Work
    (HorovodInternalError, a RuntimeError).
    """

    def __init__(self, rank: int, world_ranks: Sequence[int], name: str, timeout: timedelta) -> None:
        super().__init__(rank, len(world_ranks))  # type: ignore[call-arg]  # an undocumented overload
        self._members = Members(rank, tuple(world_ranks))
        self._name = name
        self._description = "undefined"
        self._prefix = self._prefix_of_operations()
        self._set = sets.set_of(world_ranks)
        self._seconds = timeout.total_seconds()
        self._epoch = epochs.current()
        self._lock = threading.Lock()
        self._sequence = 0
        self._messages: dict[tuple[int, int, int], int] = {}  # (from, to, tag) -> messages so far
        self._coalescing: list[GroupOperation] | None = None
        self._is_closed = False

    def _prefix_of_operations(self) -> str:
        return f"torch.distributed/{names.default_groups}/group {self._name}"

    # ---- identity ----

    def getBackendName(self) -> str:
        return names.NAME

    def getRank(self) -> int:
        return self._members.me

    def getSize(self) -> int:
        return self._members.count

    def getGroupName(self) -> str:
        return self._name

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupDesc(self) -> str:
        return self._description

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    name, rank, size = getBackendName, getRank, getSize
    _set_group_name, _set_group_desc = setGroupName, setGroupDesc
    group_name, group_desc = property(getGroupName), property(getGroupDesc)

    @property
    def _device_types(self) -> list[torch.device]:
        devices = [torch.device("cpu")]
        return [*devices, torch.device("cuda")] if torch.cuda.is_available() else devices

    def _get_backend(self, device: torch.device) -> Any:
        return self

    supports_splitting = supports_coalescing = supports_time_estimate = property(lambda self: False)

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        return False

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def set_timeout(self, timeout: timedelta) -> None:
        """The longest wait for an operation that names no other."""
        self._seconds = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def shutdown(self) -> None:
        """Ends this group. The engine, which other groups and hvd may share, runs until the process ends."""
        self._is_closed = True

    def abort(self) -> None:
        """Ends everything that is under way, on any thread: waits raise HorovodInternalError, here at once
        and on the other ranks as soon as they hear of it. The engine ends with it, and so do all groups:
        destroy them, and make a new default group of the ranks that are left.
        """
        self._is_closed = True
        if self._epoch == epochs.current():
            basics.abort()

    # ---- reductions ----

    def allreduce(self, tensors: Any, opts: Any = None, timeout: Any = None, op: Any = None) -> RuedaWork:
        given = _listed(tensors)
        kind = reduction(op if op is not None else opts)
        made = [requests.allreduce(one, *kind) for one in given]
        return self._run("all_reduce", made, given, timeout or opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> RuedaWork:
        return self.allreduce(tensors, opts)

    def reduce(
        self, tensors: Any, opts: Any = None, op: Any = None, timeout: Any = None, root: int = 0
    ) -> RuedaWork:
        given = _listed(tensors)
        root = _root(opts, root)
        kind = reduction(op if op is not None or isinstance(opts, int) else opts)
        made = [requests.reduce(one, *kind, self._members.me == root) for one in given]
        return self._run("reduce", made, given, timeout or opts)

    def reduce_scatter(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None, op: Any = None
    ) -> RuedaWork:
        results, sources = _listed(outputs), _nested(inputs)
        kind = reduction(op if op is not None else opts)
        made = [
            requests.reduce_scatter(one, many, kind, self._members) for one, many in zip(results, sources)
        ]
        return self._run("reduce_scatter", made, results, timeout or opts)

    def reduce_scatter_single(
        self, output: torch.Tensor, source: torch.Tensor, opts: Any = None
    ) -> RuedaWork:
        made = requests.reduce_scatter_single(output, source, reduction(opts), self._members)
        return self._run("reduce_scatter_tensor", [made], [output], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> RuedaWork:
        kind = reduction(opts)
        made = [
            requests.reduce_scatter_single(output, source, kind, self._members)
            for output, source in zip(outputs, inputs)
        ]
        return self._run("reduce_scatter_tensor", made, outputs, opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # ---- movements ----

    def broadcast(self, tensors: Any, opts: Any = None, timeout: Any = None, root: int = 0) -> RuedaWork:
        given = _listed(tensors)
        world_root = self._members.world_ranks[_root(opts, root)]
        is_root = self._members.world_ranks[self._members.me] == world_root
        made = [requests.broadcast(one, world_root, is_root) for one in given]
        return self._run("broadcast", made, given, timeout or opts)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None) -> RuedaWork:
        results, sources = _nested(outputs), _listed(inputs)
        made = [requests.all_gather(many, one, self._members) for many, one in zip(results, sources)]
        return self._run("all_gather", made, _flat(results), timeout or opts)

    def allgather_coalesced(self, outputs: Any, inputs: Tensors, opts: Any = None) -> RuedaWork:
        """Sends inputs[tensor] of each rank to outputs[rank][tensor]."""
        counts = [len(of_rank) for of_rank in outputs]
        if counts != [len(inputs)] * self._members.count:
            raise ValueError(
                f"all_gather_coalesced of {len(inputs)} tensors in a group of {self._members.count} ranks "
                f"needs a list of {len(inputs)} outputs for each rank, but got lists of {counts}."
            )
        made = [
            requests.all_gather(list(of_input), one, self._members)
            for of_input, one in zip(zip(*outputs), inputs)
        ]
        return self._run("all_gather_coalesced", made, _flat(outputs), opts)

    def all_gather_single(self, output: torch.Tensor, source: torch.Tensor, opts: Any = None) -> RuedaWork:
        made = requests.all_gather_single(output, source, self._members)
        return self._run("all_gather_into_tensor", [made], [output], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> RuedaWork:
        made = [
            requests.all_gather_single(one, source, self._members) for one, source in zip(outputs, inputs)
        ]
        return self._run("all_gather_into_tensor", made, outputs, opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None, root: int = 0
    ) -> RuedaWork:
        root, sources = _root(opts, root), _listed(inputs)
        results = _nested(outputs)[0] if self._members.me == root else None
        made = exchanges.gather(results, sources[0], root, self._members)
        return self._run("gather", [made], results or [], timeout or opts)

    def scatter(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None, root: int = 0
    ) -> RuedaWork:
        root, results = _root(opts, root), _listed(outputs)
        sources = _nested(inputs)[0] if self._members.me == root else None
        made = exchanges.scatter(results[0], sources, self._members)
        return self._run("scatter", [made], results, timeout or opts)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        source: torch.Tensor,
        output_split_sizes: Sequence[int] = (),
        input_split_sizes: Sequence[int] = (),
        opts: Any = None,
    ) -> RuedaWork:
        splits = (output_split_sizes or (), input_split_sizes or ())
        made = exchanges.all_to_all_single(output, source, splits, self._members)
        return self._run("all_to_all_single", [made], [output], opts)

    alltoall_base = all_to_all_single

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> RuedaWork:
        made = exchanges.all_to_all(outputs, inputs, self._members)
        return self._run("all_to_all", [made], outputs, opts)

    def barrier(self, opts: Any = None, timeout: Any = None) -> RuedaWork:
        return self._run("barrier", [requests.barrier()], [], timeout or opts)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """A barrier that waits; the engine's warnings name the ranks that are missing."""
        self.barrier().wait(timeout)

    # ---- between two ranks ----

    def send(self, tensors: Tensors, destination: int, tag: int = 0) -> RuedaWork:
        """A broadcast in the set of the two ranks. It costs a collective of two, including negotiation."""
        return self._message("send", tensors[0], (self._members.me, destination, tag))

    def recv(self, tensors: Tensors, source: int, tag: int = 0) -> RuedaWork:
        return self._message("recv", tensors[0], (source, self._members.me, tag)).came_from(source)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> RuedaWork:
        raise ValueError(
            "Backend rueda cannot receive from any source, because both ranks take part in a message; name "
            "the sender: recv(tensor, src=…)."
        )

    def _message(self, word: str, tensor: torch.Tensor, route: tuple[int, int, int]) -> RuedaWork:
        origin, destination, tag = route
        if origin == destination:
            raise ValueError(
                f"Rank {origin} cannot {word} to itself on backend rueda; copy the tensor instead."
            )
        sender, receiver = self._members.world_ranks[origin], self._members.world_ranks[destination]
        set_id = sets.pair_of(sender, receiver)
        request = requests.broadcast(tensor, sender, self._members.me == origin)
        if request.call.memory != _core.DEVICE_MEMORY:
            request.call.device = -1  # one side may have a GPU
        with self._lock:
            number = self._messages.get(route, 0) + 1
            self._messages[route] = number
        place = names.Place("message", number, f" from rank {origin} to rank {destination} with tag {tag}")
        return self._submit(word, [request], [tensor], (None, set_id, place))

    # ---- several at once ----

    def _start_coalescing(self, device: torch.device) -> None:
        self._coalescing = []

    def _end_coalescing(self, device: torch.device) -> RuedaWork:
        collected, self._coalescing = self._coalescing or [], None
        return RuedaWork(collected, [], self._seconds)

    startCoalescing = _start_coalescing
    endCoalescing = _end_coalescing

    # ---- how all of them start ----

    def _run(self, word: str, made: Sequence[Request], outputs: Tensors, options: Any) -> RuedaWork:
        with self._lock:
            self._sequence += 1
            place = names.Place("call", self._sequence)
        return self._submit(word, made, outputs, (options, self._set, place))

    def _submit(self, word: str, *operation: Any) -> RuedaWork:
        if profiling.is_on():
            return profiling.ranged(word, lambda: self._launch(word, *operation))
        return self._launch(word, *operation)

    def _launch(
        self, word: str, made: Sequence[Request], outputs: Tensors, target: tuple[Any, int, names.Place]
    ) -> RuedaWork:
        """target: options that may hold a timeout, process set, and which operation of the group it is. The
        name does not tell the collective, so that ranks which call different ones meet and are told so.
        """
        options, set_id, place = target
        self._check_open()
        seconds = _seconds(options, self._seconds)
        if not made:
            return RuedaWork([], outputs, seconds)
        uses = [request.use for request in made]
        check_apart(word, uses)
        finishes = [
            (index, request.finish) for index, request in enumerate(made) if request.finish is not None
        ]

        def finish(handle: int) -> None:
            for index, one in finishes:
                one(handle, index)

        # torch.distributed's functions wait at once for what they start without async_op.
        will_wait = self._coalescing is None and getattr(options, "asyncOp", True) is False
        calls: list[Call] = [request.call for request in made]
        held: list[Any] = [request.held for request in made]
        writes = Writes([use.writes for use in uses], at_end=bool(finishes))
        stream = group_operations.stream_for(calls)
        if stream is not None:
            stream.mark(calls)
        engine_handle = group_operations.submit(calls, (set_id, self._prefix, place), will_wait)
        what = f"{word} ({place} of process group {self._name})"
        operation = GroupOperation(
            engine_handle, held, finish if finishes else None, what, stream, writes=writes
        )
        if self._coalescing is not None:
            self._coalescing.append(operation)
        return RuedaWork([operation], outputs, seconds)

    def _check_open(self) -> None:
        if self._is_closed:
            raise errors.internal_error(f"Process group {self._name} was destroyed; make another one.")
        operations.check_usable()
        if self._epoch != epochs.current():
            raise errors.internal_error(
                f"Process group {self._name} ended with the engine, which hvd.shutdown() stopped; call "
                "destroy_process_group and init_process_group again."
            )


def _listed(tensors: Any) -> Tensors:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _nested(tensors: Any) -> list[Tensors]:
    many = list(tensors)
    return [many] if many and isinstance(many[0], torch.Tensor) else many


def _flat(lists: Sequence[Tensors]) -> list[torch.Tensor]:
    return [tensor for tensors in lists for tensor in tensors]


def _root(options: Any, root: int) -> int:
    """The root's rank in the group, taken from options or given as a number."""
    if isinstance(options, int):
        return options
    return int(getattr(options, "rootRank", root))


def _seconds(options: Any, otherwise: float) -> float:
    given = options if isinstance(options, timedelta) else getattr(options, "timeout", None)
    seconds = given.total_seconds() if given is not None else 0.0
    return seconds if seconds > 0 else otherwise


def _keep_out_of_graphs() -> None:
    """Makes torch.compile call these as they are: tracing the engine's calls would fail or drop them."""
    for owner in (RuedaProcessGroup, RuedaWork):
        for name, member in list(vars(owner).items()):
            if callable(member) and not name.startswith("__"):
                setattr(owner, name, torch.compiler.disable(member))


_keep_out_of_graphs()
