"""A limit for several waits together."""

from __future__ import annotations

import time


class TimeoutException(Exception):
    """The time is over."""


class Timeout:
    """timeout: seconds from now. message: has a place for {activity} and may have one for {timeout}."""

    def __init__(self, timeout: float, message: str) -> None:
        self._timeout = timeout
        self._end = time.monotonic() + timeout
        self._message = message

    def remaining(self) -> float:
        """Seconds; never negative."""
        return max(0.0, self._end - time.monotonic())

    def timed_out(self) -> bool:
        """Whether nothing remains."""
        return time.monotonic() > self._end

    def check_time_out_for(self, activity: str) -> None:
        """Raises TimeoutException if the time is over."""
        if self.timed_out():
            raise TimeoutException(self._message.format(activity=activity, timeout=self._timeout))
