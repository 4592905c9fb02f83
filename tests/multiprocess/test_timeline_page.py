"""The page of `rueda timeline summary --html` in a browser: offline, light and dark, by keyboard, printed."""

from __future__ import annotations

import html
import io
import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import numpy as np
import pytest
from browser import PROGRAM, Page, browser
from launch_support import run_script
from page_colours import COLOURS, contrast, luminance
from test_timeline import timeline
from timeline_records import enlarge
from timeline_words import causes, label, percent_text, size_text, time_text

pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="chromium-headless-shell is not installed (make setup)"
)

# As programs may call their tensors, and as the page shows them.
NAMES = {
    "<b>bold</b> &amp; \"quoted\" 'names'": "<b>bold</b> &amp; \"quoted\" 'names'",
    "</script><script>alert(1)</script>": "</script><script>alert(1)</script>",
    "back`tick` `": "back`tick` `",
    "émoji 🚀  two blanks": "émoji 🚀  two blanks",
    "escape\x1b[31m tab\t line\n": r"escape\x1b[31m tab\x09 line\x0a",
    "turned \u202eright to left": r"turned \xe2\x80\xaeright to left",
    "long." + 60 * "encoder_": "long." + 60 * "encoder_",
}
# Rank 1 is late. Each tensor travels alone, because the next one is submitted when it has come. One step is
# so long that its bar is cut, also where a busy machine makes others long.
PROGRAM_OF_RANKS = f"""
import os, time
os.environ["RUEDA_TRANSPORTS"] = "tcp"
import numpy as np
import rueda.numpy as hvd

hvd.init()
hvd.start_timeline("t.json")
for step in hvd.timed_input(range(24)):
    time.sleep(3 if step == 7 else 0.02 if hvd.rank() == 1 else 0.01)
    for name in {list(NAMES)!r}:
        hvd.allreduce(np.ones(2_000, np.float32), name=name)
    hvd.mark_step()
hvd.shutdown()
"""
LARGE = 48
HOST = "node-{}.rack<7>.datacentre-west.example.internal"


@dataclass
class Made:
    """A page and what `--json` says of the same records."""

    address: str
    found: Dict[str, Any]


def make_page(folder: Path, records: str) -> Made:
    page = folder / f"{records}.html"
    found = json.loads(timeline("summary", "--json", "--html", str(page), str(folder / records)))
    return Made(page.as_uri(), found)


@pytest.fixture(scope="module", name="pages")
def make_pages(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Made]:
    """Of a job of 2 ranks, and of one of many ranks on hosts with long names."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "train.py").write_text(PROGRAM_OF_RANKS)
    run_script(2, folder, folder / "train.py")
    enlarge(folder / "t.json", folder / "large.json", LARGE, HOST.format)
    return {"small": make_page(folder, "t.json"), "large": make_page(folder, "large.json")}


@pytest.fixture(scope="module", name="page")
def start_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as page:
        yield page


# ---- what the page must not do ----


def test_the_browser_tells_what_a_page_asks_for_and_what_goes_wrong(page: Page, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<!doctype html><img src=https://example.com/a.png><script>console.error(1); no()</script>"
    )
    page.open(bad.as_uri())
    assert page.requests == [bad.as_uri(), "https://example.com/a.png"]
    told = "\n".join(page.complaints)
    assert "console.error" in told and "no is not defined" in told and "ERR_INTERNET_DISCONNECTED" in told


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("which", ["small", "large"])
def test_the_page_needs_nothing_else(which: str, scheme: str, page: Page, pages: Dict[str, Made]) -> None:
    page.open(pages[which].address, scheme=scheme)
    for key in ("Tab", "ArrowRight", "End", "Enter", "Space", "Tab", "ArrowDown", "Home"):
        page.press(key)
    page.point(640, 450, click=True)
    assert page.evaluate("document.title") == "Where the time went"
    assert page.requests == [pages[which].address]
    assert page.complaints == []


# ---- what it shows ----


# Of each bar: what it says, of the rectangles of its shares the class and the two measures, and whether it is
# cut.
BARS = """
[...document.querySelectorAll("%s .bar")].map((bar) => [bar.getAttribute("aria-label"),
  [...bar.querySelectorAll("rect:not(.frame):not(.cut)")].map((r) => [+r.className.baseVal.slice(1),
    r.width.baseVal.value, r.height.baseVal.value]), bar.querySelector(".cut") !== null])
"""
CELLS = """
[...document.querySelectorAll('[aria-label="%s"] tbody tr')].map(
  (row) => [...row.cells].map((cell) => cell.textContent))
