"""The C ABI of librueda.so: the only module that names C symbols.

Calls that never block go through `fast` (PyDLL), which keeps the GIL: releasing it costs up to 5 ms when
another thread is busy in bytecode. Calls that wait go through `slow` (CDLL), which releases the GIL. Hot
functions have no argtypes, because those double the cost of a call. Their integers are therefore 32 bits wide
or wrapped by the caller, and pointers travel inside prepared structs or as `c_void_p`.
"""

from __future__ import annotations

import ctypes
import json
import os
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import Any, Callable, NamedTuple

from rueda import errors, interruption

(
    OK,
    INVALID_ARGUMENT,
    MISMATCH,
    NOT_INITIALIZED,
    DUPLICATE_NAME,
    SHUT_DOWN,
    PEER_LOST,
    TIMEOUT,
    UNAVAILABLE,
    PERMISSION_DENIED,
    UNSUPPORTED,
    INTERNAL,
    STALLED,
) = range(13)

UINT8, INT8, UINT16, INT16, INT32, INT64, FLOAT16, FLOAT32, FLOAT64, BOOL, BFLOAT16 = range(11)

ALLREDUCE, ALLGATHER, BROADCAST, JOIN, ALLTOALL, BARRIER, REDUCESCATTER = range(7)

AVERAGE, SUM, ADASUM, MIN, MAX, PRODUCT = range(6)

HOST_MEMORY, SHARED_MEMORY, DEVICE_MEMORY = range(3)

# How a sum of float32 travels between hosts. The default is what RUEDA_WIRE says.
WIRE_DEFAULT, WIRE_FLOAT32, WIRE_BF16, WIRE_FP16, WIRE_INT8 = range(5)
WIRE_WITHOUT_FEEDBACK = 256  # added to one of these


class PythonStacks(Structure):
    """rueda_python_stacks"""

    _fields_ = [
        ("struct_size", c_uint32),
        ("signal", c_int32),
        ("ask_fd", c_int32),
        ("done_fd", c_int32),
        ("with_lock_fd", c_int32),
        ("without_lock_fd", c_int32),
        ("thread", c_uint64),
    ]


IsInterrupted = CFUNCTYPE(c_int32)


class InitOptions(Structure):
    """rueda_init_options"""

    _fields_ = [
        ("struct_size", c_uint32),
        ("set_count", c_int32),
        ("set_sizes", POINTER(c_int32)),
        ("set_ranks", POINTER(c_int32)),
        ("expected_size", c_int32),
        ("mpi_communicator", c_uint64),
        ("is_interrupted", IsInterrupted),
        ("set_is_own", POINTER(c_uint8)),
    ]


class Request(Structure):
    """rueda_request"""

    _fields_ = [
        ("struct_size", c_uint32),
        ("what", c_int32),
        ("dtype", c_int32),
        ("op", c_int32),
        ("name", c_char_p),
        ("process_set", c_int32),
        ("root_rank", c_int32),
        ("prescale", c_double),
        ("postscale", c_double),
        ("ndim", c_int32),
        ("device", c_int32),
        ("shape", POINTER(c_int64)),
        ("input", c_void_p),
        ("output", c_void_p),
        ("splits", POINTER(c_int32)),
        ("split_count", c_int32),
        ("tag", c_int64),
        ("priority", c_int32),
        ("ready", c_void_p),
        ("memory", c_int32),
        ("numbered_at", c_int64),
        ("ready_is_stream", c_int64),
        ("wire", c_int64),
    ]


class ElasticJoinOptions(Structure):
    """rueda_elastic_join_options"""

    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved", c_int32),
        ("commit", c_int64),
        ("digest", c_char_p),
        ("digest_bytes", c_uint64),
        ("timeout_s", c_double),
        ("is_interrupted", IsInterrupted),
    ]


class ElasticNewsInfo(Structure):
    """rueda_elastic_news_info"""

    _fields_ = [
        ("struct_size", c_uint32),
        ("are_hosts_added", c_int32),
        ("are_hosts_removed", c_int32),
        ("does_leave", c_int32),
        ("at_commit", c_int64),
    ]


class ResultInfo(Structure):
    """rueda_result_info"""

    _fields_ = [
        ("struct_size", c_uint32),
        ("ndim", c_int32),
        ("shape", POINTER(c_int64)),
        ("data", c_void_p),
        ("bytes", c_uint64),
        ("received_splits", POINTER(c_int32)),
        ("split_count", c_int32),
        ("last_joined_rank", c_int32),
        ("tag", c_int64),
    ]


REQUEST_BYTES = ctypes.sizeof(Request)
RESULT_INFO_BYTES = ctypes.sizeof(ResultInfo)


def library_path() -> Path:
    """Where librueda.so is: RUEDA_LIBRARY if set, else beside this package."""
    given = os.environ.get("RUEDA_LIBRARY")
    return Path(given) if given else Path(__file__).resolve().parent / "lib" / "librueda.so"


