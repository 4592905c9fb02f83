"""Files without a name, which hold what no other user and no later job may find: secrets, calls, stacks."""

from __future__ import annotations

import os
import tempfile


def make(name: str) -> int:
    """A descriptor of an empty file that only this user may open, at /proc/self/fd: memory, or a file of the
    folder for temporary files where the host forbids memfd_create. name: what /proc shows of it.
    """
    try:
        fd = os.memfd_create(name)
    except OSError:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.fchmod(fd, 0o600)
    return fd
