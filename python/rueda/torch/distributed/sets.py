"""Which process set of the engine a process group runs on.

Registering a set takes every rank of the job, but torch.distributed builds a group on its members alone. Sets
are therefore registered where torch.distributed calls all ranks, members or not: when a group is asked for
(registration.py), and for the pairs that send and recv need, when the first group is made. Sets stay until
the engine stops, because only the members of a group learn that it is destroyed.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Callable, Sequence

import torch

from rueda.basics import basics
from rueda.errors import internal_error
from rueda.process_sets import process_set_table
from rueda.torch.functions import allgather_object
from rueda.torch.gathers import allgather

# A pair costs one round trip through rank 0 (about 0.1 ms on one host), and an engine allows 4096 sets.
MOST_RANKS_WITH_PAIRS = 32
LOCAL_SYNCHRONIZATION = (
    "new_group(use_local_synchronization=True) cannot make a group on backend rueda, because all ranks of "
    "the job have to register ranks {ranks}; call new_group on every rank without that argument."
)


def set_of(ranks: Sequence[int]) -> int:
    """Id of the set of these world ranks; HorovodInternalError if the job did not register it."""
    key = tuple(sorted(ranks))
    set_id = 0 if len(key) == basics.size() else process_set_table.kept_id(key)
    if set_id is None:
        raise internal_error(LOCAL_SYNCHRONIZATION.format(ranks=list(key)))
    return set_id


def pair_of(one: int, other: int) -> int:
    """Id of the set of two world ranks on which send and recv run."""
    key = (min(one, other), max(one, other))
    set_id = 0 if basics.size() == 2 else process_set_table.kept_id(key)
    if set_id is None:
        raise internal_error(
            f"Ranks {key[0]} and {key[1]} cannot send to one another: jobs of more than "
            f"{MOST_RANKS_WITH_PAIRS} ranks call rueda.torch.distributed.prepare_send_recv(ranks) on every "
            "rank first."
        )
    return set_id


def register(many: Sequence[Sequence[int]], timeout_s: float) -> None:
    """Registers sets of world ranks. Collective over all ranks of the job, in the same order everywhere.

    Raises HorovodInternalError when the other ranks do not follow within timeout_s.
    """
    keys = _keys(many)
    if any(process_set_table.kept_id(key) is None for key in keys):
        _within(timeout_s, lambda: process_set_table.keep(keys), keys[0])


def register_group(ranks: Sequence[int], name: str, timeout_s: float) -> None:
    """Registers the set of a new group. Collective like register(), but ranks may differ between ranks of the
    job, as when each part of it divides itself. name: that of the group, equal everywhere.
    """

    def keep() -> None:
        process_set_table.keep(_keys(_all_of_them(tuple(sorted(ranks)), name)))

    _within(timeout_s, keep, tuple(sorted(ranks)))


def _keys(many: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    return [key for key in (tuple(sorted(ranks)) for ranks in many) if len(key) < basics.size()]


def _all_of_them(mine: tuple[int, ...], name: str) -> list[tuple[int, ...]]:
    """The different sets that ranks of the job ask for at once; usually one."""
    digest = hashlib.sha256(repr(mine).encode()).digest()
    digests = allgather(torch.frombuffer(bytearray(digest), dtype=torch.uint8)[None], f"{name}/digests")
    if bool((digests == digests[0]).all()):
        return [mine]
    by_rank: list[tuple[int, ...]] = allgather_object(mine, name=f"{name}/ranks")
    for ranks in by_rank:
        for member in ranks:
            if by_rank[member] != ranks:
                raise internal_error(
                    f"The process group of ranks {list(ranks)} cannot be made, because rank {member} asks "
                    f"for one of ranks {list(by_rank[member])} at the same time; call new_group with the "
                    "same ranks on all of its members."
                )
    return sorted(set(by_rank))


def _within(timeout_s: float, keep: Callable[[], None], key: Sequence[int]) -> None:
    """keep() with a time limit that Ctrl-C can interrupt: the engine itself waits without limit."""
    outcome: list[Exception | None] = []

    def run() -> None:
        try:
            keep()
            outcome.append(None)
        except Exception as error:
            outcome.append(error)

    worker = threading.Thread(target=run, name="rueda-sets", daemon=True)
    worker.start()
    worker.join(timeout_s)
    if not outcome:
        raise internal_error(
            f"Making the process group of ranks {list(key)} timed out: not every rank of the job came within "
            f"{timeout_s:g} s; call new_group on every rank, members or not, in the same order."
        )
    if outcome[0] is not None:
        raise internal_error(str(outcome[0])) from outcome[0]


def register_pairs(timeout_s: float) -> None:
    """Registers all pairs of a job that is small enough. Collective."""
    if 2 < basics.size() <= MOST_RANKS_WITH_PAIRS:
        register(list(itertools.combinations(range(basics.size()), 2)), timeout_s)


def prepare_send_recv(ranks: Sequence[int], timeout_s: float = 300.0) -> None:
    """Lets these world ranks send to one another, in a job of more than 32 ranks; smaller jobs need no call.

    Collective over all ranks of the job, with the same ranks everywhere: n ranks register n (n - 1) / 2
    pairs, of which a job can have 4096. HorovodInternalError if a rank does not call it within timeout_s.
    """
    register(list(itertools.combinations(sorted(set(ranks)), 2)), timeout_s)
