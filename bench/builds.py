"""Compares two builds of rueda, in turns, in one run: is the new build slower anywhere?

    python bench/builds.py OLD/librueda.so NEW/librueda.so --turns 15 --json out.json

Each turn runs `rueda bench allreduce`, or another collective, with the old build, the new build and the old
build again, in an order that changes from turn to turn. A ratio is the time of the old build divided by the
time of the new build in the same turn: above 1 the new build is faster. The spread of the machine is the
ratio of the two runs of the old build. A cell counts as slower if its median ratio lies below 0.97 and below
the first quartile of that spread.

Each of the two may be a wheel instead; its library is taken.

The command must be that of the old build: a new library accepts the structs of an older program, but an old
library does not accept those of a newer one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Dict, List, NamedTuple, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parent / "compare"))
from ratios import Ratio, quartiles, size_text

SIZES = "4B,64KiB,1MiB,64MiB"
LEAST = 0.97
Cell = Tuple[str, str, int]  # transport, memory, bytes
Times = Dict[Cell, float]  # median microseconds of one run


class Row(NamedTuple):
    """One cell over all turns."""

    cell: Cell
    old_us: float
    change: Ratio  # old / new
    spread: Ratio  # old / old

    def is_slower(self) -> bool:
        """Below the allowed ratio, and below the ratios of the same build with itself."""
        return self.change.median < min(LEAST, self.spread.low)


def rows_of(turns: List[Tuple[Times, Times, Times]]) -> List[Row]:
    """A row for each cell that all runs have. A turn is (old, new, old again)."""
    cells = [cell for cell in turns[0][0] if all(cell in times for turn in turns for times in turn)]
    rows = []
    for cell in cells:
        changes = [(turn[0][cell] * turn[2][cell]) ** 0.5 / turn[1][cell] for turn in turns]
        spreads = [turn[0][cell] / turn[2][cell] for turn in turns]
        old = quartiles([turn[0][cell] for turn in turns]).median
        rows.append(Row(cell, old, quartiles(changes), quartiles(spreads)))
    return rows


def run(options: argparse.Namespace, library: str) -> Times:
    """One run of the benchmark over all cells."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        arguments = ["bench", options.collective, "-np", str(options.ranks), "--sizes", SIZES]
        arguments += ["--memory", options.memory, "--transport", options.transport]
        arguments += ["--seconds", str(options.seconds), "--json", str(report)]
        environment = {**os.environ, "RUEDA_LIBRARY": library}
        subprocess.run(
            [options.command, *arguments], check=True, env=environment, stdout=subprocess.DEVNULL, timeout=600
        )
        results = json.loads(report.read_text())["results"]
    if not all(one["correct"] for one in results):
        raise SystemExit(f"builds: {library} gave a wrong result")
    return {(one["transport"], one["memory"], one["bytes"]): one["median_us"] for one in results}


def library_of(given: str, folder: Path) -> str:
    """The path of the library; that of a wheel is unpacked in the folder."""
    if not given.endswith(".whl"):
        return given
    with zipfile.ZipFile(given) as wheel:
        return wheel.extract("rueda/lib/librueda.so", folder)


def measure(options: argparse.Namespace, old: str, new: str) -> List[Tuple[Times, Times, Times]]:
    """All turns, each (old, new, old again)."""
    orders = [(0, 1, 2), (2, 0, 1), (1, 2, 0)]
    turns: List[Tuple[Times, Times, Times]] = []
    for turn in range(options.turns):
        times: List[Times] = [{}, {}, {}]
        for which in orders[turn % len(orders)]:
            library = new if which == 1 else old
            times[which] = run(options, library)
        turns.append((times[0], times[1], times[2]))
    return turns


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", help="librueda.so or the wheel of the old build")
    parser.add_argument("new", help="librueda.so or the wheel of the new build")
    parser.add_argument("--command", default="rueda", help="the rueda command of the old build")
    parser.add_argument("--collective", default="allreduce", help="as that command names it")
    parser.add_argument("--transport", default="shm,tcp")
    parser.add_argument("--memory", default="private,shared", help="as that command names them")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.2, help="for each cell of each run")
    parser.add_argument("--json", type=Path, help="also write all times to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        old, new = (
            library_of(one, Path(folder) / str(i)) for i, one in enumerate((options.old, options.new))
        )
        turns = measure(options, old, new)
    rows = rows_of(turns)
    print(f"{'transport':<10}{'memory':<9}{'size':>8}{'old':>12}  old/new           old/old")
    for row in rows:
        transport, memory, size = row.cell
        verdict = "  SLOWER" if row.is_slower() else ""
        cells = f"{transport:<10}{memory:<9}{size_text(size):>8}{row.old_us:>9.1f} us"
        print(f"{cells}  {row.change}  {row.spread}{verdict}")
    if options.json:
        listed = [
            [{"/".join(map(str, cell)): us for cell, us in times.items()} for times in turn] for turn in turns
        ]
        options.json.write_text(json.dumps(listed))
    return 1 if any(row.is_slower() for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
