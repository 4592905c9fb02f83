"""The picture of `rueda preflight --heat-map` in a browser: it opens offline, and no name is cut off."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest
from browser import PROGRAM, browser
from harness import CASE_LIMIT_S, make_job_folder, rank_environment
from launch_support import RUEDA
from page_colours import contrast

pytestmark = [
    pytest.mark.skipif(not os.path.exists(RUEDA), reason=f"{RUEDA} is not built"),
    pytest.mark.skipif(PROGRAM is None, reason="chromium-headless-shell is not installed (make setup)"),
]

HOSTS = ["a", "gpu-node-0017.rack-12.cluster.example.internal", "ip-10-0-113-207.eu-west-1.compute.internal"]

TEXTS = """
[...document.querySelectorAll("text")].map((text) => {
  const box = text.getBoundingClientRect();
  return [text.textContent, box.left, box.top, box.right, box.bottom];
})
"""
SIZE = "[document.documentElement.width.baseVal.value, document.documentElement.height.baseVal.value]"
# Of each number in a cell its colour and that of the cell.
NUMBERS = """
[...document.querySelectorAll("text[pointer-events]")].map(
  (text) => [text, text.previousElementSibling].map((one) => getComputedStyle(one).fill))
"""
TITLES = "[...document.querySelectorAll('title')].map((title) => title.textContent)"


def draw(picture: Path) -> None:
    """Ranks of a started job, one for each host, become its preflight."""
    folder = make_job_folder()
    ranks: List[subprocess.Popen[str]] = []
    for rank, host in enumerate(HOSTS):
        place = {"RUEDA_HOSTNAME": host, "RUEDA_LOCAL_RANK": "0", "RUEDA_LOCAL_SIZE": "1"}
        environment = {**rank_environment(rank, len(HOSTS), folder, "shm,tcp"), **place}
        words = [RUEDA, "preflight", "--heat-map", str(picture)]
        ranks.append(
            subprocess.Popen(
                words,
                env={**environment, "RUEDA_PYTHON": sys.executable},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    try:
        said = [rank.communicate(timeout=CASE_LIMIT_S)[0] for rank in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)
    assert picture.exists(), said


def test_the_picture_opens_offline_and_cuts_no_name_off(tmp_path: Path) -> None:
    draw(tmp_path / "map.svg")
    address = (tmp_path / "map.svg").as_uri()
    with browser(tmp_path) as page:
        for scheme in ("light", "dark"):
            page.open(address, scheme=scheme)
            assert page.requests == [address] and page.complaints == []
        texts = page.evaluate(TEXTS)
        assert {name: 2 for name in HOSTS}.items() <= {
            text: [one[0] for one in texts].count(text) for text, *_ in texts
        }.items(), "each host beside its row and above its column"
        width, height = page.evaluate(SIZE)
        for text, left, top, right, bottom in texts:
            assert min(left, top) >= 0 and right <= width and bottom <= height, text
        numbers = page.evaluate(NUMBERS)
        assert len(numbers) == 6 and all(contrast(*pair) >= 4.5 for pair in numbers), numbers
        assert sum(f"{HOSTS[0]} to {HOSTS[1]}: " in title for title in page.evaluate(TITLES)) == 1
