"""What runs in a Spark task of an elastic job: it offers its slot to the driver."""

from __future__ import annotations

import os
from typing import Any

from rueda.offers import offer as offering
from rueda.spark.parent import Parent
from rueda.spark.task import gpus


def offer(context: Any, driver: tuple[str, int], key: bytes) -> None:
    """Returns when the job is over, or the agent has ended. context: pyspark's TaskContext."""
    parent = Parent()
    try:
        said = offering.describe(1, gpus(context), part=str(os.getppid()))  # of this executor
        offering.serve(driver, key, said, parent.is_gone)
    finally:
        parent.close()
