"""Compares two builds of rueda, in turns, in one run: is the new build slower anywhere?

    python bench/builds.py OLD/librueda.so NEW/librueda.so --turns 15 --json out.json

Each build runs with its own library and its own command `rueda`, because launcher and library are of one
build: the store of a launcher refuses the ranks of another one. The command is bin/rueda beside the library
or in the folder above, or the one that --old-command or --new-command names.

Each turn runs `rueda bench allreduce`, or another collective, with the old build, the new build and the old
build again, in an order that changes from turn to turn. A ratio is the time of the old build divided by the
time of the new build in the same turn: above 1 the new build is faster. The spread of the machine is the
ratio of the two runs of the old build. A cell counts as slower if its median ratio lies below 0.97 and below
the first quartile of that spread.

Each of the two may be a wheel instead; its library and its command are taken.
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
from typing import Dict, List, NamedTuple, Optional, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parent / "compare"))
from ratios import Ratio, quartiles, size_text

SIZES = "4B,64KiB,1MiB,64MiB"
LEAST = 0.97
Cell = Tuple[str, str, int]  # transport, memory, bytes
Times = Dict[Cell, float]  # median microseconds of one run


class Build(NamedTuple):
    """What one of the two runs with."""

    library: Path
    command: Path


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


def run(options: argparse.Namespace, build: Build) -> Times:
    """One run of the benchmark over all cells."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        arguments = ["bench", options.collective, "-np", str(options.ranks), "--sizes", SIZES]
        arguments += ["--memory", options.memory, "--transport", options.transport]
        arguments += ["--seconds", str(options.seconds), "--json", str(report)]
        environment = {**os.environ, "RUEDA_LIBRARY": str(build.library)}
        done = subprocess.run(
            [build.command, *arguments], env=environment, stdout=subprocess.DEVNULL, timeout=600, check=False
        )
        if done.returncode != 0:
            raise SystemExit(f"builds: {build.command} failed with {build.library}; it says why above")
        results = json.loads(report.read_text())["results"]
    if not all(one["correct"] for one in results):
        raise SystemExit(f"builds: {build.library} gave a wrong result")
    return {(one["transport"], one["memory"], one["bytes"]): one["median_us"] for one in results}


def build_of(given: str, command: Optional[Path], folder: Path) -> Build:
    """The build whose library or wheel is given; a wheel is unpacked in the folder."""
    library = Path(given).resolve()
    places = [library.parent / "bin/rueda", library.parent.parent / "bin/rueda"]
    if given.endswith(".whl"):
        with zipfile.ZipFile(given) as wheel:
            wheel.extractall(folder)
        library = folder / "rueda/lib/librueda.so"
        places = list(folder.glob("*.data/scripts/rueda"))
        for script in places:
            script.chmod(0o755)
    if command:
        places = [command.resolve()]
    found = [place for place in places if place.is_file()]
    if not library.is_file():
        raise SystemExit(f"builds: there is no library {library}")
    if not found:
        raise SystemExit(
            f"builds: there is no command of the build of {given} ({', '.join(map(str, places))}); name it "
            "with --old-command or --new-command"
        )
    return Build(library, found[0])


def measure(options: argparse.Namespace, old: Build, new: Build) -> List[Tuple[Times, Times, Times]]:
    """All turns, each (old, new, old again)."""
    orders = [(0, 1, 2), (2, 0, 1), (1, 2, 0)]
    turns: List[Tuple[Times, Times, Times]] = []
    for turn in range(options.turns):
        times: List[Times] = [{}, {}, {}]
        for which in orders[turn % len(orders)]:
            times[which] = run(options, new if which == 1 else old)
        turns.append((times[0], times[1], times[2]))
    return turns


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", help="librueda.so or the wheel of the old build")
    parser.add_argument("new", help="librueda.so or the wheel of the new build")
    parser.add_argument("--old-command", type=Path, help="the rueda command of the old build")
    parser.add_argument("--new-command", type=Path, help="the rueda command of the new build")
    parser.add_argument("--collective", default="allreduce", help="as both commands name it")
    parser.add_argument("--transport", default="shm,tcp")
    parser.add_argument("--memory", default="private,shared", help="as both commands name them")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.2, help="for each cell of each run")
    parser.add_argument("--json", type=Path, help="also write all times to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        old = build_of(options.old, options.old_command, Path(folder) / "old")
        new = build_of(options.new, options.new_command, Path(folder) / "new")
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
