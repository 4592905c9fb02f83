"""The processes that prepare data, as a command:

    rueda run -np 4 python -m rueda.tensorflow.data.compute_worker --dispatchers 1 config.json

Rank 0 serves the registry and writes the configuration to the file, which the training job reads
(`TfDataServiceConfig.read(…, wait_for_file_creation=True)`) and which is removed at the end. The processes
run until the training job says that it is done: `config.compute_client().shutdown()`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Optional

import rueda.tensorflow as hvd
from rueda.tensorflow.data.compute_service import SIDES, TfDataServiceConfig, check_side, compute_worker_fn
from rueda.tensorflow.data.registry import Registry


def own_hosts() -> list[str]:
    """How others may reach this machine: by its addresses, by its name, and from itself."""
    found = [os.environ.get("RUEDA_HOSTNAME", ""), socket.gethostname()]
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing: only asks which address has the way out
        found.insert(0, probe.getsockname()[0])
    return [host for host in dict.fromkeys([*found, "127.0.0.1"]) if host]


def workers_per_dispatcher(size: int, dispatchers: int) -> int:
    """ValueError if the processes cannot be shared equally."""
    if dispatchers < 1 or size % dispatchers != 0:
        raise ValueError(
            f"{size} processes cannot be shared by {dispatchers} dispatchers; start a multiple of them."
        )
    return size // dispatchers


@contextlib.contextmanager
def serving(
    shape: tuple[int, int, str], configfile: str | os.PathLike[str], timeout: float, hosts: Sequence[str]
) -> Iterator[TfDataServiceConfig]:
    """A registry, and the file that says how to reach it, while this block runs. shape: number of
    dispatchers, workers of each, and the side of the dispatchers; hosts: how others may reach this process.
    """
    key = secrets.token_bytes(32)
    with Registry(key) as registry:
        config = TfDataServiceConfig(*shape, [(host, registry.port) for host in hosts], key, timeout)
        config.write(configfile)
        try:
            yield config
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(configfile)


def main(
    dispatchers: int, dispatcher_side: str, configfile: str | os.PathLike[str], timeout: float = 60
) -> None:
    """What each process of the job does. Raises ValueError for numbers and sides that cannot be meant."""
    check_side(dispatcher_side)  # on every rank: only the first one makes the configuration
    hvd.init()
    shape = (dispatchers, workers_per_dispatcher(hvd.size(), dispatchers), dispatcher_side)
    with contextlib.ExitStack() as stack:
        config = None
        if hvd.rank() == 0:
            config = stack.enter_context(serving(shape, configfile, timeout, own_hosts()))
        config = hvd.broadcast_object(config, root_rank=0)
        compute_worker_fn(config)
        hvd.barrier()  # the registry stays until all have heard of the end
    hvd.shutdown()


def command(run: Callable[[int, str, str, float], None], given: Optional[Sequence[str]] = None) -> int:
    """Calls run(dispatchers, side, file, timeout) as the command line says. Returns the exit status."""
    parser = argparse.ArgumentParser(description="Processes that prepare data for training ranks.")
    parser.add_argument("configfile", help="is written by rank 0 and read by the training job")
    parser.add_argument("--dispatchers", type=int, default=1)
    parser.add_argument("--dispatcher-side", choices=SIDES, default="compute", help="which job runs them")
    parser.add_argument("--timeout", type=float, default=60, help="seconds to wait for the others")
    said = parser.parse_args(given)
    try:
        run(said.dispatchers, said.dispatcher_side, said.configfile, said.timeout)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(command(main))
