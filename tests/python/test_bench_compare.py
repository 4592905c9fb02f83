"""The arithmetic of bench/compare: ratios are of one round, times of the slowest rank, figures are SVG."""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "bench" / "compare"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"bench_compare_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_ratios_are_taken_within_a_round() -> None:
    ratios = load("ratios")
    ours, theirs = ("rueda", "shm", "4"), ("peer", "shm", "4")
    # The machine halves its speed in the second round; the ratio is 2 in both.
    rounds = [{ours: 10.0, theirs: 20.0}, {ours: 20.0, theirs: 40.0}]
    assert ratios.ratio(rounds, theirs, ours) == (2.0, 2.0, 2.0)
    rounds += [{ours: 10.0, theirs: 40.0}, {ours: 10.0}]  # a round without the peer says nothing
    assert ratios.ratio(rounds, theirs, ours) == (2.0, 2.0, 3.0)
    assert ratios.ratio([{ours: 1.0}], theirs, ours) is None


def test_table_has_the_base_first_and_peers_without_shared_memory_in_both() -> None:
    ratios = load("ratios")
    one = {("gloo", "tcp", "4"): 90.0, ("mpi", "shm", "4"): 5.0, ("mpi", "tcp", "4"): 30.0}
    one |= {("rueda", "shm", "4"): 10.0, ("rueda", "tcp", "4"): 30.0}
    shm = ratios.table([one], "rueda", "shm", ["4"])
    assert [(row["peer"], row["transport"]) for row in shm] == [
        ("rueda", "shm"),
        ("gloo", "tcp"),
        ("mpi", "shm"),
    ]
    assert [row["cells"]["4"]["ratio"]["median"] for row in shm] == [1.0, 9.0, 0.5]
    tcp = ratios.table([one], "rueda", "tcp", ["4"])
    assert {row["peer"]: row["cells"]["4"]["ratio"]["median"] for row in tcp} == {
        "rueda": 1.0,
        "gloo": 3.0,
        "mpi": 1.0,
    }


def test_call_lasts_from_the_last_start_to_the_last_end(tmp_path: Path) -> None:
    tools = load("tools")
    (tmp_path / "t.0").write_text("4 1000 7000\n4 9000 12000\n4 20000 21000\n")
    (tmp_path / "t.1").write_text("4 5000 6000\n4 8000 13000\n4 20000 29000\n")
    assert tools.call_medians(tmp_path / "t", 2) == {"4": 4.0}  # of 2, 4 and 9


def test_program_that_hangs_is_ended_and_named(tmp_path: Path) -> None:
    tools = load("tools")
    with pytest.raises(tools.Unavailable, match=r"sleep did not end within 0 s"):
        tools.run(["sleep", "60"], 0.2)
    with pytest.raises(tools.Unavailable, match=r"sh ended with status 3: an error"):
        tools.run(["sh", "-c", "echo fine; echo an error; echo bye; exit 3"], 10)


def test_ddp_buckets_hold_every_tensor_once_in_order() -> None:
    pytest.importorskip("torch")
    peer = load("gloo_peer")
    counts = [1000, (1 << 18) - 1000, 5, 6 << 20, 7 << 20, 3]
    assert peer.buckets_of(counts) == [[0, 1], [2, 3, 4], [5]]


def figure_of(series: dict[str, list[float]], ideal: list[float]) -> ElementTree.Element:
    pytest.importorskip("matplotlib")
    groups = [f"{2 << i} hosts" for i in range(len(ideal))]
    return ElementTree.fromstring(
        load("figure").bars("A & B", "% of it", "note", groups, series, ("ideal", ideal))
    )


def bar_of(root: ElementTree.Element, place: int, group: int) -> tuple[float, float]:
    """Top and bottom of one bar, downwards."""
    (path,) = [g[0].attrib["d"] for g in root.iter() if g.attrib.get("id") == f"bar-{place}-{group}"]
    ups = [float(number) for number in path.split()[2::3]]
    return min(ups), max(ups)


def test_figure_is_svg_with_a_bar_for_every_value() -> None:
    root = figure_of({"x": [1.0, 0.5], "y": [0.9, 0.4]}, [1.0, 0.8])
    heights = [bottom - top for top, bottom in (bar_of(root, place, g) for place in (0, 1) for g in (0, 1))]
    assert [height / heights[0] for height in heights] == pytest.approx([1, 0.5, 0.9, 0.4], abs=1e-3)
    texts = [one.text for one in root.iter()]
    assert all(
        text in texts for text in ["A & B", "% of it", "note", "x", "y", "ideal", "2 hosts", "100", "50"]
    )


