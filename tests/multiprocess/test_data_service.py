"""tf.data service: one job prepares data, another one trains with it."""

import importlib.util
import os
import subprocess

import pytest
import spark_support
from harness import LEAN, ROOT, library
from launch_support import PYTHON, QUIET_TENSORFLOW, Run

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("there is no tensorflow", allow_module_level=True)

pytestmark = pytest.mark.timeout(600)

TRAIN = """
import sys
import tensorflow as tf
import horovod.tensorflow as hvd
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, tf_data_service

hvd.init()
config = TfDataServiceConfig.read(sys.argv[1], wait_for_file_creation=True)
with tf_data_service(config, hvd.rank()):
    def numbers(**how):
        prepared = tf.data.Dataset.range(20).map(lambda x: x * 10)
        sent = prepared.send_to_data_service(config, hvd.rank(), hvd.size(), **how)
        mine = sorted(int(x) for x in sent)
        return sorted(x for part in hvd.allgather_object(mine) for x in part)

    everything = [10 * x for x in range(20)]
    assert numbers() == sorted(everything * hvd.size())
    shared = numbers(reuse_dataset=True)
    assert shared == sorted(everything * config.dispatchers), shared  # one pass for each dispatcher
    endless = tf.data.Dataset.range(4).repeat()
    turns = {"reuse_dataset": True, "round_robin": True, "job_name": "turns"}
    sent = endless.send_to_data_service(config, hvd.rank(), hvd.size(), "parallel_epochs", **turns)
    assert len(list(sent.take(5))) == 5
    print("rank", hvd.rank(), "has read everything", flush=True)
    hvd.barrier()
if hvd.rank() == 0:
    config.compute_client(verbose=2).shutdown()
hvd.shutdown()
"""


# Horovod's public entry, called instead of run as a command.
PREPARE = """
import sys
from horovod.tensorflow.data.compute_worker import main
main(int(sys.argv[1]), sys.argv[2], sys.argv[3], 120)
"""


def start(ranks, *command):
    """A job."""
    path = os.pathsep.join([LEAN, *(str(ROOT / part) for part in ("python", "compat/horovod"))])
    settings = {**QUIET_TENSORFLOW, "PYTHONPATH": path, "RUEDA_LIBRARY": library(), "OMP_NUM_THREADS": "1"}
    return Run("-np", str(ranks), PYTHON, *command, env=settings)


@pytest.fixture
def files(tmp_path):
    """The scripts of both jobs, and the file of the service."""
    for name, text in (("train.py", TRAIN), ("prepare.py", PREPARE)):
        (tmp_path / name).write_text(text)
    return tmp_path / "train.py", tmp_path / "prepare.py", tmp_path / "config.json"


def check_ends(train, prepare, config, ranks):
    status, output, errors = train.finish(timeout=180)
    assert status == 0, output + errors
    assert output.count("has read everything") == ranks
    status, output, errors = prepare.finish(timeout=180)
    assert status == 0, output + errors
    assert not config.exists()


@pytest.mark.parametrize(("side", "dispatchers"), [("compute", 1), ("training", 2)])
def test_training_ranks_get_every_element_from_the_other_job(files, side, dispatchers):
    script, prepare, config = files
    if side == "compute":
        command = [prepare, str(dispatchers), side, str(config)]
    else:
        command = ["-m", "horovod.tensorflow.data.compute_worker", "--timeout", "120", str(config)]
        command += ["--dispatchers", str(dispatchers), "--dispatcher-side", side]
    preparing = start(2, *command)
    check_ends(start(2, script, config), preparing, config, 2)


def test_numbers_that_cannot_be_shared_are_one_sentence(files):
    _, prepare, config = files
    status, output, errors = start(2, prepare, "3", "compute", str(config)).finish(timeout=120)
    assert status != 0 and "2 processes cannot be shared by 3 dispatchers" in output + errors
    assert not config.exists()


class InSpark:
    """The job that prepares data, in two tasks of a Spark application."""

    def __init__(self, folder, config):
        master = "--master local[2] --conf spark.ui.enabled=false --conf spark.driver.bindAddress=127.0.0.1"
        self._process = subprocess.Popen(
            [PYTHON, "-m", "horovod.spark.tensorflow.compute_worker", "--timeout", "120", str(config)],
            env={
                **os.environ,
                **QUIET_TENSORFLOW,
                **spark_support.environment(folder),
                "PYSPARK_SUBMIT_ARGS": f"{master} --conf spark.driver.host=127.0.0.1 pyspark-shell",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self, timeout):
        try:
            output, _ = self._process.communicate(timeout=timeout)
        finally:
            if self._process.poll() is None:
                self._process.kill()
        return self._process.returncode, output, ""


@pytest.mark.skipif(bool(spark_support.missing()), reason=str(spark_support.missing()))
def test_the_other_job_may_be_an_application_of_spark(files, tmp_path):
    script, _, config = files
    preparing = InSpark(tmp_path, config)
    check_ends(start(1, script, config), preparing, config, 1)
