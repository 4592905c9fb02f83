"""The parts of the GPU suite, on this machine's GPU, or with tensors of the CPU in place of those on one; and
what the suite itself does.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import ROOT, assert_all_succeed, library

torch = pytest.importorskip("torch")
sys.path[:0] = [str(ROOT / "tests/gpu"), str(ROOT / "tests/multiprocess")]

import fake_gpu  # noqa: E402
import ranks  # noqa: E402
import report  # noqa: E402
import run as suite  # noqa: E402

HAS_GPU = torch.cuda.is_available()


def run_with_stand_in(name, count, backend):
    """The result of a part, in ranks that need not import torch themselves."""
    path = str(ranks.PARTS)
    source = f"import runpy, sys\nsys.path.insert(0, {path!r})\nrunpy.run_path({path!r} + '/{name}.py')\n"
    source = f"import os\nos.environ['RUEDA_GPU_STAND_IN'] = '1'\n{source}"
    finished = fake_gpu.launch(count, source, backend, imports_torch=True, UNIFIED=1, DELAY_US=200)
    assert_all_succeed(finished)
    lines = finished[0].output.splitlines()
    result = {}
    for line in lines:
        if line.startswith(ranks.RESULT):
            result.update(json.loads(line[len(ranks.RESULT) :]))
    return result


def run_on_gpu(name, count, backend):
    mine = {"PYTHONPATH": str(ROOT / "python"), "RUEDA_LIBRARY": library(), "RUEDA_GPU_OPERATIONS": backend}
    outcome = ranks.run_part(name, count, 150, mine, sharing="switch")
    assert outcome.status == "passed", outcome.why
    return outcome.result


@pytest.mark.skipif(not HAS_GPU and not fake_gpu.IS_BUILT, reason="no GPU, and no libcuda of the tests")
@pytest.mark.parametrize("backend", ["staged", "nccl"] if HAS_GPU else fake_gpu.BACKENDS)
@pytest.mark.parametrize(
    "name, count", [("torch_collectives", 3), ("torch_training", 2), ("torch_distributed", 2)]
)
def test_part(name, count, backend):
    result = (run_on_gpu if HAS_GPU else run_with_stand_in)(name, count, backend)
    assert result["backend"] == backend
    assert len(result["checks"]) >= 6


@pytest.mark.skipif(not HAS_GPU and not fake_gpu.IS_BUILT, reason="no GPU, and no libcuda of the tests")
@pytest.mark.parametrize("backend", ["staged", "nccl"] if HAS_GPU else fake_gpu.BACKENDS)
@pytest.mark.parametrize(
    "name, checks", [("random_programs", 1), ("compiled", 3), ("user_script", 1), ("torch_sharded", 5)]
)
def test_part_of_two_ranks(name, checks, backend):
    result = (run_on_gpu if HAS_GPU else run_with_stand_in)(name, 2, backend)
    assert result["backend"] == backend and len(result["checks"]) == checks
    if name == "random_programs":
        assert result["programs"] >= 5


@pytest.mark.skipif(not HAS_GPU and not fake_gpu.IS_BUILT, reason="no GPU, and no libcuda of the tests")
def test_sums_from_gpu_to_gpu_have_the_bits_of_host_memory():
    result = (run_on_gpu if HAS_GPU else run_with_stand_in)("cuda_ipc", 2, "staged")
    assert result["checks"] == ["bits", "many_tensors_at_once"]
    assert sum("_ipc_" in name for name in result) == 2


@pytest.mark.skipif(not HAS_GPU and not fake_gpu.IS_BUILT, reason="no GPU, and no libcuda of the tests")
@pytest.mark.parametrize("name", ["copy_rate", "over_nccl", "host_costs", "resnet"])
def test_measuring(name):
    backend = "nccl" if HAS_GPU else fake_gpu.BACKENDS[-1]
    result = (run_on_gpu if HAS_GPU else run_with_stand_in)(name, 1, backend)
    assert result["backend"] == backend and len(result) >= 3
    if name == "copy_rate" and backend == "nccl":
        for way in ("sum_float32", "average_float32", "average_bfloat16"):
            assert f"{way}_parts_us" in result or f"{way}_note" in result


@pytest.mark.skipif(not HAS_GPU and "nccl" not in fake_gpu.BACKENDS, reason="no GPU, no libnccl")
def test_two_pretended_hosts_reduce_hierarchically():
    result = (run_on_gpu if HAS_GPU else run_with_stand_in)("hierarchical", 4, "nccl")
    assert result["backend"] == "nccl" and len(result["checks"]) == 3


@pytest.mark.skipif(HAS_GPU or "nccl" not in fake_gpu.BACKENDS, reason="needs the tests' own libnccl")
def test_nccl_is_called_by_itself_and_sums():
    result = run_with_stand_in("nccl_alone", 2, "nccl")
    assert result["nccl"] == "2.30.4"
    assert all(result[f"{way}_{size_bytes}_us"] > 0 for way in ("one", "series") for size_bytes in (4096, 4))


@pytest.mark.skipif(HAS_GPU or "nccl" not in fake_gpu.BACKENDS, reason="needs the tests' own libnccl")
def test_rueda_and_nccl_alone_are_timed_in_the_same_ways():
    def timed(name):
        return {key for key in run_with_stand_in(name, 1, "nccl") if key.startswith(("one_", "series_"))}

    assert timed("over_nccl") == timed("nccl_alone") != set()


@pytest.mark.skipif(not HAS_GPU and not fake_gpu.IS_BUILT, reason="no GPU, and no libcuda of the tests")
@pytest.mark.parametrize("backend", ["staged", "nccl"] if HAS_GPU else fake_gpu.BACKENDS)
def test_a_killed_rank_is_named_and_the_survivors_go_on(backend):
    if HAS_GPU:
        mine = {
            "PYTHONPATH": str(ROOT / "python"),
            "RUEDA_LIBRARY": library(),
            "RUEDA_GPU_OPERATIONS": backend,
        }
        outcome = ranks.run_part("lost_rank", 2, 60, mine, sharing="switch", kills_last=True)
    else:
        stand_in = {**fake_gpu.found_by_name(UNIFIED=1, DELAY_US=200), "RUEDA_GPU_OPERATIONS": backend}
        paths = [str(ROOT / path) for path in ("python", "tests/multiprocess")]
        mine = {
            "PYTHONPATH": os.pathsep.join(paths),
            "RUEDA_LIBRARY": library(),
            "RUEDA_NCCL_LIBRARY": str(fake_gpu.NCCL),
            "NCCL_MULTI_RANK_GPU_ENABLE": "1",
            "RUEDA_GPU_STAND_IN": "1",
            "OMP_NUM_THREADS": "1",
        }
        outcome = ranks.run_part("lost_rank", 2, 60, {**stand_in, **mine}, kills_last=True)
    assert outcome.status == "passed", outcome.why
    assert len(outcome.result["checks"]) == 4 and outcome.result["noticed_s"] <= 5


def write_part(folder, monkeypatch, source):
    (folder / "part.py").write_text("import os, sys, time\nrank = int(os.environ['RUEDA_RANK'])\n" + source)
    monkeypatch.setattr(ranks, "PARTS", folder)


def test_a_part_that_hangs_is_ended_and_says_where_it_was(tmp_path, monkeypatch):
    write_part(tmp_path, monkeypatch, "def stuck():\n    time.sleep(600)\nstuck()\n")
    outcome = ranks.run_part("part", 2, 1.5)
    assert outcome.status == "late" and "in stuck" in outcome.why


def test_a_part_that_fails_leaves_its_error(tmp_path, monkeypatch):
    write_part(tmp_path, monkeypatch, "if rank: raise OSError('of rank one')\ntime.sleep(600)\n")
    outcome = ranks.run_part("part", 2, 60)
    assert outcome.status == "failed" and "rank 1 ended with 1" in outcome.why
    assert "of rank one" in outcome.why


def test_a_rank_that_is_to_be_killed_must_be(tmp_path, monkeypatch):
    write_part(tmp_path, monkeypatch, "if rank: os.kill(os.getpid(), 9)\n")
    assert ranks.run_part("part", 2, 60, kills_last=True).status == "passed"
    outcome = ranks.run_part("part", 2, 60)
    assert outcome.status == "failed" and "rank 1 ended with -9" in outcome.why
    write_part(tmp_path, monkeypatch, "")
    assert ranks.run_part("part", 2, 60, kills_last=True).status == "failed"
    write_part(tmp_path, monkeypatch, 'print(\'RESULT {"skipped": "no such thing"}\')\n')
    assert ranks.run_part("part", 2, 60, kills_last=True).why == "no such thing"


def test_results_and_reasons_come_back(tmp_path, monkeypatch):
    write_part(tmp_path, monkeypatch, "print('RESULT {\"a\": 1}')\nprint('RESULT {\"b\": 2}')\n")
    assert ranks.run_part("part", 1, 60).result == {"a": 1, "b": 2}
    write_part(tmp_path, monkeypatch, 'print(\'RESULT {"skipped": "no such thing"}\')\n')
    outcome = ranks.run_part("part", 1, 60)
    assert (outcome.status, outcome.why) == ("skipped", "no such thing")


@pytest.mark.skipif(HAS_GPU, reason="this machine has a GPU")
def test_without_a_gpu_the_suite_says_so_in_one_sentence(tmp_path):
    command = [sys.executable, str(ROOT / "tests/gpu/run.py"), "--report", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2 and not list(tmp_path.iterdir())
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("The GPU suite ")


def test_the_suite_goes_on_after_a_failure_and_stops_in_time(tmp_path, monkeypatch):
    write_part(tmp_path, monkeypatch, "sys.exit(rank)\n")
    some = suite.Suite(minutes=1.0)
    assert some.run(suite.Part("part", 2, 20)).status == "failed"
    assert some.run(suite.Part("part", 1, 20)).status == "passed"
    none = suite.Suite(minutes=0.1)
    assert none.run(suite.Part("part", 1, 20)).why == "the time of the suite was used up"


def allow(folder, monkeypatch, condition):
    """NCCL lets ranks share the GPU under this condition."""
    source = "size = int(os.environ['RUEDA_SIZE'])\nhost = os.environ.get('NCCL_HOSTID')\n"
    write_part(folder, monkeypatch, f"{source}sys.exit(0 if {condition} else 1)\n")
    (folder / "part.py").rename(folder / "nccl_alone.py")
    return suite.Suite(minutes=1.0)


def test_nccl_is_asked_how_ranks_may_share_a_gpu(tmp_path, monkeypatch):
    some = allow(tmp_path, monkeypatch, "host == f'rank-{rank}' or size == 1")
    assert some.finds_nccl() and some.find_sharing() == 4 and some.sharing == "hosts"
    assert [outcome.status for outcome in some.outcomes] == ["passed", "skipped", "passed", "passed"]


def test_that_two_ranks_may_share_a_gpu_is_no_leave_for_four(tmp_path, monkeypatch):
    some = allow(tmp_path, monkeypatch, "size <= 2")
    assert some.find_sharing() == 2 and some.sharing == "switch"
    assert [outcome.status for outcome in some.outcomes] == ["passed", "skipped"]


def test_ranks_that_are_too_slow_to_be_timed_share_the_gpu(tmp_path, monkeypatch):
    some = allow(tmp_path, monkeypatch, "print('RESULT {\"is_right\": true}') or False")
    assert some.find_sharing() == 4 and some.sharing == "switch"
    assert [outcome.status for outcome in some.outcomes] == ["skipped", "skipped"]


def test_a_gpu_that_ranks_cannot_share_is_measured_with_one(tmp_path, monkeypatch):
    some = allow(tmp_path, monkeypatch, "size == 1")
    assert some.finds_nccl() and some.find_sharing() == 1 and some.sharing == ""
    assert [outcome.status for outcome in some.outcomes] == ["passed", "skipped", "skipped"]
    assert not allow(tmp_path, monkeypatch, "False").finds_nccl()


def test_a_checked_part_runs_under_the_sanitizer_or_is_skipped(tmp_path, monkeypatch):
    write_part(tmp_path, monkeypatch, "sys.exit(0 if os.environ['RUEDA_GPU_CHECKED'] == '1' else 1)\n")
    part = suite.checked(suite.Part("part", 1, 20, title="part"), 20)
    monkeypatch.setenv("PATH", str(tmp_path))
    some = suite.Suite(minutes=1.0)
    assert some.run(part).why == "compute-sanitizer was not found"
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/words\n'
        f'while [ "$1" != {sys.executable} ]; do shift; done\nexec "$@"\n'
    )
    tool.chmod(0o755)
    outcome = some.run(part)
    assert outcome.status == "passed" and outcome.name == "part under compute-sanitizer, 1 rank", outcome.why
    assert "--kernel-name kns=rueda_" in (tmp_path / "words").read_text()


def test_the_report_is_written_after_each_part_whatever_happens_to_it(tmp_path, monkeypatch):
    (tmp_path / "parts").mkdir()
    write_part(tmp_path / "parts", monkeypatch, "print('RESULT not json')\n")
    some = suite.Suite(minutes=1.0)
    some.after_each = lambda: report.write(some.content({"python": "3"}), tmp_path)
    outcome = some.run(suite.Part("part", 1, 20))
    assert outcome.status == "failed" and "the suite failed: JSONDecodeError" in outcome.why
    some.run(suite.Part("part", 1, 20, {"RUEDA_GPU": "x"}, "again"))
    content = json.loads((tmp_path / "gpu_report.json").read_text())
    assert [part["name"] for part in content["parts"]] == ["part, 1 rank", "again, 1 rank"]
    assert "2 failed." in (tmp_path / "gpu_report.md").read_text()


def test_the_plan_names_parts_that_exist_and_measures_one_rank_first():
    for nccl_ranks in (0, 1, 2, 4):
        alone = suite.plan_alone(nccl_ranks > 0)
        parts = [*alone, *suite.plan(nccl_ranks)]
        assert all((ranks.PARTS / f"{part.name}.py").exists() for part in parts)
        assert len({part.label for part in parts}) == len(parts)
        assert {"copy_rate", "over_nccl", "resnet"} <= {part.name for part in alone}
        assert all(part.ranks == 1 for part in alone)
        over_nccl = [part for part in parts if part.settings["RUEDA_GPU_OPERATIONS"] == "nccl"]
        assert all(part.ranks <= nccl_ranks for part in over_nccl) and bool(over_nccl) == bool(nccl_ranks)
        compared = {part.ranks for part in parts if part.name == "over_nccl" and part in over_nccl}
        assert compared == {1, 2} & set(range(nccl_ranks + 1))
        is_ddp = "ddp" in alone[-1].settings["RUEDA_GPU_RESNET"]
        wanted = {"host_costs", "random_programs", "compiled", "user_script"}
        assert wanted <= {part.name for part in parts}
        assert is_ddp == bool(nccl_ranks)


def test_the_sanitizer_sees_kernels_that_pack_scale_and_add():
    found = {(part.name, part.settings["RUEDA_GPU_OPERATIONS"]) for part in suite.plan(1) if part.is_checked}
    assert found == {("torch_collectives", "nccl"), ("cuda_ipc", "staged")}


def measure(what, *results, sharing="", ranks=1):
    """The figure, from results by the names of their parts."""
    parts = [{"name": name, "ranks": ranks, "status": "passed", "result": result} for name, result in results]
    return next(one for one in report.measures(parts, sharing) if what in one.what)


def test_a_target_is_met_up_to_its_limit_and_not_beyond():
    def packing(share):
        figures = {"average_bfloat16_share_of_copy_rate": share, "average_bfloat16_gigabytes_per_s": 1}
        return measure("average of bfloat16", ("copy_rate", figures)).is_met

    def sum_of(key, what, mine):
        alone = ("nccl_alone", {key: 1000.0})
        assert measure(what, ("over_nccl", {key: mine})).is_met is None, "there is nothing to compare it with"
        return measure(what, ("over_nccl", {key: mine}), alone).is_met

    assert (packing(0.9), packing(0.899)) == (True, False)
    big, small = ("series_67108864_us", "64 MiB in a series"), ("one_4_us", "one allreduce of 4 B")
    assert (sum_of(*big, 1020.0), sum_of(*big, 1020.1)) == (True, False)
    assert (sum_of(*small, 1005.0), sum_of(*small, 1005.1)) == (True, False)
    submits = [measure("submitted", ("over_nccl", {"submit_us": us})).is_met for us in (3, 3.1)]
    losses = [measure("killed", ("lost_rank", {"noticed_s": s})).is_met for s in (5, 5.1)]
    assert submits == losses == [True, False]
    for name, key in (("plain loop", "plain"), ("DDP", "ddp_over_nccl")):
        rates = [
            measure(name, ("resnet", {"rueda_images_per_s": ours, f"{key}_images_per_s": 100.0})).is_met
            for ours in (99.0, 98.9)
        ]
        assert rates == [True, False]


def test_gradients_are_compared_with_ddp():
    costs = {"gradient_backward_rueda_us": 6.7, "gradient_step_rueda_us": 2.0}
    alone = measure("gradient in backward", ("host_costs", costs))
    assert alone.is_met is None and alone.value == "6.7 us"
    for theirs, is_met in ((10.2, True), (6.6, False)):
        found = measure("gradient in backward", ("host_costs", {**costs, "gradient_backward_ddp_us": theirs}))
        assert found.is_met is is_met and found.value == f"6.7 us, DDP over NCCL {theirs} us"
    assert measure("optimizer's step", ("host_costs", costs)).target == ""


def test_ranks_that_take_turns_on_the_gpu_have_no_target_of_speed():
    results = ("over_nccl", {"one_4_us": 9000.0, "submit_us": 2.0}), ("nccl_alone", {"one_4_us": 20.0})
    for sharing, is_met in (("switch", False), ("hosts", None)):
        found = measure("one allreduce of 4 B", *results, sharing=sharing, ranks=2)
        assert found.is_met is is_met and found.what.endswith("(2 ranks)")
    assert found.target == "none: these ranks take turns on the GPU"
    assert measure("submitted", *results, sharing="hosts", ranks=2).is_met is True
    assert measure("one allreduce of 4 B", *results, sharing="hosts").is_met is False


def test_sums_are_compared_with_those_of_as_many_ranks():
    parts = [
        {"name": name, "ranks": ranks, "status": "passed", "result": {"one_4_us": us}}
        for name, ranks, us in (("over_nccl", 1, 10.0), ("over_nccl", 2, 10.0), ("nccl_alone", 2, 8.0))
    ]
    assert [one.is_met for one in report.measures(parts)] == [None, True]


def test_the_page_says_what_was_measured_and_what_failed(tmp_path):
    def part(name, status="passed", count=2, why="", **result):
        return {"name": name, "ranks": count, "status": status, "seconds": 1.0, "result": result, "why": why}

    big, small = "series_67108864_us", "one_4_us"
    packing = {"sum_float32_share_of_copy_rate": 0.8, "sum_float32_gigabytes_per_s": 2400.0}
    content = {
        "machine": {"gpu": "GPU of the tests", "gigabytes": 80, "torch": "2", "python": "3.11", "rueda": "0"},
        "sharing": "switch",
        "seconds": 9.0,
        "parts": [
            part("nccl_alone (switch), 2 ranks", **{big: 1000.0, small: 20.0}),
            part("over_nccl, 2 ranks", **{big: 1100.0, small: 30.0, "submit_us": 4.0, "backend": "nccl"}),
            part("copy_rate, 1 rank", count=1, **packing, average_float32_note="no time"),
            part("resnet, 1 rank", count=1, plain_images_per_s=200.0, rueda_images_per_s=190.0),
            part("lost_rank, 2 ranks", noticed_s=0.4),
            part("torch_collectives, 4 ranks", "late", 4, "rank 3 ended with -6:\nstuck here"),
        ],
    }
    report.write(content, tmp_path)
    written = json.loads((tmp_path / "gpu_report.json").read_text())
    found = {one["what"]: one for one in written.pop("measures")}
    assert written == content
    page = (tmp_path / "gpu_report.md").read_text()
    assert "| allreduce of 64 MiB in a series (2 ranks) | 1100.0 us, NCCL alone 1000.0 us, +10.0 % |" in page
    assert "until the result is there (2 ranks) | 30.0 us, NCCL alone 20.0 us, +50.0 % | at most 5 us" in page
    where = "for a sum of float32 (1 rank) | 0.8 of the copy rate, 2400.0 GB/s read and written"
    assert f"{where} | at least 0.9 of the copy rate | **no** |" in page
    assert "for an average of float32 (1 rank) | not known: no time |" in page
    assert "| a killed rank is named (lost_rank, 2 ranks) | after 0.4 s | within 5 s | yes |" in page
    assert found["one allreduce of 4 B, until the result is there (2 ranks)"]["is_met"] is False
    assert found["host time for each tensor that is submitted (2 ranks)"]["is_met"] is False
    assert "200.0 images/s a rank; rueda -5.0 %" in page
    assert "5 passed, 1 late." in page and "### torch_collectives, 4 ranks: late" in page
    assert "stuck here" in page and not list(tmp_path.glob("*.part"))
    assert Path(tmp_path / "gpu_report.md").stat().st_size < 4000
