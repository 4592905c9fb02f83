"""The scripts of docs/elastic.md run as they stand, and those that train lose a rank meanwhile."""

from __future__ import annotations

import importlib.util
import json
import re
import sys

import pytest
from harness import PATIENCE, ROOT
from launch_support import Run, run_script, script_environment

PAGE = (ROOT / "docs/elastic.md").read_text()
SCRIPTS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
KILLED_AT_COMMIT = ROOT / "tests/multiprocess/killed_at_commit.py"
LIMIT_S = 240.0 * PATIENCE  # ends what hangs: two processes import a framework, and then a third does
# In the second epoch, so what follows is wrong if the epoch is not that of the commit.
COMMITS = {"torch": 20, "keras": 7, "jax": 20}


def script_for(name):
    """The first script of the page for this framework."""
    for module in (name, "optax" if name == "jax" else name):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"there is no {module}")
    return next(one for one in SCRIPTS if f"import rueda.{name} as hvd" in one)


@pytest.mark.thorough("keras")
@pytest.mark.parametrize("name", COMMITS)
def test_a_training_script_of_the_page_survives_a_killed_rank_and_takes_in_another(name, tmp_path):
    (tmp_path / "script.py").write_text(script_for(name))
    job = Run(
        *("--no-prefix", "-np", 2, "--min-np", 2, sys.executable),
        *(KILLED_AT_COMMIT, "localhost:1#0", COMMITS[name], "script.py"),
        env=script_environment(),
        cwd=tmp_path,
    )
    status, out, err = job.finish(LIMIT_S)
    assert status == 0, out + err
    said = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    began = {one["uid"]: one["pid"] for one in said if one["what"] == "begin"}
    ended = {one["uid"]: one for one in said if one["what"] == "end"}
    assert set(began) == {"localhost:0#0", "localhost:1#0", "localhost:1#1"}, out + err
    assert set(ended) == {"localhost:0#0", "localhost:1#1"}, out + err
    assert all(one["pid"] == began[uid] for uid, one in ended.items()), "nobody else was started again"
    assert "gone: localhost:1#0" in err
    assert ended["localhost:0#0"]["view"] == ended["localhost:1#1"]["view"] == [2, 2], said
    results = [line for line in out.splitlines() if not line.startswith("{")]
    assert len(results) == 2, out
    job.assert_gone()


@pytest.mark.parametrize("name", ["halves", "rueda.run"])
def test_another_script_of_the_page_runs_with_two_ranks(name, tmp_path):
    script = next(one for one in SCRIPTS if name in one)
    if "import torch" in script and importlib.util.find_spec("torch") is None:
        pytest.skip("there is no torch")
    (tmp_path / "script.py").write_text(script)
    assert run_script(2, tmp_path, tmp_path / "script.py").strip()


def test_the_page_shows_a_script_for_each_of_three_frameworks():
    shown = [re.search(r"rueda\.(\w+)", one)[1] for one in SCRIPTS]
    assert shown == ["torch", "keras", "jax", "torch", "numpy"]


def test_the_page_names_tests_that_exist():
    tests = (ROOT / "tests/multiprocess/test_elastic_torch.py").read_text()
    named = re.findall(r"\| `(\w+)…?`(?:…)? \|$", PAGE, re.MULTILINE)
    assert len(named) == 3 and all(f"def test_{one}" in tests for one in named), named
