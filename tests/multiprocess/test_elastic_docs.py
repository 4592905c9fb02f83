"""The scripts of docs/elastic.md run as they stand."""

from __future__ import annotations

import importlib.util
import re

import pytest
from harness import ROOT
from launch_support import run_script

PAGE = (ROOT / "docs/elastic.md").read_text()
SCRIPTS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("number", range(len(SCRIPTS)))
def test_a_script_of_the_page_runs_with_two_ranks(number, tmp_path):
    script = SCRIPTS[number]
    for name in ("torch", "keras", "jax", "optax"):
        if f"import {name}" in script and importlib.util.find_spec(name) is None:
            pytest.skip(f"there is no {name}")
    (tmp_path / "script.py").write_text(script)
    assert run_script(2, tmp_path, tmp_path / "script.py").strip()


def test_the_page_shows_a_script_for_each_of_three_frameworks():
    shown = [re.search(r"rueda\.(\w+)", one)[1] for one in SCRIPTS]
    assert shown == ["torch", "keras", "jax", "torch", "numpy"]


def test_the_page_names_tests_that_exist():
    tests = (ROOT / "tests/multiprocess/test_elastic_torch.py").read_text()
    named = re.findall(r"\| `(\w+)…?`(?:…)? \|$", PAGE, re.MULTILINE)
    assert len(named) == 3 and all(f"def test_{one}" in tests for one in named), named
