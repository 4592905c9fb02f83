"""The horovodrun command: `rueda run`, which takes Horovod's flags and prints what Horovod prints."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from horovod.runner.arguments import parse_args, words_of
from horovod.runner.elastic import driver

__all__ = ["command_line", "is_gloo_used", "main", "parse_args", "run_commandline", "run_controller"]


def command_line(arguments: Sequence[str]) -> list[str]:
    """The command that does what horovodrun is asked to do."""
    from rueda.run import find_command

    return [find_command(), "run", "--horovod-output", *arguments]


def run_words(words: Sequence[str], env: Mapping[str, str] | None = None) -> None:
    """Runs a job, which ends when this process does. RuntimeError if it failed.

    words: flags and command. env: variables of the ranks, besides those of this process.
    """
    from rueda.run import FAILURE

    whole = command_line([*driver.flags(words), "--watch-stdin", *words])
    variables = {**os.environ, **(env or {})}
    process = subprocess.Popen(whole, env=variables, stdin=subprocess.PIPE, start_new_session=True)
    try:
        status = process.wait()
    except BaseException:  # Ctrl-C: the ranks get a SIGINT and some time
        process.send_signal(signal.SIGINT)
        process.wait()
        raise
    finally:
        if process.stdin is not None:
            process.stdin.close()
    if status != 0:
        raise RuntimeError(FAILURE.format(f"of `{os.path.basename(whole[0])} run`", status))


def run_commandline(arguments: Sequence[str] | None = None) -> None:
    """Becomes the `rueda run` process. Raises SystemExit with one sentence if there is no such command."""
    try:
        command = command_line(sys.argv[1:] if arguments is None else arguments)
    except RuntimeError as error:
        raise SystemExit(f"horovodrun: {error}") from None
    try:
        os.execv(command[0], command)
    except OSError as error:
        raise SystemExit(f"horovodrun: {command[0]} cannot be started ({error.strerror}).") from None


main = run_commandline


def is_gloo_used(
    use_gloo: bool | None = None, use_mpi: bool | None = None, use_jsrun: bool | None = None
) -> bool:
    """Whether the job runs without MPI: always, because MPI has not been built."""
    return not use_mpi and not use_jsrun


def run_controller(
    use_gloo: bool | None,
    gloo_run: Callable[[], Any],
    use_mpi: bool | None,
    mpi_run: Callable[[], Any],
    use_jsrun: bool | None,
    js_run: Callable[[], Any],
    verbosity: int | None,
) -> None:
    """Calls gloo_run(). Raises ValueError if MPI or jsrun is asked for."""
    if use_mpi or use_jsrun:
        raise ValueError(
            "MPI support has not been built. Leave out use_mpi and use_jsrun: rueda needs no MPI."
        )
    gloo_run()


def _run(args: argparse.Namespace) -> None:
    """Runs the job that parsed flags describe, elastic or not. RuntimeError if it failed."""
    run_words(list(words_of(args)))


_run_static = _run_elastic = _run

if __name__ == "__main__":
    main()
