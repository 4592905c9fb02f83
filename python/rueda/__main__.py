"""`python -m rueda …` is the `rueda` command of this package, also where its folder is not in PATH."""

from __future__ import annotations

import os
import sys

from rueda.run import find_command


def main() -> None:
    """Becomes the command."""
    try:
        command = find_command()
    except RuntimeError as error:
        sys.exit(f"rueda: {error}")
    os.execv(command, [command, *sys.argv[1:]])


if __name__ == "__main__":
    main()
