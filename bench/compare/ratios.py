"""Turns rounds into tables: ratios within a round, and their median and quartiles over the rounds. Pure.

The speed of a machine changes, so two numbers from different minutes cannot be compared. Every ratio is
therefore of two medians of the same round, and the quartiles over the rounds show how certain it is.
"""

from __future__ import annotations

import statistics
from typing import Any, Dict, List, NamedTuple, Tuple


class Ratio(NamedTuple):
    """How many times longer a peer takes than rueda; above 1, rueda is faster."""

    median: float
    low: float  # first and third quartile over the rounds
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}-{self.high:.2f})"


Round = Dict[Tuple[str, str, str], float]  # (peer, transport, label) -> microseconds


def quartiles(values: List[float]) -> Ratio:
    if len(values) == 1:
        return Ratio(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Ratio(median, low, high)


def ratio(rounds: List[Round], peer: Tuple[str, str, str], base: Tuple[str, str, str]) -> Ratio | None:
    """peer over base in the rounds that have both; None if there is none."""
    values = [one[peer] / one[base] for one in rounds if peer in one and base in one]
    return quartiles(values) if values else None


def size_text(size: int) -> str:
    for shift, unit in ((20, "MiB"), (10, "KiB")):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def table(rounds: List[Round], base: str, transport: str, labels: List[str]) -> List[Dict[str, Any]]:
    """A row for each peer of a transport: its own median time and its ratio to base, for each label.

    Peers that know only TCP are in both tables, because on one host their users get TCP.
    """
    names = list(dict.fromkeys((name, over) for one in rounds for name, over, _ in one))
    tcp_only = {name for name, _ in names} - {name for name, over in names if over == "shm"}
    names.sort(key=lambda one: one[0] != base)  # the peer to which the others are compared comes first
    rows = []
    for name, over in names:
        if over != transport and name not in tcp_only:
            continue
        cells: Dict[str, Any] = {}
        for label in labels:
            times = [one[name, over, label] for one in rounds if (name, over, label) in one]
            found = ratio(rounds, (name, over, label), (base, transport, label))
            if times and found:
                cells[label] = {"median_us": statistics.median(times), "ratio": found._asdict()}
        if cells:
            rows.append({"peer": name, "transport": over, "cells": cells})
    return rows


def us_text(us: float) -> str:
    for limit, divisor, unit in ((999.5, 1.0, "us"), (999.5e3, 1e3, "ms")):
        if us < limit:
            value = us / divisor
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"
    return f"{us / 1e6:.2f} s"


def print_table(title: str, rows: List[Dict[str, Any]], labels: List[str]) -> None:
    """Times, and below them times over rueda's (median and quartiles over the rounds)."""
    print(f"\n{title}")
    heads = [size_text(int(label)) if label.isdigit() else label for label in labels]
    print(f"{'':<24}" + "".join(f"{head:>22}" for head in heads))
    for row in rows:
        times, factors = "", ""
        for label in labels:
            cell = row["cells"].get(label)
            times += f"{us_text(cell['median_us']) if cell else '-':>22}"
            factors += f"{'x ' + str(Ratio(**cell['ratio'])) if cell else '':>22}"
        print(f"{row['peer'] + ' ' + row['transport']:<24}{times}\n{'':<24}{factors}")
