"""`rueda.spark.run` in one real application with two executors of two cores."""

import contextlib
import io
from concurrent.futures import ThreadPoolExecutor

import pytest
import spark_support
from launch_support import assert_all_gone
from ports import free_port

if why := spark_support.missing():
    pytest.skip(why, allow_module_level=True)

import horovod.spark
import rueda.spark
from rueda.run import RemoteTraceback
from rueda.spark import entry, launcher

pytestmark = pytest.mark.timeout(600)  # a JVM for each of the application's processes starts slowly


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    with spark_support.application(spark_support.CLUSTER, tmp_path_factory.mktemp("spark")) as made:
        yield made


@pytest.fixture(autouse=True)
def no_rank_outlives_its_test(spark):
    yield
    assert not spark.ranks()


def test_results_come_in_rank_order_and_ranks_work_together(spark):
    def work(factor):
        import numpy as np

        import rueda.numpy as hvd

        hvd.init()
        total = hvd.allreduce(np.array([float(hvd.rank())]), op=hvd.Sum, name="total")
        return hvd.rank() * factor, hvd.local_rank(), hvd.local_size(), hvd.cross_size(), total[0]

    assert rueda.spark.run(work, args=(10,), num_proc=4) == [(10 * r, r, 4, 1, 6.0) for r in range(4)]


def test_default_is_the_parallelism_of_the_application(spark):
    assert rueda.spark.run(lambda: 1, verbose=0) == [1] * spark.context.defaultParallelism


def test_lines_of_ranks_have_a_prefix_and_go_where_the_caller_says(spark):
    out, err = io.StringIO(), io.StringIO()

    def talk():
        import sys

        print("to", "stdout")
        sys.stderr.write("no newline at the end")

    rueda.spark.run(talk, num_proc=2, stdout=out, stderr=err, verbose=0)
    assert sorted(out.getvalue().splitlines()) == [f"[{r} 127.0.0.1] to stdout" for r in range(2)]
    assert sorted(err.getvalue().splitlines()) == [f"[{r} 127.0.0.1] no newline at the end" for r in range(2)]


def test_ranks_find_env_settings_and_what_other_programs_need(spark, monkeypatch):
    monkeypatch.setenv("RUEDA_CYCLE_TIME", "3")
    monkeypatch.setenv("RUEDA_RANK", "7")  # of the driver, if it is a rank itself

    def look():
        import json
        import os
        import stat

        secret = os.stat(os.environ["RUEDA_SECRET_FILE"])
        names = ("RUEDA_RANK", "RANK", "WORLD_SIZE", "MINE", "RUEDA_CYCLE_TIME", "MASTER_ADDR")
        return (
            [os.environ[n] for n in names],
            json.loads(os.environ["TF_CONFIG"]),
            stat.S_IMODE(secret.st_mode),
        )

    results = rueda.spark.run(look, num_proc=2, env={"MINE": "x"}, tf_config=True)
    for rank, (values, tf_config, mode) in enumerate(results):
        assert values == [str(rank), str(rank), "2", "x", "3", "127.0.0.1"]
        assert tf_config["task"] == {"type": "worker", "index": rank}
        assert len(set(tf_config["cluster"]["worker"])) == 2
        assert mode == 0o600


def test_ports_given_to_ranks_can_be_listened_on_and_are_given_to_nobody_else(spark):
    def serve():
        import os
        import socket

        port = int(os.environ["MASTER_PORT"])
        if os.environ["RANK"] != "0":
            return port
        with (
            socket.create_server(("127.0.0.1", port)) as server,
            socket.create_connection(("127.0.0.1", port)),
        ):
            return server.getsockname()[1]

    first, second = rueda.spark.run(serve, num_proc=2)
    assert first == second


