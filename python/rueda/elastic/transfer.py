"""Makes the states of all ranks equal to the newest commit: compares, sends what differs, verifies."""

from __future__ import annotations

import hashlib
import pickle
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rueda import errors
from rueda.elastic import frozen, pieces
from rueda.elastic.frozen import Frozen
from rueda.elastic.pieces import CHUNK_BYTES, Stream, Summary, Transfer
from rueda.elastic.wire import Wire

_CHUNKS_AT_ONCE = 8  # of 4 MiB: enough to keep a link busy, and no second copy of the state

DIVERGENT = (
    "The state of rank {ranks} differs from that of the other ranks that hold commit {commit}, first in "
    "{name}; its ranks are overwritten. Ranks that train alike have the same state: look for a random number "
    "or a branch that only some ranks take."
)
DAMAGED = (
    "Chunk {chunk} of the state ({size} bytes, from rank {sender}) is not what rank {root} has; the transfer "
    "is begun again."
)


@dataclass
class Offer:
    """The state that a rank has."""

    tree: Any
    is_holder: bool
    commit: int
    own: Callable[[str], bool]  # whether the buffer of this name may differ from rank to rank


class _Content:
    """A frozen state with its two streams."""

    def __init__(self, state: Frozen, own: Callable[[str], bool], chunk_bytes: int) -> None:
        self.names, self.sizes, self.skeleton = state.names, state.sizes, state.skeleton
        self.is_own = [own(name) for name in state.names]
        self.buffers = state.buffers
        self.shared = Stream([one for one, is_own in zip(state.buffers, self.is_own) if not is_own])
        self.own = Stream([one for one, is_own in zip(state.buffers, self.is_own) if is_own])
        self.shared_digests = self.shared.digests(chunk_bytes)
        self.own_digests = self.own.digests(chunk_bytes)

    def summary(self, is_holder: bool) -> Summary:
        layout = pieces.layout_of(self.names, self.sizes)
        return Summary(
            is_holder, layout, pieces.digest_of(self.shared_digests), pieces.digest_of(self.own_digests)
        )


def equalise(
    offer: Offer, wire: Wire, say: Callable[[str], None], chunk_bytes: int = CHUNK_BYTES
) -> tuple[bool, Any]:
    """Collective. (whether another rank's state is to be taken, that state).

    Raises HorovodInternalError when a chunk arrives damaged, or when a rank is lost meanwhile.
    """
    mine = _Content(frozen.freeze(offer.tree), offer.own, chunk_bytes)
    summary = mine.summary(offer.is_holder)
    summaries = [Summary.from_bytes(one) for one in wire.allgather(summary.to_bytes())]
    transfer = pieces.plan(summaries)
    if transfer.divergent:
        say(_divergence(transfer, mine, offer.commit, wire))
    head = mine.skeleton, mine.names, mine.sizes, mine.is_own, mine.shared_digests, mine.own_digests
    content = pickle.dumps(head) if wire.rank == transfer.root else b""
    skeleton, _, sizes, is_own, shared_digests, own_digests = pickle.loads(
        wire.broadcast(content, transfer.root)
    )
    root = summaries[transfer.root]
    is_same = summary.layout == root.layout
    has_shared, has_own = is_same and summary.shared == root.shared, is_same and summary.own == root.own
    has = [has_own if one else has_shared for one in is_own]
    buffers = [mine.buffers[i] if has[i] else memoryview(bytearray(size)) for i, size in enumerate(sizes)]
    if transfer.is_shared_sent:
        stream = Stream([one for one, is_mine in zip(buffers, is_own) if not is_mine])
        senders = [transfer.sender(chunk) for chunk in range(len(shared_digests))]
        _send(stream, _Digests(shared_digests, senders, transfer.root), wire, has_shared, chunk_bytes)
    if transfer.is_own_sent:
        stream = Stream([one for one, is_mine in zip(buffers, is_own) if is_mine])
        senders = [transfer.root] * len(own_digests)
        _send(stream, _Digests(own_digests, senders, transfer.root), wire, has_own, chunk_bytes)
    if wire.rank == transfer.root:
        return False, offer.tree
    return True, frozen.thaw(skeleton, [_writable(one) for one in buffers])


def _writable(buffer: memoryview) -> memoryview:
    """A buffer that belongs to the state that is made of it, and to nothing else."""
    return memoryview(bytearray(buffer))


@dataclass
class _Digests:
    """What the chunks of a stream must be, and who sends each."""

    expected: Sequence[bytes]
    senders: Sequence[int]
    root: int


def _send(stream: Stream, digests: _Digests, wire: Wire, has_it: bool, chunk_bytes: int) -> None:
    """Collective: chunks of the stream travel from their senders. has_it: this rank has them already."""
    under_way: deque[tuple[int, bytearray, Callable[[], None]]] = deque()

    def take_one() -> None:
        chunk, content, wait = under_way.popleft()
        wait()
        if has_it:
            return
        if hashlib.sha256(content).digest() != digests.expected[chunk]:
            sender = digests.senders[chunk]
            raise errors.internal_error(
                DAMAGED.format(chunk=chunk, size=len(content), sender=sender, root=digests.root)
            )
        stream.write(chunk, content, chunk_bytes)

    for chunk, sender in enumerate(digests.senders):
        is_mine = sender == wire.rank
        length = min(chunk_bytes, stream.size - chunk * chunk_bytes)
        content = stream.read(chunk, chunk_bytes) if is_mine else bytearray(length)
        under_way.append((chunk, content, wire.start_broadcast(content, sender, chunk)))
        if len(under_way) >= _CHUNKS_AT_ONCE:
            take_one()
    while under_way:
        take_one()


def _divergence(transfer: Transfer, mine: _Content, commit: int, wire: Wire) -> str:
    """Collective: which replica is another one, and in what."""
    shared = [i for i, is_own in enumerate(mine.is_own) if not is_own]
    digests = [hashlib.sha256(mine.buffers[i]).digest() for i in shared]
    listed = pickle.dumps(([mine.names[i] for i in shared], digests))
    names, expected = pickle.loads(
        wire.broadcast(listed if wire.rank == transfer.root else b"", transfer.root)
    )
    found = {}
    for rank in transfer.divergent:
        its_names, its_digests = pickle.loads(wire.broadcast(listed if wire.rank == rank else b"", rank))
        its = dict(zip(its_names, its_digests))
        found[rank] = next((n for n, one in zip(names, expected) if its.get(n) != one), "what it consists of")
    ranks = ", ".join(map(str, transfer.divergent))
    return DIVERGENT.format(ranks=ranks, commit=commit, name=next(iter(found.values())))
