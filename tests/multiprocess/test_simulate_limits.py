"""What `rueda simulate` tells of its limits, and what it refuses because of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from simulate_support import TINY, simulate


def test_the_smaller_limit_of_fusion_is_told_in_every_form(tmp_path: Path) -> None:
    words = ("--hosts", "2", "--model", "vgg16", "--steps", "4", "--no-split")
    page, report = tmp_path / "r.html", tmp_path / "r.json"
    for more, told, size in (
        (("--fusion", "1KiB"), "512 B", 512),
        (("--bucket", "64GiB"), "64 MiB", 64 << 20),
    ):
        done = simulate(*words, *more, "--html", str(page), "--json", str(report))
        assert f" calls up to {told}, " in done.stdout
        assert f"<td>{told}</td>" in page.read_text()
        assert json.loads(report.read_text())["results"][0]["bucket_bytes"] == size


def test_wide_numbers_stand_apart_and_one_call_is_one(tmp_path: Path) -> None:
    wide = ("--ranks", "1", "--compute", "854676", "--steps", "4", "--no-split")
    line = simulate(*wide).stdout.splitlines()[-1]
    step, least, to, most = line.split()[2:6]
    assert step.startswith("854676.") and (least, to, most) == (step, "to", step)
    assert line.endswith("  no calls")
    model = tmp_path / "w.json"
    model.write_text(json.dumps(TINY))
    assert "  1 call up to 1 MiB, " in simulate("--hosts", "2", "--model", str(model), "--no-split").stdout


@pytest.mark.parametrize(
    "words, what",
    [
        ("--cluster", "cluster"),
        ("--hosts 2 --costs", "cluster"),
        ("--hosts 2 --model", "model"),
        ("--validate --costs", "cluster"),
        ("--validate --measured", "report of --validate"),
    ],
)
def test_a_file_larger_than_any_real_one_is_refused(words: str, what: str, tmp_path: Path) -> None:
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate((256 << 20) + 1)
    done = simulate(*words.split(), str(large))
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert (
        f"{large} has more than 256 MiB, which no {what} needs; check the path of the {what}" in done.stderr
    )


@pytest.mark.parametrize(
    "words",
    ["--strategy parameter-server", "--strategy tensorflow-servers", "--chunk 1MiB", "--detail message"],
)
def test_what_gpus_cannot_have_is_refused(words: str, tmp_path: Path) -> None:
    cluster = tmp_path / "c.json"
    cluster.write_text(json.dumps({"hosts": 2, "gpus": "nvlink"}))
    done = simulate("--cluster", str(cluster), *words.split())
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
    assert words.split()[0] in done.stderr and '"gpus" of the cluster has NCCL\'s' in done.stderr
