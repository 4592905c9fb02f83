"""Scripts of bench/figures: what they compute by themselves, without `rueda simulate`."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "bench/figures"))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module(name)


def test_only_new_code_counts_as_a_line_of_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    single = '"""One."""\n\nmodel = make()\nfor step in range(9):\n    train(model)  # a step\n'
    distributed = (
        '"""Several.\n\nOf them.\n"""\nimport mesh\n\n# everywhere\nwith mesh.scope():\n    model = make()\n'
        "for step in range(9):\n    train(\n        model,\n        mesh,\n    )\n"
    )
    counted = script("lines_of_code", monkeypatch).counted_lines(single, distributed)
    assert counted == ["import mesh", "with mesh.scope():", "train(", "model,", "mesh,", ")"]


def test_the_counts_in_docs_are_those_of_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads((ROOT / "docs/figures/lines_of_code.json").read_text())
    assert found == script("lines_of_code", monkeypatch).compute("", Path(), 0)


def test_the_shared_part_of_the_experts_is_ready_in_order_and_by_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tensors = script("moe", monkeypatch).tensors(90)
    ready = [ms for _, _, ms in tensors]
    assert ready == sorted(ready) and ready[0] > 30 and ready[-1] == pytest.approx(90)
    shared = sum(elements for _, elements, _ in tensors)
    experts = 12 * 128 * 3 * 768 * 2048
    assert shared == 167_459_328 and shared + experts == pytest.approx(7.4e9, rel=0.01)


def test_tokens_travel_four_times_for_each_sparse_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    found = script("moe", monkeypatch).exchanges(90, 32)
    assert len({one["name"] for one in found}) == 12 * 4
    times = [one["at_ms"] for one in found]
    assert times == sorted(times) and 0 < times[0] < 30 < times[-1] < 90
    assert sum(at_ms < 30 for at_ms in times) == 24, "half of them forward"
    per_sequence = sum(one["elements"] for one in found) // 32
    assert per_sequence == 4 * 6 * (512 + 114) * 768 // 2


def test_merged_gradients_are_ready_with_the_last_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    merge_scope = script("merge_scope", monkeypatch)
    tensors = [("a", 1, 5.0), ("b", 2, 6.0), ("c", 4, 7.0)]
    assert merge_scope.merged(tensors, 2) == [("a", 3, 6.0), ("c", 4, 7.0)]
    late = merge_scope.packed([("a", int(484e6) // 8, 5.0), ("b", int(484e6) // 8, 5.5)])
    assert [round(ms, 2) for _, _, ms in late] == [6.0, 7.5]


def test_the_page_says_of_buckets_what_the_figure_has(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = script("buffer", monkeypatch)
    fabrics = json.loads((ROOT / "docs/figures/buffer.json").read_text())["fabrics"]
    page = (ROOT / "docs/predictions.md").read_text().split("## The size of buckets")[1].split("\n## ")[0]
    best = [(fabric["name"], *buffer.best_on_average(fabric)) for fabric in fabrics]
    better = [f"{mib} MiB by {points:.1f} " for _, mib, points in best if round(points, 1) > 0]
    assert len(better) == 4 and all(words in page for words in better), better
    faster, slower = [], []  # computing, than in the models
    for fabric in fabrics:
        to = slower if fabric["dilation"] == 1 else faster
        to += [buffer.relative(row) for row in fabric["models"].values()]
    assert f"costs up to {max(max(row[:-1]) for row in faster):.0f} % with another" in page
    assert f"up to {max(max(row[:-1]) for row in slower):.1f} % with computing" in page
    *others, worst = sorted(row[-1] for row in slower + faster)
    assert f"within {others[-1]:.1f} % of the best" in page and f"is {worst:.1f} % longer than" in page


def test_every_figure_is_made_by_make_figures_and_is_in_the_page() -> None:
    made = (ROOT / "Makefile").read_text().split("figures: setup")[1].split("for figure in ")[1].split(";")[0]
    page = (ROOT / "docs/predictions.md").read_text()
    for name in made.split():
        assert (ROOT / f"docs/figures/{name}.svg").exists() and (ROOT / f"docs/figures/{name}.json").exists()
        assert f"figures/{name}.svg" in page, name
    drawn = {path.stem for path in (ROOT / "docs/figures").glob("*.svg")}
    assert drawn == set(made.split())
