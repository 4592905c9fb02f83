"""tf.data service beside ranks: `tf_data_service` and `send_to_data_service` in the training job, and
`compute_worker_fn` in the processes that prepare data (`compute_worker` starts them).

A dispatcher hands out work to its workers. Dispatchers run in the processes that prepare data ("compute") or
in the first training ranks ("training"). Training rank r reads through dispatcher r modulo their number.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

import tensorflow as tf

from rueda.tensorflow.data.registry import NEWS_SECONDS, Client

SIDES = ("compute", "training")


def check_side(dispatcher_side: str) -> None:
    """ValueError if there is no such side."""
    if dispatcher_side not in SIDES:
        raise ValueError(f"dispatcher_side must be one of {SIDES}, not {dispatcher_side!r}.")


@dataclass
class TfDataServiceConfig:
    """How a data service is made up, and how to reach its registry.

    addresses: of the registry, (host, port), or such a list for each network interface. key: proves everybody
    to everybody. timeout: seconds to wait for dispatchers and workers.
    """

    dispatchers: int
    workers_per_dispatcher: int
    dispatcher_side: str
    addresses: list[tuple[str, int]]
    key: bytes = field(repr=False)
    timeout: float = 60

    def __post_init__(self) -> None:
        check_side(self.dispatcher_side)
        if self.dispatchers < 1 or self.workers_per_dispatcher < 1:
            raise ValueError("A data service needs at least one dispatcher, and a worker for each.")
        given: Any = self.addresses
        if isinstance(given, Mapping):
            given = [one for addresses in given.values() for one in addresses]
        self.addresses = list(dict.fromkeys((str(host), int(port)) for host, port in given))

    def compute_client(self, verbose: int = 1) -> Client:
        """Asks the registry. verbose: from 2 on, it says on stderr what it waits for."""
        return Client(self.addresses, self.key, self.timeout, verbose)

    def to_dict(self) -> dict[str, Any]:
        """What `from_dict` takes, and JSON can hold; the key is among it."""
        return {
            "dispatchers": self.dispatchers,
            "workers_per_dispatcher": self.workers_per_dispatcher,
            "dispatcher_side": self.dispatcher_side,
            "addresses": [list(one) for one in self.addresses],
            "key": base64.b64encode(self.key).decode(),
            "timeout": self.timeout,
        }

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> TfDataServiceConfig:
        """The configuration that `to_dict` described."""
        return cls(**{**config, "key": base64.b64decode(config["key"])})

    def write(self, filename: str | os.PathLike[str]) -> None:
        """Writes a file that only its owner can read. It appears when it is complete."""
        part = f"{os.fspath(filename)}.{os.getpid()}.part"
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(self.to_dict(), file)
        os.replace(part, filename)

    @classmethod
    def read(
        cls,
        filename: str | os.PathLike[str],
        wait_for_file_creation: bool = False,
        timeout: Optional[float] = None,
    ) -> TfDataServiceConfig:
        """Reads a file. With wait_for_file_creation it may appear within so many seconds, by default at any
        time, because the job that writes it may be queued; meanwhile a line on stderr says so.

        Raises FileNotFoundError if there is none.
        """
        began = time.monotonic()
        news = began + NEWS_SECONDS
        while wait_for_file_creation and not os.path.exists(filename):
            now = time.monotonic()
            if timeout is not None and now > began + timeout:
                break
            if now > news:
                line = f"rueda: waiting for {os.fspath(filename)}, which compute_worker writes when it starts"
                print(line, file=sys.stderr, flush=True)
                news = now + 6 * NEWS_SECONDS
            time.sleep(0.1)
        with open(filename) as file:
            return cls.from_dict(json.load(file))


def _host_and_port(client: Client, target: str) -> str:
    """A server's own target ("grpc://localhost:5000") as others reach it."""
    return f"{client.own_address()}:{target.rpartition(':')[2]}"


def _start_dispatcher(client: Client, dispatcher_id: int) -> Any:
    server = tf.data.experimental.service.DispatchServer()
    client.register_dispatcher(dispatcher_id, _host_and_port(client, server.target))
    return server


@contextlib.contextmanager
def tf_data_service(compute_config: TfDataServiceConfig, rank: int) -> Iterator[str]:
    """In a training rank: waits for its dispatcher and the first worker, and gives the dispatcher's address
    ("host:port"). With dispatcher_side "training" it runs a dispatcher in the first ranks.

    Raises RuntimeError if they do not come in time.
    """
    client = compute_config.compute_client()
    server = None
    if compute_config.dispatcher_side == "training" and rank < compute_config.dispatchers:
        server = _start_dispatcher(client, rank)
    try:
        dispatcher_id = rank % compute_config.dispatchers
        address = client.wait_for_dispatcher_registration(dispatcher_id)
        client.wait_for_dispatcher_worker_registration(dispatcher_id)
        yield address
    finally:
        if server is not None:
            server._stop()


def send_to_data_service(
    dataset: Any,
    compute_config: TfDataServiceConfig,
    rank: int,
    size: Optional[int] = None,
    processing_mode: str = "distributed_epoch",
    reuse_dataset: bool = False,
    round_robin: bool = False,
    *,
    job_name: str = "job",
) -> Any:
    """The dataset as the data service prepares it; also a method of `tf.data.Dataset`.

    processing_mode: as tf.data service has it; "distributed_epoch" gives every element once to one worker.
    reuse_dataset: the ranks of one dispatcher share one pass, each element going to one of them; without it
    each rank reads everything. round_robin: they take turns, which needs size, the number of training ranks,
    reuse_dataset and a dataset without end. job_name: what is shared; each dataset needs a name of its own.
    """
    dispatcher_id = rank % compute_config.dispatchers
    address = compute_config.compute_client().wait_for_dispatcher_registration(dispatcher_id)
    if round_robin and (size is None or not reuse_dataset):
        raise ValueError("round_robin needs size, the number of training ranks, and reuse_dataset=True.")
    turns: dict[str, Any] = {}
    if round_robin and size is not None:
        sharers = range(dispatcher_id, size, compute_config.dispatchers)
        turns = {"consumer_index": rank // compute_config.dispatchers, "num_consumers": len(sharers)}
    return dataset.apply(
        tf.data.experimental.service.distribute(
            processing_mode=processing_mode,
            service=f"grpc://{address}",
            job_name=job_name if reuse_dataset else None,
            **turns,
        )
    )


tf.data.Dataset.send_to_data_service = send_to_data_service


def compute_worker_fn(compute_config: TfDataServiceConfig, timeout: Optional[float] = None) -> None:
    """In a process that prepares data: runs a worker, and the dispatcher of its group in the group's first
    process, until the service ends. The process's number is RUEDA_RANK. timeout: seconds to wait for the
    dispatcher, by default those of the configuration.
    """
    index = int(os.environ.get("RUEDA_RANK", "0"))
    dispatcher_id, place = divmod(index, compute_config.workers_per_dispatcher)
    client = compute_config.compute_client()
    dispatcher = None
    if compute_config.dispatcher_side == "compute" and place == 0:
        dispatcher = _start_dispatcher(client, dispatcher_id)
    address = client.wait_for_dispatcher_registration(dispatcher_id, timeout)
    worker = tf.data.experimental.service.WorkerServer(
        tf.data.experimental.service.WorkerConfig(
            dispatcher_address=address, worker_address=f"{client.own_address()}:%port%"
        )
    )
    client.register_worker_for_dispatcher(dispatcher_id, index)
    client.wait_for_shutdown()
    worker._stop()
    if dispatcher is not None:
        dispatcher._stop()
