"""What a state hears about hosts that come and go, under the names of Horovod."""

from __future__ import annotations

import queue
import time
from typing import Any

from rueda.elastic import membership
from rueda.elastic.membership import News


class HostUpdateResult:
    """What has happened to the hosts; numbers that may be combined with |."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


def result_of(news: News) -> int:
    """The news as a HostUpdateResult."""
    removed = HostUpdateResult.removed if news.hosts_removed else HostUpdateResult.no_update
    return removed | (HostUpdateResult.added if news.hosts_added else HostUpdateResult.no_update)


class HostMessages(queue.Queue[Any]):
    """The queue of (timestamp, HostUpdateResult) of a state. Looking into it asks the engine for news."""

    def __init__(self) -> None:
        super().__init__()
        self._heard = News()

    def empty(self) -> bool:
        """Whether nothing has been heard that was not taken."""
        news = membership.current().news()
        if news != self._heard:
            self._heard = news
            if result_of(news) != HostUpdateResult.no_update:
                self.put((time.time(), result_of(news)))
        return super().empty()


class WorkerNotificationManager:
    """Tells states what somebody says about hosts. The states ask the engine themselves, so only programs
    that Horovod's launcher would call use it.
    """

    def __init__(self) -> None:
        self._listeners: list[Any] = []

    def init(self, *arguments: Any, **settings: Any) -> None:
        """Nothing to start: there is no service that listens."""

    def register_listener(self, listener: Any) -> None:
        """listener: has on_hosts_updated(timestamp, update_res)."""
        if listener not in self._listeners:
            self._listeners.append(listener)

    def remove_listener(self, listener: Any) -> None:
        """Forgets it, if it is known."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def handle_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Tells all listeners."""
        for listener in list(self._listeners):
            listener.on_hosts_updated(timestamp, update_res)


notification_manager = WorkerNotificationManager()
