"""Removes the sockets that killed ranks have left (docs/status.md), as every rank does when it ends.

Processes that outlive ranks of Spark and Ray run this file by its path, without the package: it imports
nothing of it.
"""

from __future__ import annotations

import contextlib
import os
import socket


def folder() -> str:
    """Where ranks with the environment of this process have their sockets."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    return f"{runtime}/rueda" if runtime.startswith("/") else f"/tmp/rueda-{os.geteuid()}"


def remove_dead_sockets() -> None:
    """Only sockets at which nobody listens any more: names are given once, and ranks of other jobs go on."""
    with contextlib.suppress(OSError):
        if os.lstat(folder()).st_uid != os.geteuid():
            return
        for name in os.listdir(folder()):
            path = os.path.join(folder(), name)
            if not name.endswith(".sock"):
                continue
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.setblocking(False)
                try:
                    probe.connect(path)
                except ConnectionRefusedError:
                    os.unlink(path)
                except OSError:
                    continue
