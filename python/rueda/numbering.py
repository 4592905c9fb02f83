"""The numbers of handles, and those in the names of operations that the user gave no name."""

from __future__ import annotations

import threading

from rueda import epochs
from rueda.process_sets import process_set_table


class Numbers:
    """Handle numbers, and the numbers in the names of unnamed operations. Any thread, `with` it.

    Handles count all operations of this process from 1. Names count per process set, since only its members
    can keep in step; as long as only the world is used the two agree. Both start again with each epoch.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a handler of a signal may start one while another one starts
        self._epoch = epochs.NONE
        self.last_handle = 0
        self._last_in_set: dict[int, int] = {}

    def __enter__(self) -> None:
        self._lock.acquire()
        epoch = epochs.current()
        if epoch != self._epoch:
            self._epoch, self.last_handle, self._last_in_set = epoch, 0, {}

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def next_in_set(self, set_id: int) -> int:
        """The number for a name, not yet taken."""
        return self._last_in_set.get(set_id, 0) + 1

    def take(self, set_id: int) -> int:
        """Counts one operation and returns its handle."""
        self._last_in_set[set_id] = self.next_in_set(set_id)
        self.last_handle += 1
        return self.last_handle

    def restart(self, set_id: int) -> None:
        """A new set has this id: its ranks count from 1, whatever a set before it had counted."""
        with self:
            self._last_in_set.pop(set_id, None)

    def skip(self, set_id: int, count: int) -> None:
        """Counts operations that were started without taking a number."""
        self._last_in_set[set_id] = self._last_in_set.get(set_id, 0) + count
        self.last_handle += count

    def align(self, tag: int) -> None:
        """After a join: goes on from the largest number of all ranks, so that their names agree again."""
        self.last_handle = max(self.last_handle, tag)
        self._last_in_set[0] = max(self._last_in_set.get(0, 0), tag)


numbers = Numbers()
process_set_table.on_new_set = numbers.restart
