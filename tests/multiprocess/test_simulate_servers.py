"""`rueda simulate` with parameter servers and late ranks: what it says, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from simulate_support import simulate

REFUSED = {
    "servers of nobody": (["--servers", "1:4"], "add --strategy parameter-server or tensorflow-servers"),
    "unknown strategy": (
        ["--strategy", "star"],
        "choose parameter-server or tensorflow-servers, or allreduce",
    ),
    "no number of servers": (
        ["--strategy", "parameter-server", "--servers", "many"],
        "--servers: many is no",
    ),
    "two numbers": (["--strategy", "parameter-server", "--servers", "1,2"], "one number or one ratio"),
    "more servers than ranks": (
        ["--strategy", "parameter-server", "--servers", "5"],
        "more than there are ranks",
    ),
    "unknown placement": (["--strategy", "tensorflow-servers", "--placement", "odd"], "choose cut or whole"),
    "unknown hosts": (["--strategy", "tensorflow-servers", "--server-hosts", "x"], "dedicated or shared"),
    "hosts of their own": (
        ["--strategy", "parameter-server", "--server-hosts", "dedicated"],
        "take tensorflow-servers",
    ),
    "an algorithm": (["--strategy", "parameter-server", "--algorithm", "ring"], "are for allreduce"),
    "buckets": (["--strategy", "parameter-server", "--bucket", "1MiB"], "--bucket, --fusion and --tune are"),
    "fusion": (["--strategy", "tensorflow-servers", "--fusion", "0"], "--bucket, --fusion and --tune are"),
    "tuning": (["--strategy", "tensorflow-servers", "--tune", "4"], "--bucket, --fusion and --tune are"),
    "too many ranks": (["--strategy", "parameter-server", "--ranks", "65"], "up to 64 are"),
    "far too many ranks": (["--strategy", "tensorflow-servers", "--ranks", "1000"], "up to 512 are"),
    "a late rank of another job": (["--late", "4:20%"], "--late names rank 4"),
    "a late host": (["--late", "4"], "as in 1:20%"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_one_sentence_with_a_way_on(case: str) -> None:
    arguments, sentence = REFUSED[case]
    hosts = [] if "--ranks" in arguments else ["--hosts", "4"]
    done = simulate(*hosts, *arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("rueda simulate: ") and sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_both_models_of_servers_say_how_many_there_are_and_where(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    options = [
        "--hosts",
        "4",
        "--bandwidth",
        "10gbit",
        "--steps",
        "4",
        "--servers",
        "1:2",
        "--json",
        str(out),
    ]
    expected = {"parameter-server": ("cut", "shared"), "tensorflow-servers": ("whole", "dedicated")}
    for strategy, (placement, hosts) in expected.items():
        done = simulate("--strategy", strategy, *options)
        assert done.returncode == 0, done.stderr
        report = json.loads(out.read_text())
        (row,) = report["results"]
        assert (report["strategy"], report["placement"], report["server_hosts"]) == (
            strategy,
            placement,
            hosts,
        )
        assert (row["ranks"], row["hosts"], row["servers"]) == (4, 4, 2)
        assert 0 < row["efficiency"] < 1
        assert sum(row["lost_ms"].values()) == pytest.approx(row["step_ms"] - row["compute_ms"], rel=1e-6)
        assert f"2 servers, {placement} variables" in done.stdout
