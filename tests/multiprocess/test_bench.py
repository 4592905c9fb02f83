"""`rueda bench`: what it measures is right, what it is told wrongly is refused, nothing is left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Set

import pytest
from harness import library
from launch_support import RUEDA, marked_processes

TINY = {
    "name": "tiny",
    "source": "made up for a test",
    "compute_ms": 3.0,
    "compute_source": "made up for a test",
    "total": 1_020_311,
    "parameters": [["head", 10], ["big", 1_020_000], ["odd", 301]],
}


def environment(**more: str) -> Dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("RUEDA_", "HOROVOD_"))}
    return {**clean, "RUEDA_LIBRARY": library(), **more}


Done = "subprocess.CompletedProcess[str]"


def bench(*arguments: str, prefix: Optional[List[str]] = None, **more: str) -> Done:
    command = [*(prefix or []), RUEDA, "bench", *arguments]
    return subprocess.run(
        command, env=environment(**more), capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )


def results(path: Path) -> List[Dict[str, Any]]:
    found: List[Dict[str, Any]] = json.loads(path.read_text())["results"]
    return found


@pytest.fixture(name="tiny")
def make_tiny(tmp_path: Path) -> str:
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(TINY))
    return str(path)


# ---- collectives ----


def test_allreduce_of_two_ranks_is_measured_over_both_transports(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = bench(
        *("allreduce", "-np", "2", "--sizes", "4B,64KiB,4MiB", "--memory", "private"),
        *("--transport", "shm,tcp", "--iterations", "20", "--json", str(out)),
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(out.read_text())
    assert report["machine"]["cores"] >= 1
    rows = report["results"]
    assert [(row["transport"], row["bytes"]) for row in rows] == [
        (transport, size) for transport in ("shm", "tcp") for size in (4, 65536, 4 << 20)
    ]
    ways = [row["algorithm"] for row in rows]
    assert ways[:3] == ["inline", "one_shot", "staged"]
    assert set(ways[3:]) <= {"flat_gather", "direct"}, "by what the links cost today"
    for row in rows:
        assert row["collective"] == "allreduce" and row["ranks"] == 2 and row["memory"] == "private"
        assert row["iterations"] == 20 and row["correct"] is True
        assert row["min_us"] <= row["median_us"] <= row["p99_us"]
        assert row["algbw_gbps"] == pytest.approx(row["bytes"] / row["median_us"] / 1e3)
        assert row["busbw_gbps"] == pytest.approx(row["algbw_gbps"])  # 2 (n - 1) / n is 1
    table = done.stdout.splitlines()
    assert len(table) == 1 + len(rows) and table[1].split()[-1] == "ok"


@pytest.mark.parametrize("what", ["allgather", "broadcast", "reducescatter", "alltoall", "barrier"])
def test_other_collectives_of_three_ranks_are_right(what: str, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    sizes = ["--sizes", "4B,100004", "--memory", "private", "--iterations", "10"]
    done = bench(what, "-np", "3", *sizes, "--json", str(out))
    assert done.returncode == 0, done.stderr
    rows = results(out)
    assert all(row["correct"] and row["ranks"] == 3 for row in rows)
    # Each rank's share is a whole number of elements, so a size may be rounded up.
    whole = [4, 100_004] if what == "broadcast" else [0] if what == "barrier" else [12, 100_008]
    assert [row["bytes"] for row in rows] == whole


def test_shared_buffers_are_measured_without_staging_and_plans_without_a_word(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    options = ["--sizes", "256KiB", "--memory", "shared,private", "--transport", "shm", "--iterations", "200"]
    sent = {}
    for plans in ("1", "0"):
        done = bench("allreduce", "-np", "2", *options, "--json", str(out), RUEDA_PLANS=plans)
        assert done.returncode == 0, done.stderr
        rows = results(out)
        found = [(row["memory"], row["algorithm"], row["correct"]) for row in rows]
        assert found == [("shared", "registered", True), ("private", "staged", True)]
        sent[plans] = sum(row["negotiation_messages"] for row in rows)
    # Each call and the barriers around it: a message to rank 0 and one back.
    assert sent["0"] == 3 * 2 * 200 * 2 and sent["1"] < sent["0"] / 2


def test_algorithm_that_is_forced_runs(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    options = ["--sizes", "64KiB", "--memory", "private", "--transport", "tcp", "--algorithm", "ring"]
    done = bench("allreduce", "-np", "3", *options, "--iterations", "5", "--json", str(out))
    assert done.returncode == 0, done.stderr
    assert [(row["algorithm"], row["correct"]) for row in results(out)] == [("ring", True)]


def test_under_a_launcher_it_is_a_rank(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    command = [RUEDA, "run", "-np", "2", RUEDA, "bench", "allreduce", "--sizes", "1KiB"]
    command += ["--memory", "private", "--iterations", "5", "--json", str(out)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert [(row["ranks"], row["correct"]) for row in results(out)] == [(2, True)]


def test_latency_prints_a_histogram_of_every_call(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    options = ["--sizes", "4B", "--memory", "private", "--iterations", "50"]
    done = bench("latency", "-np", "2", *options, "--json", str(out))
    assert done.returncode == 0, done.stderr
    (row,) = results(out)
    counts = [int(line.split("us")[1].split("|")[0]) for line in row["histogram"].splitlines()]
    assert sum(counts) == 50
    percentiles = [row[f"{name}_us"] for name in ("min", "median", "p90", "p99", "p999", "max")]
    assert percentiles == sorted(percentiles)


def test_burst_knows_its_modes(tiny: str, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    options = ["--model", tiny, "--memory", "private", "--iterations", "5"]
    done = bench("burst", "-np", "2", *options, "--json", str(out))
    assert done.returncode == 0, done.stderr
    rows = results(out)
    assert [row["mode"] for row in rows] == ["fused", "unfused", "planned"]
    assert all(row["correct"] and row["tensors"] == 3 and row["bytes"] == 4 * TINY["total"] for row in rows)


# A library whose allreduce does nothing, of a world it claims to have two ranks.
LAZY = """
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "rueda/rueda.h"
static int64_t twice[200000]; static uint64_t bytes;
int rueda_init(const rueda_init_options* o) { (void)o; return 0; }
void rueda_shutdown(void) {}
int rueda_rank(void) { return 0; }
int rueda_size(void) { return 2; }
int rueda_local_rank(void) { return 0; }
int rueda_local_size(void) { return 1; }
int rueda_add_process_set(const int32_t* r, int32_t n, int32_t* id) { (void)r; (void)n; *id = 1; return 0; }
int rueda_cross_size(void) { return 1; }
const char* rueda_last_error(void) { return ""; }
const char* rueda_describe(void) { return "{}"; }
int rueda_submit(const rueda_request* r, int32_t n, int64_t* h) {
  (void)n; *h = 1;
  if (r->what == RUEDA_ALLGATHER) {
    bytes = 8 * (uint64_t)r->shape[0];
    memcpy(twice, r->input, bytes); memcpy(twice + r->shape[0], r->input, bytes);
  }
  return 0;
}
int rueda_submit_for_wait(const rueda_request* r, int32_t n, int64_t* h) { return rueda_submit(r, n, h); }
void* rueda_alloc(size_t bytes) { return malloc(bytes); }
void rueda_release_memory(void* bucket) { free(bucket); }
int rueda_wait(int64_t h, double t) { (void)h; (void)t; return 0; }
int rueda_on_done(int64_t h, void (*f)(void*), void* a) { (void)h; f(a); return 0; }
int rueda_result(int64_t h, int32_t i, rueda_result_info* info) {
  (void)h; (void)i; info->data = twice; info->bytes = 2 * bytes; return 0;
}
void rueda_release(int64_t h) { (void)h; }
const char* rueda_error(int64_t h) { (void)h; return ""; }
"""


def test_wrong_sum_is_reported_and_ends_in_failure(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    (tmp_path / "lazy.c").write_text(LAZY)
    include = Path(__file__).resolve().parents[2] / "include"
    lazy = tmp_path / "librueda.so"
    command = [compiler, "-shared", "-fPIC", f"-I{include}", str(tmp_path / "lazy.c"), "-o", str(lazy)]
    subprocess.run(command, check=True, timeout=60)
    options = ["-np", "1", "--sizes", "4B,1MiB", "--memory", "private", "--iterations", "5"]
    done = bench("allreduce", *options, RUEDA_LIBRARY=str(lazy))
    assert done.returncode == 1
    assert [line.split()[-1] for line in done.stdout.splitlines()[1:]] == ["WRONG", "WRONG"]
    assert "a result was wrong on some rank" in done.stderr


# ---- refusals ----

REFUSED = {
    "unknown subject": (["allreuce"], "did you mean allreduce? Otherwise choose from allreduce, allgather"),
    "unknown option": (["allreduce", "--bytes", "4"], "rueda bench --help lists all"),
    "unknown model": (["burst", "--model", "resnet51"], "choose one of bert_base, googlenet, gpt2"),
    "model twice": (["burst", "--model", "gpt2,gpt2"], "name each once"),
    "unknown unit": (["allreduce", "--sizes", "4B,1XiB"], "unknown unit XiB;"),
    "parts of an element": (["allreduce", "--sizes", "4B,3B"], "3 B is not a whole number of float32"),
    "no folder for the results": (["allreduce", "--json", "/nowhere/x.json"], "cannot write /nowhere/x.json"),
    "a folder for the results": (["allreduce", "--json", "/tmp"], "cannot write /tmp"),
    "empty entry": (["allreduce", "--sizes", "4B,,8B"], "empty entry"),
    "results of a command": (["replay", "--json", "x", "--", "true"], "not for a command"),
    "no sizes": (["allreduce", "--sizes", ""], "--sizes: nothing is given"),
    "no number of seconds": (["allreduce", "--seconds", "nan"], "--seconds: nan is not a number from 0.001"),
    "no number of times": (["replay", "--dilation", "nan"], "--dilation: nan is not a number from 0.0001"),
    "impossible rate": (["replay", "--rate", "9000gbit"], "from 1mbit to 400gbit"),
    "no rate": (["replay", "--rate", "fast"], "1gbit or 500mbit"),
    "unknown memory": (["allreduce", "--memory", "heap"], "choose from shared, private"),
    "unknown transport": (["allreduce", "--transport", "ib"], "choose from auto, shm, ucx, tcp"),
    "unknown ready times": (["replay", "--ready", "late"], "choose from model, even"),
    "servers of nobody": (["replay", "--servers", "1"], "are for replay with --strategy parameter-server"),
    "more servers than ranks": (
        ["replay", "--strategy", "parameter-server", "--servers", "3"],
        "give 1 to 2, or a ratio",
    ),
    "unknown placement": (
        ["replay", "--strategy", "parameter-server", "--placement", "odd"],
        "choose from cut, whole",
    ),
    "slow host of another job": (["replay", "--slow-host", "2:1mbit"], "there are hosts 0 to 1"),
    "slow pair of one host": (["replay", "--slow-pair", "1-1:1mbit"], "as in 0-3:100mbit"),
    "a pair as fast as any": (["replay", "--slow-pair", "0-1:1gbit"], "limits nothing"),
    "a late host": (["replay", "--late", "1:1mbit"], "as in 1:20%"),
    "a late command": (["replay", "--late", "1:20%", "--", "true"], "computes as long as it does"),
    "a fault of nothing": (["burst", "--late", "1:20%"], "are for replay; leave"),
    "unknown strategy": (["replay", "--strategy", "star"], "parameter-server"),
    "too many ranks": (["replay", "-np", "65"], "give 1 to 64"),
    "no ranks": (["allreduce", "-np", "0"], "give 1 to 256"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_one_sentence_with_a_way_on(case: str) -> None:
    arguments, sentence = REFUSED[case]
    done = bench(*arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("rueda bench: ") and sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_library_that_is_not_there_is_named() -> None:
    done = bench("allreduce", "-np", "1", "--sizes", "4B", RUEDA_LIBRARY="/nowhere/librueda.so")
    assert done.returncode == 1
    assert "cannot load /nowhere/librueda.so" in done.stderr and "RUEDA_LIBRARY" in done.stderr


def test_without_permission_replay_says_what_to_do() -> None:
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("setpriv, which gives up root's rights, is not here")
    prefix = ["setpriv", "--bounding-set", "-all"] if os.geteuid() == 0 else []
    done = bench("replay", "-np", "2", prefix=prefix)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "run it as root" in done.stderr


# ---- replay ----


def name_spaces(pids: List[int]) -> Set[str]:
    found = set()
    for pid in pids:
        try:
            found.add(os.readlink(f"/proc/{pid}/ns/net"))
        except OSError:  # it has just ended
            continue
    return found


def everybody() -> List[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def skip_without_name_spaces() -> None:
    probe = subprocess.run(["unshare", "--net", "ip", "link", "add", "type", "veth"], capture_output=True)
    if probe.returncode != 0:
        pytest.skip("this user may not make network name spaces with links")


def test_replay_sums_gradients_between_two_name_spaces(tiny: str, tmp_path: Path) -> None:
    skip_without_name_spaces()
    out = tmp_path / "out.json"
    strategies = ["auto", "ring", "two-level", "parameter-server"]
    options = ["--rate", "1gbit", "--strategy", ",".join(strategies), "--iterations", "2"]
    done = bench("replay", "-np", "2", "--model", tiny, *options, "--json", str(out))
    assert done.returncode == 0, done.stderr
    rows = results(out)
    assert [row["strategy"] for row in rows] == strategies
    for row in rows:
        assert row["correct"] and row["hosts"] == 2 and row["model"] == "tiny"
        assert row["dilation"] == 6.25 and row["compute_ms"] == pytest.approx(6.25 * 3.0)
        assert row["wire_ms"] == pytest.approx(4 * TINY["total"] * 8 / 0.957e9 * 1e3)
        # Sleeping never ends early.
        assert row["step_min_ms"] >= row["compute_ms"] and 0 < row["efficiency"] <= 1
        assert row["exposed_ms"] == pytest.approx(row["step_ms"] - row["compute_ms"])


EXCHANGES = [
    {"name": what, "operation": what, "elements": 1000, "at_ms": 0.5 * place, "waits": place % 2 == 0}
    for place, what in enumerate(["allgather", "reducescatter", "alltoall", "broadcast", "allreduce"])
]


@pytest.mark.parametrize("has_gradients", [True, False])
def test_replay_does_what_a_step_exchanges_besides(has_gradients: bool, tmp_path: Path) -> None:
    skip_without_name_spaces()
    model, out = tmp_path / "model.json", tmp_path / "out.json"
    sharded = {} if has_gradients else {"parameters": [], "total": 0}
    model.write_text(json.dumps({**TINY, **sharded, "exchanges": EXCHANGES}))
    options = ["--model", str(model), "--rate", "1gbit", "--iterations", "2", "--json", str(out)]
    done = bench("replay", "-np", "3", *options)
    assert done.returncode == 0, done.stderr
    (row,) = results(out)
    assert row["correct"] and row["ranks"] == 3
    for flag in ("--cross-step", "--strategy=parameter-server"):
        done = bench("replay", "-np", "2", "--model", str(model), flag)
        assert done.returncode == 2 and flag.replace("=", " ") in done.stderr
        assert 'tiny has "exchanges"' in done.stderr


def test_parameter_servers_sum_right_whatever_their_number_and_placement(tiny: str, tmp_path: Path) -> None:
    skip_without_name_spaces()
    out = tmp_path / "out.json"
    options = ["--rate", "10gbit", "--strategy", "parameter-server", "--servers", "1:1,2,1:3"]
    options += ["--placement", "cut,whole", "--iterations", "3"]
    done = bench("replay", "-np", "3", "--model", tiny, *options, "--json", str(out))
    assert done.returncode == 0, done.stderr
    rows = results(out)
    assert [(row["servers"], row["placement"]) for row in rows] == [
        (servers, placement) for servers in (3, 2, 1) for placement in ("cut", "whole")
    ]
    assert all(row["correct"] and row["ranks"] == 3 for row in rows)
    assert "2 servers, whole" in done.stdout and "1 server, cut" in done.stdout


def test_replay_submits_gradients_when_they_are_ready(tmp_path: Path) -> None:
    skip_without_name_spaces()
    model, out = tmp_path / "late.json", tmp_path / "out.json"
    model.write_text(json.dumps({**TINY, "ready_ms": [2.9, 3.0, 3.0]}))
    options = ["--model", str(model), "--rate", "1gbit", "--iterations", "2", "--json", str(out)]
    rows = {}
    for ready in ("model", "even"):
        done = bench("replay", "-np", "2", "--ready", ready, *options)
        assert done.returncode == 0, done.stderr
        (rows[ready],) = results(out)
        assert rows[ready]["ready"] == ready and rows[ready]["correct"]
    compute, wire = rows["model"]["compute_ms"], rows["model"]["wire_ms"]
    big = wire * 1_020_301 / TINY["total"]  # of "big" and of those behind it
    assert compute / rows["model"]["ideal_efficiency"] == pytest.approx(compute + big, rel=1e-3)
    assert compute / rows["even"]["ideal_efficiency"] == pytest.approx(compute * 7 / 9 + big, rel=1e-3)
    credit = 2 * 131_072 * 8 / 1e9 * 1e3  # of the token buckets of both ends
    assert rows["model"]["step_min_ms"] >= compute + big - credit


def test_faults_are_planted_where_they_are_asked_for(tiny: str, tmp_path: Path) -> None:
    skip_without_name_spaces()
    out = tmp_path / "out.json"
    faults = {
        "slow_hosts": (["--slow-host", "2:100mbit"], {"host": 2, "rate_bits": 100_000_000}),
        "slow_pairs": (["--slow-pair", "0-2:50mbit"], {"hosts": [0, 2], "rate_bits": 50_000_000}),
        "late": (["--late", "1:300%"], {"rank": 1, "share": 3.0}),
    }
    options = ["--model", tiny, "--rate", "1gbit", "--iterations", "2", "--json", str(out)]
    for key, (flags, said) in faults.items():
        done = bench("replay", "-np", "3", *options, *flags)
        assert done.returncode == 0, done.stderr
        (row,) = results(out)
        assert row["correct"]
        assert {name: row[name] for name in faults} == {
            name: [said] if name == key else [] for name in faults
        }
        compute = row["compute_ms"]
        assert compute == pytest.approx(6.25 * 3.0)  # of those who are not late
        if key == "late":
            assert row["step_min_ms"] >= 4 * compute
        else:  # a third of the bytes, at least, passes the slow place
            slow = said["rate_bits"] / 8e3  # bytes in a millisecond
            credit = 2 * 131_072  # of the token buckets of both ends
            assert row["step_min_ms"] >= (4 * TINY["total"] / 3 - credit) / slow


def test_replay_that_crosses_the_step_sums_right_with_two_ranks_on_each_host(
    tiny: str, tmp_path: Path
) -> None:
    skip_without_name_spaces()
    out = tmp_path / "out.json"
    options = ["--rate", "10gbit", "--per-host", "2", "--cross-step", "--iterations", "3"]
    done = bench("replay", "-np", "4", "--model", tiny, *options, "--json", str(out))
    assert done.returncode == 0, done.stderr
    (row,) = results(out)
    assert (row["ranks"], row["hosts"], row["cross_step"], row["correct"]) == (4, 2, True, True)
    longest = max(row["compute_ms"], row["wire_ms"])  # 2 hosts: the wire carries all bytes once
    assert row["ideal_efficiency"] == pytest.approx(row["compute_ms"] / longest)


def test_command_runs_on_hosts_with_links_of_their_own() -> None:
    skip_without_name_spaces()
    script = "echo $RUEDA_RANK of $RUEDA_SIZE has $(tail -n +3 /proc/net/dev | cut -d: -f1); exit 7"
    done = bench("replay", "-np", "2", "--rate", "1gbit", "--", "sh", "-c", script)
    assert done.returncode == 7, done.stderr
    said = [line for line in done.stdout.splitlines() if " has " in line]
    for rank in (0, 1):
        assert [set(line.split(" has ")[1].split()) for line in said if f"{rank} of 2" in line] == [
            {"lo", "net0"}
        ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_replay_leaves_no_name_space(number: int, tmp_path: Path) -> None:
    skip_without_name_spaces()
    links = set(os.listdir("/sys/class/net"))
    mark = f"RUEDA_TEST_MARK={tmp_path}"
    process = subprocess.Popen(
        [RUEDA, "bench", "replay", "-np", "2", "--iterations", "1000"],
        env=environment(RUEDA_TEST_MARK=str(tmp_path), TMPDIR=str(tmp_path)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 90
        own = name_spaces([os.getpid()])
        while len(made := name_spaces(marked_processes(mark)) - own) < 2:
            assert time.monotonic() < deadline and process.poll() is None, "the ranks never began"
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(60) == (130 if number == signal.SIGINT else -signal.SIGKILL)
        while left := made & name_spaces(everybody()):
            assert time.monotonic() < deadline, f"still there: {left}"
            time.sleep(0.05)
        added = set(os.listdir("/sys/class/net")) - links  # other jobs of this machine have links as well
        assert not [name for name in added if name.startswith(("switch", "port", "net0"))]
        if number == signal.SIGINT:
            assert not list(tmp_path.glob("rueda-bench-*"))
    finally:
        for pid in marked_processes(mark):
            os.kill(pid, signal.SIGKILL)
        process.wait(10)
