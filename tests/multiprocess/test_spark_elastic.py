"""`rueda.spark.run_elastic` and Horovod's, on a Spark application of two executors."""

import io
import os

import pytest
import spark_support
from elastic_sums import train

if why := spark_support.missing():
    pytest.skip(why, allow_module_level=True)

import horovod.spark
import rueda.spark

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spark")
    python = os.pathsep.join([spark_support.environment(folder)["PYTHONPATH"], os.path.dirname(__file__)])
    with spark_support.application(
        spark_support.CLUSTER, folder, **{"spark.executorEnv.PYTHONPATH": python}
    ) as made:
        yield made


def lose_the_task(steps, size):
    """The task that runs the agent of rank 1 is killed in the fifth step."""
    import os

    def parent_of(pid):
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])

    def is_agent(pid):
        with open(f"/proc/{pid}/comm") as file:
            return file.read().startswith("rueda-")

    task = os.getppid()
    while is_agent(task):
        task = parent_of(task)
    os.environ["TEST_DOOMED"] = str(task)
    uid = os.environ["RUEDA_ELASTIC_UID"]
    return train(steps, size, doomed=(uid, 5) if uid.endswith("0.0.1.1:0#0") else None)


def test_a_job_returns_the_results_in_rank_order_and_writes_lines_to_streams(spark):
    out, err = io.StringIO(), io.StringIO()

    def loud():
        print("a line of a rank")
        return train(10, 2), os.environ["TEST_WORD"]

    results = rueda.spark.run_elastic(
        loud, num_proc=2, min_num_proc=1, env={"TEST_WORD": "w"}, stdout=out, stderr=err
    )
    assert [(one[:2], one[4], word) for one, word in results] == [((0, 2), True, "w"), ((1, 2), True, "w")]
    assert out.getvalue().count("a line of a rank\n") == 2


def test_a_task_that_is_killed_is_replaced_and_the_others_go_on(spark):
    results = rueda.spark.run_elastic(lose_the_task, (10, 4), num_proc=4, min_num_proc=1)
    assert [one[:2] for one in results] == [(rank, 4) for rank in range(4)]
    assert all(one[4] for one in results)
    assert {one[3].split(":")[0] for one in results} == {"spark-127.0.0.1", "spark-127.0.0.1.2"}


def test_an_exception_of_the_function_is_the_cause(spark):
    with pytest.raises(RuntimeError) as caught:
        rueda.spark.run_elastic(train, (10, 2), {"fails": True}, num_proc=2)
    assert isinstance(caught.value.__cause__, LookupError)


def test_more_ranks_than_slots_are_refused_at_once_with_both_numbers(spark):
    with pytest.raises(ValueError, match=r"asked for 9 ranks, .* can run 4 tasks at once"):
        horovod.spark.run_elastic(train, (1, 1), num_proc=9)


def test_occupied_slots_end_the_wait_with_both_numbers(spark):
    with spark.occupied(3), pytest.raises(RuntimeError, match=r"Only 1 of 2 slots were offered") as caught:
        rueda.spark.run_elastic(train, (1, 1), num_proc=2, start_timeout=8)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (
            {"num_proc": 1, "min_num_proc": 2},
            ValueError,
            "num_proc is 1; it must be",
        ),
        ({"num_proc": 2, "max_num_proc": 1}, ValueError, "max_num_proc is 1"),
        ({"num_proc": "x"}, TypeError, "num_proc must be a whole number"),
        ({"elastic_timeout": -1}, ValueError, "elastic_timeout is -1"),
    ],
)
def test_wrong_arguments_are_refused_by_name(spark, arguments, error, words):
    with pytest.raises(error, match=words):
        rueda.spark.run_elastic(train, (1, 1), **arguments)
