"""`rueda.spark.run(fn)`: runs a function as one job of ranks in the tasks of a Spark application.

One stage holds all tasks: a barrier stage, where Spark allows it. Each task starts its rank as a process of
its own below a reaper (`task`), and keeps a connection to the driver (`driver`). The function, the key of the
job and all results travel through Spark; lines of output and the news of failures travel on the connections.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, TextIO

import rueda
from rueda.basics import setting
from rueda.failures import Failure
from rueda.placement import Place, forwarded, seconds
from rueda.run import RemoteTraceback
from rueda.spark import arguments, channel, entry, slots
from rueda.spark.driver import Supervisor, Terms

DEFAULT_START_TIMEOUT_SECONDS = 600.0
NO_CONTEXT = "Could not find an active SparkContext, are you running in a PySpark session?"
CONNECT = (
    "rueda.spark.run needs a SparkContext, which Spark Connect does not offer; run the program with "
    "spark-submit, or use a classic session."
)
_NEWS_SECONDS = 5.0
_LOSS_SECONDS = 3.0
_GRACE_SECONDS = 12.0  # for ranks that were told to end: SIGTERM, 5 s, SIGKILL, and their tasks return


@dataclass(frozen=True)
class Console:
    """Where lines go."""

    out: TextIO
    err: TextIO
    with_time: bool
    verbose: int

    def show(self, kind: int, place: Place, line: str) -> None:
        """Prints one line of a rank."""
        stamp = f"{time.asctime()} " if self.with_time else ""
        stream = self.err if kind == channel.ERR else self.out
        text = f"{stamp}[{place.rank} {place.host}] {line}"
        try:
            print(text, file=stream, flush=True)
        except UnicodeEncodeError as error:  # such as a log file in ASCII
            print(
                text.encode(error.encoding, "backslashreplace").decode(error.encoding),
                file=stream,
                flush=True,
            )

    def tell(self, line: str) -> None:
        """Prints one line of our own."""
        if self.verbose > 0:
            print(f"rueda: {line}", file=self.err, flush=True)


def active_context() -> Any:
    """The SparkContext of this process. Raises RuntimeError if there is none."""
    try:
        from pyspark import SparkContext
    except ImportError:
        raise RuntimeError("rueda.spark needs pyspark: pip install 'rueda-train[spark]'.") from None
    context = SparkContext._active_spark_context
    if context is None or context._jsc is None:
        from pyspark.sql.utils import is_remote

        raise RuntimeError(CONNECT if is_remote() else NO_CONTEXT)
    return context


def start_timeout_seconds(given: Optional[float]) -> float:
    """How long to wait for all tasks."""
    if given is not None:
        return seconds("start_timeout", given)
    text = setting("SPARK_START_TIMEOUT")
    return seconds("RUEDA_SPARK_START_TIMEOUT", text) if text else DEFAULT_START_TIMEOUT_SECONDS


def driver_addresses(settings: Mapping[str, str]) -> tuple[str, str]:
    """Where executors reach the driver, and where it listens."""
    host = settings["spark.driver.host"]
    return host.strip("[]"), settings.get("spark.driver.bindAddress", host).strip("[]")


def _listen(settings: Mapping[str, str], port: int) -> tuple[socket.socket, tuple[str, int]]:
    """A listening socket where Spark's own driver listens, and its address for executors."""
    host, bind = driver_addresses(settings)
    family, _, _, _, address = socket.getaddrinfo(
        bind, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise RuntimeError(f"The driver cannot listen on {bind}, port {port}: {error.strerror}.") from None
    return listener, (host, listener.getsockname()[1])


def _wait_for_slots(
    context: Any, settings: Mapping[str, str], size: int, deadline: float, console: Console
) -> None:
    master = settings.get("spark.master", context.master)
    is_local = re.fullmatch(r"local(\[.*\])?", master) is not None
    ask = slots.count_slots(context)
    watch = slots.SlotWatch(size, slots.expected_slots(master, settings), is_local, time.monotonic())
    told_at = time.monotonic()
    while not watch.look(available := ask(), time.monotonic()):
        if time.monotonic() > deadline:
            raise ValueError(slots.too_few(size, available))
        if time.monotonic() > told_at + _NEWS_SECONDS:
            console.tell(f"waiting for executors: {available} of {size} slots are there")
            told_at = time.monotonic()
        time.sleep(0.1)


def send_by_value(module: Any) -> None:
    """Spark pickles functions of this module with their code from now on: executors may lack it, or have
    another version.
    """
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)


