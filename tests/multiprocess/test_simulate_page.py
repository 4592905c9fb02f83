"""The page of `rueda simulate --html` in a browser, and the picture that bench/figures/report.py draws."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
from browser import PROGRAM, Page, browser
from launch_support import RUEDA
from page_colours import COLOURS, contrast

FIGURE = Path(__file__).resolve().parents[2] / "bench/figures/report.py"
needs_browser = pytest.mark.skipif(
    PROGRAM is None, reason="chromium-headless-shell is not installed (make setup)"
)
NAME = "<b>rack & \"row\" 'x'"
CLUSTER = {
    "hosts": [{"name": NAME}, {"name": "b", "rate": "1gbit"}, {"name": "c", "speed": 0.9}, {"name": "d"}],
    "link": {"rate": "5gbit"},
    "tiers": [{"hosts": 2, "oversubscription": 2}],
}


@dataclass
class Made:
    address: str
    text: str
    command: List[str]
    results: List[Dict[str, Any]]
    report: Path


@pytest.fixture(scope="module", name="made")
def make_page(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("it's a page")
    (folder / "c.json").write_text(json.dumps(CLUSTER))
    page, report = folder / "r.html", folder / "r.json"
    words = ["simulate", "--cluster", str(folder / "c.json"), "--ranks", "2,4,8", "--steps", "4"]
    words += ["--step-noise", "0.05", "--html", str(page), "--json", str(report)]
    done = subprocess.run([RUEDA, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    results = json.loads(report.read_text())["results"]
    return Made(page.as_uri(), page.read_text(), ["rueda", *words], results, report)


@pytest.fixture(scope="module", name="page")
def start_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as page:
        yield page


def test_its_pictures_are_svg_without_anything_from_elsewhere(made: Made) -> None:
    pictures = re.findall(r"<svg.*?</svg>", made.text, re.DOTALL)
    assert len(pictures) == 1 + len(made.results)
    for picture in pictures:
        xml.etree.ElementTree.fromstring(picture)
    assert not re.search(r"(src|href)=|url\(|@import", made.text)


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_needs_nothing_else_and_can_be_read(made: Made, page: Page, scheme: str) -> None:
    page.open(made.address, scheme=scheme)
    for key in ("Tab", "ArrowRight", "End", "Home"):
        page.press(key)
    assert page.requests == [made.address]
    assert page.complaints == []
    for kind, name, colour, behind in page.evaluate(COLOURS):
        if name not in ("line", "band", "dot"):
            assert contrast(colour, behind) >= (3 if kind == "bar" else 4.5), (kind, name)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@needs_browser
def test_tables_and_curve_hold_the_numbers_of_the_json(made: Made, page: Page) -> None:
    page.open(made.address)
    cells = (
        "[...document.querySelectorAll('[aria-label=\"%s\"] tbody tr')].map("
        "(row) => [...row.cells].map((cell) => cell.textContent))"
    )
    rows = page.evaluate(cells % "Predictions")
    assert [row[0] for row in rows] == ["2", "4", "8"]
    assert [row[2] for row in rows] == [f"{row['step_ms']:.1f}" for row in made.results]
    assert [row[4] for row in rows] == [f"{100 * row['efficiency']:.1f} %" for row in made.results]
    lost = page.evaluate(cells % "Where the time of a step goes")
    for row, result in zip(lost, made.results):
        expected = [result["compute_ms"], *result["lost_ms"].values()]
        assert row[1:6] == [f"{ms:.1f}" for ms in expected]
    culprits = page.evaluate(cells % "What is slower than its like")
    assert culprits == [
        [str(row["ranks"]), f"{one['gain_ms']:.1f}", one["text"]]
        for row in made.results
        for one in row["culprits"]
    ]
    heights = page.evaluate(
        "[...document.querySelectorAll('#curve circle')].map((dot) => dot.cy.baseVal.value)"
    )
    assert heights == sorted(heights), "the efficiency falls with the number of ranks"
    widths = page.evaluate(
        "[...document.querySelectorAll('#losses .bar')].map((bar) => [...bar.querySelectorAll('.c3')].map("
        "(part) => part.width.baseVal.value)[0])"
    )
    for width, result in zip(widths, made.results):
        assert width / widths[0] == pytest.approx(
            result["lost_ms"]["links"] / made.results[0]["lost_ms"]["links"], rel=0.02
        )


@needs_browser
def test_names_and_the_command_are_shown_as_they_are(made: Made, page: Page) -> None:
    page.open(made.address)
    assert page.evaluate("document.querySelector('td.host').textContent") == NAME
    shown = page.evaluate("document.querySelector('main code').textContent")
    assert shlex.split(shown) == made.command, "it can be typed again"
    assert "switches over 2 hosts, 2:1" in page.evaluate("document.querySelector('#asked').textContent")


def test_the_figure_is_drawn_from_the_report(made: Made, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "curve.svg"
    done = subprocess.run(
        [sys.executable, str(FIGURE), str(made.report), "--out", str(picture)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    first = picture.read_bytes()
    root = xml.etree.ElementTree.fromstring(first)
    shown = " ".join(root.itertext())
    for row in made.results:
        assert f"{100 * row['efficiency']:.1f} %" in shown
    refused = subprocess.run(
        [sys.executable, str(FIGURE), str(FIGURE)], capture_output=True, text=True, timeout=120
    )
    assert refused.returncode == 2 and "is no report of rueda simulate --json" in refused.stderr
