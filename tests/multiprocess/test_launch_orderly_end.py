"""Ranks that end after the job was told to end are not lost, and a handler may shut rueda down."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from harness import library
from launch_support import PYTHON, ROOT, RUEDA, Run

pytestmark = pytest.mark.skipif(not os.path.exists(RUEDA), reason=f"{RUEDA} is not built")

VARIABLES = {"PYTHONPATH": str(ROOT / "python"), "RUEDA_LIBRARY": library(), "OMP_NUM_THREADS": "1"}

# Rank 1 ends at once when it is told to. The others stay until the launcher has reported that, and more.
TRAINING = """
import os, signal, sys, time
import numpy as np
import rueda.numpy as hvd

rank, folder = int(os.environ["RANK"]), sys.argv[1]

def handler(number, frame):
    if rank == 1:
        os._exit(0)
    end = time.monotonic() + 30
    while os.path.exists(f"/proc/{open(folder + '/pid').read()}/fd/1") and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(1)
    print("saved", flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, handler)
hvd.init()
if rank == 1:
    with open(folder + "/pid", "w") as file:
        file.write(str(os.getpid()))
hvd.allreduce(np.ones(3), name="first")
print("trains", flush=True)
end = time.monotonic() + 60
while time.monotonic() < end:
    hvd.allreduce(np.ones(3), name="a")
    hvd.mark_step()
    if rank == 1 and len(sys.argv) > 2:
        os._exit(0)
"""


def train(folder: Path, *arguments):
    variables = {**VARIABLES, "RUEDA_FLIGHT_RECORD": f"{folder}/flight", "RUEDA_TIMELINE": f"{folder}/t.json"}
    options = ("-np", 3, "--grace", 60)
    return Run(*options, PYTHON, "-c", TRAINING, folder, *arguments, env=variables)


def summary(folder: Path) -> str:
    command = [RUEDA, "timeline", "summary", folder / "t.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "rank" in done.stdout, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("whom", ["rueda run", "rueda-guardian"])
def test_a_rank_that_ends_after_sigterm_is_not_lost(tmp_path: Path, whom: str):
    job = train(tmp_path)
    job.read_until(3, lambda line: "trains" in line)
    os.kill(job.process.pid if whom == "rueda run" else job.agents(whom)[0], signal.SIGTERM)
    status, out, err = job.finish(90)
    assert status == 143 and out.count("saved") == 2, out + err
    assert "Verdict" not in err and "flight record" not in err, err
    assert not list(tmp_path.glob("flight*"))
    assert "The epoch broke" not in summary(tmp_path)


def test_a_rank_that_ends_without_having_been_told_is_lost(tmp_path: Path):
    status, _, err = train(tmp_path, "now").finish(90)
    assert status != 0
    assert "Verdict: dead: rank 1" in err and "flight record" in err, err
    assert "The epoch broke" in summary(tmp_path)


# The signal comes while the result of an operation is being taken.
HANDLER = """
import signal
import numpy as np
import rueda.numpy as hvd
from rueda import in_flight

hvd.init()

def handler(number, frame):
    hvd.shutdown()
    print("shut down", flush=True)

signal.signal(signal.SIGTERM, handler)
handle = hvd.allreduce_async(np.ones(3), name="a")
in_flight.of_handle(handle).then(lambda result: (result, signal.raise_signal(signal.SIGTERM))[0])
print("sum", hvd.synchronize(handle).sum())
"""


def test_a_handler_may_shut_down_whatever_it_interrupts():
    done = subprocess.run(
        ["timeout", "-k", "1", "60", PYTHON, "-c", HANDLER],
        env={**os.environ, **VARIABLES},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and done.stdout == "shut down\nsum 3.0\n", done.stdout + done.stderr
