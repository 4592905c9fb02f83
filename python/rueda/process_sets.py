"""Process sets: groups of ranks that run collectives among themselves."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from ctypes import byref, c_int32
from dataclasses import dataclass, field
from typing import Any

from rueda import _core, epochs, errors, mpi
from rueda.epochs import PerEpoch

__all__ = ["ProcessSet", "add_process_set", "global_process_set", "remove_process_set"]

NOT_A_LIST = "ProcessSet should be initialized with a list of process ranks or an mpi4py Comm object"


class ProcessSet:
    """Ranks that run collectives together.

    ranks_or_comm: any iterable of world ranks; they are sorted. Or a communicator of mpi4py, whose ranks are
    numbered as in the communicator that init is given, or else as in MPI.COMM_WORLD. Pass the object to
    init(process_sets=[…]) or to add_process_set. ranks are world ranks.
    """

    ranks: list[int] | None = None
    mpi_comm: Any = None
    _set_id: int | None = None
    _epoch: int | None = None  # the epoch of the id; None: any

    def __init__(self, ranks_or_comm: Iterable[int]) -> None:
        if mpi.is_communicator(ranks_or_comm):
            self.mpi_comm = ranks_or_comm
            self.ranks = mpi.ranks_in(ranks_or_comm)
            return
        if isinstance(ranks_or_comm, int) or hasattr(ranks_or_comm, "Get_rank"):
            raise ValueError(
                "ProcessSet got a number or a communicator of something else than mpi4py, but Horovod has "
                "not been built with MPI support for it; pass a list of process ranks."
            )
        try:
            self.ranks = sorted(operator.index(rank) for rank in ranks_or_comm)
        except TypeError:
            raise ValueError(NOT_A_LIST) from None

    @property
    def process_set_id(self) -> int | None:
        """The engine's number of the set; None unless it is registered. Lasts until the next init."""
        return None if self.is_of_earlier_init else self._set_id

    @process_set_id.setter
    def process_set_id(self, set_id: int | None) -> None:
        self._set_id, self._epoch = set_id, epochs.current()

    @property
    def is_of_earlier_init(self) -> bool:
        """Whether the set was registered, but not since the last init."""
        if self._set_id is None or self._epoch is None:
            return False
        return epochs.known() not in (self._epoch, epochs.NONE)

    def place_in(self, job: Any) -> None:
        """Numbers the ranks of a communicator as the job does: a group of MPI, or None for MPI.COMM_WORLD."""
        if self.mpi_comm is not None:
            self.ranks = mpi.ranks_in(self.mpi_comm, job)

    def size(self) -> int | None:
        """Number of ranks; None while the set is not registered."""
        ranks = self._registered_ranks()
        return None if ranks is None else len(ranks)

    def rank(self) -> int | None:
        """Position of this process in the set; None while the set is not registered.

        Raises ValueError when this process is not a member.
        """
        ranks = self._registered_ranks()
        if ranks is None:
            return None
        me = int(_core.rank())
        if me not in ranks:
            raise ValueError("Process is not part of provided process set.")
        return ranks.index(me)

    def included(self) -> bool | None:
        """Whether this process is a member; None while the ranks are unknown."""
        if self.ranks is None:
            return None
        epochs.require_known()
        return int(_core.rank()) in self.ranks

    def _registered_ranks(self) -> list[int] | None:
        if self.process_set_id is None:
            return None
        epochs.require_known()
        ranks = process_set_table.ranks_of(self.process_set_id)
        if ranks is None:
            raise ValueError("Process set does not exist or has not been registered.")
        return ranks

    def __str__(self) -> str:
        return (
            f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"
        )

    __repr__ = __str__


@dataclass
class _Kept:
    """Sets that a framework's process groups run on; they stay until shutdown."""

    ids: dict[tuple[int, ...], int] = field(default_factory=dict)  # by ranks
    adopted: set[int] = field(default_factory=set)  # those that the user has added as well


