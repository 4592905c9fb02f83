"""The arithmetic of bench/soak.py, and a soak of a second."""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(name="soak", scope="module")
def load_soak() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_soak", ROOT / "bench" / "soak.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_straight_line_has_its_slope_and_no_error(soak: ModuleType) -> None:
    rise, error = soak.slope([0.0, 1.0, 2.0, 5.0], [7.0, 7.5, 8.0, 9.5])
    assert rise == pytest.approx(0.5) and error == pytest.approx(0, abs=1e-9)
    assert soak.slope([1, 2, 3], [4, 4, 4]) == (0, 0)


def test_the_error_is_that_of_the_textbook(soak: ModuleType) -> None:
    """By hand: residuals -1/6, 1/3, -1/6, sum of their squares 1/6, divided by 1 degree of freedom and 2."""
    rise, error = soak.slope([0, 1, 2], [0, 1, 1])
    assert rise == pytest.approx(0.5) and error == pytest.approx(math.sqrt(1 / 12))


@pytest.mark.parametrize("times, values", [([1, 2], [1, 2]), ([1, 2, 3], [1, 2]), ([2, 2, 2], [1, 2, 3])])
def test_too_little_is_refused(soak: ModuleType, times: list[float], values: list[float]) -> None:
    with pytest.raises(ValueError, match="a slope"):
        soak.slope(times, values)


def test_the_warm_up_is_left_out(soak: ModuleType) -> None:
    samples = [(0.0, 0.0), (0.5, 90.0), *((minute, 100.0) for minute in range(1, 11))]
    row = soak.summarize(3, samples, 0.1)
    assert (row["rank"], row["mb_per_minute"], row["standard_error"]) == (3, 0, 0)


def test_a_soak_of_a_second_reports_every_rank(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [str(Path(sys.executable).parent / "rueda"), "run", "-np", "2", sys.executable]
    command += [str(ROOT / "bench" / "soak.py"), "--minutes", "0.02", "--report", str(report)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    rows = json.loads(report.read_text())
    assert [row["rank"] for row in rows] == [0, 1]
    for row in rows:
        assert row["standard_error"] >= 0 and len(row["samples"]) >= 3
        assert all(mb > 1 for _, mb in row["samples"]) and f"rank {row['rank']}: " in done.stdout
