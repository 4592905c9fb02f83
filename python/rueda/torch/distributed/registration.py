"""How torch.distributed finds the backend, and how all ranks of the job learn that a group is made."""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import os
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlparse

import torch.distributed as dist

from rueda import _core
from rueda.basics import basics
from rueda.errors import internal_error
from rueda.operations import barrier
from rueda.process_sets import global_process_set
from rueda.torch.distributed import names
from rueda.torch.distributed.names import NAME
from rueda.torch.functions import broadcast_object

_RENDEZVOUS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def register() -> None:
    """Makes "rueda" a backend of torch.distributed, if this torch has torch.distributed. Idempotent."""
    if not dist.is_available() or NAME in dist.Backend.backend_list:
        return
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
    _follow_new_groups()
    _fill_in_rendezvous()


def _create(options: Any, backend_options: Any) -> Any:
    """Called by torch.distributed on the members of a new group."""
    from rueda.torch.distributed.group import RuedaProcessGroup

    ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    if not list(options.global_ranks_in_group):
        _start_engine(options.store, options.group_rank, options.group_size, options.timeout.total_seconds())
    _check_world(options, ranks)
    return RuedaProcessGroup(options.group_rank, ranks, options.group_id, options.timeout)


def _start_engine(store: Any, rank: int, size: int, timeout_s: float) -> None:
    """Starts the engine unless it runs. Collective over all ranks of torch.distributed: rank of size."""
    from rueda.torch.distributed import sets, start

    if start.is_up_to_torch(size):
        start.by_store(store, rank, size, names.default_groups)
    basics.init()
    sets.register_pairs(timeout_s)


def _check_world(options: Any, ranks: list[int]) -> None:
    """The engine knows a rank by its place among all processes, as torch.distributed's default group does."""
    is_default = not list(options.global_ranks_in_group)
    if is_default and options.group_size != basics.size():
        raise internal_error(
            f"torch.distributed has {options.group_size} ranks, but rueda was started with {basics.size()}; "
            "let one launcher start the job, and make smaller groups with new_group."
        )
    if ranks[options.group_rank] != basics.rank():
        raise internal_error(
            f"This process is rank {ranks[options.group_rank]} of torch.distributed, but rank "
            f"{basics.rank()} of rueda; let one launcher set the ranks of both."
        )


def _follow_new_groups() -> None:
    """Has every rank, member or not, register the process set of each new group.

    torch.distributed calls a backend on the members only, while the function behind new_group and
    init_process_group is called on every rank, in the same order.
    """
    from torch.distributed import distributed_c10d as c10d

    make_group: Callable[..., Any] = c10d._new_process_group_helper
    signature = inspect.signature(make_group)

    @functools.wraps(make_group)
    def follow(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        _meet(given)
        return make_group(*args, **kwargs)

    c10d._new_process_group_helper = follow


def _meet(given: dict[str, Any]) -> None:
    ranks, backend = given["global_ranks_in_group"], str(given["backend"]).lower()
    if len(ranks) == 0:
        names.default_groups += 1
    backends = {part.rpartition(":")[2] for part in backend.split(",")}
    if NAME not in backends:
        return
    if len(backends) > 1:
        raise ValueError(
            f"Backend {backend} divides devices between rueda and another; a rueda group serves all "
            "devices, so "
            'pass backend="rueda" alone and make further groups with new_group(backend=…).'
        )
    if len(ranks) == 0 or _is_local(given):
        return
    from rueda.torch.distributed import sets

    timeout = given.get("timeout")
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else 1800.0
    _start_engine(given["store"], dist.get_rank(), dist.get_world_size(), seconds)
    sets.register_group(ranks, f"torch.distributed/{names.default_groups}/{given['group_name']}", seconds)


def _is_local(given: dict[str, Any]) -> bool:
    """Whether only the members were asked (use_local_synchronization): their groups have hashes for names."""
    return not str(given.get("group_name")).isdigit()


# ---- launchers that say nothing to torch.distributed (mpirun, srun, by hand) ----


def _fill_in_rendezvous() -> None:
    """init_process_group without a URL reads RANK and MASTER_ADDR. Without them, ranks meet by the engine."""
    # The package has a function of the module's name.
    handlers = getattr(importlib.import_module("torch.distributed.rendezvous"), "_rendezvous_handlers", {})
    by_environment = handlers.get("env")
    if by_environment is None:
        return  # an unknown PyTorch, for which scripts pass a URL or a store

    def handle(url: str, *args: Any, **kwargs: Any) -> Any:
        knows_env = any(os.environ.get(name) for name in _RENDEZVOUS) or not _is_launched()
        if knows_env and not _is_made_again(dict(parse_qsl(urlparse(url).query))):
            return by_environment(url, *args, **kwargs)
        return _meet_by_engine(kwargs.get("timeout") or timedelta(seconds=1800))

    handlers["env"] = handle


def _is_made_again(given: dict[str, str]) -> bool:
    """Whether the store at MASTER_PORT may still be the last group's, about to end with it on rank 0.

    torchrun's store lives as long as the job. given: the rank and world_size passed to init_process_group.
    """
    if (
        names.default_groups == 0
        or not basics.is_initialized()
        or os.environ.get("TORCHELASTIC_USE_AGENT_STORE")
    ):
        return False
    place = given.get("rank", os.environ.get("RANK")), given.get("world_size", os.environ.get("WORLD_SIZE"))
    return place == (str(basics.rank()), str(basics.size()))


def _is_launched() -> bool:
    """Whether the engine knows the job: it runs, or a launcher other than torchrun started this process.

    An environment that contradicts itself counts as known, because init() says what is wrong with it.
    """
    return basics.is_initialized() or bool(_facts().get("launcher") != "single")


def _listen() -> socket.socket:
    host = str(_facts().get("address", "127.0.0.1"))
    return socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


def _facts() -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(_core.describe())
    return facts


def init_in_epoch() -> None:
    """init_process_group with the ranks of the current epoch, whatever the environment says of earlier ones.
    Collective.
    """
    store, rank, size = next(_meet_by_engine(timedelta(seconds=1800)))
    dist.init_process_group(NAME, store=store, rank=rank, world_size=size)


def _meet_by_engine(timeout: timedelta) -> Iterator[Any]:
    """A store of torch.distributed on rank 0, whose address the engine tells the others.

    It is PyTorch's own store and asks nobody for a secret, so it listens only on the address on which
    the engine listens.
    """
    from torch._C._distributed_c10d import TCPStore

    basics.init()
    listening = _listen() if basics.rank() == 0 else None
    place = listening.getsockname()[:2] if listening else None
    host, port = broadcast_object(place, 0, "torch.distributed.store")
    options: dict[str, Any] = {} if listening is None else {"master_listen_fd": listening.detach()}
    is_server = basics.rank() == 0
    store = TCPStore(host, port, basics.size(), is_server, timeout, wait_for_workers=False, **options)
    barrier(global_process_set)  # rank 0 must not give up its store before the others have found it
    yield store, basics.rank(), basics.size()
    raise RuntimeError("A rendezvous through rueda serves one init_process_group; call it again for another.")
