"""The meeting point of ranks that an integration starts itself, with the variables of `gloo_run`.

Horovod's server keeps addresses of ranks. Ranks of rueda meet at rank 0 instead, and prove to one another
that they belong to the job. So this server only chooses the port that tells the job from others: rank 0 must
run on the host that HOROVOD_GLOO_RENDEZVOUS_ADDR names, or RUEDA_STORE must say where to meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from horovod._absent import absent
from rueda.ports import ReservedPort


class RendezvousServer:
    """start, init, stop: as cluster integrations call them."""

    def __init__(self, verbose: int = 0) -> None:
        self._reserved: ReservedPort | None = None
        self._plan: list[Any] = []

    def start(self, handler_cls: Any = None) -> int:
        """A port for HOROVOD_GLOO_RENDEZVOUS_PORT, which no other job gets until `stop`."""
        if handler_cls is not None:
            raise NotImplementedError(
                "RendezvousServer.start takes no handler_cls: ranks of rueda do not use HTTP."
            )
        if self._reserved is None:
            self._reserved = ReservedPort("localhost")
        return self._reserved.number

    start_server = start

    def init(self, host_alloc_plan: Sequence[Any]) -> int | None:
        """Keeps the plan, a list of SlotInfo. Returns the port."""
        self._plan = list(host_alloc_plan)
        return self._reserved.number if self._reserved is not None else None

    def stop(self) -> None:
        """Gives the port back."""
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    stop_server = stop


_INSTEAD = "use horovod.run, which brings functions and results itself"
KVStoreServer = absent("horovod.runner.http.http_server.KVStoreServer", _INSTEAD)
KVStoreHandler = absent("horovod.runner.http.http_server.KVStoreHandler", _INSTEAD)
KVStoreHTTPServer = absent("horovod.runner.http.http_server.KVStoreHTTPServer", _INSTEAD)
RendezvousHandler = absent("horovod.runner.http.http_server.RendezvousHandler", _INSTEAD)
RendezvousHTTPServer = absent("horovod.runner.http.http_server.RendezvousHTTPServer", _INSTEAD)
