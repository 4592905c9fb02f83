"""`rueda.run(func, np=4)`: runs a function in several processes and returns what it returned in each.

The processes are started by the `rueda run` command. The function travels to every host through its agents,
and results come back the same way: no shared file system is needed.
"""

from __future__ import annotations

import numbers
import os
import sys
import warnings
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Optional, Sequence

__all__ = ["run"]

FAILURE = (
    "Horovod detected that one or more processes exited with non-zero status, thus causing the job to be "
    "terminated. The first process to do so was:\nProcess name: {}\nExit code: {}\n"
)
# Appended to the path: the rank may find rueda nowhere else, but its own packages come first.
WORKER = "import sys; sys.path.append({!r}); from rueda._run_worker import main; sys.exit(main())"
ELASTIC = (
    "rueda.run starts a fixed number of processes: leave out min_num_proc, max_num_proc, slots, reset_limit, "
    "cooldown_range and host_discovery_script, or start an elastic job with `rueda run --min-np`."
)

USAGE_ERROR = 2  # exit status of `rueda run` for arguments that it does not accept
OTHER_BUILD = (
    "The rueda command at {} is of another build than the Python package and does not accept its options: "
    "reinstall rueda, or set RUEDA_BIN to the command of this build."
)


class RemoteTraceback(Exception):
    """Shows where in the other process an exception was raised; it is that exception's cause."""

    def __init__(self, rank: int, text: str) -> None:
        super().__init__(rank, text)
        self.rank = rank
        self.text = text

    def __str__(self) -> str:
        return f'\n"""on rank {self.rank}:\n{self.text}"""'


class Outcome(NamedTuple):
    """What one rank left in its result file; the pickles inside are made with cloudpickle or pickle."""

    value: Optional[bytes]  # pickled return value; None if the function raised
    error: Optional[bytes]  # pickled exception; None if it could not be pickled
    traceback: str


def _deprecated(old: str, value: Any, new: str, new_value: Any) -> Any:
    if value is None:
        return new_value
    warnings.warn(f"Argument {old} is deprecated; use {new}.", DeprecationWarning, stacklevel=3)
    return value if new_value is None else new_value


def find_command() -> str:
    """The `rueda` command: RUEDA_BIN, else where pip put it with this package, else beside this Python, else
    from PATH.
    """
    import shutil

    given = os.environ.get("RUEDA_BIN")
    if given and not os.path.exists(given):
        raise RuntimeError(f"There is no rueda command at {given}, which RUEDA_BIN names.")
    beside = os.path.join(os.path.dirname(sys.executable), "rueda")
    known = (path for path in (_installed_command(), beside) if os.path.isfile(path))
    found = given or next(known, None) or shutil.which("rueda")
    if found is None:
        raise RuntimeError(
            "The rueda command is neither beside this package, nor beside this Python, nor in PATH; set "
            "RUEDA_BIN to its path."
        )
    return found


def _installed_command() -> str:
    """Where pip puts the command of this package: PREFIX/bin for PREFIX/lib*/python*/site-packages, and D/bin
    after `pip install --target D`.
    """
    root = _package_root()
    if os.path.basename(root) in ("site-packages", "dist-packages"):
        root = os.path.abspath(os.path.join(root, *[os.pardir] * 3))
    return os.path.join(root, "bin", "rueda")


