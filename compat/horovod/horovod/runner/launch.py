"""The horovodrun command: `rueda run`, which takes Horovod's flags and prints what Horovod prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


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

if __name__ == "__main__":
    main()
