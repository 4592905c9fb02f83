"""Rules about the modules of the C++ core: tiers, siblings, include cycles, READMEs."""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, Tuple

import python_layers
from cycles import check_cycles
from source import Finding, Source
from text import INCLUDE

TIERS = {
    "base": 0,
    "trace": 1,
    "status": 1,
    "store": 1,
    "membership": 1,
    "memory": 1,
    "kernels": 1,
    "schedule": 1,
    "transport": 1,
    "backend": 2,
    "control": 2,
    "members": 2,
    "runtime": 3,
    "capi": 4,
}
# Programs outside the core: what they may include besides themselves.
PROGRAMS = {
    "launch": {"base", "store", "status", "membership"},
    "workload": {"base"},
    "bench": {"base", "store", "launch", "workload"},
    "doctor": {"base", "store", "launch", "bench"},
    "preflight": {"base", "store", "launch", "bench", "doctor"},
    "timeline": {"base", "trace", "workload"},
    "observe": {"base", "status"},
    # Of the core only what is pure: decisions, schedules, and the cost of local calls.
    "simulate": {"base", "control", "schedule", "backend", "launch", "bench", "workload", "timeline"},
    "cli": {
        "base",
        "store",
        "launch",
        "workload",
        "bench",
        "doctor",
        "preflight",
        "timeline",
        "observe",
        "simulate",
        "status",
    },
}
# Modules whose sub-folders implement one interface and must not know one another.
FAMILIES = ("transport", "backend", "plugins")


def module_of(path: str) -> Optional[str]:
    """The module a path below src/ (or an include) belongs to."""
    parts = path.split("/")
    if len(parts) >= 3 and parts[0] == "rueda":
        return parts[1]
    if len(parts) >= 2 and parts[0] in (*PROGRAMS, "plugins"):
        return parts[0]
    return None


def unit_of(path: str) -> str:
    """What a header and its source have in common."""
    return path.rpartition(".")[0]


def includes(source: Source) -> Iterator[Tuple[int, str]]:
    """(line, path as written) of the quoted includes."""
    for number, line in enumerate(source.lines, 1):
        found = INCLUDE.match(line)
        if found and found[1] == '"':
            yield number, found[2]


def forbidden(mine: str, other: str) -> Optional[str]:
    """Why module `mine` must not include module `other`; None if it may."""
    if mine == other:
        return None
    if mine in PROGRAMS:
        if other in PROGRAMS[mine]:
            return None
        return f"{mine} may use {', '.join(sorted(PROGRAMS[mine]))} only."
    if mine not in TIERS or other not in TIERS:
        return f"{other if mine in TIERS else mine} is no module with a tier; add it to tools/tidy/layers.py."
    if TIERS[other] == TIERS[mine]:
        return f"{mine} and {other} are siblings (tier {TIERS[mine]}) and must not know each other."
    if TIERS[other] > TIERS[mine]:
        return f"{mine} (tier {TIERS[mine]}) must not include {other} (tier {TIERS[other]})."
    return None


def check_edges(source: Source) -> Iterator[Finding]:
    inner = source.path[len("src/") :]
    mine = module_of(inner)
    if mine is None:
        return
    for number, path in includes(source):
        if path in ("rueda/rueda.h", "rueda/rueda.hpp"):
            if mine not in ("capi", "plugins", "bench"):  # bench loads the library, as any program may
                sentence = f"{mine} must not include the public header; only capi implements it."
                yield Finding(source.path, number, "layer", sentence)
            continue
        other = module_of(path)
        why = forbidden(mine, other) if other and mine != "plugins" else None
        if why:
            yield Finding(source.path, number, "layer", why)
        places = [p.split("/") for p in (inner.removeprefix("rueda/"), path.removeprefix("rueda/"))]
        if (
            mine in FAMILIES
            and other == mine
            and all(len(p) >= 3 for p in places)
            and places[0][1] != places[1][1]
        ):
            sentence = f"{mine}/{places[0][1]} and {mine}/{places[1][1]} must not know each other."
            yield Finding(source.path, number, "layer", sentence)


def check_includes(sources: List[Source]) -> Iterator[Finding]:
    """No unit includes itself through others. A header and its source are one unit."""
    units: Dict[str, List[Source]] = {}
    for source in sources:
        if source.path.startswith("src/") and source.is_cpp:
            units.setdefault(unit_of(source.path[len("src/") :]), []).append(source)

    def targets(unit: str) -> Iterator[Tuple[str, int, str]]:
        for source in units[unit]:
            for number, path in includes(source):
                if unit_of(path) != unit:
                    yield source.path, number, unit_of(path)

    yield from check_cycles(units, targets, "include-cycle")


def check_readmes(sources: List[Source]) -> Iterator[Finding]:
    paths = {s.path for s in sources}
    modules = set()
    for source in sources:
        parts = source.path.split("/")
        if source.is_cpp and source.path.startswith("src/rueda/") and len(parts) >= 4:
            modules.add("/".join(parts[:3]))
        elif source.is_cpp and source.path.startswith(tuple(f"src/{program}/" for program in PROGRAMS)):
            modules.add("/".join(parts[:2]))
    for module in sorted(modules):
        if f"{module}/README.md" not in paths:
            sentence = "needs a README.md: what it owns, what it must not know."
            yield Finding(module, 1, "module-readme", sentence)


def check(sources: List[Source]) -> List[Finding]:
    findings: List[Finding] = []
    for source in sources:
        if source.path.startswith("src/") and source.is_cpp:
            findings += check_edges(source)
    findings += check_includes(sources)
    findings += check_readmes(sources)
    findings += python_layers.check(sources)
    return findings
