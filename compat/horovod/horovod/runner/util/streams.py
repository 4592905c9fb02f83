"""A pipe inside one process."""

from __future__ import annotations

import queue


class Pipe:
    """What one thread writes, another reads; `read` waits for the next piece."""

    def __init__(self) -> None:
        self._pieces: queue.Queue[str | bytes | None] = queue.Queue()
        self._rest: str | bytes = ""
        self._is_closed = False

    def write(self, buf: str | bytes) -> None:
        """Raises RuntimeError after close."""
        if self._is_closed:
            raise RuntimeError("The pipe is closed.")
        self._pieces.put(buf)

    def read(self, length: int = -1) -> str | bytes | None:
        """The rest of a piece, or length of it; None when the pipe is closed and empty."""
        if not self._rest:
            piece = self._pieces.get()
            if piece is None:
                self._pieces.put(None)
                return None
            self._rest = piece
        count = len(self._rest) if length < 0 else length
        taken, self._rest = self._rest[:count], self._rest[count:]
        return taken

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Readers get what is left, and then None."""
        if not self._is_closed:
            self._is_closed = True
            self._pieces.put(None)
