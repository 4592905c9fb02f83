"""What an elastic job is started with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from horovod.runner.common.util.settings import BaseSettings


@dataclass
class ElasticSettings(BaseSettings):
    """Of an elastic job. discovery: finds its hosts, see `horovod.runner.elastic.discovery`. cooldown_range
    has no effect: slots that have failed rest for 1, 2, 4 ... 60 s.
    """

    discovery: Any = None
    min_num_proc: int | None = None
    max_num_proc: int | None = None
    elastic_timeout: float | None = None
    reset_limit: int | None = None
    cooldown_range: Any = None
    elastic: bool = True
