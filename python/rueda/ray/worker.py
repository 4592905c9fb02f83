"""What runs in the actor of a rank: it tells where it is, gets its place, and calls functions."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple, Optional, Tuple

from rueda import memory_files
from rueda.basics import basics
from rueda.pickles import pickled_error
from rueda.placement import Hello
from rueda.ports import ReservedPort, host_key
from rueda.ray import reports
from rueda.run import find_command

MARK = "RUEDA_RAY_MARK"  # in the environment of the actor, and so of everything that it starts
END_SECONDS = 5.0  # for the engine of a rank to end
NO_SHARING = "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"

Call = Tuple[Callable[..., Any], Tuple[Any, ...], Mapping[str, Any]]


class Outcome(NamedTuple):
    """What one call left."""

    value: Any  # None if it raised
    error: Optional[bytes]  # pickled exception; None if there was none, or none that can be pickled
    traceback: str  # empty if it returned


def end_epoch() -> None:
    """Ends the engine of a rank, if it runs: of one that has failed, so that the other ranks hear of it at
    once; of all before they are killed, so that none takes another for lost.
    """

    def shut_down() -> None:
        with contextlib.suppress(Exception):
            basics.shutdown()

    if basics.is_initialized():
        # Not longer than this: the driver must hear of the failure, and kills all if they do not end.
        thread = threading.Thread(target=shut_down, daemon=True)
        thread.start()
        thread.join(END_SECONDS)


def where() -> tuple[str, tuple[ReservedPort, ReservedPort, ReservedPort]]:
    """The address of this node as Ray knows it, and ports reserved there."""
    import ray

    host = ray.util.get_node_ip_address()
    return host, (ReservedPort(host), ReservedPort(host), ReservedPort(host))


def write_secret(secret: bytes) -> int:
    """A descriptor of memory that holds the secret of the job."""
    memory = memory_files.make("rueda-secret")
    with open(memory, "wb", closefd=False) as file:
        file.write(secret)
    os.lseek(memory, 0, os.SEEK_SET)
    return memory


def start_reaper(mark: str) -> None:
    """Starts the process that ends what this one leaves behind. It is no child when this function returns,
    because Ray kills the children of an actor that ends. Raises RuntimeError if it cannot be started.
    """
    reader, writer = os.pipe()
    try:
        command = [find_command(), "reap", "beside", str(os.getpid()), mark]
        environment = {name: text for name, text in os.environ.items() if name == "XDG_RUNTIME_DIR"}
        subprocess.run(command, stdin=reader, env=environment, start_new_session=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        raise RuntimeError(f"The reaper of a rank could not be started: {error}") from None
    finally:
        os.close(reader)

    def tell() -> None:
        with contextlib.suppress(OSError):
            os.write(writer, struct.pack("q", os.getpid()))

    os.register_at_fork(after_in_child=tell)


def become_rank(environment: Mapping[str, str], secret: bytes) -> None:
    """Makes this process the rank that the environment describes. The secret stays in memory."""
    os.environ["RUEDA_SECRET_FILE"] = f"/proc/self/fd/{write_secret(secret)}"
    os.environ.update(environment)


class Worker:
    """One rank. Ray calls its methods one after the other, in the main thread of the actor."""

    def __init__(self, index: int, token: str) -> None:
        self._index = index
        self._host, self._ports = where()
        self._executable: Any = None
        start_reaper(f"{MARK}={token}")

    def hello(self) -> dict[str, Any]:
        """The fields of a Hello."""
        import ray

        gpus = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        numbers = (self._ports[0].number, self._ports[1].number, self._ports[2].number)
        found = Hello(self._index, self._host, host_key(), os.getpid(), numbers, tuple(map(str, gpus)))
        return asdict(found)

    def prepare(self, environment: Mapping[str, str], secret: bytes) -> None:
        """Makes this process the rank that the environment describes."""
        become_rank(environment, secret)
        if os.environ.get(NO_SHARING):
            os.environ.pop("RUEDA_RAY_GPUS", None)
        elif gpus := os.environ.get("RUEDA_RAY_GPUS"):
            os.environ["CUDA_VISIBLE_DEVICES"] = gpus

    def start_executable(self, made_by: Call) -> Outcome:
        """Makes the object that functions of `execute` get."""

        def make() -> None:
            kind, args, kwargs = made_by
            self._executable = kind(*args, **kwargs)

        return self.call((make, (), {}), False, None)

    def call(self, call: Call, with_executable: bool, queue: Any) -> Outcome:
        """Calls the function. queue: where `reports.log` puts things meanwhile."""
        reports.configure(queue)
        try:
            return Outcome(self._call(call, with_executable), None, "")
        except (Exception, SystemExit) as error:  # an actor that exits could not say with which status
            own_frames = error.__traceback__ and error.__traceback__.tb_next
            own_frames = own_frames and own_frames.tb_next
            text = "".join(traceback.format_exception(type(error), error, own_frames))
            sys.stderr.write(text)
            end_epoch()
            return Outcome(None, pickled_error(error), text)

    def call_raw(self, call: Call) -> Any:
        """Calls the function; returns or raises what it does."""
        try:
            return self._call(call, False)
        except Exception:
            end_epoch()
            raise

    def _call(self, call: Call, with_executable: bool) -> Any:
        function, args, kwargs = call
        if with_executable:
            args = (self._executable, *args)
        return function(*args, **kwargs)


def offer(driver: tuple[str, int], key: bytes, slots: int) -> None:
    """Offers slots of an elastic job, with the GPUs of this actor."""
    import ray

    from rueda.offers import offer as offering

    here = ray.get_runtime_context()
    gpus = [] if os.environ.get(NO_SHARING) else here.get_accelerator_ids().get("GPU", [])
    address = ray.util.get_node_ip_address()
    said = offering.describe(slots, tuple(map(str, gpus)), address, here.get_node_id())
    offering.serve(driver, key, said)
