"""Numbers as src/timeline/units.h writes them, and what a bar of the page says."""

from __future__ import annotations

from typing import Any, Dict


def time_text(ns: float) -> str:
    for limit, divisor, unit in ((999.5, 1, "ns"), (999.5e3, 1e3, "us"), (999.5e6, 1e6, "ms")):
        if ns < limit:
            return f"{ns:.0f} ns" if unit == "ns" else f"{ns / divisor:.3g} {unit}"
    return f"{ns / 1e9:.3g} s"


def percent_text(part: float) -> str:
    return f"{part * 100:.1f} %" if abs(part * 100) < 9.95 else f"{part * 100:.0f} %"


def size_text(size: int) -> str:
    return f"{size} B" if size < 1024 else f"{size / 1024:.3g} KiB"


def causes(step: Dict[str, Any]) -> Dict[str, str]:
    """What most of the waiting, and of the transfers, of a step was for."""
    said = {}
    for one in step["waiting_for"][:1]:
        said["waiting"] = f", of it {time_text(one['ns'])} for rank {one['rank']}"
    for one in step["transfer_on"][:1]:
        said["transfer"] = f", of it {time_text(one['ns'])} from rank {one['from']} to rank {one['to']}"
    return said


def label(which: str, length: float, shares: Dict[str, float], more: Dict[str, str]) -> str:
    names = {name: name.removesuffix("_ns") for name in shares}
    parts = [
        f"{names[name]} {time_text(ns)}{more.get(names[name], '')}" for name, ns in shares.items() if ns >= 1
    ]
    return f"{which}, {time_text(length)}: " + ", ".join(parts)
