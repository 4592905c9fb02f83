"""Colours of a page, and how far they stand out from one another (WCAG 2.1)."""

from __future__ import annotations

import re

# Of each element with text of its own and each rectangle of a bar: what it is, its colour, and that behind.
# A gap where a bar is cut lies on the bar.
COLOURS = """
[...document.body.querySelectorAll("*")].flatMap((one) => {
  const is_bar = one.tagName === "rect" && !one.classList.contains("frame");
  const has_text = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  if (!is_bar && (!has_text || ["SCRIPT", "STYLE"].includes(one.tagName))) return [];
  let behind = one;
  const colour_of = (element) => getComputedStyle(element).backgroundColor;
  while (behind.closest("svg") || colour_of(behind) === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
  const style = getComputedStyle(one);
  const is_gap = one.classList.contains("cut");
  return [[is_bar ? "bar" : "text", one.className.baseVal ?? one.tagName, is_bar ? style.fill : style.color,
    is_gap ? getComputedStyle(one.previousElementSibling).fill : colour_of(behind)]];
})
"""


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2.1. colour: "rgb(1, 2, 3)"."""
    channels = [int(value) / 255 for value in re.fullmatch(r"rgb\((\d+), (\d+), (\d+)\)", colour).groups()]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)
