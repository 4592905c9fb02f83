"""Percentiles of measured values, for the programs of this folder."""

from __future__ import annotations

from typing import List


def at(values: List[float], share: float) -> float:
    """The value below which about this share of them lies: 0.5 for the median."""
    return sorted(values)[round(share * (len(values) - 1))]
