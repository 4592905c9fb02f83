"""tf.data service: one job prepares data, another one trains with it."""

import importlib.util
import os

import pytest
from harness import ROOT, library
from launch_support import PYTHON, QUIET_TENSORFLOW, Run

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("there is no tensorflow", allow_module_level=True)

pytestmark = pytest.mark.timeout(400)

TRAIN = """
import sys
import tensorflow as tf
import horovod.tensorflow as hvd
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, tf_data_service

hvd.init()
config = TfDataServiceConfig.read(sys.argv[1], wait_for_file_creation=True, timeout=120)
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
    config.compute_client().shutdown()
hvd.shutdown()
"""


def start(*command):
    """Two ranks of a job."""
    path = os.pathsep.join(str(ROOT / part) for part in ("python", "compat/horovod"))
    settings = {**QUIET_TENSORFLOW, "PYTHONPATH": path, "RUEDA_LIBRARY": library(), "OMP_NUM_THREADS": "1"}
    return Run("-np", "2", PYTHON, *command, env=settings)


@pytest.mark.parametrize(("side", "dispatchers"), [("compute", 1), ("training", 2)])
def test_training_ranks_get_every_element_from_the_other_job(tmp_path, side, dispatchers):
    script, config = tmp_path / "train.py", tmp_path / "config.json"
    script.write_text(TRAIN)
    worker = ["-m", "horovod.tensorflow.data.compute_worker", "--timeout", "120", str(config)]
    options = ["--dispatchers", str(dispatchers), "--dispatcher-side", side]
    prepare = start(*worker, *options)
    train = start(script, config)
    status, output, errors = train.finish(timeout=180)
    assert status == 0, output + errors
    assert output.count("has read everything") == 2
    status, output, errors = prepare.finish(timeout=60)
    assert status == 0, output + errors
    assert not config.exists()
