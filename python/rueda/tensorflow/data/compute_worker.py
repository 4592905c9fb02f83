"""The processes that prepare data, as a command:

    rueda run -np 4 python -m rueda.tensorflow.data.compute_worker --dispatchers 1 config.json

Rank 0 serves the registry and writes the configuration to the file, which the training job reads
(`TfDataServiceConfig.read(…, wait_for_file_creation=True)`) and which is removed at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import socket
import sys
from collections.abc import Sequence
from typing import Optional

import rueda.tensorflow as hvd
from rueda.tensorflow.data.compute_service import SIDES, TfDataServiceConfig, compute_worker_fn
from rueda.tensorflow.data.registry import Registry


def own_hosts() -> list[str]:
    """How others may reach this machine: by its addresses, by its name, and from itself."""
    found = [os.environ.get("RUEDA_HOSTNAME", ""), socket.gethostname()]
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing: only asks which address has the way out
        found.insert(0, probe.getsockname()[0])
    return [host for host in dict.fromkeys([*found, "127.0.0.1"]) if host]


def _arguments(given: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Processes that prepare data for training ranks.")
    parser.add_argument("configfile", help="is written by rank 0 and read by the training job")
    parser.add_argument("--dispatchers", type=int, default=1)
    parser.add_argument("--dispatcher-side", choices=SIDES, default="compute", help="which job runs them")
    parser.add_argument("--timeout", type=float, default=60, help="seconds to wait for the others")
    return parser.parse_args(given)


def main(given: Optional[Sequence[str]] = None) -> int:
    """Returns the exit status."""
    arguments = _arguments(given)
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    if arguments.dispatchers < 1 or size % arguments.dispatchers != 0:
        print(f"{size} processes cannot be shared by {arguments.dispatchers} dispatchers.", file=sys.stderr)
        return 2
    with contextlib.ExitStack() as stack:
        config = None
        if rank == 0:
            key = secrets.token_bytes(32)
            registry = stack.enter_context(Registry(key))
            config = TfDataServiceConfig(
                arguments.dispatchers,
                size // arguments.dispatchers,
                arguments.dispatcher_side,
                [(host, registry.port) for host in own_hosts()],
                key,
                arguments.timeout,
            )
            config.write(arguments.configfile)
            stack.callback(os.remove, arguments.configfile)
        config = hvd.broadcast_object(config, root_rank=0)
        compute_worker_fn(config)
        hvd.barrier()  # the registry stays until all have heard of the end
    hvd.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
