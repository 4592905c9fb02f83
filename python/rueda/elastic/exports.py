"""What `hvd.elastic` of every front end offers under the same names."""

from __future__ import annotations

from rueda.elastic.ledger import Ledger, StreamLedger
from rueda.elastic.loop import run_fn
from rueda.elastic.notices import HostUpdateResult, notification_manager
from rueda.elastic.state import ObjectState, State
from rueda.elastic.view_sets import process_sets
from rueda.errors import HorovodInternalError, HostsUpdatedInterrupt

__all__ = [
    "HorovodInternalError",
    "HostUpdateResult",
    "HostsUpdatedInterrupt",
    "Ledger",
    "ObjectState",
    "State",
    "StreamLedger",
    "notification_manager",
    "process_sets",
    "run_fn",
]