def test_the_exception_names_rank_host_and_traceback_and_its_cause_is_the_original(spark):
    def fail():
        import numpy as np

        import rueda.numpy as hvd

        hvd.init()
        if hvd.rank() == 1:
            raise LookupError("nothing here")
        hvd.allreduce(np.ones(3), name="never")

    with pytest.raises(RuntimeError) as caught:
        rueda.spark.run(fail, num_proc=3, stderr=io.StringIO())
    text = str(caught.value)
    assert text.startswith("Rank 1 on 127.0.0.1 (pid ") and "failed: LookupError: nothing here" in text
    assert "in fail" in text and "_rank.py" not in text
    assert isinstance(caught.value.__cause__, LookupError)
    assert isinstance(caught.value.__cause__.__cause__, RemoteTraceback)


def test_a_killed_rank_is_the_first_cause_and_not_those_that_noticed_it(spark):
    def die():
        import os
        import signal
        import sys

        import numpy as np

        import rueda.numpy as hvd

        hvd.init()
        if hvd.rank() == 2:
            print("last words", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        hvd.allreduce(np.ones(3), name="never")

    with pytest.raises(RuntimeError) as caught:
        rueda.spark.run(die, num_proc=3, stderr=io.StringIO())
    assert "Rank 2 on 127.0.0.1 (pid " in str(caught.value)
    assert "was killed by SIGKILL" in str(caught.value) and "| last words" in str(caught.value)


def test_a_rank_that_leaves_early_with_an_exit_code_is_a_failure_and_the_others_are_stopped(spark):
    def leave():
        import os
        import time

        if os.environ["RANK"] == "0":
            os._exit(5)
        time.sleep(3600)  # longer than the test may take

    with pytest.raises(RuntimeError, match=r"Rank 0 on 127\.0\.0\.1 \(pid \d+\) ended with exit code 5\."):
        rueda.spark.run(leave, num_proc=2)


def test_an_end_without_a_result_and_results_that_cannot_travel_are_named(spark):
    def leave():
        import os

        os._exit(0)

    class Unloadable:
        def __reduce__(self):
            return eval, ("1/0",)

    def many_lines():
        raise ValueError("first line\nsecond line")

    def lock():
        import threading

        return threading.Lock()

    quiet = {"num_proc": 2, "verbose": 0, "stderr": io.StringIO()}
    for function, words in (
        (leave, "ended with exit code 0 before the function had returned"),
        (Unloadable, "What rank 0 returned cannot be loaded in the driver: ZeroDivisionError"),
        (lock, "The lock that the function returned cannot be pickled"),
        (many_lines, "failed: ValueError: first line"),
    ):
        with pytest.raises(RuntimeError, match=words):
            rueda.spark.run(function, **quiet)
    kept = lock()
    with pytest.raises(TypeError, match="cannot send the function with its arguments to the ranks"):
        rueda.spark.run(lambda: kept, **quiet)


def test_jobs_of_two_threads_run_side_by_side(spark):
    with ThreadPoolExecutor(2) as threads:
        jobs = [
            threads.submit(rueda.spark.run, lambda x: x, args=(i,), num_proc=2, verbose=0) for i in range(2)
        ]
        assert [job.result(120) for job in jobs] == [[0, 0], [1, 1]]


def test_processes_that_a_rank_hides_end_with_it(spark):
    def hide():
        import subprocess
        import sys

        script = "import time; print('up', flush=True); time.sleep(300)"
        child = subprocess.Popen(
            [sys.executable, "-c", script], start_new_session=True, stdout=subprocess.PIPE
        )
        child.stdout.readline()
        return child.pid

    assert_all_gone(rueda.spark.run(hide, num_proc=2))


def test_more_ranks_than_slots_is_a_sentence_with_both_numbers_at_once(spark):
    with pytest.raises(
        ValueError, match="asked for 5 ranks, but this Spark application can run 4 tasks at once"
    ):
        rueda.spark.run(lambda: 1, num_proc=5, start_timeout=3600)  # longer than the test may take
    with pytest.raises(ValueError, match="num_proc is 0"):
        rueda.spark.run(lambda: 1, num_proc=0)


def test_ranks_that_find_no_free_slot_are_counted_when_start_timeout_is_over(spark):
    with (
        spark.occupied(3),
        pytest.raises(RuntimeError, match=r"Only \d of 2 ranks had started when start_timeout was over"),
    ):
        rueda.spark.run(lambda: 1, num_proc=2, start_timeout=2)


@pytest.mark.parametrize("reaches", [True, False])
def test_a_driver_behind_nat_is_dialled_at_its_outer_address_and_its_port(spark, monkeypatch, reaches):
    listen, port = launcher._listen, free_port()
    outer = {
        "spark.driver.host": "127.0.0.3",
        "spark.driver.bindAddress": "0.0.0.0" if reaches else "127.0.0.1",
    }
    monkeypatch.setattr(launcher, "_listen", lambda settings, port: listen({**settings, **outer}, port))
    if reaches:
        assert rueda.spark.run(lambda: 1, num_proc=2, driver_port=port) == [1, 1]
        return
    with pytest.raises(
        RuntimeError,
        match=rf"cannot use 127\.0\.0\.3:{port}: .* one port and name that port with driver_port\.$",
    ) as caught:
        rueda.spark.run(lambda: 1, num_proc=2, start_timeout=3600, driver_port=port)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "requirements, sentence",
    [
        (entry.Requirements("99.0"), r"has rueda [\d.]+, but the driver has 99\.0; install the same version"),
        (
            entry.Requirements(rueda.__version__, ("no_such_module",)),
            "no_such_module is not installed",
        ),
    ],
)
def test_executors_that_lack_something_are_one_sentence(spark, monkeypatch, requirements, sentence):
    monkeypatch.setattr(launcher.entry, "Requirements", lambda _: requirements)
    with pytest.raises(RuntimeError, match=sentence) as caught:
        rueda.spark.run(lambda: 1, num_proc=2)
    assert "\n" not in str(caught.value) and "Traceback" not in str(caught.value)


