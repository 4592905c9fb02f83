"""How many tasks this Spark application can run at once, and how many it can ever run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Optional

# A cluster that has not offered another slot for so long offers no more, unless Spark says how many will
# come.
QUIET_SECONDS = 10.0
_SPECULATION = (
    "spark.dynamicAllocation.enabled and spark.speculation are both true: Spark could then start a rank "
    "twice; set one of them to false for this application."
)


def expected_slots(master: str, settings: Mapping[str, str]) -> Optional[int]:
    """How many tasks can run at once when all executors are there; None if Spark does not know it in
    advance.
    """
    per_task = int(settings.get("spark.task.cpus", "1"))
    if re.fullmatch(r"local(\[.*\])?", master):
        return None  # all slots are there from the start
    if found := re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]", master):
        return int(found[1]) * (int(found[2]) // per_task)
    executors, cores = settings.get("spark.executor.instances"), settings.get("spark.executor.cores")
    if executors is None or (cores is None and not master.startswith(("yarn", "k8s"))):
        return None
    return int(executors) * (int(cores or "1") // per_task)


def most_slots(master: str, settings: Mapping[str, str]) -> Optional[int]:
    """How many tasks can run at once when dynamic allocation has made room; None if it is not known."""
    if re.fullmatch(r"local-cluster\[.*\]", master):
        return expected_slots(master, settings)
    most = settings.get("spark.dynamicAllocation.maxExecutors")
    return expected_slots(master, {**settings, "spark.executor.instances": most}) if most else None


def too_few(wanted: int, available: int) -> str:
    """The sentence for a job that does not fit."""
    return (
        f"rueda.spark.run was asked for {wanted} ranks, but this Spark application can run {available} "
        f"tasks at once; lower num_proc to {available}, or give it more executors or cores "
        "(spark.executor.instances, spark.dynamicAllocation.maxExecutors, spark.executor.cores, "
        "spark.task.cpus)."
    )


def _is_on(settings: Mapping[str, str], name: str) -> bool:
    return settings.get(name, "false").lower() == "true"


def is_dynamic(settings: Mapping[str, str]) -> bool:
    """Whether executors come and go with the load."""
    return _is_on(settings, "spark.dynamicAllocation.enabled")


def check_dynamic(master: str, settings: Mapping[str, str], size: int) -> None:
    """Raises RuntimeError or ValueError where ranks cannot run with dynamic allocation."""
    if _is_on(settings, "spark.speculation"):
        raise RuntimeError(_SPECULATION)
    most = most_slots(master, settings)
    if most is not None and most < size:
        raise ValueError(too_few(size, most))


class SlotWatch:
    """Decides when to begin, to wait or to refuse; `look` is called with the slots that there are now."""

    def __init__(self, wanted: int, expected: Optional[int], is_local: bool, now: float) -> None:
        self._wanted = wanted
        self._expected = expected
        self._is_local = is_local
        self._most = 0
        self._grew_at = now

    def look(self, available: int, now: float) -> bool:
        """Whether there are enough. Raises ValueError when there will not be."""
        if available >= self._wanted:
            return True
        if available > self._most:
            self._most, self._grew_at = available, now
        is_final = self._is_local or now - self._grew_at > QUIET_SECONDS
        if self._expected is not None:
            is_final = self._expected < self._wanted
            available = max(available, self._expected)
        if is_final:
            raise ValueError(too_few(self._wanted, available))
        return False


def count_slots(context: Any) -> Callable[[], int]:
    """A function that asks Spark how many tasks can run at once now; it is the question that Spark itself
    asks before it starts a barrier stage.
    """
    scala = context._jsc.sc()
    profile = scala.resourceProfileManager().defaultResourceProfile()
    return lambda: int(scala.maxNumConcurrentTasks(profile))
