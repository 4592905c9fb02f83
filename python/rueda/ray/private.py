"""What rueda uses of Ray without a promise that it stays: the only module that names it. And the versions of
Ray that rueda takes.
"""

from __future__ import annotations

import re
from typing import Any, Optional

OLDEST = (2, 51)  # the first whose Ray Train is Train V2
TRIED = "2.51 to 2.60"


def version_problem(version: str) -> str:
    """Why this version of Ray cannot be used, in a sentence; empty if it can."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is not None and (int(numbers[1]), int(numbers[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        found = f"rueda.ray needs Ray {oldest} or newer, but Ray {version} is installed"
        return f"{found}: pip install 'rueda-train[ray]'."
    return ""


def has_started_cluster(ray: Any) -> bool:
    """Whether this process has started the cluster itself, with ray.init(); False if Ray no longer tells."""
    started = getattr(getattr(getattr(ray, "_private", None), "worker", None), "_global_node", None)
    return started is not None and bool(getattr(started, "head", False))


def data_parallel_trainer() -> Any:
    """The base of Ray Train's trainers. Raises ImportError in one sentence."""
    try:
        import ray
    except ImportError as error:
        raise ImportError(
            f"rueda.ray.RuedaConfig needs Ray Train: pip install 'rueda-train[ray]'. ({error})"
        ) from None
    if problem := version_problem(ray.__version__):
        raise ImportError(problem)
    try:
        from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
    except ImportError as error:
        raise ImportError(
            f"Ray {ray.__version__} has no Ray Train as rueda knows it ({error}): install 'ray[train]', in a "
            f"version that rueda was tried with ({TRIED})."
        ) from None
    return DataParallelTrainer


def available_by_node(ray: Any) -> Optional[dict[str, dict[str, float]]]:
    """What is free on each node, by its id; None if Ray no longer tells."""
    state = getattr(getattr(ray, "_private", None), "state", None)
    ask = getattr(state, "available_resources_per_node", None)
    return ask() if ask is not None else None
