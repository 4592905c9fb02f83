"""Learned plans try other buckets while a job trains, and what is summed stays the same."""

import csv
import os
import re

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


def run(tmp_path, text, ranks, limit, *seconds, **settings):
    """What the ranks of this program print, and where its table of what was tried is."""
    log = tmp_path / "tried.csv"
    program = tmp_path / "program.py"
    program.write_text(text)
    variables = {"LOG": str(log), "LIMIT": str(limit), "RUEDA_TUNE_AFTER_SECONDS": "0", **settings}
    code, out, err = Run("-np", ranks, PYTHON, program, env={**os.environ, **variables}).finish(*seconds)
    assert code == 0, err
    return out, log


def tried(tmp_path, limit, **settings):
    out, log = run(tmp_path, PROGRAM, 2, limit, **settings)
    assert out.count("steps") == 2
    return log


# What Horovod writes, whose last row holds what was chosen.
HOROVOD_COLUMNS = [
    "hierarchical_allreduce",
    "hierarchical_allgather",
    "torus_allreduce",
    "cache_enabled",
    "cycle_time_ms",
    "tensor_fusion_threshold",
    "score",
]
OWN_COLUMNS = ["seconds", "buckets", "tried", "step_ms", "gain_percent", "kept"]


def test_other_buckets_are_tried_and_every_sum_is_right(tmp_path):
    log = tried(tmp_path, 90, RUEDA_TUNE_LOG=str(tmp_path / "tried.csv"))
    rows = list(csv.DictReader(log.read_text().splitlines()))
    assert len(rows) >= 2, "no trial within 90 s"
    assert rows[-1]["kept"] == "1" and rows[-1]["tried"].startswith("best: ")
    for row in rows:
        assert all(float(row[name]) >= 0 for name in HOROVOD_COLUMNS)
        assert float(row["tensor_fusion_threshold"]) > 0 and float(row["score"]) > 0
        assert int(row["buckets"]) >= 1 and float(row["step_ms"]) > 0 and row["kept"] in ("0", "1")
        assert "buckets" in row["tried"]


def test_as_horovod_names_it_and_off(tmp_path):
    log = tried(tmp_path, 3, HOROVOD_AUTOTUNE="0", HOROVOD_AUTOTUNE_LOG=str(tmp_path / "tried.csv"))
    assert log.read_text() == ",".join(HOROVOD_COLUMNS + OWN_COLUMNS) + "\n"


# What a kind of change is called in the table, as a pattern.
KINDS = {
    "sizes": r'"buckets up to [^;"]*"',
    "computed": r"computed buckets",
    "algorithm": r"; (direct|two_level|flat_gather|recursive_doubling|halving_doubling)",
    "order": r"; in the order in which tensors were ready",
    "alone": r"; tensors from .* on alone",
    "chunks": r"; chunks of",
}

BITS = """
import hashlib, os, re, sys, time
rank = int(os.environ["RUEDA_RANK"])
os.environ["RUEDA_HOSTNAME"] = f"host{rank}"  # so that each rank is on a host of its own
os.environ["RUEDA_LOCAL_RANK"], os.environ["RUEDA_LOCAL_SIZE"] = "0", "1"
import numpy as np
import rueda.numpy as hvd

hvd.init()
log, limit, kinds = os.environ["LOG"], float(os.environ["LIMIT"]), os.environ["KINDS"].split("&&")
random = np.random.default_rng(rank)
# Exponents differ by rank, so another order of additions has other bits.
sizes = [1000, 1500, 900, 40_000, 1000, 1200, 40_000, 1100, 1300, 50_000, 800, 1000]
gradients = [(random.standard_normal(n) * 2.0 ** (3 * rank)).astype("f4") for n in sizes]
# The other ranks submit in reverse, so that answers come in another order than rank 0's tensors.
turns = range(len(sizes)) if rank == 0 else reversed(range(len(sizes)))
turns = list(turns)
end = time.monotonic() + limit
first, steps = None, 0
while True:
    table = open(log).read() if rank == 0 and os.path.exists(log) else ""
    found = sum(re.search(kind, table) is not None for kind in kinds)
    is_enough = found >= 4 or (found >= 1 and time.monotonic() > end)
    stop = np.array([float(rank == 0 and (is_enough or time.monotonic() > end + 120))], np.float32)
    handles = {i: hvd.allreduce_async(gradients[i], name=f"g{i}", op=hvd.Sum) for i in turns}
    stop = hvd.allreduce_async(stop, name="stop", op=hvd.Sum)
    sums = [hvd.synchronize(handles[i]).tobytes() for i in sorted(handles)]
    digest = hashlib.sha256(b"".join(sums)).hexdigest()
    first = first or digest
    assert digest == first, f"other bits in step {steps}"
    steps += 1
    if hvd.synchronize(stop)[0] > 0:
        break
print("bits", first, flush=True)
hvd.shutdown()
"""


def bits(tmp_path, limit, **settings):
    # Buckets of at most 256 KiB on each of two channels, so that some tensors may be alone or not.
    settings = {"RUEDA_FUSION_THRESHOLD": str(512 << 10), "KINDS": "&&".join(KINDS.values()), **settings}
    out, log = run(tmp_path, BITS, 3, limit, limit + 240, **settings)
    found = re.findall(r"bits (\w+)", out)
    assert len(found) == 3 and len(set(found)) == 1, out
    return found[0], log.read_text() if log.exists() else ""


def test_bits_are_those_of_a_job_that_is_not_tuned_whatever_is_tried(tmp_path):
    plain, _ = bits(tmp_path, -119, RUEDA_TUNE="off")
    table = str(tmp_path / "tried.csv")
    tuned, lines = bits(tmp_path, 40, RUEDA_TUNE_LOG=table, RUEDA_TUNE_PERCENT="100")
    assert tuned == plain
    # How many kinds of change fit into the time depends on the machine.
    assert any(re.search(pattern, lines) for pattern in KINDS.values()), lines
    print(sorted(kind for kind, pattern in KINDS.items() if re.search(pattern, lines)))
