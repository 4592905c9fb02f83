"""Prints a report of the punisher as the table of docs/elastic.md.

python tests/punish/record.py FOLDER/report.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from faults import KINDS


def times(found: dict) -> str:
    """Median, 99th percentile and largest, in seconds."""
    if not found["count"]:
        return "none"
    return f"{found['median']:.2f} / {found['p99']:.2f} / {found['max']:.2f} s ({found['count']})"


def lines_of(report: dict) -> list[str]:
    """Markdown: what was found, and then the kinds of faults."""
    kinds, seen = report["kinds"], report["times"]
    faults = sum(one["faults"] for one in kinds.values())
    survived = sum(one["survived"] for one in kinds.values())
    rows = [
        ("faults, survived", f"{faults}, {survived}"),
        ("views, commits", f"{report['views']}, {report['commits']}"),
        ("wrong bits, hangs", f"{report['wrong_bits']}, {len(report['hangs'])}"),
        ("a death is seen in", times(seen["death_seen_s"])),
        ("silence is seen in", times(seen["silence_seen_s"])),
        ("recovery after that", times(seen["recovery_s"])),
        ("steps made, of those without faults", f"{100 * report['goodput'].get('steps', 0):.1f} %"),
        ("time outside of changes", f"{100 * report['goodput'].get('outside_changes', 0):.1f} %"),
    ]
    text = ["| median / 99th percentile / largest (number) | |", "|---|---|"]
    text += [f"| {name} | {value} |" for name, value in rows]
    text += ["", "| fault | number |", "|---|---|"]
    text += [f"| {KINDS[kind].says} | {one['faults']} |" for kind, one in sorted(kinds.items())]
    text += ["", *(f"Held in view {one['view']}: {json.dumps(one)}" for one in report["costs"])]
    return text


def main() -> None:
    print("\n".join(lines_of(json.loads(Path(sys.argv[1]).read_text()))))


if __name__ == "__main__":
    main()
