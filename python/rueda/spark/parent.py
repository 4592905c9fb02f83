"""The process that has started this one: the daemon of Spark's Python workers, or the JVM of an executor."""

from __future__ import annotations

import contextlib
import os
import select
from typing import Optional


class Parent:
    """Knows when the parent that this process has now is gone. Close it afterwards.

    A descriptor of the process tells it at once and cannot mean another one: not a later process with the
    same number, and not the one that takes orphans. Where the kernel has no such descriptors, the number of
    the parent changes when it ends.
    """

    def __init__(self) -> None:
        self._pid = os.getppid()
        self.fd: Optional[int] = None  # readable when the parent has ended; for selectors
        with contextlib.suppress(AttributeError, OSError):  # before Linux 5.3, or forbidden in a container
            self.fd = os.pidfd_open(self._pid)

    def is_gone(self) -> bool:
        """Whether it has ended."""
        if os.getppid() != self._pid:
            return True
        return self.fd is not None and bool(select.select([self.fd], [], [], 0)[0])

    def close(self) -> None:
        """Gives the descriptor back."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None
