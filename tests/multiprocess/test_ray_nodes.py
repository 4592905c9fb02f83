"""rueda.ray on two nodes, which are two network namespaces; and whatever is killed, nothing survives."""

import os
import signal
import time

import pytest
import ray_support
from launch_support import assert_all_gone
from robust_support import wait_until

if why := ray_support.missing():
    pytest.skip(why, allow_module_level=True)

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def cluster():
    with ray_support.short_folder() as folder, ray_support.Cluster(folder) as made:
        yield made


@pytest.fixture(scope="module")
def program(cluster):
    return cluster.driver()


def ranks_in(folder):
    """(rank, program, fork) of both ranks, as pids, when both are there."""
    deadline = time.monotonic() + 90
    while len(files := sorted(folder.glob("*.pids"))) < 2:
        assert time.monotonic() < deadline, "the ranks have not started"
        time.sleep(0.05)
    return [tuple(int(text) for text in file.read_text().split()) for file in files]


def failed(program):
    text = program.answer()
    assert '"error"' in text
    return text


def test_ranks_lie_as_the_strategy_says(program):
    four = [10.0] * 4
    spread = program.ask("run_on", 4, "SPREAD")
    assert [numbers for numbers, _, _ in spread] == [
        [0, 4, 0, 2, 0],
        [1, 4, 1, 2, 0],
        [2, 4, 0, 2, 1],
        [3, 4, 1, 2, 1],
    ]
    assert all(total == four for _, total, _ in spread)
    nodes = [node for _, _, node in spread]
    assert nodes[0] == nodes[1] != nodes[2] == nodes[3]

    packed = program.ask("run_on", 2, "STRICT_PACK")
    assert packed[0][2] == packed[1][2] and packed[1][0] == [1, 2, 1, 2, 0]

    by_host = program.ask("run_by_hosts", 2, 1)
    assert [numbers for numbers, _, _ in by_host] == [[0, 2, 0, 1, 0], [1, 2, 0, 1, 1]]
    assert by_host[0][2] != by_host[1][2]


def test_a_cluster_that_is_too_small_is_given_some_time_to_grow(program):
    late = program.ask("too_many", 5, 1)
    assert late["error"] == "RuntimeError"
    assert "5 ranks of 1 CPU within 1 s: the cluster has room for 4 such ranks" in late["text"]


def test_nothing_survives_the_death_of_any_part(cluster, program, tmp_path):
    def start(driver, name, strategy="PACK"):
        folder = tmp_path / name
        folder.mkdir()
        driver.begin("run_and_wait", folder, strategy)
        return ranks_in(folder)

    def flat(ranks):
        return [pid for pids in ranks for pid in pids]

    ranks = start(program, "rank")
    os.kill(ranks[1][0], signal.SIGKILL)
    assert "Rank 1 on 10.79.0." in (said := failed(program)) and "was lost: its process was killed" in said
    assert_all_gone(flat(ranks))

    ranks = start(program, "driver", "SPREAD")
    program.process.kill()
    assert_all_gone(flat(ranks))
    assert cluster.is_up()

    other = cluster.driver()
    ranks = start(other, "node", "SPREAD")
    cluster.kill_second_node()
    assert "was lost: " in failed(other)
    assert_all_gone(flat(ranks))
    wait_until(lambda: not list(cluster.folder.glob("rueda/*.sock")), 60, "no socket of a killed rank")