def _load(path: Path) -> tuple[ctypes.PyDLL, ctypes.CDLL]:
    mode = os.RTLD_NOW | os.RTLD_LOCAL  # local, so that no symbol of ours resolves one of a framework
    try:
        return ctypes.PyDLL(str(path), mode=mode), ctypes.CDLL(str(path), mode=mode)
    except OSError as error:
        raise ImportError(
            f"The rueda library {path} cannot be loaded ({error}); reinstall rueda or set RUEDA_LIBRARY to "
            f"the path of librueda.so."
        ) from None


fast, slow = _load(library_path())

# These never block and are hot, so they have no argtypes (see above).
submit = fast.rueda_submit
submit_for_wait = fast.rueda_submit_for_wait
is_initialized = fast.rueda_is_initialized
rank = fast.rueda_rank
size = fast.rueda_size
local_rank = fast.rueda_local_rank
local_size = fast.rueda_local_size
cross_rank = fast.rueda_cross_rank
cross_size = fast.rueda_cross_size
is_homogeneous = fast.rueda_is_homogeneous
health = fast.rueda_health
epoch = fast.rueda_epoch
epoch.restype = c_int64


def _typed(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """A function of the library that checks its arguments, among them handles, which have 64 bits."""
    function = library[f"rueda_{name}"]
    function.restype, function.argtypes = result, arguments
    return function


# These never block and are called once or twice per operation.
poll = _typed(fast, "poll", c_int, c_int64)
result = _typed(fast, "result", c_int, c_int64, c_int32, POINTER(ResultInfo))
detach = _typed(fast, "detach", c_void_p, c_int64, c_int32)
free = _typed(fast, "free", None, c_void_p)
release = _typed(fast, "release", None, c_int64)
release_on_stream = _typed(fast, "release_on_stream", c_int, c_int64, c_int32, c_void_p)
device_of = _typed(fast, "device_of", c_int, c_void_p)
order_streams = _typed(fast, "order_streams", c_int, c_int32, c_void_p, c_void_p)
copy_on_stream = _typed(fast, "copy_on_stream", c_int, c_int32, c_void_p, c_void_p, c_void_p, c_size_t)
is_shared_buffer = _typed(fast, "is_shared_buffer", c_int, c_void_p)
trim_memory = _typed(fast, "trim_memory", None)
# Takes the address of a C function: a Python callback would need the GIL.
on_done = _typed(fast, "on_done", c_int, c_int64, c_void_p, c_void_p)
process_set_ids = _typed(fast, "process_set_ids", c_int, POINTER(c_int32), c_int32)
process_set_ranks = _typed(fast, "process_set_ranks", c_int, c_int32, POINTER(c_int32), c_int32)

free_signal = _typed(fast, "free_signal", c_int)
set_python_stacks = _typed(fast, "set_python_stacks", c_int, POINTER(PythonStacks))

mark_step = _typed(fast, "mark_step", None, c_int64)
rescale_residuals = _typed(fast, "rescale_residuals", c_int, c_double)
save_residuals = _typed(
    fast, "save_residuals", c_int64, c_int32, POINTER(c_char_p), c_int32, c_void_p, c_int64
)
load_residuals = _typed(fast, "load_residuals", c_int, c_char_p, c_int64)
mark_input = _typed(fast, "mark_input", None, c_int64)
begin_input = _typed(fast, "begin_input", None)

# These wait.
init = _typed(slow, "init", c_int, POINTER(InitOptions))
shutdown = _typed(slow, "shutdown", None)
wait = _typed(slow, "wait", c_int, c_int64, c_double)
wait_on_stream = _typed(slow, "wait_on_stream", c_int, c_int64, c_void_p, c_double)
alloc_on_device = _typed(slow, "alloc_on_device", c_int, c_int32, c_size_t, POINTER(c_void_p))
release_on_device = _typed(slow, "release_on_device", None, c_int32, c_void_p)
add_process_set = _typed(slow, "add_process_set", c_int, POINTER(c_int32), c_int32, POINTER(c_int32))
remove_process_set = _typed(slow, "remove_process_set", c_int, c_int32)
start_timeline = _typed(slow, "start_timeline", c_int, c_char_p, c_int)
stop_timeline = _typed(slow, "stop_timeline", c_int)
write_flight_record = _typed(slow, "write_flight_record", c_int, c_char_p)

_is_elastic = _typed(fast, "is_elastic", c_int)
_elastic_join = _typed(slow, "elastic_join", c_int, POINTER(ElasticJoinOptions))
_elastic_committed = _typed(slow, "elastic_committed", None, c_int64)
_elastic_news = _typed(fast, "elastic_news", c_int, POINTER(ElasticNewsInfo))

# These return text. It is copied at once: the pointer is valid until the thread's next call of the library.
_last_error = _typed(fast, "last_error", c_char_p)
_error = _typed(fast, "error", c_char_p, c_int64)
_describe = _typed(fast, "describe", c_char_p)
_metrics = _typed(fast, "metrics", c_char_p)
_stacks = _typed(slow, "stacks", c_char_p)
_elastic_view = _typed(fast, "elastic_view", c_char_p)
_version = _typed(fast, "version", c_char_p)
_log = _typed(fast, "log", None, c_int, c_char_p)


LARGEST_INT32 = 2**31 - 1


def fits_int32(number: int) -> bool:
    """Whether ctypes passes the number unchanged. It silently cuts off what is beyond 32 bits."""
    return -LARGEST_INT32 - 1 <= number <= LARGEST_INT32


def check_text(text: Any, what: str) -> None:
    """Raises TypeError for anything but text. what: the word for it ("name")."""
    if not isinstance(text, str):
        raise TypeError(f"The {what} has to be a string, not {type(text).__name__} ({text!r}).")


def c_text(text: str, what: str, encoding: str = "utf-8") -> bytes:
    """Text as the C ABI takes it. what: the word for it ("name"). Raises TypeError for anything but text, and
    ValueError for text that a C string cannot hold.
    """
    check_text(text, what)
    if "\0" in text:
        raise ValueError(f"The {what} {text!r} holds a NUL character; leave it out.")
    try:
        return text.encode(encoding, "surrogateescape")  # file names may hold bytes that are not UTF-8
    except UnicodeEncodeError as error:
        raise ValueError(
            f"The {what} {text!r} holds {text[error.start]!r}, which {encoding} cannot encode; leave it out."
        ) from None


def last_error() -> str:
    """Why the last call of this thread failed."""
    return _text(_last_error())


def error(handle: int) -> str:
    """Why the operation behind the handle failed."""
    return _text(_error(handle))


def describe() -> str:
    """What the engine found and chose, as JSON."""
    return _text(_describe())


def metrics() -> str:
    """Counters, gauges and histograms of this process, as JSON."""
    return _text(_metrics())


def stacks() -> str:
    """The stacks of all threads of this process, as JSON. Blocks for about a second at most."""
    return _text(_stacks())


def version() -> str:
    """Version of the library, for instance "0.1.0"."""
    return _text(_version())


LOG_INFO, LOG_WARNING = 2, 3


def log(level: int, text: str) -> None:
    """Writes a record to the engine's log, which RUEDA_LOG_LEVEL filters."""
    _log(level, text.encode())


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace")


class View(NamedTuple):
    """The members of an elastic job, as this process sees them."""

    number: int
    rank: int  # -1: this process does not belong to it, nor to any later view
    size: int
    commit: int  # the newest that a member holds; -1: none
    holders: tuple[int, ...]  # the ranks that hold it
    joined: tuple[int, ...]  # the ranks that are new in this view
    lost: tuple[str, ...]  # the uids of the last view that are gone


class News(NamedTuple):
    """What the launcher of an elastic job has said."""

    hosts_added: bool
    hosts_removed: bool
    at_commit: int  # all members leave the view when they hold this commit; -1: they stay
    leave: bool  # this process does not belong to the next view


def is_elastic() -> bool:
    """Whether this process belongs to a job of `rueda run --min-np`."""
    return bool(_is_elastic())


def elastic_join(commit: int, digest: bytes, timeout_s: float) -> View:
    """Waits for the next view; this process is in no epoch. The next init takes part in the view.

    commit: the newest state that this process holds, -1 for none. digest: of the names, shapes and types of
    its state, at most 256 bytes. timeout_s: 0 means `--elastic-timeout`. Raises RuedaError with one sentence
    if there is no view for this process, and what a handler of a signal raises meanwhile.
    """
    raised: list[BaseException] = []
    is_interrupted = IsInterrupted(interruption.run_signal_handlers(raised))
    options = ElasticJoinOptions(
        ctypes.sizeof(ElasticJoinOptions), 0, commit, digest, len(digest), timeout_s, is_interrupted
    )
    if _elastic_join(ctypes.byref(options)) != OK:
        if raised:
            raise raised[0]
        raise errors.RuedaError(last_error())
    os.environ.pop("RUEDA_JOINER", None)  # this process is a member now
    found: dict[str, Any] = json.loads(_text(_elastic_view()))
    for name in ("holders", "joined", "lost"):
        found[name] = tuple(found[name])
    return View(**found)


def elastic_committed(commit: int) -> None:
    """This process holds this commit. Waits only where the members may be about to leave the view."""
    _elastic_committed(commit)


def elastic_news() -> News:
    """What the launcher has said; never blocks."""
    info = ElasticNewsInfo(ctypes.sizeof(ElasticNewsInfo))
    _elastic_news(ctypes.byref(info))
    return News(
        bool(info.are_hosts_added), bool(info.are_hosts_removed), info.at_commit, bool(info.does_leave)
    )
