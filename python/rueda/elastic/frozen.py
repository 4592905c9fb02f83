"""A tree of values as bytes: a skeleton, which is a pickle, and the contents of its arrays beside it.

The arrays stay where they are (pickle protocol 5, out-of-band buffers), so a state of gigabytes is neither
copied nor pickled to be compared or sent. Front ends say how the arrays of their frameworks become buffers.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rueda import errors, pickles

# For a kind of arrays: (function that makes it again, its arguments). A PickleBuffer is among these.
Reduce = Callable[[Any], tuple[Callable[..., Any], tuple[Any, ...]]]

_reducers: list[tuple[type, Reduce]] = []


def register(kind: type, reduce: Reduce) -> None:
    """Arrays of this type become buffers by this function. numpy's do so by themselves."""
    if all(known is not kind for known, _ in _reducers):
        _reducers.append((kind, reduce))


@dataclass
class Frozen:
    """A tree as bytes. The buffers are views of the arrays, which must not change meanwhile."""

    skeleton: bytes
    buffers: list[memoryview] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of the buffers: where in the tree they are

    @property
    def sizes(self) -> list[int]:
        """The number of bytes of each buffer."""
        return [one.nbytes for one in self.buffers]


def freeze(tree: Any) -> Frozen:
    """The tree as bytes. Raises what pickling raises."""
    names: dict[int, str] = {}
    _name(tree, "", names)
    buffers: list[memoryview] = []
    found: list[str] = []
    current: list[str] = [""]

    def take(buffer: pickle.PickleBuffer) -> bool:
        try:
            view = buffer.raw()
        except BufferError:  # not contiguous
            return True  # goes into the skeleton
        buffers.append(view)
        found.append(current[0] or f"buffer {len(found)}")
        return False

    class Pickler(pickles.pickler_class()):  # type: ignore[misc]
        def reducer_override(self, value: Any) -> Any:
            current[0] = names.get(id(value)) or current[0]
            for kind, reduce in _reducers:
                if isinstance(value, kind):
                    return reduce(value)
            above = getattr(super(), "reducer_override", None)
            return NotImplemented if above is None else above(value)

    file = io.BytesIO()
    Pickler(file, protocol=5, buffer_callback=take).dump(tree)
    return Frozen(file.getvalue(), buffers, found)


def thaw(skeleton: bytes, buffers: Sequence[Any]) -> Any:
    """The tree. Its arrays are views of the buffers, which must be writable and belong to nobody else."""
    tree = pickle.loads(skeleton, buffers=buffers)
    if isinstance(tree, pickles.Unsendable):
        raise errors.internal_error(tree.why)
    return tree


def _name(value: Any, place: str, names: dict[int, str]) -> None:
    """The places of all values of a tree, by their identity."""
    names.setdefault(id(value), place)
    before = f"{place}." if place else ""
    if isinstance(value, dict):
        for key, part in value.items():
            _name(part, f"{before}{key}", names)
    elif isinstance(value, (list, tuple)):
        for index, part in enumerate(value):
            _name(part, f"{before}{index}", names)
