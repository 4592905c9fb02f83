"""`rueda simulate` as users call it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Dict, List

import pytest
from launch_support import RUEDA


def simulate(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([RUEDA, "simulate", *words], capture_output=True, text=True, timeout=120)


def results(*words: str) -> List[Dict[str, Any]]:
    done = simulate(*words, "--json", "-")
    assert done.returncode == 0, done.stderr
    found: List[Dict[str, Any]] = json.loads(done.stdout)["results"]
    return found


def test_the_page_has_a_line_for_each_number_of_ranks_and_the_json_says_the_same(tmp_path: Path) -> None:
    words = ("--hosts", "2", "--bandwidth", "1gbit", "--ranks", "1,2,4", "--steps", "4")
    done = simulate(*words, "--json", str(tmp_path / "r.json"))
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.strip()[:1].isdigit()]
    rows = json.loads((tmp_path / "r.json").read_text())["results"]
    assert [line[0] for line in lines] == ["1", "2", "4"] == [str(row["ranks"]) for row in rows]
    assert [line[2] for line in lines] == [f"{row['step_ms']:.1f}" for row in rows]
    assert rows[0]["step_ms"] < rows[1]["step_ms"] < rows[2]["step_ms"]
    lost = rows[2]["lost_ms"]
    assert sum(lost.values()) == pytest.approx(rows[2]["step_ms"] - rows[2]["compute_ms"], rel=0.02)


def test_what_if_changes_what_the_cluster_file_says(tmp_path: Path) -> None:
    cluster = tmp_path / "c.json"
    cluster.write_text(json.dumps({"hosts": 4, "link": {"rate": "1gbit"}}))
    (as_it_is,) = results("--cluster", str(cluster), "--steps", "4", "--no-split")
    (faster,) = results("--cluster", str(cluster), "--steps", "4", "--no-split", "--bandwidth", "100gbit")
    (stretched,) = results("--cluster", str(cluster), "--steps", "4", "--no-split", "--dilation", "10")
    assert as_it_is["bottleneck"] == "links"
    assert faster["step_ms"] < as_it_is["step_ms"] / 2
    assert stretched["compute_ms"] == pytest.approx(10 * as_it_is["compute_ms"])
    assert stretched["efficiency"] > 2 * as_it_is["efficiency"]


def test_costs_of_another_file_are_taken(tmp_path: Path) -> None:
    machine = tmp_path / "machine.json"
    machine.write_text(json.dumps({"hosts": 1, "costs": {"submit_us": 2000}}))
    words = ("--hosts", "2", "--steps", "4", "--no-split")
    (usual,) = results(*words)
    (fitted,) = results(*words, "--costs", str(machine))
    assert fitted["step_ms"] > usual["step_ms"] + 100, "161 gradients"


@pytest.mark.parametrize(
    "words, why",
    [
        ([], "give --cluster FILE, or --hosts N"),
        (["--hosts", "2", "--cluster", "x"], "--cluster and --hosts both say"),
        (["--hosts", "2", "--algorithm", "foo"], "--algorithm: foo is none of "),
        (["--hosts", "2", "--latency", "nan"], "--latency: "),
        (["--cluster", "/nowhere.json"], "cannot read /nowhere.json"),
        (["--cluster", "/"], "cannot read /; check the path of the cluster"),
        (["--hosts", "2", "--model", "resnet5"], "unknown model resnet5"),
        (["--hosts", "2", "--bandwidth", "0gbit"], "--bandwidth: "),
        (["--hosts", "2", "--ranks", "1000000"], "--ranks: "),
        (["--hosts", "2", "--per-host", "4", "--ranks", "6"], "6 ranks do not fill hosts of 4 ranks"),
        (["--hosts", "2", "--detail", "fine"], "--detail fine is none of auto, message and call"),
        (["--hosts", "2", "--fusion", "much"], "--fusion: "),
        (["--hosts", "8", "--tiers", "4:x"], "--tiers: 4:x does not end with a number from 1 to 1000"),
        (["--hosts", "2", "--write-costs", "m.json"], "--write-costs is for --validate"),
        (["--validate", "--hosts", "2"], "--validate measures on this machine, and has no use for --hosts"),
        (["--hosts", "2", "--costs", "/nowhere.json"], "--costs: cannot read /nowhere.json"),
        (["--hosts", "2", "--stps", "4"], "did you mean --steps?"),
    ],
)
def test_bad_input_is_answered_in_one_sentence(words: List[str], why: str) -> None:
    done = simulate(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("rueda simulate: ") and done.stderr.count("\n") == 1
    assert why in done.stderr


@pytest.mark.parametrize(
    "text", ["", "[]", '{"replays": 1}', '{"replays": [{}]}', '{"replays": [{"model": 1}]}']
)
def test_a_file_that_is_no_report_of_a_validation_is_refused(tmp_path: Path, text: str) -> None:
    report = tmp_path / "report.json"
    report.write_text(text)
    done = simulate("--validate", "--measured", str(report))
    assert done.returncode == 2
    assert done.stderr == (
        f"rueda simulate: {report} is no report of rueda simulate --validate; check the path\n"
    )
