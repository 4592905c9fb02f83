"""The horovodrun command: `rueda run`, which takes Horovod's flags and prints what Horovod prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from horovod._absent import absent


def command_line(arguments: Sequence[str]) -> list[str]:
    """The command that does what horovodrun is asked to do."""
    from rueda.run import find_command

    return [find_command(), "run", "--horovod-output", *arguments]


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


parse_args = absent(
    "horovod.runner.launch.parse_args",
    "give the arguments to horovod.runner.launch.run_commandline(arguments)",
)

if __name__ == "__main__":
    main()