class SparkJob:
    """The stage, which runs while the supervisor serves its tasks.

    is_barrier: Spark starts all tasks together, or none. It refuses that with dynamic allocation, where
    executors come because tasks wait: then tasks that have started wait for the others.
    """

    def __init__(
        self, context: Any, size: int, task: Callable[..., Iterator[Any]], group: str, is_barrier: bool
    ) -> None:
        from pyspark.util import InheritableThread

        self.outcomes: Optional[list[Any]] = None
        self.error: Optional[BaseException] = None
        self.group = group
        self.ended, self._ended_writer = socket.socketpair()
        self._context = context
        self._size = size
        self._task = task
        self._is_barrier = is_barrier
        # Jobs of this thread keep the caller's properties, such as its scheduler pool.
        self._thread = InheritableThread(target=self._collect, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def is_running(self) -> bool:
        return bool(self._thread.is_alive())

    def cancel(self, wait_s: float) -> None:
        """Cancels the stage, and waits a while for its end."""
        if self.is_running():
            self._context.cancelJobGroup(self.group)
            self._thread.join(wait_s)

    def close(self) -> None:
        self.ended.close()
        self._ended_writer.close()

    def _collect(self) -> None:
        try:
            self._context.setJobGroup(self.group, f"rueda.spark.run with {self._size} ranks", True)
            parts = self._context.parallelize(range(self._size), self._size)
            send_by_value(entry)
            stage = parts.barrier() if self._is_barrier else parts
            self.outcomes = stage.mapPartitions(self._task).collect()
        except BaseException as error:
            self.error = error
        finally:
            with contextlib.suppress(OSError):
                self._ended_writer.send(b"!")


def spark_failure(error: BaseException) -> Exception:
    """What to raise when Spark itself ended the stage: one sentence where the reason is known."""
    text = str(error)
    if found := re.search(re.escape(entry.MARK) + r" ([^\n]+)", text):
        return RuntimeError(found[1].replace("\\'", "'"))
    if found := re.search(r"The driver of rueda\.spark\.run cannot be reached: [^\n]+", text):
        return RuntimeError(
            f"{found[0]}. Executors must be able to connect to spark.driver.host; where a NAT or a firewall "
            "is in between, let it pass one port and name that port with driver_port."
        )
    if "PYTHON_VERSION_MISMATCH" in text or "Python in worker has different version" in text:
        version = re.search(r"(\d+)[., ]+(\d+)", text.partition("different version")[2])
        there = f" {version[1]}.{version[2]}" if version else ""
        own = f"{sys.version_info[0]}.{sys.version_info[1]}"
        return RuntimeError(
            f"The executors run Python{there}, but the driver runs Python {own}; set PYSPARK_PYTHON or "
            "spark.pyspark.python to the same version."
        )
    reason = re.search(r"Job aborted[^\n]*|Job \d+ cancelled[^\n]*", text)
    failure = RuntimeError(f"Spark could not run the ranks: {reason[0] if reason else text[:300]}")
    failure.__cause__ = error
    return failure


def rank_failure(cause: Failure, outcomes: Optional[list[Any]]) -> Exception:
    """What to raise when a rank failed: the exception of that rank is its cause, if it could be brought
    here.
    """
    failure = RuntimeError(cause.sentence())
    for rank, _, outcome in outcomes or []:
        if rank == cause.rank and outcome is not None and outcome[2]:
            original: Optional[BaseException] = None
            if outcome[1] is not None:
                with contextlib.suppress(Exception):  # its class may not exist here, so the text has to do
                    original = pickle.loads(outcome[1])
            if isinstance(original, BaseException):
                original.__cause__ = RemoteTraceback(rank, outcome[2])
            failure.__cause__ = original or RemoteTraceback(rank, outcome[2])
    return failure


def _supervise(job: SparkJob, supervisor: Supervisor, deadline: float, console: Console) -> None:
    """Until the stage has ended. Raises RuntimeError if not all tasks start in time."""
    supervisor.watch(job.ended)
    size = supervisor.progress.size
    told_at = time.monotonic()
    while job.is_running():
        supervisor.step(0.25)
        now = time.monotonic()
        if supervisor.progress.failed_at and now > supervisor.progress.failed_at + 2 + _GRACE_SECONDS:
            return
        if any(failure.what.startswith("was lost") for failure in supervisor.progress.failures):
            job.cancel(0)  # Spark would start the whole stage again
        if supervisor.places:
            continue
        if now > deadline:
            raise RuntimeError(
                f"Only {supervisor.arrived()} of {size} ranks had started when start_timeout was over: other "
                "jobs may occupy the executors; raise start_timeout, or lower num_proc."
            )
        if now > told_at + _NEWS_SECONDS:
            console.tell(f"{supervisor.arrived()} of {size} tasks have started")
            told_at = now
    # If an executor was lost, Spark may know it before its task has closed the connection.
    until = time.monotonic() + _LOSS_SECONDS
    while job.error is not None and not supervisor.progress.failures and time.monotonic() < until:
        supervisor.step(0.1)


def _results(job: SparkJob, supervisor: Supervisor) -> list[Any]:
    cause = supervisor.progress.first_cause()
    if cause is not None:
        raise rank_failure(cause, job.outcomes)
    if job.error is not None or job.outcomes is None:
        raise spark_failure(job.error or RuntimeError("the stage has not ended"))
    by_rank = {rank: outcome for rank, _, outcome in job.outcomes}
    return [_load(rank, by_rank[rank][0]) for rank in range(len(by_rank))]


def _load(rank: int, value: bytes) -> Any:
    try:
        return pickle.loads(value)
    except Exception as error:  # the classes of a result say how it is loaded
        why = f"{type(error).__name__}: {error}"
        raise RuntimeError(f"What rank {rank} returned cannot be loaded in the driver: {why}") from error


@dataclass(frozen=True)
class Options:
    """How a job is to run."""

    environment: Mapping[str, str]
    executable: Optional[str] = None
    start_timeout_s: float = DEFAULT_START_TIMEOUT_SECONDS
    driver_port: int = 0
    tf_config: bool = False


def launch(context: Any, call: bytes, size: int, options: Options, console: Console) -> list[Any]:
    """Runs the pickled call on `size` ranks, and returns their results in rank order."""
    settings = dict(context.getConf().getAll())
    deadline = time.monotonic() + options.start_timeout_s
    is_barrier = not slots.is_dynamic(settings)
    if is_barrier:
        _wait_for_slots(context, settings, size, deadline, console)
    else:
        slots.check_dynamic(settings.get("spark.master", context.master), settings, size)
    name, key = f"spark-{secrets.token_hex(8)}", secrets.token_bytes(32)
    listener, address = _listen(settings, options.driver_port)
    supervisor = Supervisor(listener, Terms(name, key, size, options.tf_config), console.show)
    # The call goes apart from the secret: Spark may write large broadcasts to disk.
    broadcast = context.broadcast(call)
    description = {
        "driver": address,
        "key": key,
        "secret": secrets.token_hex(32).encode(),
        "environment": dict(options.environment),
        "executable": options.executable,
        "start_timeout_s": options.start_timeout_s,
    }
    requirements = entry.Requirements(rueda.__version__)
    task = entry.make_task(requirements, description, broadcast, is_barrier)
    job = SparkJob(context, size, task, name, is_barrier)
    try:
        job.start()
        _supervise(job, supervisor, deadline, console)
    except BaseException:  # Ctrl-C as well: the ranks get a SIGTERM and some time
        supervisor.stop()
        until = time.monotonic() + _GRACE_SECONDS
        while supervisor.places and job.is_running() and time.monotonic() < until:
            supervisor.step(0.25)
        raise
    finally:
        job.cancel(0)
        supervisor.close()
        job.cancel(10)
        job.close()
        broadcast.destroy()
    return _results(job, supervisor)


def _pickle_call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    try:
        import cloudpickle
    except ImportError:
        raise RuntimeError("rueda.spark needs cloudpickle: pip install 'rueda-train[spark]'.") from None
    try:
        body = cloudpickle.dumps((function, tuple(args), dict(kwargs)))
    except Exception as error:  # objects say how they are pickled
        raise TypeError(
            f"rueda.spark.run cannot send the function with its arguments to the ranks: {error}. What the "
            "function uses travels with it; make in the function what cannot be pickled."
        ) from error
    return pickle.dumps((list(sys.path), body))


def run(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Optional[Mapping[str, Any]] = None,
    num_proc: Optional[int] = None,
    start_timeout: Optional[float] = None,
    use_mpi: Optional[bool] = None,
    use_gloo: Optional[bool] = None,
    extra_mpi_args: Optional[str] = None,
    env: Optional[Mapping[str, str]] = None,
    stdout: Optional[TextIO] = None,
    stderr: Optional[TextIO] = None,
    verbose: int = 1,
    nics: Optional[Any] = None,
    prefix_output_with_timestamp: bool = False,
    executable: Optional[str] = None,
    *,
    driver_port: int = 0,
    tf_config: bool = False,
) -> list[Any]:
    """Runs `fn(*args, **kwargs)` on `num_proc` ranks, one in each task of a barrier stage of the active Spark
    application. Returns the list of results in rank order.

    num_proc: default `spark.default.parallelism`. start_timeout: seconds until all ranks have started;
    default RUEDA_SPARK_START_TIMEOUT, else 600. env: variables for the ranks, besides those of the executor
    and the RUEDA_* and HOROVOD_* settings of the driver. stdout, stderr: text streams for the lines of the
    ranks; default those of this process. verbose=0: no news while ranks start. nics: names of network
    interfaces, as RUEDA_INTERFACE. executable: the Python of the ranks; default that of the executors.
    driver_port: on which the driver listens for the ranks; 0 lets the kernel choose. tf_config: ranks find
    TF_CONFIG, for tf.distribute. use_gloo and extra_mpi_args change nothing.

    Raises RuntimeError if there is no SparkContext, if Spark cannot start the ranks, or if a rank failed:
    the text names the rank, its host and its traceback, and the cause is what it raised. Raises ValueError
    if the application has fewer slots than `num_proc`, and TypeError or ValueError for wrong arguments and
    for a function that cannot be pickled.

    >>> rueda.spark.run(lambda x: x * int(os.environ["RUEDA_RANK"]), args=(10,), num_proc=2)
    [0, 10]
    """
    if use_mpi:
        raise ValueError("MPI support has not been built. Leave out use_mpi: rueda needs no MPI.")
    arguments.check(locals())
    timeout_s = start_timeout_seconds(start_timeout)
    context = active_context()
    size = int(num_proc if num_proc is not None else context.defaultParallelism)
    variables = {**forwarded(os.environ), **(env or {})}
    if nics:
        variables["RUEDA_INTERFACE"] = nics if isinstance(nics, str) else ",".join(sorted(nics))
    python = os.fspath(executable) if executable is not None else None
    options = Options(variables, python, timeout_s, driver_port, tf_config)
    console = Console(stdout or sys.stdout, stderr or sys.stderr, prefix_output_with_timestamp, verbose)
    return launch(context, _pickle_call(fn, args, kwargs or {}), size, options, console)
