"""Numbers as src/timeline/units.h writes them, and what a bar of the page says."""

from __future__ import annotations

from typing import Dict


def time_text(ns: float) -> str:
    for limit, divisor, unit in ((999.5, 1, "ns"), (999.5e3, 1e3, "us"), (999.5e6, 1e6, "ms")):
        if ns < limit:
            return f"{ns:.0f} ns" if unit == "ns" else f"{ns / divisor:.3g} {unit}"
    return f"{ns / 1e9:.3g} s"


def percent_text(part: float) -> str:
    return f"{part * 100:.1f} %" if abs(part * 100) < 9.95 else f"{part * 100:.0f} %"


def size_text(size: int) -> str:
    return f"{size} B" if size < 1024 else f"{size / 1024:.3g} KiB"


def label(which: str, length: float, shares: Dict[str, float]) -> str:
    parts = [f"{name.removesuffix('_ns')} {time_text(ns)}" for name, ns in shares.items() if ns >= 1]
    return f"{which}, {time_text(length)}: " + ", ".join(parts)
