"""Cycles of includes and imports."""

from __future__ import annotations

from typing import Callable, Collection, Dict, Iterable, Iterator, List, Tuple

from source import Finding

Edges = Callable[[str], Iterable[Tuple[str, int, str]]]  # name -> (path, line, name it refers to there)


def check_cycles(known: Collection[str], edges: Edges, rule: str) -> Iterator[Finding]:
    """Depth-first search; each cycle is reported once, at the line that closes it."""
    state: Dict[str, int] = {}  # 1 on the current path, 2 finished
    for start in known:
        if start in state:
            continue
        path: List[str] = [start]
        state[start] = 1
        work = [iter(list(edges(start)))]
        while work:
            step = next(work[-1], None)
            if step is None:
                work.pop()
                state[path.pop()] = 2
                continue
            place, number, target = step
            if target not in known:
                continue
            if state.get(target) == 1:
                ring = " -> ".join([*path[path.index(target) :], target])
                yield Finding(place, number, rule, ring)
            elif target not in state:
                state[target] = 1
                path.append(target)
                work.append(iter(list(edges(target))))
