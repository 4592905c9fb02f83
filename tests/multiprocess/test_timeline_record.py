"""`rueda timeline record`: the last minute of a job that runs and was not asked for a timeline before."""

import contextlib
import json
import signal
import subprocess

from launch_support import PYTHON, RUEDA
from metrics_support import PATIENCE_S, environment_of, rueda

# Rank 1 is slow. The job ends when a file is there.
SLOW = """
import os, sys, time
import numpy
import rueda.numpy as hvd

hvd.init()
count = 0
while True:
    if hvd.rank() == 1:
        time.sleep(0.05)
    is_over = numpy.array([float(os.path.exists(sys.argv[1]))])
    goes_on = hvd.allreduce(is_over, name="goes on", op=hvd.Sum)[0] == 0
    hvd.mark_step()
    count += 1
    if count == 60:
        print("trained", flush=True)
    if not goes_on:
        break
"""


@contextlib.contextmanager
def _running_job(folder, **more):
    command = [RUEDA, "run", "-np", "2", "--no-prefix", PYTHON, "-c", SLOW, str(folder / "end")]
    job = subprocess.Popen(command, env=environment_of(folder, **more), stdout=subprocess.PIPE, text=True)
    try:
        for _ in range(2):
            assert "trained" in job.stdout.readline()
        yield job
        (folder / "end").touch()
        job.communicate(timeout=PATIENCE_S)
        assert job.returncode == 0
    finally:
        if job.poll() is None:
            job.send_signal(signal.SIGKILL)
            job.communicate(timeout=PATIENCE_S)


def test_a_running_job_is_recorded_and_its_slow_rank_named(tmp_path):
    out = str(tmp_path / "now")
    with _running_job(tmp_path):
        code, said, error = rueda(tmp_path, "timeline", "record", out)
        assert code == 0, error
        assert said.startswith(f"{out}.rank*.rec is written, of 2 ranks; `rueda timeline summary {out}` says")
        code, summary, error = rueda(tmp_path, "timeline", "summary", "--json", out)
        assert code == 0, error
        summary = json.loads(summary)
        assert summary["steps"] >= 50 and summary["files"] == 2
        assert "for rank 1 " in summary["advice"][0]["text"]
        code, _, error = rueda(tmp_path, "timeline", "record", str(tmp_path / "no" / "such"))
        assert code == 1 and "Name a file in an existing, writable directory." in error


def test_of_two_jobs_one_must_be_named(tmp_path):
    with _running_job(tmp_path) as one, _running_job(tmp_path):
        code, _, error = rueda(tmp_path, "timeline", "record", str(tmp_path / "now"))
        assert code == 1 and "2 jobs are running; name one: " in error
        code, _, error = rueda(tmp_path, "timeline", "record", str(tmp_path / "now"), str(one.pid))
        assert code == 0, error


def test_a_job_that_keeps_nothing_says_so(tmp_path):
    with _running_job(tmp_path, RUEDA_FLIGHT_RECORD_BYTES="0"):
        code, _, error = rueda(tmp_path, "timeline", "record", str(tmp_path / "now"))
    assert code == 1
    assert "Rank 0 has sent no records: it keeps no flight record (RUEDA_FLIGHT_RECORD_BYTES=0)." in error
    assert list(tmp_path.glob("now*")) == []


def test_without_a_job_it_says_so(tmp_path):
    code, _, error = rueda(tmp_path, "timeline", "record", str(tmp_path / "now"))
    assert code == 1 and "no process of this user on this host runs rueda" in error