"""


@pytest.mark.parametrize("which", ["small", "large"])
def test_bars_are_as_long_as_the_json_says(which: str, page: Page, pages: Dict[str, Made]) -> None:
    page.open(pages[which].address)
    found = pages[which].found
    assert found["steps"] >= 10 and len(found["by_step"]) == found["steps"]
    lengths = sorted(step["length_ns"] for step in found["by_step"])
    top = 4 * lengths[len(lengths) * 9 // 10 - 1]  # of nine in ten bars
    assert top < lengths[-1]
    bars = page.evaluate(BARS % "#steps")
    assert len(bars) == found["steps"]
    for (said, parts, is_cut), step in zip(bars, found["by_step"]):
        assert said == label(f"step {step['step']}", step["length_ns"], step["shares"], causes(step))
        assert is_cut == (step["length_ns"] > 1.001 * top)
        heights = {share: height for share, _, height in parts}
        room = 240.0
        for i, ns in enumerate(step["shares"].values()):
            height = min(ns / top * 240, room)
            assert heights.get(i, 0) == pytest.approx(height, abs=0.06)
            room -= height
    ranks = sorted(found["by_rank"], key=lambda rank: -float(rank["cost_ns"]))
    longest = max(sum(rank["shares"].values()) for rank in ranks)
    bars = page.evaluate(BARS % "#ranks")
    assert len(bars) == found["ranks"]
    for (said, parts, is_cut), rank in zip(bars, ranks):
        assert not is_cut
        assert said == label(f"rank {rank['rank']}", sum(rank["shares"].values()), rank["shares"], {})
        widths = {share: width for share, width, _ in parts}
        for i, ns in enumerate(rank["shares"].values()):
            assert widths.get(i, 0) == pytest.approx(ns / longest * 296, abs=0.06)


@pytest.mark.parametrize("which", ["small", "large"])
def test_tables_hold_the_numbers_of_the_json(which: str, page: Page, pages: Dict[str, Made]) -> None:
    page.open(pages[which].address)
    found = pages[which].found
    shares = {name.removesuffix("_ns"): ns for name, ns in found["shares"].items() if ns > 0}
    assert [row[:3] for row in page.evaluate(CELLS % "Shares of a step")] == [
        [name, time_text(ns), percent_text(ns / found["step_ns"])] for name, ns in shares.items()
    ]
    why = {"none": "", "compute": "computes longer", "input": "waits for input", "unknown": "at times"}
    why |= {"transfer": "transfers last longer", "rarely": "in few steps"}
    why |= {"input at times": "input at times", "compute at times": "computes at times"}
    ranks = sorted(found["by_rank"], key=lambda rank: -float(rank["cost_ns"]))
    assert ranks[0]["rank"] == 1, "it computes longer"
    assert [row[:9] for row in page.evaluate(CELLS % "Ranks")] == [
        [
            *(str(rank["rank"]), rank["host"], time_text(rank["cost_ns"])),
            f"{rank['last']} call{'' if rank['last'] == 1 else 's'}",
            percent_text(rank["critical_steps"] / found["steps"]),
            *(time_text(rank["shares"][f"{share}_ns"]) for share in ("compute", "input", "waiting")),
            why[rank["why"]] if rank["cost_ns"] >= found["step_ns"] / 100 else "",
        ]
        for rank in ranks
    ]
    rows = page.evaluate(CELLS % "Transfers")
    assert [row[2:6] for row in rows] == [
        [
            size_text(one["bytes"]),
            str(one["calls"]),
            time_text(one["transfer_ns"]),
            time_text(one["waiting_ns"]),
        ]
        for one in found["by_transfer"]
    ]
    *rows, off_links = page.evaluate(CELLS % "Transfer by link")
    assert off_links[:2] == ["no link", time_text(found["off_links_ns"])] and len(rows) >= 2
    assert [row[:2] for row in rows] == [
        [f"{link['from']} → {link['to']}", time_text(link["blocked_ns"])] for link in found["by_link"][:32]
    ]
    text = page.evaluate("document.body.innerText")
    assert f"{found['ranks']} ranks, epoch 1, {found['steps']} steps of {time_text(found['step_ns'])}" in text
    began = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(found["began_s"]))
    job = page.evaluate("document.querySelector('#job').innerText")
    assert job.startswith(f"Job {found['job']}, begun {began}, on ") and found["command"].strip() in job
    assert "python" in found["command"] and found["by_rank"][0]["host"] in job
    for advice in found["advice"]:
        assert advice["text"].replace("`", "") in text
    critical = max(found["by_rank"], key=lambda rank: int(rank["critical_steps"]))
    assert f"rank {critical['rank']} in {percent_text(critical['critical_steps'] / found['steps'])}" in text


def test_names_are_shown_as_they_are(page: Page, pages: Dict[str, Made]) -> None:
    page.open(pages["small"].address)
    shown = {name.removeprefix("allreduce.") for name, *_ in page.evaluate(CELLS % "Transfers")}
    assert shown == set(NAMES.values())
    assert page.evaluate("document.scripts.length") == 1
    assert page.evaluate("document.querySelectorAll('b, table code').length") == 0
    page.open(pages["large"].address)
    hosts = {host for _, host, *_ in page.evaluate(CELLS % "Ranks")}
    assert hosts == {HOST.format(rank) for rank in range(LARGE)}
    assert HOST.format(1) in page.evaluate("document.querySelector('ol').textContent"), "in the advice, too"


# ---- how it looks ----


def test_text_and_bars_stand_out_on_light_and_on_dark(page: Page, pages: Dict[str, Made]) -> None:
    seen: Dict[str, Tuple[str, str]] = {}
    for scheme in ("light", "dark"):
        page.open(pages["small"].address, scheme=scheme)
        found = page.evaluate(COLOURS)
        assert {kind for kind, *_ in found} == {"bar", "text"} and "cut" in {what for _, what, *_ in found}
        assert {"TD", "TH", "P", "H1", "H2", "LI", "SPAN", "BDI"} <= {what for _, what, *_ in found}
        for kind, what, colour, behind in found:
            least = 4.5 if kind == "text" else 3.0  # WCAG 1.4.3 and 1.4.11
            assert contrast(colour, behind) >= least, (scheme, kind, what, colour, behind)
        swatches = "[...document.querySelectorAll('.key i')].map((i) => getComputedStyle(i).backgroundColor)"
        body = page.evaluate("['backgroundColor', 'color'].map((x) => getComputedStyle(document.body)[x])")
        assert all(contrast(swatch, body[0]) >= 3 for swatch in page.evaluate(swatches))
        seen[scheme] = (body[0], body[1])
    assert luminance(seen["light"][0]) > 0.9 and luminance(seen["dark"][0]) < 0.05
    assert luminance(seen["light"][1]) < 0.05 and luminance(seen["dark"][1]) > 0.7


# Elements beside the window that no scrolling box holds, and boxes narrower than their text.
OUTSIDE = """
[...document.body.querySelectorAll("*")].filter((one) => {
  const box = one.getBoundingClientRect();
  const is_inside = box.left >= 0 && box.right <= document.documentElement.clientWidth + 0.5;
  return !is_inside && !one.parentElement.closest(".wide");
}).map((one) => one.outerHTML.slice(0, 120))
"""
# Of each table what it is, and how much of it is hidden until one scrolls.
HIDDEN = """
[...document.querySelectorAll(".wide")].map(
  (box) => [box.getAttribute("aria-label"), box.scrollWidth - box.clientWidth])
