"""Ctrl-C while init waits for other ranks, and ranks that come when rank 0 has failed and gone."""

import os
import signal
import subprocess
import sys
import time

import pytest
from harness import ROOT, library
from ports import free_port

LIMIT_S = 120  # less than the start timeout, which must not be waited for

SCRIPT = """
import os, sys, time
import rueda.numpy as hvd
print("init", flush=True)
try:
    hvd.init()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(7)
except ValueError as error:
    print("failed:", error, flush=True)
    sys.exit(3)
print("in", flush=True)
"""


def start(folder, rank, store, script=SCRIPT, **variables):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("RUEDA_", "HOROVOD_"))}
    environment = {
        **clean,
        "HOME": str(folder),
        "PYTHONPATH": str(ROOT / "python"),
        "RUEDA_LIBRARY": library(),
        "RUEDA_RANK": str(rank),
        "RUEDA_SIZE": "2",
        "RUEDA_STORE": store,
        "RUEDA_START_TIMEOUT": "400",
        **variables,
    }
    return subprocess.Popen(
        [sys.executable, "-c", script],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def await_kernel_wait(process):
    """Until it has called init: the engine's library is loaded and the process sleeps."""
    assert process.stdout.readline() == "init\n"
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        with open(f"/proc/{process.pid}/maps") as maps, open(f"/proc/{process.pid}/stat") as stat:
            if "librueda.so" in maps.read() and stat.read().rpartition(")")[2].split()[0] == "S":
                return
        time.sleep(0.01)
    raise AssertionError("it does not wait")


def interrupt(process):
    await_kernel_wait(process)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 7 and output == "interrupted\n", output


@pytest.mark.parametrize("kind", ["file", "tcp"])
@pytest.mark.parametrize("rank", [0, 1])
def test_ctrl_c_ends_the_wait_in_the_store_at_once(tmp_path, kind, rank):
    store = f"file://{tmp_path}/store" if kind == "file" else f"tcp://127.0.0.1:{free_port()}"
    interrupt(start(tmp_path, rank, store))


def await_true(condition, what):
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def test_ctrl_c_ends_the_wait_for_connections_and_tells_the_other_ranks(tmp_path):
    """Rank 1 has told where it listens, and is stopped before it knows all others, so it never answers."""
    store, three = f"file://{tmp_path}/store", {"RUEDA_SIZE": "3"}
    waiting, stopped = (start(tmp_path, rank, store, **three) for rank in range(2))

    def has_published(rank):
        name = "k." + f"init1/rank{rank}".encode().hex()
        return any((run / name).exists() for run in tmp_path.glob("store/run-*"))

    def descriptors():
        return len(os.listdir(f"/proc/{waiting.pid}/fd"))

    await_true(lambda: has_published(0) and has_published(1), "two ranks have not told where they are")
    stopped.send_signal(signal.SIGSTOP)
    before = max(descriptors() for _ in range(50))
    last = start(tmp_path, 2, store, **three)
    await_true(lambda: has_published(2), "rank 2 has not told where it is")
    await_true(lambda: descriptors() > before + 2, "rank 0 opens no connections")
    waiting.send_signal(signal.SIGINT)
    output, _ = waiting.communicate(timeout=LIMIT_S)
    assert waiting.returncode == 7 and output == "init\ninterrupted\n", output
    stopped.send_signal(signal.SIGCONT)
    for process in (stopped, last):
        output, _ = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 3 and "a signal interrupted init" in output, output


def test_other_handlers_run_in_the_wait_and_may_raise(tmp_path):
    script = """
import signal, sys
import rueda.numpy as hvd

def on_signal(number, frame):
    hvd.shutdown()  # has no effect here, and does not block
    print("handled", flush=True)
    if number == signal.SIGTERM:
        sys.exit(9)

for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, on_signal)
print("init", flush=True)
hvd.init()
"""
    process = start(tmp_path, 1, f"file://{tmp_path}/store", script)
    await_kernel_wait(process)
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline() == "handled\n"
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 9 and output == "handled\n", output


LATE = (
    """
import sys
import rueda.numpy as hvd
print("started", flush=True)
sys.stdin.readline()
"""
    + SCRIPT
)


def start_late(folder, store):
    """Rank 1, which calls init when it is told to."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("RUEDA_", "HOROVOD_"))}
    variables = {"RUEDA_RANK": "1", "RUEDA_SIZE": "2", "RUEDA_STORE": store, "RUEDA_START_TIMEOUT": "400"}
    process = subprocess.Popen(
        [sys.executable, "-c", LATE],
        env={
            **clean,
            "HOME": str(folder),
            "PYTHONPATH": str(ROOT / "python"),
            "RUEDA_LIBRARY": library(),
            **variables,
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout.readline() == "started\n"
    return process


def test_a_rank_that_comes_when_rank_0_has_failed_and_gone_fails_with_its_cause(tmp_path):
    store = f"file://{tmp_path}/store"
    late = start_late(tmp_path, store)
    failed, _ = start(tmp_path, 0, store, RUEDA_FUSION_THRESHOLD="many").communicate(timeout=LIMIT_S)
    assert "RUEDA_FUSION_THRESHOLD" in failed
    output, _ = late.communicate("\n", timeout=LIMIT_S)
    assert late.returncode == 3, output
    assert "another rank could not initialize: rank 0: " in output and "RUEDA_FUSION_THRESHOLD" in output


def test_the_record_of_an_old_run_fails_no_new_one(tmp_path):
    store = f"file://{tmp_path}/store"
    start(tmp_path, 0, store, RUEDA_FUSION_THRESHOLD="many").communicate(timeout=LIMIT_S)
    assert list(tmp_path.glob("store/run-*/failed"))
    first = start(tmp_path, 1, store)  # sees the record before the new rank 0 is there
    await_kernel_wait(first)
    second = start(tmp_path, 0, store)
    for process in (first, second):
        output, _ = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0 and output.endswith("in\n"), output
