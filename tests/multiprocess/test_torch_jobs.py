"""Whole jobs as users start them: horovodrun on an unchanged script, horovod.run on a function."""

import gzip
import json
import math
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from harness import ROOT, library
from launch_support import RUEDA

DATA = Path("/usr/share/datasets/fashion-mnist")
SCRIPT = """
import torch
import horovod.torch as hvd

hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size(), momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
for step in range(5):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
total = hvd.allreduce(torch.tensor(float(hvd.rank())), op=hvd.Sum, name="total")
print("rank", hvd.rank(), "of", hvd.size(), "total", int(total))
"""


@pytest.fixture
def environment():
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("python", "compat/horovod")),
        "RUEDA_LIBRARY": library(),
        "RUEDA_BIN": RUEDA,
        "OMP_NUM_THREADS": "1",
    }


def run_python(arguments, environment, folder):
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def test_horovodrun_runs_an_unchanged_script(environment, tmp_path: Path):
    (tmp_path / "train.py").write_text(SCRIPT)
    arguments = ["-m", "horovod.runner.launch", "-np", "3", sys.executable, "train.py"]
    done = run_python(arguments, environment, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    for rank in range(3):
        assert f"[{rank}]<stdout>:rank {rank} of 3 total 3" in lines, done.stdout + done.stderr


def test_horovod_run_returns_results_in_rank_order(environment, tmp_path: Path):
    code = """
import horovod

def work(factor):
    import horovod.torch as hvd

    hvd.init()
    return [hvd.rank() * factor, hvd.allgather_object(hvd.rank())]

assert horovod.run(work, args=(10,), np=2) == [[0, [0, 1]], [10, [0, 1]]]
"""
    done = run_python(["-c", code], environment, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def put_first_images(count, folder: Path):
    """The first `count` images and labels of each file of Fashion-MNIST (IDX: magic, counts, bytes)."""
    for path in DATA.iterdir():
        content = gzip.decompress(path.read_bytes())
        dimensions = content[3]
        header = 4 + 4 * dimensions
        shape = struct.unpack(f">{dimensions}I", content[4:header])
        kept = content[:4] + struct.pack(f">{dimensions}I", count, *shape[1:])
        kept += content[header : header + count * math.prod(shape[1:])]
        (folder / path.name).write_bytes(gzip.compress(kept, 1))


@pytest.mark.skipif(not DATA.exists(), reason="Debian's package dataset-fashion-mnist is not installed")
def test_the_example_trains_and_all_ranks_hold_the_same_parameters(environment, tmp_path: Path):
    (tmp_path / "data").mkdir()
    put_first_images(6000, tmp_path / "data")
    report = tmp_path / "report.json"
    script = [str(ROOT / "examples/pytorch/fashion_mnist.py"), "--data", "data", "--epochs", "2"]
    command = [RUEDA, "run", "-np", "2", sys.executable, *script, "--report", str(report)]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    reached = json.loads(report.read_text())
    assert reached["ranks"] == 2 and reached["accuracy"] > 0.7, reached
    assert len(set(reached["parameters_sha256"])) == 1
