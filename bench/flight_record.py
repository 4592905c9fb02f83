"""What the flight record costs: the same allreduce with and without it, in turns, in one run.

    python bench/flight_record.py --turns 30 --seconds 0.2 --json out.json

Each turn runs `rueda bench allreduce` with RUEDA_FLIGHT_RECORD_BYTES=0, with its default, and with 0 again,
in an order that changes. A ratio is the time with the record divided by the time without it in the same turn:
above 1 the record costs time. The spread is the ratio of the two runs without it.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import List, Tuple

import builds
from ratios import quartiles, size_text

ROOT = builds.Path(__file__).resolve().parent.parent
SETTING = "RUEDA_FLIGHT_RECORD_BYTES"


def timed(arguments: argparse.Namespace, is_on: bool) -> builds.Times:
    """One run; the setting is inherited by its ranks."""
    if is_on:
        os.environ.pop(SETTING, None)
    else:
        os.environ[SETTING] = "0"
    return builds.run(
        arguments.command, arguments.library, arguments.ranks, arguments.seconds, arguments.memory
    )


def main() -> None:
    build = ROOT / "build" / "release"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--library", default=str(build / "librueda.so"))
    parser.add_argument("--command", default=str(build / "bin" / "rueda"))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.2, help="for each cell of each run")
    parser.add_argument("--memory", default="private")
    parser.add_argument("--json", help="write the rows to this file")
    arguments = parser.parse_args()
    turns: List[Tuple[builds.Times, builds.Times, builds.Times]] = []
    for turn in range(arguments.turns):
        order = [(0, False), (1, True), (2, False)]
        times: List[builds.Times] = [{}, {}, {}]
        for place, is_on in order[turn % 3 :] + order[: turn % 3]:
            times[place] = timed(arguments, is_on)
        turns.append((times[0], times[1], times[2]))
    rows = []
    for cell in [cell for cell in turns[0][0] if all(cell in times for turn in turns for times in turn)]:
        cost = quartiles([turn[1][cell] / (turn[0][cell] * turn[2][cell]) ** 0.5 for turn in turns])
        spread = quartiles([turn[0][cell] / turn[2][cell] for turn in turns])
        off_us = quartiles([turn[0][cell] for turn in turns]).median
        rows.append({"cell": cell, "off_us": off_us, "on_by_off": cost, "off_by_off": spread})
        transport, memory, size = cell
        print(
            f"{transport:>4} {memory:>8} {size_text(size):>8}  {off_us:10.1f} us  "
            f"on/off {cost.median:.3f} ({cost.low:.3f}-{cost.high:.3f})  "
            f"off/off {spread.median:.3f} ({spread.low:.3f}-{spread.high:.3f})"
        )
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file, indent=2)


if __name__ == "__main__":
    main()
