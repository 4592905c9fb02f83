"""`rueda simulate` as users call it."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, List, Set

import pytest
from launch_support import ROOT, RUEDA
from simulate_support import TINY, simulate


def results(*words: str) -> List[Dict[str, Any]]:
    done = simulate(*words, "--json", "-")
    assert done.returncode == 0, done.stderr
    found: List[Dict[str, Any]] = json.loads(done.stdout)["results"]
    return found


def test_the_page_has_a_line_for_each_number_of_ranks_and_the_json_says_the_same(tmp_path: Path) -> None:
    words = ("--bandwidth", "1gbit", "--ranks", "1,2,4", "--steps", "4")
    done = simulate(*words, "--json", str(tmp_path / "r.json"))
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.strip()[:1].isdigit()]
    rows = json.loads((tmp_path / "r.json").read_text())["results"]
    assert [line[0] for line in lines] == ["1", "2", "4"] == [str(row["ranks"]) for row in rows]
    assert [line[2] for line in lines] == [f"{row['step_ms']:.1f}" for row in rows]
    assert rows[0]["step_ms"] < rows[1]["step_ms"] < rows[2]["step_ms"]
    lost = rows[2]["lost_ms"]
    assert sum(lost.values()) == pytest.approx(rows[2]["step_ms"] - rows[2]["compute_ms"], rel=0.02)


# One prediction of 64 ranks by messages takes many times as long as it is silent.
LONG = ("--hosts", "64", "--bandwidth", "1gbit", "--model", "vgg16", "--steps", "200")


def said_within(command: List[str], deadline_s: float, enough: bytes) -> bytes:
    """What it says on a terminal as standard error until `enough` is in it; then it is ended."""
    terminal, its_end = os.openpty()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=its_end)
    os.close(its_end)
    end, said = time.monotonic() + deadline_s, b""
    try:
        while enough not in said and time.monotonic() < end and process.poll() is None:
            if select.select([terminal], [], [], 0.2)[0]:
                said += os.read(terminal, 4096)
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    return said


def test_a_long_prediction_shows_how_far_it_is_on_a_terminal() -> None:
    said = said_within([RUEDA, "simulate", *LONG], 100, b" of 206 ")
    assert b"\r\x1b[Krueda simulate: 64 ranks, step " in said and b" of 206 " in said, said


def test_a_prediction_says_nothing_of_its_progress_into_a_pipe() -> None:
    words = ("--hosts", "8", "--bandwidth", "1gbit", "--model", "vgg16", "--no-split", "--json", "-")
    done = simulate(*words)
    assert done.returncode == 0 and done.stderr == ""
    json.loads(done.stdout)


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


def test_fusion_0_sends_every_tensor_by_itself() -> None:
    words = ("--hosts", "2", "--bandwidth", "10gbit", "--steps", "4", "--no-split", "--fusion", "0")
    for more in ([], ["--no-plans"], ["--tune", "8"]):
        (row,) = results(*words, *more)
        assert row["calls"] == 161 and row["bucket_bytes"] == 0, more
    assert "161 calls, none fused, " in simulate(*words).stdout


def test_the_json_says_how_it_was_made_and_is_the_same_twice(tmp_path: Path) -> None:
    model, machine = tmp_path / "w.json", tmp_path / "m.json"
    model.write_text(json.dumps(TINY))
    machine.write_text(json.dumps({"hosts": 1, "costs": {"submit_us": 3}}))
    words = (
        f"--model {model} --costs {machine} --hosts 4 --ranks 8 --per-host 2 --bandwidth 1gbit --latency 25"
    )
    words += " --tiers 2:2 --host-order best --compute 5 --dilation 2 --algorithm direct --fusion 32MiB"
    words += (
        " --chunk 64KiB --cycle 1 --detail message --steps 4 --step-noise 0.01 --rank-noise 0.02 --seed 7"
    )
    words += " --strategy allreduce --late 1:20% --no-split"
    for last in ("--bucket 4MiB", "--tune 8", "--no-plans --rdma", "--cross-step"):
        given = f"{words} {last}".split()
        wanted: Dict[str, Any] = {}
        for word in given:
            if word.startswith("--"):
                name = word[2:]
                wanted[name] = True
            else:
                wanted[name] = word
        texts = []
        for file in ("a.json", "b.json"):
            done = simulate(*given, "--json", str(tmp_path / file), "--html", str(tmp_path / f"{file}.html"))
            assert done.returncode == 0, done.stderr
            texts.append((tmp_path / file).read_text())
        assert texts[0] == texts[1]
        assert json.loads(texts[0])["options"] == wanted
    assert json.loads(simulate("--np", "2", "--json", "-").stdout)["options"] == {"ranks": "2"}, "one name"


def keys_in(value: Any, free: Set[str]) -> Set[str]:
    """All keys, without those below `free`, which are names of options, costs and algorithms."""
    if isinstance(value, list):
        return set().union(*(keys_in(one, free) for one in value))
    if not isinstance(value, dict):
        return set()
    below = (keys_in(inner, free) for key, inner in value.items() if key not in free)
    return set(value).union(*below)


def test_the_page_names_every_key_of_the_json(tmp_path: Path) -> None:
    section = (ROOT / "docs/simulate.md").read_text().split("\n## JSON\n")[1]
    of_prediction, of_validation = section.split("\n`--validate --json FILE` writes")
    report = tmp_path / "r.json"
    found: Set[str] = set()
    for words in (
        "--hosts 4 --bandwidth 10gbit --steps 4 --tune 200 --tiers 2:4 --late 2:20%",
        "--hosts 4 --strategy tensorflow-servers --servers 1:4 --steps 4 --no-split",
    ):
        done = simulate(*words.split(), "--json", str(report))
        assert done.returncode == 0, done.stderr
        read = json.loads(report.read_text())
        found |= keys_in(read, {"options", "costs", "algorithms"})
        costs = set(read["cluster"]["costs"])
    assert {"options", "lost_ms", "culprits", "gain_ms", "tuned", "oversubscription", "share"} <= found, (
        "made"
    )
    assert found - set(re.findall(r"`(\w+)`", of_prediction)) == set()
    validation = json.loads((ROOT / "docs/validation.json").read_text())
    kept = keys_in(validation, {"costs", "workload"})
    assert kept - set(re.findall(r"`(\w+)`", of_validation)) == set()
    assert costs - set(re.findall(r"`(\w+)`", (ROOT / "docs/simulate.md").read_text())) == set()


def test_a_complete_validation_says_what_it_does_and_how_to_go_faster(tmp_path: Path) -> None:
    replay = {
        "model": "sh train.sh",
        "hosts": 2,
        "per_host": 1,
        "rate": "1gbit",
        "bucket_bytes": 0,
        "strategy": "auto",
        "cross_step": False,
        "program": "sh train.sh",
        "compute_ms": 10,
        "step_ms": [12],
        "workload": {**TINY, "compute_ms": 10},
    }
    replays = [{**replay, "is_fitted": is_fitted} for is_fitted in (True, False)]
    measured, machine = tmp_path / "measured.json", tmp_path / "machine.json"
    measured.write_text(json.dumps({"replays": replays, "cores": 2}))
    done = simulate("--validate", "--measured", str(measured), "--write-costs", str(machine))
    assert done.returncode == 0, done.stderr
    said = done.stderr.splitlines()
    assert said[0].startswith(f"simulate: {measured} is complete, and its costs are fitted again")
    assert "--costs FILE" in said[0]
    assert [line for line in said if "fit, try 10 of 85: " in line]
    assert [line for line in said if "fit, try 85 of 85: " in line]
    assert said[-1] == "simulate: predicts replay 1 of 2"
    done = simulate("--validate", "--measured", str(measured), "--costs", str(machine))
    assert done.returncode == 0 and done.stderr.splitlines() == ["simulate: predicts replay 1 of 2"]


def test_a_workload_of_a_job_is_told_of_in_every_form(tmp_path: Path) -> None:
    model, page, report = tmp_path / "w.json", tmp_path / "r.html", tmp_path / "r.json"
    words = f"--hosts 1 --model {model} --steps 4 --html {page} --json {report}".split()
    note = "the workload is of a job of 8 ranks; what a rank computes is taken to be the same here"
    for world in (8, None):
        model.write_text(json.dumps({**TINY, **({"world": world} if world else {})}))
        done = simulate(*words)
        assert done.returncode == 0, done.stderr
        assert " on 1 host\n" in done.stdout
        told = json.loads(report.read_text())["workload"]
        assert (told["world"], told["note"]) == (world, note if world else "")
        assert (note in done.stdout) == (note in page.read_text()) == (world is not None)


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
        ([], "give --cluster FILE, or --hosts N or --ranks N"),
        (["--hosts", "2", "--cluster", "x"], "--cluster and --hosts both say"),
        (["--hosts", "2", "--algorithm", "foo"], "--algorithm: foo is none of "),
        (["--hosts", "2", "--algorithm", "adasum"], "adasum is none of direct, "),
        (
            ["--hosts", "2", "--algorithm", "encoded"],
            "two_level_doubling, which sum the gradients of a model",
        ),
        (["--hosts", "2", "--algorithm", ""], "--algorithm: nothing is given"),
        (["--hosts", "2", "--latency", "nan"], "--latency: nan is not a number from 0 to 1000000"),
        (["--hosts", "2", "--step-noise", "nan"], "--step-noise: nan is not a number from 0 to 0.99"),
        (["--hosts", "2", "--rank-noise", "-nan"], "--rank-noise: -nan is not a number from 0 to 0.99"),
        (["--hosts", "2", "--dilation", "nan"], "--dilation: nan is not a number"),
        (["--hosts", "2", "--compute", "inf"], "--compute: inf is not a number"),
        (["--hosts", "2", "--cycle", "nan"], "--cycle: nan is not a number"),
        (["--hosts", "2", "--steps", "nan"], "--steps: "),
        (["--hosts", "2", "--late", "0:nan%"], "--late: "),
        (["--hosts", "2", "--late", "1:20"], "--late: 1:20 is not a late rank; write its number and by how "),
        (
            ["--hosts", "2", "--late", "1:2000%"],
            "many percent longer it computes, from 0% to 1000%, as in 1:",
        ),
        (["--hosts", "2", "--bucket", "8"], "--bucket: 8 without a unit would be 8 bytes; write 8MiB, or 8B"),
        (
            ["--hosts", "2", "--fusion", "64"],
            "--fusion: 64 without a unit would be 64 bytes; write 64MiB, or",
        ),
        (["--hosts", "2", "--tiers", "2:nan"], "--tiers: "),
        (["--hosts", "2", "--bandwidth", "nangbit"], "--bandwidth: "),
        (["--hosts", "2", "--seed", "-1"], "--seed: -1 is not a whole number from 0 to 1844"),
        (["--hosts", "2", "--seed", "1" * 23], "--seed: 11111111111111111111111 is not a whole number"),
        (["--hosts", "2", "--tune", "4", "--no-plans"], "--tune cannot be beside --no-plans: "),
        (["--hosts", "2", "--tune", "4", "--bucket", "1MiB"], "--tune cannot be beside --bucket"),
        (["--hosts", "2", "--json", "/tmp/x", "--html", "/tmp/./x"], "--json and --html both write /tmp/"),
        (["--hosts", "2", "--json", "nosuch", "--html", "./nosuch"], "both write ./nosuch; name two files"),
        (["--hosts", "2", "--html", "-"], "--html - names no file, and only --json prints"),
        (["--hosts", "2", "--json", "/tmp/x.rank0.rec"], "is the name of a record file"),
        (["--cluster", "/nowhere.json"], "cannot read /nowhere.json"),
        (["--cluster", "/"], "cannot read /; check the path of the cluster"),
        (["--hosts", "2", "--model", "resnet5"], "unknown model resnet5"),
        (["--hosts", "2", "--bandwidth", "0gbit"], "--bandwidth: "),
        (["--hosts", "2", "--bandwidth", "99999999999999gbit"], "give 1mbit to 1000000000gbit"),
        (["--hosts", "2", "--ranks", "1000000"], "--ranks: "),
        (["--ranks", "6", "--per-host", "4"], "6 ranks do not fill hosts of 4 ranks"),
        (["--hosts", "3", "--ranks", "7"], "--ranks 7 contradicts --hosts 3, which are 3 of 1 each; leave "),
        (
            ["--hosts", "2", "--ranks", "2,8"],
            "--ranks 8 contradicts --hosts 2, which are 2 of 1 each; give --per-",
        ),
        (["--hosts", "2", "--per-host", "4", "--ranks", "4"], "which are 8 of 4 each; give --per-host 2, or"),
        (["--hosts", "2", "--tune", "4", "--cross-step"], "--tune cannot be beside --cross-step: steps that"),
        (
            ["--hosts", "2", "--bucket", "1MiB", "--no-plans"],
            "--bucket cannot be beside --no-plans: which says",
        ),
        (["--hosts", "2", "--detail", "fine"], "--detail fine is none of auto, message and call"),
        (["--hosts", "2", "--fusion", "much"], "--fusion: "),
        (["--hosts", "2", "--bucket", "0"], "--bucket: 0 is out of range; give whole bytes from 1 B"),
        (["--hosts", "8", "--tiers", "4:x"], "--tiers: 4:x does not end with a number from 1 to 1000"),
        (["--hosts", "2", "--write-costs", "m.json"], "--write-costs is for --validate"),
        (["--validate", "--hosts", "2"], "--validate measures on this machine, and has no use for --hosts"),
        (
            ["--calibrate", "m.json", "--hosts", "2"],
            "--calibrate measures on this machine, and has no use for --h",
        ),
        (["--calibrate", "m.json", "--validate"], "and has no use for --validate; leave it out"),
        (["--validate", "--costs", "/nowhere.json"], "--costs: cannot read /nowhere.json"),
        (
            ["--validate", "--costs", "x", "--write-costs", "y"],
            "--costs cannot be beside --write-costs: nothing",
        ),
        (["--validate", "--bandwidth", "1gbit"], "and has no use for --bandwidth; leave it out"),
        (
            ["--validate", "--measured", "x", "--repeats", "2"],
            "--repeats cannot be beside --measured: which ",
        ),
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


def test_ranks_that_the_hosts_have_are_no_contradiction(tmp_path: Path) -> None:
    words = ("--steps", "4", "--no-split")
    (row,) = results("--hosts", "2", "--per-host", "4", "--ranks", "8", *words)
    assert (row["ranks"], row["hosts"]) == (8, 2)
    assert results("--ranks", "8", "--per-host", "4", *words) == [row], "as many hosts as they need"
    cluster = tmp_path / "c.json"
    cluster.write_text(json.dumps({"hosts": [{"name": "a", "ranks": 4}, {"name": "b", "ranks": 2}]}))
    (row,) = results("--cluster", str(cluster), "--ranks", "6", *words)
    assert (row["ranks"], row["hosts"]) == (6, 2)
    done = simulate("--cluster", str(cluster), "--ranks", "8")
    assert done.returncode == 2 and "have different numbers of ranks" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("option", ["--json", "--html"])
def test_a_file_that_cannot_be_written_is_found_before_anything_is_simulated(
    option: str, tmp_path: Path
) -> None:
    for target in (tmp_path / "nowhere" / "r", tmp_path):
        done = simulate("--hosts", "2", option, str(target))
        assert done.returncode == 1
        assert done.stdout == "", "the page comes first where there is one"
        assert done.stderr.startswith(f"rueda simulate: Cannot write {target}: ")
        assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_stays_if_the_request_is_refused_and_two_outputs_may_vanish(tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    report.write_text("earlier")
    assert simulate("--hosts", "2", "--json", str(report), "--late", "9:10%").returncode == 2
    assert report.read_text() == "earlier" and list(tmp_path.iterdir()) == [report]
    nothing = ("--json", "/dev/null", "--html", "/dev/null")
    assert simulate("--hosts", "1", "--steps", "4", *nothing).returncode == 0


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "it is empty"),
        ('{"name": "a"', "it is no JSON at line 1, column 13, where it ends too early"),
        ('{"name": "a", "name": "b"}', 'an object has the key "name" twice'),
        (
            json.dumps({**TINY, "parameters": [["w", 500], ["w", 500]]}),
            'two of "parameters" are named "w"; give each gradient a name of its own',
        ),
        (json.dumps({**TINY, "name": "a\nb"}), '"name" has a control character'),
    ],
)
def test_a_workload_that_is_none_is_refused_in_one_sentence(text: str, why: str, tmp_path: Path) -> None:
    model = tmp_path / "w.json"
    model.write_text(text)
    done = simulate("--hosts", "2", "--model", str(model))
    assert done.returncode == 2
    assert done.stderr.startswith(f"rueda simulate: {model} is not a list of gradients: {why}")
    assert done.stderr.count("\n") == 1


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