def test_another_python_on_executors_is_one_sentence(spark, monkeypatch):
    monkeypatch.setattr(spark.context, "pythonVer", "2.7", raising=False)
    with pytest.raises(
        RuntimeError, match=r"The executors run Python 3\.\d+, but the driver runs Python"
    ) as caught:
        rueda.spark.run(lambda: 1, num_proc=2)
    assert "\n" not in str(caught.value)


def test_horovod_spark_is_the_same(spark):
    def rank():
        import horovod.torch as hvd

        hvd.init()
        return hvd.rank()

    assert horovod.spark.run(rank, num_proc=2, use_gloo=True, verbose=2) == [0, 1]
    with pytest.raises(ValueError, match="MPI"):
        horovod.spark.run(rank, num_proc=2, use_mpi=True)


def test_the_secret_is_on_no_command_line_and_in_no_file(spark):
    def look():
        import os
        import pathlib

        secret = pathlib.Path(os.environ["RUEDA_SECRET_FILE"]).read_text()
        own = [pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() for pid in (os.getpid(), os.getppid())]
        return secret, any(secret.encode() in line for line in own), secret in str(dict(os.environ))

    results = rueda.spark.run(look, num_proc=2)
    assert len({secret for secret, _, _ in results}) == 1 and len(results[0][0]) == 64
    assert not any(shown for _, *places in results for shown in places)
    for path in spark.folder.rglob("*"):
        with contextlib.suppress(
            OSError
        ):  # Spark removes its broadcasts meanwhile, and folders cannot be read
            assert results[0][0].encode() not in path.read_bytes()


def test_without_a_context_there_is_a_sentence(monkeypatch, spark):
    from pyspark import SparkContext

    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    with pytest.raises(RuntimeError, match=r"^Could not find an active SparkContext"):
        rueda.spark.run(lambda: 1, num_proc=1)
