"""Ranks without MPI: by `rueda run`, or by a function of the caller that starts each of them."""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any

from horovod._absent import ELASTIC, absent
from horovod.runner.common.util import env as env_util
from horovod.runner.common.util.hosts import SlotInfo, get_host_assignments, parse_hosts
from horovod.runner.http.http_server import RendezvousServer
from horovod.runner.util.threads import in_thread

_LOOK_SECONDS = 0.1


def create_slot_env_vars(slot_info: SlotInfo) -> dict[str, str]:
    """The variables of one rank."""
    numbers = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
    values = {f"HOROVOD_{name.upper()}": str(getattr(slot_info, name)) for name in numbers}
    return {"HOROVOD_HOSTNAME": slot_info.hostname, **values}


def create_run_env_vars(
    server_ip: str, nics: Iterable[str] | None, port: int, elastic: bool = False
) -> dict[str, str]:
    """The variables of all ranks. server_ip: where they meet; rank 0 must run there."""
    if elastic:
        raise NotImplementedError(f"create_run_env_vars makes no elastic job: {ELASTIC}.")
    names = list(nics or ())
    values = {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": server_ip,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
    }
    return (
        {**values, "HOROVOD_GLOO_IFACE": names[0], "NCCL_SOCKET_IFNAME": ",".join(names)} if names else values
    )


def _text(command: str | Sequence[str]) -> str:
    return command if isinstance(command, str) else shlex.join(command)


def launch_gloo(
    command: str | Sequence[str],
    exec_command: Callable[..., Any],
    settings: Any,
    nics: Iterable[str] | None,
    env: MutableMapping[str, str],
    server_ip: str,
) -> None:
    """Starts every rank with exec_command(command, slot_info, events), in a thread of its own, and waits.

    exec_command returns an exit status, or (status, time of the end); an event that is set asks it to end.
    The command that it gets sets the variables of its rank, and those of env that this process has not, or
    with another value. settings: num_proc and hosts. Raises RuntimeError if a rank failed; the others are
    then asked to end.
    """
    slots = get_host_assignments(parse_hosts(settings.hosts), settings.num_proc, settings.num_proc)
    server, stop = RendezvousServer(settings.verbose), threading.Event()
    statuses: dict[int, int] = {}
    shared = create_run_env_vars(server_ip, nics, server.start())
    server.init(slots)
    for name in [name for name in env if not env_util.is_exportable(name)]:
        del env[name]
    env["PYTHONUNBUFFERED"] = "1"
    # Others are inherited: a command line is for everybody to read, and must not be too long.
    own = {name: value for name, value in env.items() if os.environ.get(name) != value}

    def start(slot: SlotInfo) -> None:
        assignments = {**own, **shared, **create_slot_env_vars(slot)}.items()
        words = " ".join(f"{name}={shlex.quote(value)}" for name, value in assignments)
        status = 1
        try:
            answer = exec_command(f"{words} {_text(command)}", slot, [stop])
            status = answer[0] if isinstance(answer, tuple) else answer
        finally:
            if status != 0:
                stop.set()
            statuses[slot.rank] = status

    try:
        threads = [in_thread(start, (slot,), name=f"rank {slot.rank}") for slot in slots]
        while any(thread.is_alive() for thread in threads):
            time.sleep(_LOOK_SECONDS)
    finally:
        stop.set()  # Ctrl-C as well
        server.stop()
    failed = next(((rank, status) for rank, status in statuses.items() if status != 0), None)
    if failed is not None:
        from rueda.run import FAILURE

        raise RuntimeError(FAILURE.format(*failed))


def gloo_run(
    settings: Any,
    nics: Iterable[str] | None,
    env: Mapping[str, str],
    server_ip: str | None,
    command: str | Sequence[str],
) -> None:
    """Runs the command on all ranks with `rueda run`, which finds its own address, whatever server_ip is.

    env: variables for the ranks, besides those of this process. The job ends when this process does. Raises
    RuntimeError if a rank failed.
    """
    from horovod.runner.launch import run_words

    options: dict[str, Any] = {
        "--num-proc": settings.num_proc,
        "--hosts": getattr(settings, "hosts", None),
        "--ssh-port": settings.ssh_port,
        "--ssh-identity-file": settings.ssh_identity_file,
        "--output-filename": settings.output_filename,
        "--network-interfaces": ",".join(nics or ()) or None,
    }
    words = [word for name, value in options.items() if value is not None for word in (name, str(value))]
    run_words([*words, "sh", "-c", _text(command)], env)


def _get_min_start_hosts(settings: Any) -> int:
    """How many hosts an elastic job needs to start: one here, where survivors go on by themselves."""
    return 1


def gloo_run_elastic(
    settings: Any, env: Mapping[str, str], command_or_func: Any, executable: str | None = None
) -> None:
    """Runs the command as an elastic job with `rueda run`. settings: an ElasticSettings.

    Raises RuntimeError if the job failed, and TypeError for a function: give that to horovod.run.
    """
    from horovod.runner.elastic.listing import listed
    from horovod.runner.launch import run_words

    if callable(command_or_func):
        raise TypeError("gloo_run_elastic runs a command; give a function to horovod.run(min_num_proc=...).")
    options: dict[str, Any] = {
        "--num-proc": settings.num_proc or settings.min_num_proc,
        "--min-np": settings.min_num_proc,
        "--max-np": settings.max_num_proc,
        "--elastic-timeout": settings.elastic_timeout,
        "--reset-limit": settings.reset_limit,
        "--ssh-port": settings.ssh_port,
        "--ssh-identity-file": settings.ssh_identity_file,
        "--output-filename": settings.output_filename,
        "--network-interfaces": ",".join(settings.nics or ()) or None,
    }
    words = [word for name, value in options.items() if value is not None for word in (name, str(value))]
    with listed(settings.discovery) as script:
        run_words([*words, "--host-discovery-script", script, "sh", "-c", _text(command_or_func)], env)


launch_gloo_elastic = absent("horovod.runner.gloo_run.launch_gloo_elastic", "use gloo_run_elastic beside it")
