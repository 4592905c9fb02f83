"""What the states and the loops of all front ends have in common."""

from rueda.elastic.loop import run_fn
from rueda.elastic.notices import WorkerNotificationManager, notification_manager
from rueda.elastic.state import ObjectState, State

__all__ = ["ObjectState", "State", "WorkerNotificationManager", "notification_manager", "run_fn"]
