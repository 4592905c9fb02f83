"""What a job asks Ray for, and whether a cluster can give it. Values in, values out.

A bundle is a set of resources on one node, and a placement group holds bundles; both are Ray's words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
_EPSILON = 1e-6  # Ray counts resources in units of 0.0001


@dataclass(frozen=True)
class Shape:
    """How many ranks, what each needs, and how they lie on nodes."""

    num_workers: int
    cpus: float = 1.0
    gpus: int = 0
    strategy: str = "PACK"
    per_host: Optional[int] = None  # so many ranks on each of num_workers / per_host nodes

    @property
    def needs(self) -> dict[str, float]:
        """What one rank takes."""
        wanted = {"CPU": float(self.cpus), "GPU": float(self.gpus)}
        return {name: amount for name, amount in wanted.items() if amount > 0}

    def sentence(self) -> str:
        """What is asked for, in words."""
        needs = " and ".join(f"{amount:g} {name}" for name, amount in self.needs.items()) or "no CPU"
        if self.per_host is not None:
            return f"{self.num_workers // self.per_host} nodes with {self.per_host} ranks of {needs} each"
        where = {"STRICT_PACK": " on one node", "STRICT_SPREAD": " on a node of its own each"}
        return (
            f"{self.num_workers} rank{'s' * (self.num_workers > 1)} of {needs}{where.get(self.strategy, '')}"
        )


def make_shape(
    num_workers: Optional[int],
    num_hosts: Optional[int],
    per_host: Optional[int],
    cpus: float,
    gpus: float,
    strategy: str,
) -> Shape:
    """The shape from a user's arguments. Raises ValueError in one sentence if they contradict one another."""
    if (num_workers is None) == (num_hosts is None):
        raise ValueError("Give either num_workers or num_hosts (with num_workers_per_host), and not both.")
    counts = {"num_workers": num_workers, "num_hosts": num_hosts, "num_workers_per_host": per_host}
    for name, count in counts.items():
        if count is not None and (isinstance(count, bool) or int(count) != count or count < 1):
            raise ValueError(f"{name} must be a whole number of at least 1, not {count!r}.")
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}, not {strategy!r}.")
    if cpus < 0 or gpus < 0:
        raise ValueError("A rank cannot need fewer than 0 CPUs or GPUs.")
    if int(gpus) != gpus:
        raise ValueError(
            f"gpus_per_worker must be a whole number, not {gpus:g}: ranks do not share GPUs, because a "
            "rank finds its own by its local rank."
        )
    if num_hosts is not None:
        return Shape(num_hosts * (per_host or 1), cpus, int(gpus), "STRICT_SPREAD", per_host or 1)
    assert num_workers is not None
    return Shape(num_workers, cpus, int(gpus), strategy)


def bundles_of(shape: Shape) -> list[dict[str, float]]:
    """What the placement group is made of: one bundle per rank, or per node where nodes are counted."""
    ranks = shape.per_host or 1
    bundle = {name: amount * ranks for name, amount in shape.needs.items()}
    return [bundle or {"CPU": 0.001}] * (shape.num_workers // ranks)  # Ray refuses empty bundles


def fits(resources: Mapping[str, float], needs: Mapping[str, float]) -> int:
    """How many ranks fit into these resources; many, if a rank needs nothing."""
    room = [int(resources.get(name, 0) / amount + _EPSILON) for name, amount in needs.items()]
    return min(room, default=1 << 20)


def capacity(nodes: Sequence[Mapping[str, float]], shape: Shape) -> int:
    """How many ranks of this shape the nodes can hold at once, if nobody else uses them."""
    room = [fits(node, shape.needs) for node in nodes]
    if shape.per_host is not None:
        return shape.per_host * sum(one >= shape.per_host for one in room)
    if shape.strategy == "STRICT_PACK":
        return max(room, default=0)
    if shape.strategy == "STRICT_SPREAD":
        return sum(one >= 1 for one in room)
    return sum(room)


def too_few(shape: Shape, room: int) -> str:
    """The sentence for a job that does not fit."""
    if room == 0:
        return (
            f"rueda.ray was asked for {shape.sentence()}, but no node of this Ray cluster has room for one; "
            "ask for less per rank, or add nodes."
        )
    return (
        f"rueda.ray was asked for {shape.sentence()}, but this Ray cluster has room for {room} such ranks in "
        f"total; ask for at most {room}, for less per rank, or add nodes."
    )


def too_late(shape: Shape, room: int, free: int, seconds: float) -> str:
    """The sentence for a placement group that did not come in time."""
    return (
        f"Ray did not place {shape.sentence()} within {seconds:g} s: the cluster has room for {room} such "
        f"ranks in total and for {free} besides what runs now; ask for fewer, wait longer "
        "(placement_timeout), or add nodes."
    )


def choose_bundles(specs: Sequence[Mapping[str, float]], shape: Shape) -> list[int]:
    """The bundle of each rank in a placement group that somebody else has made, such as Tune for a trial.

    The first bundle is used last, because the caller usually runs there. Raises ValueError if there are too
    few.
    """
    room = {index: min(fits(spec, shape.needs), shape.num_workers) for index, spec in enumerate(specs)}
    order = [*range(1, len(specs)), 0] if specs else []
    chosen = [index for index in order for _ in range(room[index])]
    if len(chosen) < shape.num_workers:
        raise ValueError(
            f"rueda.ray was asked for {shape.sentence()}, but the placement group in which the caller runs "
            f"has room for {len(chosen)}; make it larger (for Tune: tune.PlacementGroupFactory), or give "
            "use_current_placement_group=False."
        )
    return sorted(chosen[: shape.num_workers])


def in_rank_order(bundles: Sequence[int], address_of: Mapping[int, Any]) -> list[int]:
    """The bundles of the ranks, so that those of one node are adjacent."""
    first_seen: dict[Any, int] = {}
    for bundle in bundles:
        first_seen.setdefault(address_of[bundle], len(first_seen))
    return sorted(bundles, key=lambda bundle: (first_seen[address_of[bundle]], bundle))


def visible_gpus(gpus_of_ranks: Sequence[Sequence[str]]) -> str:
    """CUDA_VISIBLE_DEVICES for all ranks of one host, which come in the order of their local ranks. So local
    rank i finds its GPU as device i, and GPUs of one host can reach one another.
    """
    return ",".join(dict.fromkeys(gpu for gpus in gpus_of_ranks for gpu in gpus))
