"""Scaling efficiency as bars, an SVG written by hand: no library needed, and it shows in a README."""

from __future__ import annotations

from typing import Dict, List
from xml.sax.saxutils import escape

COLOURS = ["#1b6ca8", "#e08214", "#7a7a7a", "#4d9221", "#8e44ad"]
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 760, 360, 60, 46, 64


def bars(title: str, note: str, groups: List[str], series: Dict[str, List[float]], ideal: List[float]) -> str:
    """groups along the axis, a bar of each series (0..1) in each, the ideal as a line across the group."""
    plot = HEIGHT - TOP - BOTTOM
    step = (WIDTH - LEFT - 20) / len(groups)
    bar = step * 0.8 / max(1, len(series))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="18" font-size="15">{escape(title)}</text>',
    ]
    for tenth in range(0, 11, 2):
        y = TOP + plot * (1 - tenth / 10)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tenth * 10} %</text>')
    for place, (name, values) in enumerate(series.items()):
        colour = COLOURS[place % len(COLOURS)]
        x = LEFT + place * 170
        parts.append(f'<rect x="{x}" y="26" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 17}" y="36">{escape(name)}</text>')
        for group, value in enumerate(values):
            height = plot * min(1.0, value)
            left = LEFT + group * step + step * 0.1 + place * bar
            top = TOP + plot - height
            parts.append(
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{bar * 0.92:.1f}" height="{height:.1f}" '
                f'fill="{colour}"/>'
            )
            middle = left + bar * 0.46
            parts.append(
                f'<text x="{middle:.1f}" y="{top - 3:.1f}" text-anchor="middle" font-size="10">'
                f"{100 * value:.0f}</text>"
            )
    for group, name in enumerate(groups):
        left, y = LEFT + group * step, TOP + plot * (1 - min(1.0, ideal[group]))
        parts.append(
            f'<line x1="{left + step * 0.06:.1f}" x2="{left + step * 0.94:.1f}" y1="{y:.1f}" y2="{y:.1f}" '
            'stroke="black" stroke-dasharray="4 3"/>'
        )
        parts.append(
            f'<text x="{left + step / 2:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
            f"{escape(name)}</text>"
        )
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 18}" font-size="11" fill="#555">{escape(note)}</text>')
    parts.append("</svg>")
    return "\n".join(parts) + "\n"