def _package_root() -> str:
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _pickle_call(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    import pickle

    call = (func, tuple(args), dict(kwargs))
    try:
        import cloudpickle

        body = cloudpickle.dumps(call)
    except ImportError:
        try:
            body = pickle.dumps(call)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise RuntimeError(
                f"{func!r} cannot be sent to the ranks ({error}): install cloudpickle, or use a function "
                "defined at the top level of a module that they can import."
            ) from error
        if getattr(func, "__module__", None) == "__main__":
            raise RuntimeError(
                f"{func!r} is defined in __main__, which the ranks do not have: install cloudpickle, or "
                "move it to a module that they can import."
            ) from None
    return pickle.dumps((list(sys.path), body))


def _read_outcome(directory: str, rank: int) -> Optional[Outcome]:
    """None if the rank ended without one."""
    import pickle

    try:
        with open(os.path.join(directory, f"result.{rank}"), "rb") as file:
            return Outcome(*pickle.load(file))
    except (FileNotFoundError, EOFError, pickle.UnpicklingError):
        return None


def _refusal(directory: str, command: str) -> Exception:
    """The error to raise when the launcher did not accept its arguments; it leaves its sentence in a file."""
    try:
        with open(os.path.join(directory, "refusal")) as file:
            sentence = file.read().strip()
    except FileNotFoundError:
        sentence = ""
    # These options come from here and not from the caller, so only another build can reject one of them.
    if not sentence or "is no option of" in sentence or "not expected" in sentence:
        return RuntimeError(OTHER_BUILD.format(command))
    return ValueError(sentence)


def _failure(directory: str, status: int, size: int, command: str) -> Exception:
    """The error to raise, with the exception of the rank that failed first as its cause, if there is one."""
    import pickle

    try:
        with open(os.path.join(directory, "failure")) as file:
            rank, code = (int(word) for word in file.read().split())
    except (FileNotFoundError, ValueError):
        if status == USAGE_ERROR:
            return _refusal(directory, command)
        return RuntimeError(
            f"rueda run ended with status {status} before all ranks had started; see its messages."
        )
    failure = RuntimeError(FAILURE.format(rank, code))
    # A rank that was killed raised nothing. The exception of another rank then says what that rank noticed.
    for candidate in [rank, *(other for other in range(size) if other != rank)]:
        outcome = _read_outcome(directory, candidate)
        if outcome is None or not outcome.traceback:
            continue
        cause: Optional[BaseException] = None
        if outcome.error is not None:
            try:
                cause = pickle.loads(outcome.error)
            except Exception:  # its class may not exist here, so the text has to do
                cause = None
        if isinstance(cause, BaseException):
            cause.__cause__ = RemoteTraceback(candidate, outcome.traceback)
        failure.__cause__ = cause or RemoteTraceback(candidate, outcome.traceback)
        break
    return failure


def _check(given: Mapping[str, Any]) -> None:
    """Raises TypeError or ValueError for arguments that cannot be meant. given: all of run()'s, by name."""
    _check_kinds(given)
    if given["hosts"] is not None and given["hostfile"] is not None:
        raise ValueError("Argument hosts and hostfile only allow one provided.")
    if given["use_gloo"] and given["use_mpi"]:
        raise ValueError("Argument use_gloo and use_mpi only allow one set True.")
    if given["use_mpi"]:
        raise ValueError("MPI support has not been built. Leave out use_mpi: rueda needs no MPI.")


# Types of arguments of run(), and the words for them.
_KINDS: Mapping[str, tuple[Any, str]] = {
    "args": (Iterable, "a list"),
    "kwargs": (Mapping, "a dict"),
    "num_proc": (numbers.Integral, "an int"),
    "np": (numbers.Integral, "an int"),
    "env": (Mapping, "a dict"),
    "hosts": (str, 'a string such as "a:2,b:2"'),
    "network_interfaces": (Iterable, "a list of names"),
    "executable": ((str, os.PathLike), "a path"),
}


def _check_kinds(given: Mapping[str, Any]) -> None:
    func = given["func"]
    if not callable(func):
        raise TypeError(f"rueda.run: func must be a function, not {type(func).__name__} ({func!r}).")
    for name, (types, word) in _KINDS.items():
        value = given[name]
        if value is not None and not isinstance(value, types):
            raise TypeError(f"rueda.run: {name} must be {word}, not {type(value).__name__} ({value!r}).")


def _refuse_elastic(*values: Any) -> None:
    if any(value is not None for value in values):
        raise ValueError(ELASTIC)


def _given(options: Mapping[str, object]) -> list[str]:
    return [word for name, value in options.items() if value is not None for word in (name, str(value))]


def _join(names: Optional[Iterable[str] | str]) -> Optional[str]:
    return names if names is None or isinstance(names, str) else ",".join(names)


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Optional[Mapping[str, Any]] = None,
    num_proc: Optional[int] = None,
    min_num_proc: Optional[int] = None,
    max_num_proc: Optional[int] = None,
    slots: Optional[int] = None,
    reset_limit: Optional[int] = None,
    cooldown_range: Optional[Sequence[int]] = None,
    hosts: Optional[str] = None,
    hostfile: Optional[str] = None,
    host_discovery_script: Optional[str] = None,
    start_timeout: Optional[float] = None,
    ssh_port: Optional[int] = None,
    ssh_identity_file: Optional[str] = None,
    disable_cache: Optional[bool] = None,
    output_filename: Optional[str] = None,
    verbose: Optional[bool] = None,
    use_gloo: Optional[bool] = None,
    use_mpi: Optional[bool] = None,
    mpi_args: Optional[str] = None,
    network_interface: Optional[str] = None,
    network_interfaces: Optional[Iterable[str] | str] = None,
    executable: Optional[str] = None,
    np: Optional[int] = None,
    min_np: Optional[int] = None,
    max_np: Optional[int] = None,
    *,
    env: Optional[Mapping[str, str]] = None,
) -> list[Any]:
    """Runs `func(*args, **kwargs)` in `num_proc` processes and returns the list of results in rank order.

    np is short for num_proc. hosts: "a:2,b:2" as `rueda run -H`; hostfile: a file of lines "name slots=2";
    default: this machine. env: variables for the ranks, besides those of this process. The other arguments
    mean what the options of `rueda run` mean; `disable_cache` and `use_gloo` change nothing.
    Raises `RuntimeError` if a process failed; its `__cause__` is the exception that `func` raised there, and
    the cause of that shows the remote traceback. Raises `ValueError` for contradictory arguments and for
    those that the launcher refuses, such as more processes than slots, and `TypeError` for wrong kinds.

    >>> rueda.run(lambda x: x * int(os.environ["RUEDA_RANK"]), args=(10,), np=2)
    [0, 10]
    """
    _check(dict(locals()))
    min_num_proc = _deprecated("min_np", min_np, "min_num_proc", min_num_proc)
    max_num_proc = _deprecated("max_np", max_np, "max_num_proc", max_num_proc)
    interfaces = _deprecated("network_interface", network_interface, "network_interfaces", network_interfaces)
    _refuse_elastic(min_num_proc, max_num_proc, slots, reset_limit, cooldown_range, host_discovery_script)
    size = int(np if np is not None else num_proc if num_proc is not None else 1)
    options: dict[str, object] = {
        "--hosts": hosts,
        "--hostfile": hostfile,
        "--start-timeout": start_timeout,
        "--ssh-port": ssh_port,
        "--ssh-identity-file": ssh_identity_file,
        "--output-filename": output_filename,
        "--network-interfaces": _join(interfaces),
        "--mpi-args": mpi_args or None,  # no effect, as the launcher says
    }
    arguments = ["--num-proc", str(size), *(["--verbose"] if verbose else []), *_given(options)]
    call = _pickle_call(func, args, kwargs or {})
    return _run_command(call, arguments, size, (executable or sys.executable, env or {}))