"""
SMALLEST = "Math.min(...[...document.querySelectorAll('p, td, th, li, span')].map((one) => parseFloat(%s)))"


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("which", ["small", "large"])
def test_nothing_lies_beside_the_window(which: str, width: int, page: Page, pages: Dict[str, Made]) -> None:
    page.open(pages[which].address, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate(SMALLEST % "getComputedStyle(one).fontSize") >= 11, "labels do not shrink"
    assert page.evaluate("document.querySelector('#steps').getBoundingClientRect().height") >= 150
    if width == 1280:
        assert not any(hidden for _, hidden in page.evaluate(HIDDEN))


@pytest.mark.parametrize("which", ["small", "large"])
def test_it_can_be_printed(which: str, page: Page, pages: Dict[str, Made]) -> None:
    page.open(pages[which].address, width=718, scheme="dark")
    page.look(width=718, scheme="dark", media="print")  # the width of A4 less its margins
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate(OUTSIDE.replace('&& !one.parentElement.closest(".wide")', "")) == []
    assert page.evaluate("[...document.querySelectorAll('.said')].every((one) => !one.offsetHeight)")
    swatch = "getComputedStyle(document.querySelector('.key i')).printColorAdjust"
    assert page.evaluate(swatch) == "exact", "the colours of the key are printed without other backgrounds"
    printed = page.printed()
    assert printed.startswith(b"%PDF") and len(re.findall(rb"/Type\s*/Page\b", printed)) in range(1, 9)


# ---- by keyboard and mouse ----

STOPS = "[...document.querySelectorAll('*')].filter((one) => one.tabIndex >= 0).map((one) => one.outerHTML)"
SAID = "document.querySelector('%s .said').textContent"
BOX = """
(() => {
  const box = document.activeElement.getBoundingClientRect();
  return [box.left + scrollX, box.top + scrollY, box.right + scrollX, box.bottom + scrollY];
})()
"""


def pixels(page: Page, box: List[float]) -> np.ndarray[Any, Any]:
    """The picture around a box of the page."""
    from matplotlib.image import imread

    left, top, right, bottom = (round(value) for value in box)
    return np.asarray(imread(io.BytesIO(page.picture())))[
        max(top - 6, 0) : bottom + 6, max(left - 6, 0) : right + 6
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_tab_reaches_everything_and_shows_where_it_is(
    scheme: str, page: Page, pages: Dict[str, Made]
) -> None:
    page.open(pages["small"].address, width=360, scheme=scheme)
    stops = page.evaluate(STOPS)
    scrolling = [table for table, hidden in page.evaluate(HIDDEN) if hidden]
    assert {"Ranks", "Transfers"} <= set(scrolling)
    assert len(stops) == 2 + len(scrolling), "two charts and the tables that do not fit"
    for stop in stops:
        page.press("Tab")
        reached = page.evaluate("document.activeElement.outerHTML")
        assert html.unescape(reached).replace(' now"', '"') == html.unescape(stop).replace(' now"', '"')
        box = page.evaluate(BOX)
        with_focus = pixels(page, box)
        page.evaluate("document.activeElement.blur()")
        changed = np.abs(with_focus - pixels(page, box)).max(axis=2) > 0.3
        assert changed.sum() >= 60, ("a ring around it", reached[:100])
    page.press("Tab")
    assert page.evaluate("document.activeElement === document.body"), "no trap"


def test_tables_that_do_not_fit_are_scrolled_by_keys(page: Page, pages: Dict[str, Made]) -> None:
    page.open(pages["small"].address)
    assert len(page.evaluate(STOPS)) == 2, "tables that fit are no stops"
    page.look(width=360)
    assert len(page.evaluate(STOPS)) >= 4
    page.evaluate("document.querySelector('[aria-label=Transfers]').focus()")
    page.press("ArrowRight")
    scrolled = """
    new Promise((tell) => {
      let left = 300;
      const look = () => {
        const at = document.activeElement.scrollLeft;
        if (at > 0 || --left === 0) tell(at);
        else requestAnimationFrame(look);
      };
      look();
    })
    """
    assert page.evaluate(scrolled) > 0


def middle_of(page: Page, chart: str, bar: int) -> Tuple[float, float]:
    script = f"""
    (() => {{
      const bar = document.querySelectorAll("{chart} .bar")[{bar}];
      bar.scrollIntoView({{ block: "center" }});
      const box = bar.getBoundingClientRect();
      return [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
    }})()
    """
    x, y = page.evaluate(script)
    return x, y


@pytest.mark.parametrize("chart", ["#steps", "#ranks"])
def test_keys_do_what_the_mouse_does(chart: str, page: Page, pages: Dict[str, Made]) -> None:
    page.open(pages["large"].address)
    said = SAID.replace("%s", ".chart:has(#steps)" if chart == "#steps" else chart)
    labels = page.evaluate(
        f"[...document.querySelectorAll('{chart} .bar')].map((b) => b.getAttribute('aria-label'))"
    )
    last = len(labels) - 1
    assert "Tab and the arrow keys" in page.evaluate(said), "it says how to use it"
    by_mouse = []
    for bar in (0, 1, last):
        page.point(*middle_of(page, chart, bar))
        by_mouse.append(page.evaluate(said))
    assert by_mouse == [labels[0], labels[1], labels[last]]
    page.point(*middle_of(page, chart, 1), click=True)
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == labels[1]
    page.open(pages["large"].address)
    for _ in range(1 if chart == "#steps" else 2):
        page.press("Tab")
    by_keys = [page.evaluate(said)]
    for _ in range(last):
        page.press("ArrowRight")
        by_keys.append(page.evaluate(said))
    assert by_keys == labels
    moves = {"ArrowDown": last, "ArrowUp": last - 1, "Home": 0, "ArrowLeft": 0, "End": last}
    for key, bar in moves.items():
        page.press(key)
        assert page.evaluate(said) == labels[bar], key
    for key, other in (("Enter", last - 1), ("Space", last - 2)):
        page.point(*middle_of(page, chart, other))
        assert page.evaluate(said) == labels[other]
        before = page.evaluate("scrollY")
        page.press(key)
        assert page.evaluate(said) == labels[last], key
        assert page.evaluate("scrollY") == before, "Space does not leaf through the page"
    page.press("Tab", shift=True)
    page.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == labels[last], (
        "where it was left"
    )