def test_replay_shows_medians_over_rounds_and_the_machine_in_plain_words(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    replay = load("replay")
    rows = [
        {"library": library, "hosts": hosts, "efficiency": found}
        for library, hosts, speeds in [
            (replay.RUEDA, 2, (0.99, 0.2, 1.0)),
            (replay.RUEDA, 8, (0.8, 0.86, 0.85)),
            (replay.DDP, 2, (0.9, 0.95, 0.96)),
            (replay.DDP, 8, (0.84, 0.7, 0.86)),
        ]
        for found in speeds
    ]
    assert replay.medians(rows, [2, 8]) == {replay.RUEDA: [0.99, 0.85], replay.DDP: [0.95, 0.84]}
    options = argparse.Namespace(model="resnet50")
    note = replay.note_of(options, {"rate_bits": 250e6, "dilation": 25.0}, 3, 2)
    assert "one computer with 2 cores" in note and "medians of 3 rounds" in note
    assert "A link has 250 Mbit/s" in note and "25 times as long" in note and "6.25 Gbit/s beside" in note


def test_the_readme_s_figure_compares_with_ddp_alone() -> None:
    drawing = (FOLDER.parents[1] / "docs/scaling.svg").read_text()
    for words in ("rueda", "DDP", "cores", "machines", "% of the speed without communication"):
        assert words in drawing, words
    assert "parameter server" not in drawing


def test_a_bar_s_label_is_not_crossed_by_the_ideal_s_line() -> None:
    root = figure_of({"x": [0.95, 0.81, 0.03], "y": [1.0, 0.79, 0.5]}, [0.966, 0.868, 0.8])
    for place, group in itertools.product((0, 1), range(3)):
        (label,) = [g[0] for g in root.iter() if g.attrib.get("id") == f"label-{place}-{group}"]
        baseline = float(re.findall(r"[-\d.]+", label.attrib["transform"])[-1])
        top, bottom = bar_of(root, place, group)
        is_inside = top + 6 < baseline < bottom  # digits are 6.6 high
        assert is_inside != (place == 0 and group == 2), (label.text, baseline, top, bottom)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--parts", "everything"], "unknown part everything; choose from collective"),
        (["--collectives", "gather"], "unknown collective gather; choose from allreduce, allgather"),
        (["--sizes", "4KiB"], "bytes, such as 4,65536"),
        (["--ranks", "1"], "at least 2 ranks"),
    ],
)
def test_bad_input_is_refused_before_anything_is_measured(arguments: list[str], sentence: str) -> None:
    command = [sys.executable, str(FOLDER), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and sentence in done.stderr


def test_models_of_the_comparison_are_those_of_the_command() -> None:
    tools = load("tools")
    for path in (FOLDER.parent / "models").glob("*.json"):
        assert sum(tools.model_counts(path.stem)) == json.loads(path.read_text())["total"]
    with pytest.raises(SystemExit, match="choose from bert_base"):
        tools.model_path("resnet51")


def load_builds() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_builds", FOLDER.parent / "builds.py")
    assert spec is not None and spec.loader is not None
    builds = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = builds
    spec.loader.exec_module(builds)
    return builds


def make_file(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_each_of_two_builds_runs_with_its_own_command_and_library(tmp_path: Path) -> None:
    builds = load_builds()
    library = make_file(tmp_path / "release/librueda.so")
    with pytest.raises(SystemExit, match=r"no command of the build of .*release/librueda\.so"):
        builds.build_of(str(library), None, tmp_path)
    beside = make_file(tmp_path / "release/bin/rueda")
    assert builds.build_of(str(library), None, tmp_path) == (library, beside)
    elsewhere = make_file(tmp_path / "else/rueda")
    assert builds.build_of(str(library), elsewhere, tmp_path) == (library, elsewhere)
    with pytest.raises(SystemExit, match="no command"):
        builds.build_of(str(library), tmp_path / "nowhere", tmp_path)
    installed = make_file(tmp_path / "prefix/lib/librueda.so")
    command = make_file(tmp_path / "prefix/bin/rueda")
    assert builds.build_of(str(installed), None, tmp_path) == (installed, command)
    wheel = tmp_path / "rueda_train-1.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("rueda/lib/librueda.so", "")
        archive.writestr("rueda_train-1.data/scripts/rueda", "")
    unpacked = builds.build_of(str(wheel), None, tmp_path / "wheel")
    assert unpacked.library.is_file() and os.access(unpacked.command, os.X_OK)
    with pytest.raises(SystemExit, match=r"no library .*missing\.so"):
        builds.build_of(str(tmp_path / "release/missing.so"), None, tmp_path)


def test_a_run_of_a_build_meets_no_other_build(tmp_path: Path) -> None:
    builds = load_builds()
    seen = tmp_path / "seen"
    script = f"""#!{sys.executable}
import json, os, sys
open({str(seen)!r}, "a").write(sys.argv[0] + " " + os.environ["RUEDA_LIBRARY"] + "\\n")
cell = {{"transport": "shm", "memory": "private", "bytes": 4, "median_us": 1.0, "correct": True}}
open(sys.argv[sys.argv.index("--json") + 1], "w").write(json.dumps({{"results": [cell]}}))
"""
    pairs = []
    for name in ("old", "new"):
        library = make_file(tmp_path / name / "librueda.so")
        pairs.append(builds.Build(library, make_file(tmp_path / name / "bin/rueda", script)))
    options = argparse.Namespace(
        collective="allreduce", ranks=2, memory="private", transport="shm", seconds=0.1, turns=3
    )
    assert len(builds.measure(options, *pairs)) == 3
    lines = [f"{build.command} {build.library}" for build in pairs]
    said = seen.read_text().splitlines()
    assert set(said) == set(lines) and said.count(lines[1]) == 3


def test_a_build_is_slower_only_beyond_the_spread_of_the_build_before() -> None:
    builds = load_builds()
    quiet, wide, same = ("shm", "private", 4), ("tcp", "private", 4), ("shm", "shared", 4)
    turns = []
    for noise in (0.8, 1.0, 1.25):  # of one cell: the machine does to itself what the new build seems to do
        before = {quiet: 10.0, wide: 10.0, same: 10.0}
        after = {quiet: 11.0, wide: 11.0, same: 10.1}
        again = {quiet: 10.0, wide: 10.0 * noise, same: 10.0}
        turns.append((before, after, again))
    verdicts = {row.cell: row.is_slower() for row in builds.rows_of(turns)}
    assert verdicts == {quiet: True, wide: False, same: False}
    del turns[0][1][same]  # a cell that one run lacks says nothing
    assert [row.cell for row in builds.rows_of(turns)] == [quiet, wide]
