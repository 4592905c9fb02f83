"""`rueda.spark.run` where executors come and go with the load: Spark refuses barrier stages there."""

import pytest
import spark_support
from robust_support import wait_until

if why := spark_support.missing():
    pytest.skip(why, allow_module_level=True)

import rueda.spark

pytestmark = pytest.mark.timeout(600)

SETTINGS = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.initialExecutors": "0",
}


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spark")
    with spark_support.application(spark_support.CLUSTER, folder, **SETTINGS) as made:
        yield made


def add():
    import numpy as np

    import rueda.numpy as hvd

    hvd.init()
    total = hvd.allreduce(np.ones(3) * (hvd.rank() + 1), op=hvd.Sum).tolist()
    return hvd.rank(), hvd.local_size(), total


def test_executors_come_for_the_ranks(spark):
    for _ in range(2):
        assert rueda.spark.run(add, num_proc=4) == [(rank, 4, [10.0] * 3) for rank in range(4)]
        assert not spark.ranks()


def test_more_ranks_than_there_can_be_slots_is_a_sentence_with_both_numbers_at_once(spark):
    with pytest.raises(ValueError, match=r"asked for 5 ranks, .* can run 4 tasks at once"):
        rueda.spark.run(add, num_proc=5, start_timeout=3600)  # longer than the test may take


def lose_an_executor():
    import os
    import signal
    import time
    from pathlib import Path

    import rueda.numpy as hvd

    hvd.init()
    if hvd.rank() == 1:
        pid = os.getppid()
        while b"CoarseGrainedExecutor" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(pid, signal.SIGKILL)
    time.sleep(3600)  # longer than the test may take


def test_an_executor_that_is_lost_ends_the_job_which_spark_does_not_repeat(spark):
    with pytest.raises(RuntimeError, match="was lost: its Spark task has ended"):
        rueda.spark.run(lose_an_executor, num_proc=4)
    wait_until(lambda: not spark.ranks(), 90, "the end of the ranks")
    assert [rank for rank, _, _ in rueda.spark.run(add, num_proc=4)] == [0, 1, 2, 3]
