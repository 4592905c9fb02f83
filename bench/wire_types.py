"""How much faster wire types sum all gradients of a model, between hosts with slow links and inside one.

    sudo python bench/wire_types.py
    sudo python bench/wire_types.py --rates 100mbit --rounds 3 --iterations 1

Each host is a network name space with a rank of its own (`rueda bench replay`). Wire types take turns: a
round is a job for each of them, every other round in the opposite order, and a ratio is one of medians of the
same round. On one host, "one", the ranks share memory and nothing is encoded: there the ratio should be 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Dict, List

from interface_bytes import check_command, why_not_here

PLAIN = "float32"
ONE_HOST = "one"
LIMIT_S = 1200.0


def words_of(arguments: argparse.Namespace, place: str, wire: str, report: Path) -> List[str]:
    """The command that measures a wire type between hosts with links of a rate, or on one host."""
    burst = [arguments.command, "bench", "burst", "--mode", "planned", "--memory", "private"]
    burst += ["--model", arguments.model, "--wire", wire, "--json", str(report)]
    if place == ONE_HOST:
        return [*burst, "-np", str(arguments.ranks), "--iterations", "30"]
    through = [arguments.command, "bench", "replay", "-np", str(arguments.ranks), "--rate", place, "--"]
    return [*through, *burst, "--iterations", str(arguments.iterations)]


def milliseconds(arguments: argparse.Namespace, place: str, wire: str) -> float:
    """The median of a job's sums."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        words = words_of(arguments, place, wire, report)
        done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        if done.returncode != 0 or not report.exists():
            raise SystemExit(f"{' '.join(words)} failed ({done.returncode}): {done.stderr or done.stdout}")
        (result,) = json.loads(report.read_text())["results"]
    if not result["correct"]:
        raise SystemExit(f"{' '.join(words)}: the sums are wrong")
    return float(result["median_us"]) / 1000


def spread(values: List[float], digits: int) -> str:
    shown = (statistics.median(values), min(values), max(values))
    middle, least, most = (f"{value:.{digits}f}" for value in shown)
    return f"{middle}, {least} to {most}"


def main() -> None:
    parser = argparse.ArgumentParser(description="how much faster wire types sum a model's gradients")
    parser.add_argument("--rates", nargs="+", default=["1gbit", "100mbit", ONE_HOST], help="of links, or one")
    parser.add_argument(
        "--wires", nargs="+", choices=["bf16", "fp16", "int8"], default=["bf16", "fp16", "int8"]
    )
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=5, help="sums of a job, after four that warm it up")
    parser.add_argument("--command", default=os.environ.get("RUEDA_BIN") or shutil.which("rueda"))
    arguments = parser.parse_args()
    if any(rate != ONE_HOST for rate in arguments.rates) and (why := why_not_here()):
        raise SystemExit(f"cannot measure here: {why}")
    check_command(arguments.command)
    print(
        f"{arguments.model}, {arguments.ranks} ranks, {arguments.rounds} rounds: median, smallest to largest"
    )
    print("| links | wire type | ms a sum | times faster |")
    print("|---|---|---|---|")
    wires = [PLAIN, *arguments.wires]
    for rate in arguments.rates:
        took: Dict[str, List[float]] = {wire: [] for wire in wires}
        for number in range(arguments.rounds):
            for wire in wires if number % 2 == 0 else reversed(wires):
                took[wire].append(milliseconds(arguments, rate, wire))
        for wire in wires:
            ratios = [plain / mine for plain, mine in zip(took[PLAIN], took[wire])]
            print(f"| {rate} | {wire} | {spread(took[wire], 1)} | {spread(ratios, 3)} |", flush=True)


if __name__ == "__main__":
    main()