def _run_command(
    stage: bytes, arguments: list[str], size: int, ranks: tuple[str | os.PathLike[str], Mapping[str, str]]
) -> list[Any]:
    import pickle
    import signal
    import subprocess
    import tempfile

    python, env = ranks
    with tempfile.TemporaryDirectory(prefix="rueda-run-") as directory:  # mode 0700
        stage_file = os.path.join(directory, "stage")
        with open(stage_file, "wb") as file:
            file.write(stage)
        command = find_command()
        # --collect-dir comes first: a launcher that cannot parse the rest looks for it only there.
        options = ["--collect-dir", directory, *arguments, "--stage-file", stage_file, "--watch-stdin"]
        # The launcher ends the job when its stdin closes, so also when this process is killed. It has its own
        # session, so that it gets Ctrl-C once, from here.
        launcher = subprocess.Popen(
            [command, "run", *options, python, "-c", WORKER.format(_package_root())],
            stdin=subprocess.PIPE,
            env={**os.environ, **{name: str(value) for name, value in env.items()}},
            start_new_session=True,
        )
        try:
            status = launcher.wait()
        except BaseException:  # Ctrl-C: the ranks get a SIGINT and some time; Ctrl-C again kills them
            launcher.send_signal(signal.SIGINT)
            try:
                launcher.wait()
            except BaseException:
                launcher.send_signal(signal.SIGINT)
                launcher.wait()
                raise
            raise
        finally:
            if launcher.stdin is not None:
                launcher.stdin.close()
        outcomes = [_read_outcome(directory, rank) for rank in range(size)]
        if status != 0:
            raise _failure(directory, status, size, command)
        results: list[Any] = []
        for rank, outcome in enumerate(outcomes):
            if outcome is None or outcome.value is None:
                raise RuntimeError(f"Rank {rank} ended well but left no result; did func call os._exit?")
            results.append(pickle.loads(outcome.value))
        return results
