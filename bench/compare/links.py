"""Allreduce between hosts with limited links: how much of the line rate it uses, next to the ring of Gloo.

The share of the line rate is 2(n-1)/n times the bytes, which every rank must at least send, divided by
the median time and the rate. TCP leaves 95.7 % of Ethernet with packets of 1500 bytes; a token bucket
lets the first 128 KiB pass faster. MPI and oneCCL are missing, because their launchers do not start ranks
in the namespaces.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

import ratios

import tools

SIZES = [1 << 20, 64 << 20]
CALLS = {1 << 20: 20, 64 << 20: 4}
# Hosts and rate. At 5 Gbit/s, four hosts need more than two cores can send and receive.
PLACES = [(2, "1gbit"), (4, "1gbit"), (8, "1gbit"), (2, "5gbit"), (4, "5gbit")]
CROSSED = [("resnet50", 8), ("resnet101", 4), ("vgg16", 4)]


def line_share(ranks: int, size: int, rate: str, us: float) -> float:
    bits_a_second = float(rate.removesuffix("gbit")) * 1e9
    return 2 * (ranks - 1) / ranks * size * 8 / (us * 1e-6) / bits_a_second


def between_hosts(ranks: int, rate: str) -> List[str]:
    return [tools.rueda_command(), "bench", "replay", "-np", str(ranks), "--rate", rate, "--"]


def rueda(out: Path, ranks: int, rate: str) -> Dict[int, float]:
    report = out / "links.json"
    found = {}
    for size in SIZES:
        options = ["--sizes", f"{size}B", "--memory", "private", "--iterations", str(CALLS[size])]
        command = [tools.rueda_command(), "bench", "allreduce", *options, "--json", str(report)]
        tools.run([*between_hosts(ranks, rate), *command], 300)
        found[size] = json.loads(report.read_text())["results"][0]["median_us"]
    return found


def gloo_between_hosts(out: Path, ranks: int, rate: str, limit_s: float, *what: str) -> Dict[str, float]:
    """Medians in microseconds by label; what: what gloo_peer.py is to measure."""
    times, meeting = out / "gloo-hosts.times", out / "gloo-hosts.meeting"
    meeting.unlink(missing_ok=True)
    script = [sys.executable, str(tools.HERE / "gloo_peer.py"), str(times), "env", str(ranks), str(meeting)]
    env = {"GLOO_SOCKET_IFNAME": "net0", "OMP_NUM_THREADS": "1"}
    tools.run([*between_hosts(ranks, rate), *script, *what], limit_s, env)
    return tools.call_medians(times, ranks)


def gloo(out: Path, ranks: int, rate: str) -> Dict[int, float]:
    specs = [f"{size}:{CALLS[size]}" for size in SIZES]
    found = gloo_between_hosts(out, ranks, rate, 300, "collective", *specs)
    return {int(label): us for label, us in found.items()}


def measure(out: Path, rounds: int) -> Any:
    """Measures both libraries in turns."""
    shares: Dict[Tuple[str, int, str, int], List[float]] = {}
    for number in range(rounds):
        for ranks, rate in PLACES:
            for name, way in (("rueda", rueda), ("Gloo", gloo)):
                for size, us in way(out, ranks, rate).items():
                    share = line_share(ranks, size, rate, us)
                    shares.setdefault((name, ranks, rate, size), []).append(share)
        print(f"compare: links, round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    rows = [
        {"peer": name, "hosts": ranks, "rate": rate, "bytes": size, "shares": values}
        for (name, ranks, rate, size), values in shares.items()
    ]
    print(f"\nallreduce between hosts, % of the line rate ({rounds} rounds; {os.cpu_count()} cores for all)")
    print(f"{'hosts':>6}{'rate':>8}{'bytes':>10}{'rueda':>24}{'Gloo':>24}")
    for ranks, rate in PLACES:
        for size in SIZES:
            cells = ""
            for name in ("rueda", "Gloo"):
                found = ratios.quartiles([100 * one for one in shares[name, ranks, rate, size]])
                cells += f"{f'{found.median:.1f} ({found.low:.1f}-{found.high:.1f})':>24}"
            print(f"{ranks:>6}{rate:>8}{ratios.size_text(size):>10}{cells}")
    return rows


def cross_step(out: Path, rate: str, steps: int) -> Any:
    """Replayed training that crosses the step."""
    report = out / "cross_step.json"
    rows = []
    print(f"\nreplayed training that crosses the step, links of {rate}: scaling efficiency")
    for model, ranks in CROSSED:
        arguments = ["replay", "-np", str(ranks), "--rate", rate, "--model", model, "--cross-step"]
        command = [tools.rueda_command(), "bench", *arguments, "--iterations", str(steps)]
        tools.run([*command, "--json", str(report)], 1200)
        (row,) = json.loads(report.read_text())["results"]
        ideal = f"{100 * row['ideal_efficiency']:.1f}"
        print(f"{model:<12}{ranks} hosts {100 * row['efficiency']:>7.1f} % (ideal {ideal} %)")
        rows.append(row)
    return rows
