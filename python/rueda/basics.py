"""Life cycle and topology of this process, shared by all front ends."""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from ctypes import byref, c_int32, c_uint8
from ctypes import sizeof as size_in_bytes
from typing import Any

from rueda import _core, distribution, epochs, errors, init_arguments, interruption, mpi, policy, stacks
from rueda.elastic import membership
from rueda.process_sets import ProcessSet, global_process_set, process_set_table

REPEATED = (
    "process_sets entry number {number} is a duplicate of an earlier one; list every set once. The job runs "
    "without this entry, and need not be initialized again."
)

# What a process that is to join an elastic job answers before a view has it, where the launcher says nothing.
# Not rank 0, which downloads data and writes files.
_PROVISIONAL = {
    "rank": 1,
    "size": 2,
    "local_rank": 0,
    "local_size": 1,
    "cross_rank": 1,
    "cross_size": 2,
    "is_homogeneous": 1,
}
_TRUE_WORDS = ("1", "true", "yes", "on")
_FALSE_WORDS = ("0", "false", "no", "off")
_DYNAMIC = "DYNAMIC_PROCESS_SETS"


def setting(name: str) -> str | None:
    """Value of the setting RUEDA_{name}, else of HOROVOD_{name}, else None."""
    value = os.environ.get(f"RUEDA_{name}")
    return value if value is not None else os.environ.get(f"HOROVOD_{name}")


