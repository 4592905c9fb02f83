"""Whether the members of a view that are left may decide the next one: the table of docs/elastic.md, for jobs
without a launcher. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from faults import Kind


def goes_on(hosts: Sequence[str], lost: Sequence[int]) -> bool:
    """hosts: of the members, by rank. lost: ranks that are lost at once."""
    left = [host for rank, host in enumerate(hosts) if rank not in lost]
    have_certainly_ended = {hosts[rank] for rank in lost} <= set(left)
    return 2 * len(left) > len(hosts) or (2 * len(left) == len(hosts) and have_certainly_ended)


def survives(hosts: Sequence[str], kind: Kind) -> bool:
    """Whether they go on, whichever of them the fault strikes."""
    if kind.whole_host:
        return goes_on(hosts, [rank for rank, host in enumerate(hosts) if host == hosts[0]])
    return all(goes_on(hosts, lost) for lost in combinations(range(len(hosts)), kind.members))
