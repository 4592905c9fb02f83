"""How a rank hears of hosts that come and go."""

from rueda.elastic.notices import HostUpdateResult, WorkerNotificationManager

__all__ = ["HostUpdateResult", "WorkerNotificationManager"]
