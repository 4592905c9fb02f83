"""Elastic jobs on Ray: `rueda.ray.run(min_workers=...)` and Horovod's elastic executors."""

import json
import time

import pytest
import ray_support

if why := ray_support.missing():
    pytest.skip(why, allow_module_level=True)

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def program():
    with ray_support.short_folder() as folder, ray_support.local(folder) as made:
        yield made


def test_the_ranks_of_a_node_are_local_ranks_and_tell_the_driver_how_they_are(program):
    results, news = program.ask("elastic", 1, 2)
    assert results == [[rank, 2, rank, f"ray-127.0.0.1:{rank}#0", True] for rank in range(2)]
    assert news == [[step, 2] for step in range(10)]


def test_a_lost_rank_is_replaced_on_its_node(program):
    results, _ = program.ask("elastic", 1, 2, "ray-127.0.0.1:0#0")
    assert [one[:2] for one in results] == [[0, 2], [1, 2]] and all(one[4] for one in results)
    assert sorted(one[3] for one in results) == ["ray-127.0.0.1:0#1", "ray-127.0.0.1:1#0"]


def test_an_exception_of_the_function_is_the_cause(program):
    failed = program.ask("elastic_fails")
    assert failed["error"] == "RuntimeError" and failed["cause"] == "LookupError('mine')"


def test_horovods_executors_take_their_arguments(program):
    found, first, second = program.ask("elastic_by_horovods_names", 2)
    assert found == [2], "four CPUs are two slots of two"
    assert [(*one[:3], one[5]) for one in first] == [(0, 2, 0, "w"), (1, 2, 1, "w")]
    assert [(*one[:3], one[5]) for one in second] == [(0, 2, 0, {"a": 1}), (1, 2, 1, {"a": 1})]


def test_a_cluster_without_room_ends_the_wait_with_the_number_of_slots(program):
    late = program.ask("elastic_on_a_full_cluster", 2)
    assert late["error"] == "RuntimeError" and "\n" not in late["text"]
    assert "names 0 slots" in late["text"] and "at least 1 Horovod processes" in late["text"]


def test_ranks_on_other_nodes_go_on_when_a_node_is_lost():
    with ray_support.short_folder() as folder, ray_support.Cluster(folder) as cluster:
        driver = cluster.driver()
        driver.begin("elastic_while_nodes_go", 4, 2)
        deadline = time.monotonic() + 200
        # The view of four ranks is not enough: those that it began with may be the only ones that hold the
        # state, and on the second node. A second step of four ranks proves that all have committed the first.
        while driver.output.count("is made by 4 ranks") < 2:
            assert time.monotonic() < deadline, driver.output
            time.sleep(0.1)
        cluster.kill_second_node()
        answer = json.loads(driver.answer(200))
        assert "value" in answer, (answer, driver.output)
        results = answer["value"]
        assert [one[:3] for one in results] == [[0, 2, 0], [1, 2, 1]], driver.output
        assert all(one[3].startswith("ray-10.79.0.1:") and one[4] for one in results)
