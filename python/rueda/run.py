"""`rueda.run(func, np=4)`: runs a function in several processes and returns what it returned in each.

The processes are started by the `rueda run` command. The function travels to every host through its agents,
and results come back the same way: no shared file system is needed.
"""

from __future__ import annotations

import numbers
import os
import subprocess
import sys
import threading
import warnings
from typing import IO, Any, Callable, Iterable, Mapping, NamedTuple, Optional, Sequence, TextIO

from rueda import outcomes
from rueda.outcomes import FAILURE, Outcome, RemoteTraceback

__all__ = ["FAILURE", "Outcome", "RemoteTraceback", "run"]

_LOOK_SECONDS = 0.25
# Appended to the path: the rank may find rueda nowhere else, but its own packages come first.
WORKER = "import sys; sys.path.append({!r}); from rueda._run_worker import main; sys.exit(main())"
NOT_ELASTIC = (
    "rueda.run: {} belongs to elastic jobs; give min_num_proc or host_discovery_script as well, or leave it "
    "out."
)


_ELASTIC_OPTIONS = (
    "min_num_proc",
    "max_num_proc",
    "host_discovery_script",
    "slots",
    "reset_limit",
    "spares",
    "elastic_timeout",
)


class Launch(NamedTuple):
    """How `rueda run` is started, and what becomes of the folder that it leaves."""

    command: Sequence[str | os.PathLike[str]]  # of each rank
    env: Mapping[str, str]  # of the launcher
    read: Callable[[str], list[Any]]  # the results; raises RuntimeError if there are none
    folder: Optional[str] = None  # where it runs; None: where this process does
    attend: Optional[Callable[[], None]] = None  # called a few times a second; what it raises ends the job
    out: Optional[TextIO] = None  # for the output of the job; None: that of this process
    err: Optional[TextIO] = None


def deprecated(old: str, value: Any, new: str, new_value: Any) -> Any:
    """The value of an argument that has an older name."""
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


def pickle_call(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
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
    "min_num_proc": (numbers.Integral, "an int"),
    "max_num_proc": (numbers.Integral, "an int"),
    "min_np": (numbers.Integral, "an int"),
    "max_np": (numbers.Integral, "an int"),
    "host_discovery_script": ((str, os.PathLike), "a command"),
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


def _is_elastic(given: Mapping[str, Any]) -> bool:
    """Whether the job is elastic. given: the arguments of elastic jobs, by name."""
    if given["min_num_proc"] is not None or given["host_discovery_script"] is not None:
        return True
    for name, value in given.items():
        if value is not None:
            raise ValueError(NOT_ELASTIC.format(name))
    return False


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
    spares: Optional[int] = None,
    elastic_timeout: Optional[float] = None,
) -> list[Any]:
    """Runs `func(*args, **kwargs)` in `num_proc` processes and returns the list of results in rank order.

    np is short for num_proc. hosts: "a:2,b:2" as `rueda run -H`; hostfile: a file of lines "name slots=2";
    default: this machine. env: variables for the ranks, besides those of this process. The other arguments
    mean what the options of `rueda run` mean; `disable_cache` and `use_gloo` change nothing.

    With min_num_proc or host_discovery_script the job is elastic: processes come and go, and the results are
    those of the last members, in the order of their ranks. num_proc is then min_num_proc if it is not given.

    Raises `RuntimeError` if a process failed; its `__cause__` is the exception that `func` raised there, and
    the cause of that shows the remote traceback. Raises `ValueError` for contradictory arguments and for
    those that the launcher refuses, such as more processes than slots, and `TypeError` for wrong kinds.

    >>> rueda.run(lambda x: x * int(os.environ["RUEDA_RANK"]), args=(10,), np=2)
    [0, 10]
    """
    _check(dict(locals()))
    min_num_proc = deprecated("min_np", min_np, "min_num_proc", min_num_proc)
    max_num_proc = deprecated("max_np", max_np, "max_num_proc", max_num_proc)
    interfaces = deprecated("network_interface", network_interface, "network_interfaces", network_interfaces)
    elastic: dict[str, Any] = {
        "min_num_proc": min_num_proc,
        "max_num_proc": max_num_proc,
        "host_discovery_script": host_discovery_script,
        "slots": slots,
        "reset_limit": reset_limit,
        "cooldown_range": cooldown_range,
        "spares": spares,
        "elastic_timeout": elastic_timeout,
    }
    is_elastic = _is_elastic(elastic)
    size = next(int(one) for one in (np, num_proc, min_num_proc, 1) if one is not None)
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
    arguments += _given({"--" + name.replace("_", "-"): elastic[name] for name in _ELASTIC_OPTIONS})
    if cooldown_range is not None:  # no effect, as the launcher says
        arguments += ["--blacklist-cooldown-range", *map(str, cooldown_range)]
    command = [executable or sys.executable, "-c", WORKER.format(_package_root())]
    variables = {**os.environ, **{name: str(value) for name, value in (env or {}).items()}}
    read = outcomes.of_last_view if is_elastic else outcomes.of_all(size)
    return run_launcher(pickle_call(func, args, kwargs or {}), arguments, Launch(command, variables, read))


def _wait(launcher: subprocess.Popen[bytes], attend: Optional[Callable[[], None]]) -> int:
    if attend is None:
        return launcher.wait()
    while True:
        try:
            return launcher.wait(_LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            attend()


def _read_into(*pairs: tuple[Optional[IO[bytes]], Optional[TextIO]]) -> list[threading.Thread]:
    """Threads that write what comes out of pipes into text streams, line by line."""

    def copy(pipe: IO[bytes], stream: TextIO) -> None:
        with pipe:
            for line in pipe:
                stream.write(line.decode(errors="replace"))
                stream.flush()

    readers = [
        threading.Thread(target=copy, args=(pipe, stream), daemon=True)
        for pipe, stream in pairs
        if pipe is not None and stream is not None
    ]
    for reader in readers:
        reader.start()
    return readers


def run_launcher(stage: bytes, arguments: Sequence[str], launch: Launch) -> list[Any]:
    """The results of a job. stage: what the ranks get; arguments: options of `rueda run`.

    Raises RuntimeError if the job failed, and ValueError with one sentence if the launcher refuses an option.
    """
    import signal
    import tempfile

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
            [command, "run", *options, *launch.command],
            stdin=subprocess.PIPE,
            env=dict(launch.env),
            cwd=launch.folder,
            stdout=None if launch.out is None else subprocess.PIPE,
            stderr=None if launch.err is None else subprocess.PIPE,
            start_new_session=True,
        )
        readers = _read_into((launcher.stdout, launch.out), (launcher.stderr, launch.err))
        try:
            status = _wait(launcher, launch.attend)
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
            for reader in readers:
                reader.join()
        if status != 0:
            raise outcomes.failure(directory, status, command)
        return launch.read(directory)
