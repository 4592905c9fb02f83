"""`rueda.run` for elastic jobs: a function in processes that come and go, and its results."""

import os
import subprocess
import sys

import pytest
from elastic_sums import train
from launch_support import ROOT, RUEDA, assert_all_gone, marked_processes
from robust_support import wait_until

from rueda.run import RemoteTraceback, run

pytestmark = [
    pytest.mark.skipif(not os.path.exists(RUEDA), reason=f"{RUEDA} is not built"),
    pytest.mark.timeout(200),
]


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("RUEDA_BIN", RUEDA)


def test_a_job_that_loses_nobody_returns_the_results_in_rank_order():
    results = run(train, (10, 2), np=2, min_num_proc=1)
    assert results == [(0, 2, 0, "localhost:0#0", True), (1, 2, 1, "localhost:1#0", True)]


def test_the_results_are_those_of_the_last_members_when_a_rank_is_lost_and_replaced():
    results = run(train, (10, 3), {"doomed": ("localhost:0#0", 5)}, num_proc=3, min_num_proc=2)
    assert [one[:2] for one in results] == [(0, 3), (1, 3), (2, 3)]
    assert sorted(one[3] for one in results) == ["localhost:0#1", "localhost:1#0", "localhost:2#0"]
    assert all(one[4] for one in results)


def test_a_discovery_script_grows_the_job(tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost:1\n")

    def grow(name):
        import pathlib

        if os.environ["RUEDA_JOINER"] == "0":
            pathlib.Path(name).write_text("localhost\n")
        return train(10, 2)

    results = run(
        grow, (str(hosts),), host_discovery_script=f"cat {hosts}", slots=2, num_proc=1, max_num_proc=2
    )
    assert [one[:2] for one in results] == [(0, 2), (1, 2)]


def test_an_exception_of_the_function_is_the_cause():
    with pytest.raises(RuntimeError) as caught:
        run(train, (10, 2), {"fails": True}, num_proc=2, min_num_proc=2, elastic_timeout=2, max_num_proc=2)
    assert isinstance(caught.value.__cause__, LookupError)
    assert isinstance(caught.value.__cause__.__cause__, RemoteTraceback)


def test_too_few_processes_end_the_job_with_the_sentence_of_the_launcher():
    with pytest.raises(RuntimeError) as caught:
        run(train, (10, 2), {"doomed": ("localhost:0#0", 5)}, np=2, min_num_proc=2, elastic_timeout=0.5)
    assert "\n" not in str(caught.value) and "at least 2 Horovod processes" in str(caught.value)


def test_more_changes_than_the_limit_end_the_job_with_the_sentence_of_the_launcher():
    with pytest.raises(RuntimeError, match="limit"):
        run(train, (10, 2), {"doomed": ("localhost:0#0", 5)}, np=2, min_num_proc=1, reset_limit=0)


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ({"max_num_proc": 2}, ValueError, "max_num_proc belongs to elastic jobs; give min_num_proc"),
        ({"spares": 1}, ValueError, "spares belongs to elastic jobs"),
        (
            {"np": 1, "min_num_proc": 2},
            ValueError,
            "--min-np 2 is refused: it must be a whole number from 1 to 1",
        ),
        ({"min_num_proc": 1, "np": 2, "max_num_proc": 1}, ValueError, "--max-np 1 is refused"),
        ({"min_num_proc": 1, "elastic_timeout": -1}, ValueError, "--elastic-timeout -1 is refused"),
        ({"min_num_proc": "x"}, TypeError, "min_num_proc must be an int, not str"),
        ({"host_discovery_script": 5}, TypeError, "host_discovery_script must be a command, not int"),
        ({"host_discovery_script": "exit 3"}, RuntimeError, "Failed to execute discovery script: exit 3"),
    ],
)
def test_wrong_arguments_are_refused_in_one_sentence(arguments, error, sentence):
    with pytest.raises(error) as caught:
        run(train, (1, 1), **arguments)
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


def test_a_launcher_that_waits_for_slots_ends_with_the_process_that_called_run(tmp_path):
    mark = f"RUEDA_TEST_MARK={os.urandom(8).hex()}"
    asked = tmp_path / "asked"
    program = (
        f"import rueda; rueda.run(print, host_discovery_script='touch {asked}; echo localhost:1', num_proc=2)"
    )
    variables = {**os.environ, **dict([mark.split("=")]), "PYTHONPATH": str(ROOT / "python")}
    caller = subprocess.Popen([sys.executable, "-c", program], env=variables)
    wait_until(asked.exists, 60, "the discovery script runs")
    caller.kill()
    caller.wait()
    assert_all_gone(marked_processes(mark))
