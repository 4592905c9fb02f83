"""`rueda.spark.run_elastic(fn)`: runs a function as an elastic job on the slots of a Spark application.

The launcher of `rueda run` runs on the driver. Each slot is a Spark job of one task, so that one that fails
ends no other; on each machine one of the tasks runs the agent (`rueda.offers`).
"""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional, TextIO

import rueda
from rueda.offers import job
from rueda.offers.switchboard import Switchboard
from rueda.placement import forwarded, seconds
from rueda.run import deprecated, pickle_call
from rueda.spark import arguments, entry, launcher, slots

_MOST_REST_SECONDS = 60.0
_NEWS_SECONDS = 5.0
_END_SECONDS = 10.0
TOO_LATE = (
    "Only {} of {} slots were offered when start_timeout was over: other jobs may occupy the executors; "
    "raise start_timeout, or lower num_proc."
)


class _Tasks:
    """The tasks that offer slots, each in a Spark job of its own, which is started again when it ends."""

    def __init__(self, context: Any, count: int, board: Switchboard, driver: str) -> None:
        from pyspark.util import InheritableThread

        self.problem = ""  # of an executor that cannot take part
        self._context = context
        self._board = board
        self._group = f"rueda-{secrets.token_hex(8)}"
        requirements = entry.Requirements(rueda.__version__)
        launcher.send_by_value(entry)
        self._task = entry.make_offer(requirements, (driver, board.port), board.key)
        self._over = threading.Event()
        # Jobs of these threads keep the caller's properties, such as its scheduler pool.
        self._threads = [InheritableThread(target=self._keep, daemon=True) for _ in range(count)]

    def __enter__(self) -> _Tasks:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._board.close()  # so the tasks end by themselves
        until = time.monotonic() + _END_SECONDS
        for thread in self._threads:
            if thread.is_alive() and time.monotonic() < until:
                self._context.cancelJobGroup(self._group)  # those that still wait for a slot
            thread.join(max(0.0, until - time.monotonic()))

    def _keep(self) -> None:
        self._context.setJobGroup(self._group, "a slot of rueda.spark.run_elastic", True)
        failures = 0
        while not self._over.is_set():
            began = time.monotonic()
            try:
                said = self._context.parallelize([0], 1).mapPartitions(self._task).collect()
                self.problem = self.problem or next(iter(said), "")
            except Exception as error:  # Spark's: the executor was lost, or the job was cancelled
                if not self._over.is_set() and "cancel" not in str(error):
                    self.problem = self.problem or str(launcher.spark_failure(error))
            failures = 0 if time.monotonic() > began + _MOST_REST_SECONDS else failures + 1
            self._over.wait(min(_MOST_REST_SECONDS, 2.0 ** min(failures - 1, 10)))


def _check_slots(context: Any, settings: Mapping[str, str], size: int) -> None:
    """Raises ValueError where the application never has so many slots."""
    master = settings.get("spark.master", context.master)
    if slots.is_dynamic(settings):
        slots.check_dynamic(master, settings, size)
        return
    expected = slots.expected_slots(master, settings)
    if master.startswith("local") and expected is None:
        expected = slots.count_slots(context)()
    if expected is not None and expected < size:
        raise ValueError(slots.too_few(size, expected))


def run_elastic(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Optional[Mapping[str, Any]] = None,
    num_proc: Optional[int] = None,
    min_num_proc: Optional[int] = None,
    max_num_proc: Optional[int] = None,
    start_timeout: Optional[float] = None,
    elastic_timeout: Optional[float] = None,
    reset_limit: Optional[int] = None,
    env: Optional[Mapping[str, str]] = None,
    stdout: Optional[TextIO] = None,
    stderr: Optional[TextIO] = None,
    verbose: int = 1,
    nics: Optional[Any] = None,
    prefix_output_with_timestamp: bool = False,
    min_np: Optional[int] = None,
    max_np: Optional[int] = None,
    *,
    spares: int = 0,
    driver_port: int = 0,
) -> list[Any]:
    """Runs `fn(*args, **kwargs)` as an elastic job: it goes on while min_num_proc ranks are left, on
    executors that come and go. Returns the results of its last members, in the order of their ranks.

    num_proc: ranks that begin; default `spark.default.parallelism`. min_num_proc, max_num_proc: default
    num_proc. elastic_timeout: seconds to wait for enough ranks (600). reset_limit, spares: as of `rueda run`.
    The others: as of `rueda.spark.run`; stdout and stderr get what the launcher says, too.

    Raises RuntimeError if the job failed, in the words of the launcher, ValueError if the application has
    fewer slots than num_proc, and TypeError or ValueError for wrong arguments.
    """
    arguments.check({**locals(), "executable": None})
    min_num_proc = deprecated("min_np", min_np, "min_num_proc", min_num_proc)
    max_num_proc = deprecated("max_np", max_np, "max_num_proc", max_num_proc)
    timeout_s = launcher.start_timeout_seconds(start_timeout)
    context = launcher.active_context()
    first = int(num_proc if num_proc is not None else context.defaultParallelism)
    least = first if min_num_proc is None else min_num_proc
    limit_s = seconds("elastic_timeout", 600.0 if elastic_timeout is None else elastic_timeout)
    size = job.Size(
        least, first, first if max_num_proc is None else max_num_proc, spares, reset_limit, limit_s
    )
    variables = {**forwarded(os.environ), **(env or {})}
    if nics:
        variables["RUEDA_INTERFACE"] = nics if isinstance(nics, str) else ",".join(sorted(nics))
    around = job.Surroundings(
        variables,
        out=stdout or (None if sys.stdout is sys.__stdout__ else sys.stdout),
        err=stderr or (None if sys.stderr is sys.__stderr__ else sys.stderr),
        more=["--prefix-output-with-timestamp"] if prefix_output_with_timestamp else [],
    )
    console = launcher.Console(stdout or sys.stdout, stderr or sys.stderr, False, verbose)
    call = pickle_call(fn, args, kwargs or {})
    return _launch(context, call, size, around, (timeout_s, driver_port, console))


def _launch(
    context: Any,
    call: bytes,
    size: job.Size,
    around: job.Surroundings,
    start: tuple[float, int, launcher.Console],
) -> list[Any]:
    timeout_s, port, console = start
    settings = dict(context.getConf().getAll())
    _check_slots(context, settings, size.begins_with)
    host, bind = launcher.driver_addresses(settings)
    deadline = time.monotonic() + timeout_s
    next_news = [time.monotonic() + _NEWS_SECONDS]
    with ExitStack() as undo:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="rueda-spark-")))
        board = undo.enter_context(Switchboard(bind, folder, "spark", port=port))
        tasks = undo.enter_context(_Tasks(context, size.slots, board, host))

        def attend() -> None:
            now, have = time.monotonic(), board.slots()
            if board.has_had_slots(size.begins_with):
                return
            if tasks.problem and have == 0:
                raise RuntimeError(tasks.problem)
            if now > deadline:
                raise RuntimeError(TOO_LATE.format(have, size.begins_with))
            if now > next_news[0]:
                console.tell(f"{have} of {size.begins_with} slots are there")
                next_news[0] = now + _NEWS_SECONDS

        return job.run(call, size, board, replace(around, attend=attend))
