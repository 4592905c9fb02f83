"""Learned plans try other buckets while a job trains, and what is summed stays the same."""

import csv
import os

from launch_support import PYTHON, Run

PROGRAM = """
import os, sys, time
import numpy as np
import rueda.numpy as hvd

hvd.init()
rank, size, log, limit = hvd.rank(), hvd.size(), os.environ["LOG"], float(os.environ["LIMIT"])
gradients = [np.full(10000 + 5000 * (i % 5), i + rank, np.float32) for i in range(40)]
sums = [i * size + size * (size - 1) / 2 for i in range(40)]
end = time.monotonic() + limit
steps = 0
while True:
    tried = rank == 0 and os.path.exists(log) and open(log).read().count("\\n") > 1
    stop = np.array([float(rank == 0 and (tried or time.monotonic() > end))], np.float32)
    handles = [hvd.allreduce_async(g, name=f"g{i}", op=hvd.Sum) for i, g in enumerate(gradients)]
    stop = hvd.allreduce_async(stop, name="stop", op=hvd.Sum)
    for handle, expected in zip(handles, sums):
        assert (hvd.synchronize(handle) == expected).all(), steps
    steps += 1
    if hvd.synchronize(stop)[0] > 0:
        break
print("steps", steps, flush=True)
hvd.shutdown()
"""


def run(tmp_path, limit, **settings):
    log = tmp_path / "tried.csv"
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    variables = {"LOG": str(log), "LIMIT": str(limit), "RUEDA_TUNE_AFTER_SECONDS": "0", **settings}
    code, out, err = Run("-np", "2", PYTHON, program, env={**os.environ, **variables}).finish()
    assert code == 0, err
    assert out.count("steps") == 2
    return log


def test_other_buckets_are_tried_and_every_sum_is_right(tmp_path):
    log = run(tmp_path, 90, RUEDA_TUNE_LOG=str(tmp_path / "tried.csv"))
    rows = list(csv.DictReader(log.read_text().splitlines()))
    assert rows, "no trial within 90 s"
    for row in rows:
        assert int(row["buckets"]) >= 1 and float(row["step_ms"]) > 0 and row["kept"] in ("0", "1")
        assert "buckets" in row["tried"]


def test_as_horovod_names_it_and_off(tmp_path):
    log = run(tmp_path, 3, HOROVOD_AUTOTUNE="0", HOROVOD_AUTOTUNE_LOG=str(tmp_path / "tried.csv"))
    assert log.read_text() == "seconds,buckets,tried,step_ms,gain_percent,kept\n"
