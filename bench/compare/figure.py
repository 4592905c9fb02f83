"""Shares as bars: an SVG that shows in a README, drawn with matplotlib."""

from __future__ import annotations

import io
from typing import Any, Dict, List, Tuple

COLOURS = ["#1b6ca8", "#e08214", "#7a7a7a", "#4d9221", "#8e44ad"]
GROUP = 0.8  # width of a group's bars together; 1 is the distance between groups
ROOM = 8.0  # percent: a bar of this height holds its own label; a lower bar has the label on top


def draw_series(axes: Any, series: Dict[str, List[float]]) -> None:
    """The bars, each with its height as a label."""
    width = GROUP / max(1, len(series))
    for place, (name, values) in enumerate(series.items()):
        lefts = [group - GROUP / 2 + place * width for group in range(len(values))]
        heights = [100 * value for value in values]
        drawn = axes.bar(
            lefts, heights, 0.92 * width, align="edge", color=COLOURS[place % len(COLOURS)], label=name
        )
        for group, bar in enumerate(drawn):
            bar.set_gid(f"bar-{place}-{group}")
            is_inside = heights[group] >= ROOM
            label = axes.annotate(
                f"{heights[group]:.0f}",
                (bar.get_x() + bar.get_width() / 2, heights[group]),
                xytext=(0, -3 if is_inside else 3),
                textcoords="offset points",
                ha="center",
                va="top" if is_inside else "bottom",
                color="white" if is_inside else "black",
            )
            label.set_gid(f"label-{place}-{group}")


def bars(
    title: str,
    axis: str,
    note: str,
    groups: List[str],
    series: Dict[str, List[float]],
    ideal: Tuple[str, List[float]],
) -> str:
    """Draws groups along the axis: in each a bar of each series (0..1), and the ideal as a line across it.

    axis: what the heights are, in %. ideal: what the line means, and its height in each group.
    """
    import matplotlib  # imported here, because runs without a figure need none

    matplotlib.use("Agg")
    from matplotlib import pyplot

    matplotlib.rcParams.update(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "rueda",
            "font.size": 9,
            "font.sans-serif": ["DejaVu Sans", "Arial"],
        }
    )
    drawing, axes = pyplot.subplots(figsize=(7.6, 4.2), layout="constrained")
    draw_series(axes, series)
    for group, share in enumerate(ideal[1]):
        axes.plot(
            [group - 0.46, group + 0.46], [100 * share] * 2, "k--", lw=1, label="" if group else ideal[0]
        )
    axes.set_xticks(range(len(groups)), groups)
    axes.set_ylim(0, 108)
    axes.set_yticks(range(0, 101, 20))
    axes.set_ylabel(axis)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color="#ddd")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0)
    axes.set_title(title, loc="left", fontsize=11, pad=26)  # above the legend's line
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(series) + 1, frameon=False, borderpad=0.2)
    drawing.supxlabel(note, x=0.02, ha="left", fontsize=8, color="#555")
    text = io.StringIO()
    drawing.savefig(text, format="svg", metadata={"Date": None})
    pyplot.close(drawing)
    return "".join(line.rstrip() + "\n" for line in text.getvalue().splitlines())
