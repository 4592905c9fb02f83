"""rueda.ray.run, its executor and horovod.ray, in a Ray of their own."""

from pathlib import Path

import pytest
import ray_support
from launch_support import assert_all_gone

if why := ray_support.missing():
    pytest.skip(why, allow_module_level=True)

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def program():
    with ray_support.short_folder() as folder, ray_support.local(folder) as made:
        yield made


def pids_in(folder):
    return [int(text) for file in Path(folder).glob("*.pids") for text in file.read_text().split()]


def test_results_come_in_rank_order_and_local_ranks_find_their_gpu(program):
    results, news, free = program.ask("run_with_gpus")
    for rank, (value, (numbers, total, _, gpus, word)) in enumerate(results):
        assert (value, word) == (3, "x")
        assert numbers == [rank, 2, rank, 2, 0]
        assert total == [3.0] * 4
        assert gpus == "0,1"
    assert news == [{"from": 0}]
    assert "(rank 1 pid=" in program.output and "a line of the rank" in program.output
    assert free in (2, 3, 4), "Ray counts what ends with a delay"


def test_more_ranks_than_slots_are_refused_at_once_with_both_numbers(program):
    refused = program.ask("too_many", 9)
    assert refused["error"] == "ValueError"
    assert "asked for 9 ranks of 1 CPU" in refused["text"] and "room for 4" in refused["text"]


def test_ray_train_refuses_more_ranks_than_slots_at_once_with_both_numbers(program):
    refused = program.ask("train_too_many", 9)
    assert refused["error"] == "ValueError"
    assert "asked for 9 ranks of 1 CPU" in refused["text"] and "room for 4" in refused["text"]


def test_occupied_slots_end_the_wait_with_both_numbers(program):
    late = program.ask("occupied", 2)
    assert late["error"] == "RuntimeError"
    assert "2 ranks of 1 CPU within 2 s" in late["text"]
    assert "room for 4 such ranks in total and for 1 besides" in late["text"]


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        (("horovods_too_many", 9), "asked for 9 ranks of 1 CPU, but this Ray cluster has room for 4"),
        (("horovods_occupied", 2), "2 ranks of 1 CPU within 2 s"),
    ],
)
def test_horovods_executor_raises_a_timeout_error_where_ray_has_no_room(program, scenario, words):
    refused = program.ask(*scenario)
    assert refused["error"] == "TimeoutError" and words in refused["text"]


def test_horovods_actor_class_can_be_started_by_a_script(program):
    for rank, variables in enumerate(program.ask("horovods_workers")):
        assert variables[:3] == [str(rank), "2", "5"]
        assert variables[3] == variables[5]
        assert variables[4] == rank + 3


def test_an_exception_names_its_rank_and_the_executor_goes_on(program):
    program.ask("keep")
    failed = program.ask("raise_on_rank_1")
    assert (
        failed["text"].startswith("Rank 1 on 127.0.0.1 (pid ")
        and "failed: LookupError: mine" in failed["text"]
    )
    assert "in fail" in failed["text"] and failed["cause"] == "LookupError('mine')"
    failed = program.ask("exit_with", 3)
    assert "failed: SystemExit: 3" in failed["text"]
    failed = program.ask("unsendable")
    assert "cannot pickle" in failed["text"] and "lock" in failed["text"]
    assert program.ask("again") == [[0, 2, 0, 2, 0], [1, 2, 1, 2, 0]]


def test_nothing_is_left_after_shutdown(program, tmp_path):
    assert program.ask("shut_down", tmp_path) == 6
    assert len(pids_in(tmp_path)) == 6
    assert_all_gone(pids_in(tmp_path))


def test_no_rank_takes_another_for_lost_at_an_orderly_end(program):
    begin = len(program.output)
    assert program.ask("shut_down_slowly") == [0, 1]
    program.ask("run_with_gpus")  # Ray forwards lines in order, so those of before have come
    assert "a line of the rank" in program.output[begin:]
    assert "Verdict" not in program.output[begin:] and "lost" not in program.output[begin:]


def test_a_rank_in_a_call_does_not_keep_the_end_waiting(program):
    assert program.ask("shut_down_in_a_call") < 200


def test_ctrl_c_ends_the_ranks(program, tmp_path):
    assert program.ask("interrupted", tmp_path)["error"] == "KeyboardInterrupt"
    assert_all_gone(pids_in(tmp_path))


def test_a_node_with_another_version_is_answered_in_one_sentence(program, tmp_path):
    (tmp_path / "rueda").mkdir()
    (tmp_path / "rueda/__init__.py").write_text('__version__ = "0.0.1"\n')
    said = program.ask("other_version", tmp_path)
    assert "has rueda 0.0.1, but the driver has" in said["text"], said


def test_horovods_executor_keeps_objects_and_takes_its_arguments(program):
    added, word, remote, news, interface = program.ask("executables")
    assert added == [15, 20, 20, 30]
    assert word == [20, "y"]
    assert remote == ["r0", "r1"]
    assert news == [{"a": 1}]
    assert interface is None


def test_ray_train_restarts_ranks_from_its_checkpoint(program, tmp_path):
    metrics, has_checkpoint = program.ask("train", tmp_path)
    assert (metrics["epoch"], metrics["first"], metrics["total"], metrics["word"]) == (2, 2, 3.0, "z")
    assert has_checkpoint
