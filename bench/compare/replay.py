"""Training replayed between hosts with limited links, rueda beside DDP over Gloo, and its figure.

Both libraries run on the same hosts, in turns, and the medians over the rounds are shown. Computing is slept,
and stretched so that a slow link beside it counts as a fast one: at a lower rate the picture is the same in
slow motion, and the cores of this machine, which send and receive for all hosts, have more time for it. The
report says how busy they were; where they are the limit, what is measured is this machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

import figure
import links

import tools

RUEDA, DDP = "rueda", "PyTorch DDP over Gloo"
LIMIT_S = 1800  # for one run
GPU = "P100"  # whose compute times the files in bench/models state
Ticks = Tuple[int, int]  # of all cores: idle, in all
Series = Dict[str, List[float]]


def ticks() -> Ticks:
    first = Path("/proc/stat").read_text().split("\n", 1)[0]
    counts = [int(word) for word in first.split()[1:9]]
    return counts[3] + counts[4], sum(counts)


def busy_since(before: Ticks) -> float:
    """The share of their time that the cores have worked since then, 0..1."""
    idle, whole = (now - then for now, then in zip(ticks(), before))
    return 1 - idle / max(1, whole)


def rueda_row(options: argparse.Namespace, hosts: int) -> Dict[str, Any]:
    report = options.out / "replay.json"
    arguments = ["replay", "-np", str(hosts), "--rate", options.rate, "--model", options.model]
    arguments += ["--ready", options.ready, "--iterations", str(options.steps), "--json", str(report)]
    before = ticks()
    tools.run([tools.rueda_command(), "bench", *arguments], LIMIT_S)
    (row,) = json.loads(report.read_text())["results"]
    return {**row, "cores_busy": busy_since(before)}


def ddp_row(options: argparse.Namespace, hosts: int, compute_ms: float) -> Dict[str, Any]:
    """DDP's buckets over Gloo on the same hosts, computing as long as rueda's replay did."""
    spec = f"{tools.model_path(options.model)}:{options.steps}:{compute_ms}:{options.ready}"
    before = ticks()
    found = links.gloo_between_hosts(options.out, hosts, options.rate, LIMIT_S, "replay", spec)
    return {"efficiency": 1e3 * compute_ms / found["step"], "hosts": hosts, "cores_busy": busy_since(before)}


def rate_text(bits: float) -> str:
    """250000000 -> "250 Mbit/s"."""
    return f"{bits / 1e9:g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:g} Mbit/s"


def note_of(options: argparse.Namespace, row: Dict[str, Any], rounds: int, cores: int) -> str:
    """What the reader must know of the machine and the settings, in three lines."""
    count = "one round" if rounds == 1 else f"medians of {rounds} rounds"
    rate, stretched = row["rate_bits"], row["dilation"]
    return (
        f"Simulated: all machines are on one computer with {cores} cores, and computing is slept; {count}.\n"
        f"A link has {rate_text(rate)}, and computing takes {stretched:g} times as long as on a {GPU} "
        f"(bench/models/{options.model}.json),\n"
        f"which is the same as {rate_text(rate * stretched)} beside one {GPU} a machine."
    )


def medians(rows: List[Dict[str, Any]], worlds: List[int]) -> Series:
    """By library: for each number of hosts the median over the rounds."""
    return {
        name: [
            statistics.median(
                row["efficiency"] for row in rows if row["library"] == name and row["hosts"] == hosts
            )
            for hosts in worlds
        ]
        for name in (RUEDA, DDP)
    }


def print_table(options: argparse.Namespace, worlds: List[int], series: Series, ideal: List[float]) -> None:
    print(f"\ntraining of {options.model}, links of {options.rate}: speed in % of that without communication")
    print(f"{'':<28}" + "".join(f"{f'{hosts} hosts':>11}" for hosts in worlds))
    for name, values in {**series, "the most that links allow": ideal}.items():
        print(f"{name:<28}" + "".join(f"{100 * value:>9.1f} %" for value in values))


def measure(options: argparse.Namespace) -> Any:
    if importlib.util.find_spec("matplotlib") is None:
        raise SystemExit(
            "bench/compare: replay draws a figure; pip install matplotlib, or leave replay out of --parts"
        )
    worlds = [int(word) for word in options.replay_ranks.split(",")]
    rounds = min(options.rounds, 3)
    rows: List[Dict[str, Any]] = []
    for number in range(rounds):
        for hosts in worlds:
            ours = rueda_row(options, hosts)
            theirs = ddp_row(options, hosts, ours["compute_ms"])
            rows += [{**ours, "library": RUEDA}, {**theirs, "library": DDP}]
        print(f"compare: replay, round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    series = medians(rows, worlds)
    by_hosts = {row["hosts"]: row for row in rows if row["library"] == RUEDA}
    ideal = [by_hosts[hosts]["ideal_efficiency"] for hosts in worlds]
    model = options.model.replace("resnet", "ResNet-")
    drawing = figure.bars(
        title=f"Training {model} on several machines: speed that is left",
        axis="% of the speed without communication",
        note=note_of(options, rows[0], rounds, os.cpu_count() or 1),
        groups=[f"{hosts} machines" for hosts in worlds],
        series=series,
        ideal=("the most that the links allow", ideal),
    )
    for place in (options.out / "scaling.svg", options.figure):
        if place is not None:
            place.write_text(drawing)
    print_table(options, worlds, series, ideal)
    for name in (RUEDA, DDP):
        busy = [row["cores_busy"] for row in rows if row["library"] == name and row["hosts"] == worlds[-1]]
        print(f"cores busy, {worlds[-1]} hosts, {name}: {100 * statistics.median(busy):.0f} %")
    return {"series": series, "ideal": ideal, "ranks": worlds, "rows": rows}
