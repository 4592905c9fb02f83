"""Draws a report of `rueda simulate`: the efficiency by ranks, with the spread of steps, as SVG.

    rueda simulate --ranks 2,4,8,16 --bandwidth 10gbit --json report.json
    python bench/figures/report.py report.json [--out report.svg]

Needs matplotlib. The same report gives the same file.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Dict, List

Row = Dict[str, Any]


def read(parser: argparse.ArgumentParser, path: Path) -> Dict[str, Any]:
    try:
        report: Dict[str, Any] = json.loads(path.read_text())
        for row in report["results"]:
            float(row["efficiency"]), float(row["step_p5_ms"]), float(row["step_p95_ms"])
    except (OSError, ValueError, KeyError, TypeError):
        parser.error(f"{path} is no report of rueda simulate --json; check the path")
    return report


def draw(report: Dict[str, Any], path: Path) -> None:
    import matplotlib  # imported here, so that a wrong path is told without it

    matplotlib.use("Agg")
    from matplotlib import pyplot

    matplotlib.rcParams.update({"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "rueda"})
    rows: List[Row] = sorted(report["results"], key=lambda row: int(row["ranks"]))
    ranks = [row["ranks"] for row in rows]
    figure, axes = pyplot.subplots(figsize=(7, 4.2))
    curve = [100 * row["efficiency"] for row in rows]
    band = [[100 * row["compute_ms"] / row[name] for row in rows] for name in ("step_p95_ms", "step_p5_ms")]
    axes.fill_between(ranks, *band, color="#1b6ca8", alpha=0.2, linewidth=0)
    axes.plot(ranks, curve, "o-", color="#1b6ca8")
    for count, percent in zip(ranks, curve):
        axes.annotate(
            f"{percent:.1f} %", (count, percent), textcoords="offset points", xytext=(0, 7), ha="center"
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(ranks, [str(count) for count in ranks])
    axes.minorticks_off()
    axes.set_ylim(0, max(110, 1.1 * max(curve)))
    axes.set_xlabel("ranks")
    axes.set_ylabel("efficiency in %")
    axes.set_title(f"{report['workload']['name']} on {report['cluster']['source']}", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("report", type=Path)
    parser.add_argument("--out", type=Path, help="default: beside the report, with .svg instead of .json")
    arguments = parser.parse_args()
    draw(read(parser, arguments.report), arguments.out or arguments.report.with_suffix(".svg"))


if __name__ == "__main__":
    main()
