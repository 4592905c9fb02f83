"""What is trained, as it can be put back: the base of all states, and one for plain values."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterable
from typing import Any

from rueda import epochs, operations, residuals
from rueda.elastic import membership, pieces, transfer, wire
from rueda.elastic.ledger import BaseLedger
from rueda.elastic.membership import NO_COMMIT, View
from rueda.elastic.notices import HostMessages, HostUpdateResult
from rueda.errors import HostsUpdatedInterrupt
from rueda.policy import check_count
from rueda.process_sets import global_process_set

ROOT_HAS_NOTHING = (
    "{state} sends the values of rank 0, but in view {view} rank 0 has just joined and holds no commit: "
    "derive the class from hvd.elastic.ObjectState, whose values come from the ranks that hold them."
)
NOBODY_HOLDS = (
    "No rank of view {view} holds a commit any more: {why}. Start the job again from its last checkpoint."
)


class State:
    """What the ranks of an elastic job agree on. Subclasses define save, restore and sync.

    bcast_object(value) returns rank 0's value on all ranks; get_rank() is this rank. A *commit* is numbered;
    all ranks make equally many. One thread.
    """

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages = HostMessages()
        self._last_updated_timestamp: float = 0
        self._reset_callbacks: list[Callable[[], Any]] = []
        self._commit = NO_COMMIT  # the number of the newest commit that this process holds
        self._view: View | None = None
        self._checkpoints: list[tuple[Callable[[Any], Any], int]] = []
        self._residuals = b""  # of wire types at the last commit: this rank's own, which no other gets

    # ---- what programs call ----

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """They are called, in this order, when the ranks of the job have changed: to rescale a learning rate,
        for example. rank() and size() are then those of the new view.
        """
        self._reset_callbacks.extend(callbacks)

    def register_checkpoint(self, write: Callable[[Any], Any], every: int = 1) -> None:
        """write(state) is called on rank 0 with each `every`-th commit, once all ranks have made it.

        A commit that some rank has not made may be given up after a failure, and a file of it would then tell
        of a training that never was. A barrier shows that all have come so far; it costs one round trip.

        >>> state.register_checkpoint(lambda s: torch.save(s.model.state_dict(), "model.pt"), every=100)
        """
        check_count("register_checkpoint", "every", every, 1, "one commit in so many is written")
        self._checkpoints.append((write, every))

    def commit(self) -> None:
        """Saves the state, and raises HostsUpdatedInterrupt where the job is about to change.

        After a failure all ranks go on from the newest commit that any of them holds. All ranks commit
        equally often; no message is sent.
        """
        self.save()
        self._commit += 1
        members = membership.current()
        members.committed(self._commit)
        due = [write for write, every in self._checkpoints if self._commit % every == 0]
        if due:
            operations.barrier(global_process_set)
            for write in due if self._rank() == 0 else ():
                write(self)
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt on all ranks at the same commit, if hosts have come or are to go."""
        members = membership.current()
        if members.is_elastic():
            news = members.news()
            if NO_COMMIT < news.at_commit <= self._commit:
                interrupt = HostsUpdatedInterrupt(skip_sync=not news.hosts_added)
                interrupt.leave = news.leave
                raise interrupt
            return
        newest, what = self._last_updated_timestamp, HostUpdateResult.no_update
        while not self._host_messages.empty():
            timestamp, update = self._host_messages.get()
            if timestamp > newest:
                newest, what = timestamp, what | update
        if newest > self._last_updated_timestamp:
            self._last_updated_timestamp = newest
            raise HostsUpdatedInterrupt(what == HostUpdateResult.removed)

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Hosts have changed, says somebody other than the engine. To be told to all ranks alike."""
        self._host_messages.put((timestamp, update_res))

    def on_reset(self) -> None:
        """The job has a new view: forgets messages, then reset(), then the callbacks."""
        self._host_messages = HostMessages()
        if self._view is None or self._view.commit == self._commit:
            self._put_residuals_back()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def _keep_residuals(self) -> None:
        if epochs.current() != epochs.NONE:
            self._residuals = residuals.save()

    def _put_residuals_back(self) -> None:
        """Between epochs there is no engine that could take them; on_reset() does it in the next one."""
        if self._residuals and epochs.current() != epochs.NONE:
            residuals.load(self._residuals)

    # ---- what subclasses define ----

    def save(self) -> None:
        """Keeps the current values."""
        raise NotImplementedError(f"{type(self).__name__} must define save().")

    def restore(self) -> None:
        """Puts back what was kept last."""
        raise NotImplementedError(f"{type(self).__name__} must define restore().")

    def sync(self) -> None:
        """Collective: makes all ranks equal to those that hold the newest commit, or to rank 0."""
        raise NotImplementedError(f"{type(self).__name__} must define sync().")

    def reset(self) -> None:
        """Adapts to a new rank and size, before sync()."""

    # ---- what the loop of training calls ----

    def _begin_view(self, view: View) -> None:
        """The job goes on with these members."""
        if view.commit == NO_COMMIT and self._commit != NO_COMMIT:
            raise RuntimeError(NOBODY_HOLDS.format(view=view.number, why="those that held one are lost"))
        if not isinstance(self, ObjectState) and view.holders and 0 not in view.holders:
            raise RuntimeError(ROOT_HAS_NOTHING.format(state=type(self).__name__, view=view.number))
        self._view = view

    def _sync_in_view(self) -> None:
        """sync(), after which this process holds the commit of the view."""
        self.sync()
        self._commit = max(0, self._view.commit if self._view else NO_COMMIT)

    def _give_up(self) -> None:
        """This process goes back to the last commit, because a collective has failed."""
        self.restore()

    @property
    def _held(self) -> int:
        """The commit that this process could give to others."""
        return self._commit

    def _layout(self) -> bytes:
        """A digest of what the state is made of, known before it is trained."""
        return pieces.digest_of([type(self).__name__.encode()])


class ObjectState(State):
    """A state of plain values: each keyword becomes an attribute.

    save keeps the values themselves, and not copies, as Horovod does: give an attribute a new value instead
    of changing it in place. Only ledgers (Ledger, StreamLedger) are put back in place. Values travel as
    cloudpickles.

    >>> state = hvd.elastic.ObjectState(bcast_object=hvd.broadcast_object, get_rank=hvd.rank, batch=0)
    """

    def __init__(
        self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any
    ) -> None:
        super().__init__(bcast_object, get_rank)
        for name, value in kwargs.items():
            setattr(self, name, value)
        self._saved_state = {name: self._as_saved(value) for name, value in kwargs.items()}

    def save(self) -> None:
        """Keeps the current values."""
        self._saved_state = {name: self._as_saved(getattr(self, name)) for name in self._saved_state}
        self._keep_residuals()

    def restore(self) -> None:
        """Gives the attributes the values that were kept last."""
        self._set_attrs()
        self._put_residuals_back()

    def reset(self) -> None:
        """Ledgers share what is left of the epoch between the ranks of the new view."""
        for name in self._saved_state:
            if isinstance(ledger := getattr(self, name), BaseLedger):
                ledger.reset()

    def sync(self) -> None:
        """Makes all ranks equal to those that hold the newest commit; before there is a view, to rank 0."""
        if self._view is not None:
            self._sync_with_holders(self._view)
        elif self._saved_state:
            self._saved_state = self._bcast_object(self._saved_state)
            self._set_attrs()

    def _set_attrs(self) -> None:
        for name, value in self._saved_state.items():
            if isinstance(ledger := getattr(self, name, None), BaseLedger):
                ledger.load_state_dict(value)
            else:
                setattr(self, name, self._kept(value))

    def _as_saved(self, value: Any) -> Any:
        return value.state_dict() if isinstance(value, BaseLedger) else self._kept(value)

    def _kept(self, value: Any) -> Any:
        """What is kept of a value; subclasses copy it."""
        return value

    # ---- the transfer; see transfer.py ----

    def _sync_with_holders(self, view: View) -> None:
        is_holder = self._holds(view)
        offer = transfer.Offer(self._capture(), is_holder, view.commit, self._may_differ)
        is_new, tree = transfer.equalise(offer, wire.engine_wire(), _say_once)
        if is_new:
            self._adopt(tree)

    def _holds(self, view: View) -> bool:
        return self._rank() in view.holders

    def _capture(self) -> dict[str, Any]:
        """The last commit as a tree whose arrays are buffers."""
        return {"attributes": self._saved_state}

    def _adopt(self, tree: dict[str, Any]) -> None:
        """The reverse, with the tree of another rank."""
        self._saved_state = tree["attributes"]
        self._set_attrs()

    def _may_differ(self, name: str) -> bool:
        """Whether the buffer of this name may have other contents on other ranks that train alike."""
        return False

    def _layout(self) -> bytes:
        return pieces.digest_of([b"attributes", *(name.encode() for name in sorted(self._saved_state))])


class CopyingState(ObjectState):
    """An ObjectState that keeps copies, for values that are changed in place, such as arrays of numpy."""

    def __init__(
        self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any
    ) -> None:
        super().__init__(bcast_object, get_rank, **kwargs)
        # As they are at first: what training makes of them, a process that joins cannot know.
        saved = sorted(self._saved_state.items())
        self._kinds_at_first = [kind for one in saved for kind in pieces.kinds_of(*one)]

    def _kept(self, value: Any) -> Any:
        return copy.deepcopy(value)

    def _layout(self) -> bytes:
        return pieces.digest_of([super()._layout(), *self._kinds_at_first])


_said: set[str] = set()


def _say_once(text: str) -> None:
    """On stderr, because a warning would be shown by the filter of the program or not at all."""
    if text not in _said:
        _said.add(text)
        print(f"rueda: {text}", file=sys.stderr, flush=True)
