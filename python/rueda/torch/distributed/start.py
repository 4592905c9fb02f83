"""Starting the engine in a job whose ranks only torch.distributed knows: they meet through its store.

This is so if a script tells init_process_group its rank and the number of ranks, as under
torch.multiprocessing.spawn. Rank 0 puts into the store where the engine's ranks meet and, if the user gave no
RUEDA_SECRET_FILE, the secret of this job, so anyone who can read that store can join the job. Nothing else
goes through it. The engine reads all this from the variables of a launcher, which are set while it starts.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from torch._C._distributed_c10d import PrefixStore

from rueda import _core, memory_files
from rueda.basics import basics, environment, setting
from rueda.errors import internal_error
from rueda.ports import host_key

_SECRET_FILE = "RUEDA_SECRET_FILE"
# The variables that say which rank this process is and where ranks meet: those of the launchers that the
# engine recognises before torchrun, and those of torchrun.
_LAUNCHERS = (
    *(f"{prefix}_{name}" for prefix in ("RUEDA", "HOROVOD") for name in ("RANK", "SIZE")),
    *(f"{prefix}_LOCAL_{name}" for prefix in ("RUEDA", "HOROVOD") for name in ("RANK", "SIZE")),
    "RUEDA_STORE",
    "RUEDA_STORE_SERVED",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
)


def is_up_to_torch(size: int) -> bool:
    """Whether the engine has not started yet, and no launcher describes a job with this many ranks."""
    if basics.is_initialized() or size == 1:
        return False
    told = ("RANK", "WORLD_SIZE")
    is_half = sum(name in os.environ for name in told) == 1  # init_process_group got the other one
    with environment(dict.fromkeys(told) if is_half else {}):
        found = json.loads(_core.describe())
    return found.get("launcher_size", size) not in (size, -1)


def by_store(store: Any, rank: int, size: int, number: int) -> None:
    """basics.init() as this rank. Collective; number: of this start in the process, equal on all ranks.

    Raises HorovodInternalError if not all ranks come within the timeout of the store.
    """
    keys = f"rueda/{number}/"
    try:
        store.set(f"{keys}host/{rank}", _host_key())
        if rank == 0:
            store.set(f"{keys}job", json.dumps(_job(store, keys, size)))
        job = json.loads(store.get(f"{keys}job"))
    except RuntimeError as error:
        raise internal_error(
            f"The {size} ranks of torch.distributed did not all come to start rueda; start every rank, or "
            f"give init_process_group a longer timeout: {error}"
        ) from error
    variables: dict[str, str | None] = dict.fromkeys(_LAUNCHERS)
    variables |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": job["host"],
        "MASTER_PORT": None,
        "TORCHELASTIC_RUN_ID": job["name"],  # so that these count as the innermost launcher's
        "RUEDA_JOB": job["name"],
    }
    if job["is_one_host"]:
        variables |= {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)}
    with _secret_file(job["secret"]) as path, environment({**variables, _SECRET_FILE: path}):
        basics.init()
    if rank == 0:  # all ranks have read it
        with suppress(RuntimeError):  # not every store can delete
            store.delete_key(f"{keys}job")


def _job(store: Any, keys: str, size: int) -> dict[str, Any]:
    """What rank 0 tells the others."""
    hosts = {store.get(f"{keys}host/{rank}") for rank in range(size)}
    return {
        "name": f"torch-{secrets.token_hex(8)}",
        "host": "127.0.0.1" if len(hosts) == 1 else _own_name(store),
        "is_one_host": len(hosts) == 1,
        "secret": None if os.environ.get(_SECRET_FILE) else secrets.token_hex(32),
    }


def _host_key() -> str:
    """Equal where ranks share a network stack, and nobody has told them apart by a name."""
    return f"{setting('HOSTNAME') or ''}|{host_key()}"


def _own_name(store: Any) -> str:
    """A name of this host that the others can reach: the one torch's store has, if that is here."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    given = getattr(store, "host", None)
    return given if isinstance(given, str) and _is_here(given) else socket.gethostname()


def _is_here(host: str) -> bool:
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
    except OSError:
        return False
    return True


@contextmanager
def _secret_file(secret: str | None) -> Iterator[str | None]:
    """Yields the path of an unnamed file with the secret. Without a secret: the user's file, or None."""
    if secret is None:
        yield os.environ.get(_SECRET_FILE)
        return
    fd = memory_files.make("rueda-secret")
    try:
        os.write(fd, secret.encode())
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)