class ProcessSetTable:
    """The engine's process sets, read through the C ABI. Any thread."""

    def __init__(self) -> None:
        # Set by operations, because the id may have belonged to another set with other ranks before.
        self.on_new_set: Callable[[int], None] = _nobody_counts
        # Both are set by basics at init: whether the user may add and remove sets, and the job's MPI group.
        self.is_dynamic = False
        self.mpi_group: Any = None
        self._kept = PerEpoch(_Kept)

    def kept_id(self, ranks: tuple[int, ...]) -> int | None:
        """Id of the kept set of these ranks, in ascending order; None if there is none."""
        return self._kept.now().ids.get(ranks)

    def keep(self, many: Sequence[tuple[int, ...]]) -> None:
        """Registers those of these sets that do not exist; all stay until shutdown, for process groups.

        Collective over all ranks of the job, in the same order everywhere and in order with add_process_set;
        no settings are needed for it. many: world ranks in ascending order. Raises ValueError.
        """
        kept = self._kept.now()
        missing = [ranks for ranks in many if ranks not in kept.ids]
        known = {tuple(ranks): set_id for set_id, ranks in self._all().items()} if missing else {}
        for ranks in missing:
            if ranks in known:
                kept.adopted.add(known[ranks])  # by the code that added it
            kept.ids[ranks] = known[ranks] if ranks in known else _add(ranks)

    def adopt_kept(self, ranks: Sequence[int]) -> int | None:
        """Id of a kept set that becomes the user's as well; None if there is no such set, or it is theirs."""
        kept = self._kept.now()
        set_id = kept.ids.get(tuple(ranks), 0)
        if set_id == 0 or set_id in kept.adopted:
            return None
        kept.adopted.add(set_id)
        return set_id

    def give_up(self, set_id: int) -> bool:
        """Takes a set from the user that process groups keep; False if it is not such a set."""
        kept = self._kept.now()
        if set_id not in kept.ids.values():
            return False
        kept.adopted.discard(set_id)
        return True

    def adopt(self, sets: Sequence[ProcessSet]) -> None:
        """Gives the objects the ids the engine assigned during init; a set of all ranks gets the world's."""
        table = self.ids_and_ranks()
        global_process_set.ranks = table[0]
        by_ranks = {tuple(ranks): set_id for set_id, ranks in table.items()}
        for process_set in sets:
            process_set.process_set_id = by_ranks[tuple(process_set.ranks or ())]

    def adopt_again(self, sets: Sequence[ProcessSet]) -> None:
        """adopt for an init() while initialized, which registers nothing. ValueError if it would have to."""
        known = {tuple(ranks) for ranks in self.ids_and_ranks().values()}
        given = [tuple(process_set.ranks or ()) for process_set in sets]
        for index, ranks in enumerate(given):
            if ranks in given[:index]:
                raise ValueError(f"process_sets holds the ranks {list(ranks)} twice.")
            if ranks not in known:
                raise ValueError(
                    f"init() was called before, without the process set of ranks {list(ranks)}; call "
                    "shutdown() first, or add_process_set()."
                )
        self.adopt(sets)

    def ids_and_ranks(self) -> dict[int, list[int]]:
        """All sets the user knows, the world (id 0) included; empty before init."""
        kept = self._kept.now()
        hidden = set(kept.ids.values()) - kept.adopted - {0}
        return {set_id: ranks for set_id, ranks in self._all().items() if set_id not in hidden}

    def _all(self) -> dict[int, list[int]]:
        count = _core.process_set_ids(None, 0)
        if count < 0:
            return {}
        ids = (c_int32 * count)()
        _core.process_set_ids(ids, count)
        return {set_id: self.ranks_of(set_id) or [] for set_id in ids}

    def ranks_of(self, set_id: int) -> list[int] | None:
        """World ranks of the set in ascending order, None if it is not registered."""
        count = _core.process_set_ranks(set_id, None, 0)
        if count < 0:
            return None
        ranks = (c_int32 * count)()
        _core.process_set_ranks(set_id, ranks, count)
        return list(ranks)


