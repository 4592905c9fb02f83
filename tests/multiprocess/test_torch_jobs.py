"""Whole jobs as users start them: horovodrun on an unchanged script, horovod.run on a function."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import ROOT, library
from launch_support import RUEDA

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
