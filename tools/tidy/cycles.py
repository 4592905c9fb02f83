"""Cycles of includes and imports."""

from __future__ import annotations

from typing import Callable, Dict, Iterable, Iterator, List, Tuple

from source import Finding, Source

Edges = Callable[[str], Iterable[Tuple[int, str]]]  # name -> (line, name it refers to)


def check_cycles(known: Dict[str, Source], edges: Edges, rule: str) -> Iterator[Finding]:
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
            number, target = step
            if target not in known:
                continue
            if state.get(target) == 1:
                ring = " -> ".join([*path[path.index(target) :], target])
                yield Finding(known[path[-1]].path, number, rule, ring)
            elif target not in state:
                state[target] = 1
                path.append(target)
                work.append(iter(list(edges(target))))
