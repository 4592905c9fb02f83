"""The placement group of a job: Ray's promise of a bundle for each rank."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rueda.ray import bundles, private

DEFAULT_SECONDS = 100.0
NEWS_SECONDS = 5.0
_LOOK_SECONDS = 0.1


class Refusals(NamedTuple):
    """What is raised where ranks cannot be placed."""

    never: type[Exception] = ValueError  # the cluster is too small and gets no other node
    in_time: type[Exception] = RuntimeError


_USUAL = Refusals()


def _nodes() -> list[Mapping[str, Any]]:
    import ray

    return [node for node in ray.nodes() if node.get("Alive")]


def refuse_too_few(shape: bundles.Shape, refusals: Refusals = _USUAL) -> None:
    """Raises refusals.never if the cluster is too small and gets no other node, because this process has
    started it with ray.init().
    """
    import ray

    if private.has_started_cluster(ray):
        room = bundles.capacity([node["Resources"] for node in _nodes()], shape)
        if room < shape.num_workers:
            raise refusals.never(bundles.too_few(shape, room))


class Placing:
    """A placement group that this job has made, or that of the caller. tell(line) shows news."""

    def __init__(
        self, shape: bundles.Shape, tell: Callable[[str], None], refusals: Refusals = _USUAL
    ) -> None:
        self.group: Any = None
        self._is_own = False
        self._shape = shape
        self._tell = tell
        self._refusals = refusals

    def make(self, may_share: bool, seconds: float) -> list[int]:
        """Returns the bundle of each rank.

        Raises what the refusals name if there cannot be enough room, or is none within so many seconds, and
        ValueError if the caller's placement group has too few bundles.
        """
        import ray

        current = ray.util.get_current_placement_group() if may_share else None
        if current is not None:
            self.group = current
            chosen = bundles.choose_bundles(current.bundle_specs, self._shape)
        else:
            self._wait(seconds)
            count = len(bundles.bundles_of(self._shape))
            chosen = [bundle for bundle in range(count) for _ in range(self._shape.per_host or 1)]
        node_of = ray.util.placement_group_table(self.group)["bundles_to_node_id"]
        addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in _nodes()}
        # By address, so that two nodes of one machine are adjacent.
        return bundles.in_rank_order(
            chosen, {bundle: addresses.get(node_of[bundle], node_of[bundle]) for bundle in chosen}
        )

    def remove(self) -> None:
        """Gives the bundles back."""
        import ray

        if self._is_own:
            ray.util.remove_placement_group(self.group)
            self._is_own = False

    def _room(self) -> int:
        return bundles.capacity([node["Resources"] for node in _nodes()], self._shape)

    def _wait(self, seconds: float) -> None:
        import ray

        shape = self._shape
        refuse_too_few(shape, self._refusals)
        self.group = ray.util.placement_group(bundles.bundles_of(shape), strategy=shape.strategy)
        self._is_own = True
        now = time.monotonic()
        deadline, tell_at = now + seconds, now + NEWS_SECONDS
        while not self.group.wait(_LOOK_SECONDS):
            time.sleep(_LOOK_SECONDS)  # wait() returns at once if no node can hold a bundle
            room, now = self._room(), time.monotonic()
            if now >= deadline:
                free = min(room, bundles.fits(ray.available_resources(), shape.needs))
                raise self._refusals.in_time(bundles.too_late(shape, room, free, seconds))
            if now >= tell_at:
                self._tell(f"waiting for {shape.sentence()}; the cluster has room for {room} of them")
                tell_at = now + NEWS_SECONDS