@contextmanager
def environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Sets these environment variables, and unsets those that are None, while the block runs."""
    before = {name: os.environ.get(name) for name in variables}
    _set_environment(variables)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def is_enabled(name: str) -> bool:
    """Whether the boolean setting is on."""
    return (setting(name) or "").strip().lower() in _TRUE_WORDS


def is_disabled(name: str) -> bool:
    """Whether the boolean setting is off, and not merely unset."""
    return (setting(name) or "").strip().lower() in _FALSE_WORDS


def may_grow() -> bool:
    """Whether ranks may come while the job runs, so that one that is alone now may not stay so."""
    return is_enabled("ELASTIC") or membership.current().is_elastic()


class HorovodBasics:
    """The functions that every front end exports. One instance, `basics`, serves the process."""

    Average, Sum, Adasum, Min, Max, Product = policy.OPS

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._exit_is_registered = False
        self._before_shutdown: list[Callable[[], None]] = []
        self._on_shutdown: list[Callable[[], None]] = []

    # ---- life cycle ----

    def init(self, comm: Any = None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
        """Joins the job; blocks until every rank has called it.

        comm: None, or a communicator of mpi4py, whose ranks are then the ranks of the job (all of them call
        init); or a list of ranks, which is ignored: the launcher decides who takes part. process_sets: None,
        "dynamic" (sets may be added later), or a list of ProcessSet objects, with the same ranks on every
        rank. Those of communicators may differ; every rank then registers the sets of all ranks. One that
        holds all ranks is the world.
        A call while initialized starts nothing; its process sets must be registered already.
        In a process that is to join an elastic job it returns at once, with a provisional rank and size; the
        process becomes a member in elastic.run.
        Raises ValueError with the cause when the job cannot be formed; the call may then be repeated. A set
        that is listed twice is a ValueError too, but the job then runs, with the set registered once.
        Handlers of signals run meanwhile, so Ctrl-C raises KeyboardInterrupt at once.
        """
        communicator = init_arguments.handle_of(comm)
        sets = init_arguments.sets_of(process_sets)
        group = mpi.group_of(comm) if communicator else None
        for process_set in sets:
            process_set.place_in(group)
        distribution.warn_once(stacklevel=2)
        with self._lock:
            if epochs.is_forked():
                raise ValueError(errors.INIT_FAILED.format(cause=errors.FORKED))
            if membership.current().is_joiner():
                epochs.await_view(True)  # a member it becomes in elastic.run
                return
            if self.is_initialized():
                if sets:
                    process_set_table.adopt_again(sets)
                return
            self._start(sets, communicator)
            process_set_table.mpi_group = group
            repeated = init_arguments.repeated_in(sets)
            process_set_table.adopt([one for i, one in enumerate(sets) if i not in repeated])
        if repeated:
            raise ValueError(REPEATED.format(number=repeated[0] + 1))

    def init_admitted(self) -> None:
        """init() once the next view of an elastic job is known; by elastic.run alone."""
        epochs.await_view(False)
        self.init()

    def _start(self, sets: Sequence[ProcessSet], communicator: int) -> None:
        sizes = [len(process_set.ranks or []) for process_set in sets]
        flat = [rank for process_set in sets for rank in process_set.ranks or []]
        options = _core.InitOptions()
        options.struct_size = size_in_bytes(options)
        options.set_count = len(sets)
        options.set_sizes = (c_int32 * len(sizes))(*sizes)
        options.set_ranks = (c_int32 * len(flat))(*flat)
        are_own = [process_set.mpi_comm is not None for process_set in sets]
        options.set_is_own = (c_uint8 * len(sets))(*are_own)
        options.expected_size = mpi.world_size() if any(are_own) and not communicator else 0
        options.mpi_communicator = communicator
        raised: list[BaseException] = []
        options.is_interrupted = _core.IsInterrupted(interruption.run_signal_handlers(raised))
        stacks.prepare()
        with environment(_engine_takes_sets()):
            if _core.init(byref(options)) != _core.OK:
                if raised:
                    raise raised[0]
                raise ValueError(errors.INIT_FAILED.format(cause=_core.last_error()))
        process_set_table.is_dynamic = (_dynamic_text() or "0").lower() not in _FALSE_WORDS
        if not self._exit_is_registered:
            atexit.register(self._end_with_process)
            self._exit_is_registered = True

    def shutdown(self) -> None:
        """Ends the engine on every rank and forgets all outstanding handles. Idempotent."""
        try:
            if epochs.current() != epochs.NONE:
                for complete in self._before_shutdown:
                    complete()
        finally:
            self._end()

    def abort(self) -> None:
        """As shutdown, but completes nothing first: operations under way end with an error on every rank."""
        self._end()

    def _end_with_process(self) -> None:
        # Other ranks still need the operations under way here, unless this process ends by an exception.
        if epochs.current() != epochs.NONE and not hasattr(sys, "last_value"):
            for complete in self._before_shutdown:
                with suppress(Exception):  # nobody is left to be told, or to use the result
                    complete()
        self._end()

    def _end(self) -> None:
        _core.shutdown()  # in a forked child: forgets what the parent knew
        if epochs.is_forked():
            return
        for forget in self._on_shutdown:
            forget()

    def before_shutdown(self, complete: Callable[[], None]) -> None:
        """Registers what a front end completes before shutdown(), and before a process ends normally."""
        self._before_shutdown.append(complete)

    def on_shutdown(self, forget: Callable[[], None]) -> None:
        """Registers what a front end forgets when the engine has ended."""
        self._on_shutdown.append(forget)

    def is_initialized(self) -> bool:
        """Whether init succeeded and shutdown was not called since. A forked child inherits the answer."""
        return epochs.known() != epochs.NONE or epochs.awaits_view()

    def _after_fork_in_child(self) -> None:
        self._lock = threading.Lock()  # another thread of the parent may have held it

    # ---- topology; a forked child answers what its parent knew at the fork ----

    def rank(self) -> int:
        """World rank of this process, 0 … size() − 1."""
        return self._topology(_core.rank, "rank")

    def size(self) -> int:
        """Number of processes of the job."""
        return self._topology(_core.size, "size")

    def local_rank(self) -> int:
        """Index of this process among those of its host: the usual GPU index."""
        return self._topology(_core.local_rank, "local_rank")

    def local_size(self) -> int:
        """Number of processes on this host."""
        return self._topology(_core.local_size, "local_size")

    def cross_rank(self) -> int:
        """Index of this host among the hosts that have a process with this local rank."""
        return self._topology(_core.cross_rank, "cross_rank")

    def cross_size(self) -> int:
        """Number of hosts that have a process with this local rank."""
        return self._topology(_core.cross_size, "cross_size")

    def is_homogeneous(self) -> bool:
        """Whether every host runs the same number of processes."""
        return bool(self._topology(_core.is_homogeneous, "is_homogeneous"))

    def _topology(self, function: Callable[[], int], name: str) -> int:
        value = function()
        if value >= 0:
            return value
        if epochs.awaits_view():
            return int(setting(name.upper()) or _PROVISIONAL[name])
        raise ValueError(errors.NOT_INITIALIZED)

    # ---- timeline ----

    def start_timeline(self, file_path: str, mark_cycles: bool = False) -> None:
        """Writes a Chrome trace of all operations to file_path (by rank 0), also without RUEDA_TIMELINE.

        The same path again goes on with the file. A file that cannot be opened, or that this process has
        written before another one, causes a RuntimeWarning, and training continues. Where rank 0 cannot
        write the trace, all ranks still keep their records beside it, and `rueda timeline merge` draws them.
        A name that ends with .pftrace or .perfetto-trace is a ValueError: `rueda timeline merge` writes that
        format.
        """
        epochs.require()
        if not isinstance(file_path, (str, bytes, os.PathLike)):
            raise TypeError(f"The timeline's path has to be a string, not {type(file_path).__name__}.")
        path = _core.c_text(os.fsdecode(file_path), "timeline's path", sys.getfilesystemencoding())
        status = _core.start_timeline(path, int(bool(mark_cycles)))
        if status == _core.UNAVAILABLE:
            warnings.warn(_core.last_error(), RuntimeWarning, stacklevel=2)
        elif status != _core.OK:
            raise ValueError(_core.last_error())

    def stop_timeline(self) -> None:
        """Closes the timeline; harmless when none is open.

        For all ranks: rank 0 waits until those whose records it sees have stopped too, for at most 5 s,
        so that the trace has the events of all of them. It warns of those that have not.
        """
        epochs.require()
        if _core.stop_timeline() != _core.OK:
            raise ValueError(_core.last_error())

    def write_flight_record(self, file_path: str) -> None:
        """Writes what this rank did in the last minute, for `rueda timeline summary`; no timeline need be on.

        Each rank needs a file of its own: `hvd.write_flight_record(f"last.rank{hvd.rank()}.rec")`.
        Raises ValueError if RUEDA_FLIGHT_RECORD_BYTES is 0, or if the file cannot be written.
        """
        epochs.require()
        path = _core.c_text(os.fsdecode(file_path), "flight record's path", sys.getfilesystemencoding())
        if _core.write_flight_record(path) != _core.OK:
            raise ValueError(_core.last_error())

    def metrics(self) -> dict[str, Any]:
        """Counters, gauges and histograms of this process since it started, by the names of docs/metrics.md.

        A metric without labels is a number; one with a label is a dict from the label's value to a number; a
        histogram is a dict with "count", "sum" (seconds) and "buckets" (from an upper bound in seconds to the
        number of values up to it). Needs no init, and blocks for microseconds only.

        Example::

            hvd.metrics()["rueda_calls_total"]["allreduce"]
        """
        found = json.loads(_core.metrics())
        return {name: metric_values(family["samples"]) for name, family in found.items()}

    # ---- what is built in; none of these needs init ----

    def mpi_threads_supported(self) -> bool:
        """Whether the program may call MPI (mpi4py) from any thread while operations are in flight.

        Raises ValueError unless MPI runs the collectives (RUEDA_CPU_OPERATIONS=mpi, after init).
        """
        if not self.mpi_enabled():
            raise ValueError("MPI is not enabled: rueda runs without MPI, even if mpirun started the job.")
        return bool(_mpi_in_use().get("thread_level") == "MPI_THREAD_MULTIPLE")

    def mpi_enabled(self) -> bool:
        """Whether MPI runs the collectives of the current job (RUEDA_CPU_OPERATIONS=mpi)."""
        return bool(_mpi_in_use().get("runs_collectives"))

    def mpi_built(self) -> bool:
        """False: rueda needs no MPI, and loads one at run time. True would make scripts choose mpirun."""
        return False

    def gloo_enabled(self) -> bool:
        """Whether the engine runs. Scripts call this to ask whether rueda works without MPI."""
        return self.is_initialized()

    def gloo_built(self) -> bool:
        """True: works without MPI."""
        return True

    def nccl_built(self) -> int:
        """Version code of NCCL, such as 22807; 0 if there is none, or it cannot be used.

        Before init: of the library that this process finds, if it has CUDA's driver. After init: of the one
        that the ranks use. Whether there is a GPU does not matter, as in Horovod: `CUDA_VISIBLE_DEVICES=""`
        hides GPUs, and not the library.
        """
        return int(json.loads(_core.describe()).get("nccl", 0))

    def ddl_built(self) -> bool:
        """False."""
        return False

    def ccl_built(self) -> bool:
        """False."""
        return False

    def cuda_built(self) -> bool:
        """True: the engine loads the driver of CUDA where there is one."""
        return True

    def sycl_built(self) -> bool:
        """False."""
        return False

    def rocm_built(self) -> bool:
        """False."""
        return False

    def _get_process_set_ids_and_ranks(self) -> dict[int, list[int]]:
        epochs.require_known()
        return process_set_table.ids_and_ranks()


def metric_values(samples: list[dict[str, Any]]) -> Any:
    """The samples of one metric, as `metrics` returns them."""
    if any(sample["suffix"] for sample in samples):
        ends = {sample["suffix"]: sample["value"] for sample in samples if not sample["labels"]}
        buckets = {float(sample["labels"]["le"]): sample["value"] for sample in samples if sample["labels"]}
        return {"count": ends["_count"], "sum": ends["_sum"], "buckets": buckets}
    labelled = {value: sample["value"] for sample in samples for value in sample["labels"].values()}
    return labelled or samples[0]["value"]


def _mpi_in_use() -> dict[str, Any]:
    """What the engine says about MPI; empty before init, and if the job does not use it."""
    if epochs.known() == epochs.NONE:
        return {}
    found: dict[str, Any] = json.loads(_core.describe()).get("mpi", {})
    return found


def _dynamic_text() -> str | None:
    """What the environment says about dynamic process sets. As in the engine, empty means unset."""
    texts = (os.environ.get(f"{prefix}_{_DYNAMIC}", "").strip() for prefix in ("RUEDA", "HOROVOD"))
    return next((text for text in texts if text), None)


def _engine_takes_sets() -> dict[str, str | None]:
    """The variable that lets process groups of a framework register sets later, unless the environment
    decides about sets. What the user may do is checked in process_sets.py.
    """
    return {f"RUEDA_{_DYNAMIC}": "1"} if _dynamic_text() is None else {}


basics = HorovodBasics()
os.register_at_fork(after_in_child=basics._after_fork_in_child)

__all__ = ["HorovodBasics", "basics", "global_process_set"]