def _nobody_counts(set_id: int) -> None:
    pass


process_set_table = ProcessSetTable()


def _make_global_process_set() -> ProcessSet:
    world = ProcessSet([])
    world._set_id = 0
    world.ranks = None  # filled in by init
    return world


global_process_set = _make_global_process_set()


def add_process_set(process_set: ProcessSet | Iterable[int]) -> ProcessSet:
    """Registers a new process set and returns it.

    Collective over all ranks of the job, in the same order everywhere; needs init(process_sets="dynamic") or
    HOROVOD_DYNAMIC_PROCESS_SETS=1. Raises ValueError on every rank if they disagree or the set is invalid.
    """
    epochs.require()
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    _require_dynamic("adding")
    process_set.place_in(process_set_table.mpi_group)
    ranks = process_set.ranks or []
    try:
        process_set.process_set_id = _add(ranks)
    except ValueError as refusal:
        # Where all ranks agree, process groups may have registered the same ranks before.
        is_agreed = "duplicate process set" in str(refusal)
        adopted = process_set_table.adopt_kept(ranks) if is_agreed else None
        if adopted is None:
            raise
        process_set.process_set_id = adopted
    return process_set


def _add(ranks: Sequence[int]) -> int:
    set_id = c_int32(-1)
    # A number that does not fit is replaced by another that is no rank: the engine refuses it on all ranks.
    sent = [rank if _core.fits_int32(rank) else _core.LARGEST_INT32 for rank in ranks]
    status = _core.add_process_set((c_int32 * len(sent))(*sent), len(sent), byref(set_id))
    if status != _core.OK:
        _raise_set_error(status, ranks)
    process_set_table.on_new_set(set_id.value)
    return set_id.value


def _require_dynamic(verb: str) -> None:
    if not process_set_table.is_dynamic:
        raise ValueError(
            f"Set HOROVOD_DYNAMIC_PROCESS_SETS=1 to allow {verb} process sets after Horovod initialization."
        )


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a set that add_process_set or init registered; False for the world and for unregistered sets.

    Collective over all ranks of the job; outstanding operations of the set fail.
    """
    if not isinstance(process_set, ProcessSet):
        raise TypeError(
            f"remove_process_set takes a ProcessSet, such as one that add_process_set returned, not "
            f"{type(process_set).__name__}."
        )
    set_id = process_set.process_set_id
    if set_id is None or set_id == 0:
        return False
    epochs.require()
    _require_dynamic("removing")
    if process_set_table.give_up(set_id):
        process_set.process_set_id = None
        return True
    status = _core.remove_process_set(set_id)
    if status != _core.OK:
        if process_set_table.ranks_of(set_id) is None and status != _core.SHUT_DOWN:
            return False
        _raise_set_error(status, ())
    process_set.process_set_id = None
    return True


def _raise_set_error(status: int, ranks: Sequence[int]) -> None:
    """ranks: as the caller gave them; the engine may have got others."""
    text = _core.last_error()
    if status == _core.SHUT_DOWN:
        raise ValueError(errors.SHUTTING_DOWN)
    if status == _core.NOT_INITIALIZED:
        raise ValueError(errors.NOT_INITIALIZED)
    beyond = beyond_int32(ranks)
    if beyond is not None:
        world = f"the world has ranks 0 to {_core.size() - 1}"
        raise ValueError(f"invalid rank: {beyond} in the process set {list(ranks)}; {world}.")
    raise ValueError(text)


def beyond_int32(ranks: Sequence[int]) -> int | None:
    """The first that the C ABI cannot be told, which is no rank of any world; None if there is none."""
    return next((rank for rank in ranks if not _core.fits_int32(rank)), None)
