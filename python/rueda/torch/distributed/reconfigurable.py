"""A process group whose ranks change while its process lives, as torchft's Manager asks of one.

    configure ─ operations … ─ a rank is lost: they fail ─ configure with those that are left ─ …

Each configure ends the engine and starts it again with other ranks, which meet through a store of PyTorch.
So the engine belongs to this group: the process cannot use it for other groups, or through `hvd.init()`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from rueda import epochs, errors
from rueda.basics import environment, setting
from rueda.torch.distributed import names, sets, start
from rueda.torch.distributed.group import RuedaProcessGroup
from rueda.torch.distributed.work import RuedaWork

ENGINE_IN_USE = (
    "The engine of this process serves init_process_group or hvd.init() already, and a reconfigurable group "
    "needs it for itself; use another backend, such as gloo, for the other groups of this process."
)
NOT_CONFIGURED = "This process group was {how}; call configure with the ranks that are there."
BAD_ADDRESS = "The address of a store is {given!r}, but it must be host:port/prefix."

# What torch.distributed and torchft call on a group, in the names of every version of PyTorch.
_OPERATIONS = (
    *("allreduce", "allreduce_coalesced", "reduce", "broadcast", "gather", "scatter", "barrier"),
    *("allgather", "allgather_coalesced", "_allgather_base", "allgather_into_tensor_coalesced"),
    *("all_gather_single", "all_gather_single_coalesced"),
    *("reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced"),
    *("reduce_scatter_single", "reduce_scatter_single_coalesced"),
    *("alltoall", "alltoall_base", "all_to_all_single"),
    *("send", "recv", "recv_anysource"),
)


class _Configured(RuedaProcessGroup):
    """The group from one configure to the next."""

    def _prefix_of_operations(self) -> str:
        # Nothing that counts what this process did before: others may just have been started.
        return f"torch.distributed/{self._name}"

    def trouble(self) -> Exception | None:
        """Why its operations fail; None if they do not."""
        try:
            self._check_open()
        except errors.HorovodInternalError as error:
            return error
        return None


class ReconfigurableProcessGroup(dist.ProcessGroup):
    """For `torchft.Manager(pg=ReconfigurableProcessGroup(), …)`. Any thread; one configure at a time.

    Its operations are those of a group of backend "rueda". Wrong arguments raise ValueError; what the loss of
    a rank, an abort or a missing configure causes is a HorovodInternalError (a RuntimeError).

    >>> group = rueda.torch.distributed.ReconfigurableProcessGroup(timedelta(seconds=10))
    >>> group.configure("10.0.0.1:29500/view/1", "replica_0", rank=0, world_size=2)
    >>> group.allreduce([tensor], dist.AllreduceOptions()).wait()
    """

    def __init__(self, timeout: timedelta = timedelta(seconds=60)) -> None:
        """timeout: the longest wait for one operation, and for the ranks of a configure."""
        super().__init__(0, 1)  # type: ignore[call-arg]  # an undocumented overload
        self._timeout = timeout
        self._lock = threading.Lock()
        self._group: _Configured | None = None
        self._is_aborted = False

    # ---- its life ----

    def configure(
        self, store_addr: str, replica_id: str, rank: int, world_size: int, *_: Any, **__: Any
    ) -> None:
        """Makes it a group of world_size ranks, this one being `rank`; what is under way fails. Collective:
        each of these ranks names the same store, host:port/prefix, whose prefix no earlier configure had.

        What torchft tells besides (quorum_id, group_rank, group_world_size, global_ranks) is not needed.
        Raises ValueError or HorovodInternalError with the cause if not all ranks come in time; then call it
        again, with another prefix.
        """
        if not 0 <= rank < world_size:
            raise ValueError(f"configure got rank {rank} of {world_size} ranks, but ranks count from 0.")
        self._end()
        if epochs.current() != epochs.NONE:
            raise ValueError(ENGINE_IN_USE)
        store = _client(store_addr, self._timeout)
        seconds = self._timeout.total_seconds()
        limits = {} if setting("START_TIMEOUT") else {"RUEDA_START_TIMEOUT": f"{seconds:g}"}
        with environment(limits):
            start.by_store(store, rank, world_size, 0)
        sets.register_pairs(seconds)
        made = _Configured(rank, range(world_size), "reconfigurable", self._timeout)
        with self._lock:
            self._group, self._is_aborted = made, False

    def abort(self) -> None:
        """Ends what is under way, here at once and on the other ranks as soon as they hear of it."""
        self._is_aborted = self._end() or self._is_aborted

    def shutdown(self) -> None:
        """The same as abort()."""
        self.abort()

    def errored(self) -> Exception | None:
        """Why operations fail until the next configure; None if they do not, or if there was no configure."""
        group = self._group
        if group is not None:
            return group.trouble()
        return errors.internal_error(NOT_CONFIGURED.format(how="aborted")) if self._is_aborted else None

    def set_timeout(self, timeout: timedelta) -> None:
        """The longest wait for an operation that names no other, and for the ranks of a configure."""
        self._timeout = timeout
        if self._group is not None:
            self._group.set_timeout(timeout)

    def _end(self) -> bool:
        """Ends the group and its engine. Whether there was one."""
        with self._lock:
            group, self._group = self._group, None
        if group is None:
            return False
        group.abort()
        return True

    # ---- identity ----

    def getBackendName(self) -> str:
        return names.NAME

    def getRank(self) -> int:
        return self._configured().getRank()

    def getSize(self) -> int:
        return self._configured().getSize()

    rank, size = getRank, getSize

    def __repr__(self) -> str:
        group = self._group
        return f"ReconfigurableProcessGroup({f'{group.getSize()} ranks' if group else 'not configured'})"

    # ---- operations: see _OPERATIONS ----

    def broadcast_one(self, tensor: torch.Tensor, root: int) -> RuedaWork:
        """A broadcast of one tensor, from this rank of the group."""
        return self._configured().broadcast([tensor], root=root)

    def _configured(self) -> _Configured:
        group = self._group
        if group is None:
            how = "aborted" if self._is_aborted else "not configured yet"
            raise errors.internal_error(NOT_CONFIGURED.format(how=how))
        return group


def _client(address: str, timeout: timedelta) -> PrefixStore:
    """The store at host:port/prefix; the host may be an IPv6 address in brackets."""
    place, _, prefix = address.partition("/")
    host, _, port = place.rpartition(":")
    if not host or not port.isdecimal() or not prefix:
        raise ValueError(BAD_ADDRESS.format(given=address))
    try:
        store = TCPStore(host.strip("[]"), int(port), None, False, timeout, wait_for_workers=False)
    except RuntimeError as error:
        raise errors.internal_error(f"The store at {place} cannot be reached: {error}") from error
    return PrefixStore(prefix, store)


def _forward(name: str) -> Callable[..., RuedaWork]:
    def call(self: ReconfigurableProcessGroup, *args: Any, **kwargs: Any) -> RuedaWork:
        operation: Callable[..., RuedaWork] = getattr(self._configured(), name)
        return operation(*args, **kwargs)

    call.__name__ = name
    return call


for _name in _OPERATIONS:
    setattr(ReconfigurableProcessGroup, _name, _forward(_name))
