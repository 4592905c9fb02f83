"""`rueda timeline workload`: what a step of a real job computes and exchanges, told from its records.

Programs sleep instead of computing, so when their gradients are ready is known. The machine may be busy, so
times are compared with large margins.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Dict

import pytest
from harness import CASE_LIMIT_S, assert_all_succeed, launch
from launch_support import RUEDA

Done = "subprocess.CompletedProcess[str]"


def workload(*arguments: str) -> Done:
    return subprocess.run(
        [RUEDA, "timeline", "workload", *arguments], capture_output=True, text=True, timeout=CASE_LIMIT_S
    )


def made_of(done: Done) -> Dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: Dict[str, Any] = json.loads(done.stdout)
    return found


# Backward sleeps for each layer, in milliseconds; the last layer comes first.
TORCH = """
import os, time
import torch
import rueda.torch as hvd

class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.seconds)
        return gradient, None

hvd.init()
torch.set_num_threads(1)
layers = torch.nn.ModuleList([torch.nn.Linear(16, 8 + 8 * i) for i in range(3)])
named = layers.named_parameters()
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(layers.parameters(), lr=0.01), named_parameters=named)
sleeps = [float(word) for word in os.environ["SLEEPS_MS"].split()]
for step in range(14):
    optimizer.zero_grad()
    time.sleep(0.02)  # forward
    total = 0
    x = torch.ones(4, 16)
    for layer, ms in zip(layers, sleeps):
        y = Slow.apply(layer(x), ms / 1e3)
        total = total + y.sum()
        x = y[:, :1].repeat(1, 16)  # the next layer's backward comes first
    total.backward()
    optimizer.step()
    hvd.allreduce(torch.zeros(1), name="loss")
hvd.shutdown()
"""


def test_gradients_of_torch_are_ready_when_backward_has_computed_them(tmp_path: Path) -> None:
    sleeps = {"2": 10.0, "1": 90.0, "0": 30.0}  # in the order of backward
    environment = {"SLEEPS_MS": " ".join(str(sleeps[layer]) for layer in "012")}
    ended = launch(2, TORCH, {"RUEDA_TIMELINE": str(tmp_path / "t.json"), **environment})
    assert_all_succeed(ended)
    done = workload(str(tmp_path / "t.json"))
    made = made_of(done)
    assert "Left out: 1 tensor that the program waits for at once." in done.stderr
    counts = dict(made["parameters"])
    assert counts == {
        f"allreduce.{layer}.{kind}": (8 + 8 * layer) * (16 if kind == "weight" else 1)
        for layer in range(3)
        for kind in ("weight", "bias")
    }
    assert [name.split(".")[1] for name, _ in made["parameters"]] == ["2", "2", "1", "1", "0", "0"]
    ready = dict(zip(counts, made["ready_ms"]))
    at = {layer: ready[f"allreduce.{layer}.weight"] for layer in sleeps}
    gap_of_1, gap_of_0 = at["1"] - at["2"], at["0"] - at["1"]
    assert at["2"] >= 20 + 10 and gap_of_1 >= 90 and gap_of_0 >= 30  # sleeping never ends early
    assert gap_of_1 > 1.5 * gap_of_0, at
    assert made["compute_ms"] >= made["ready_ms"][-1] == max(made["ready_ms"])
    assert made["world"] == 2 and made["total"] == sum(counts.values())


# The rank of LATE_RANK computes longer, so the other one waits.
NUMPY = """
import os, time
import numpy as np
import rueda.numpy as hvd

hvd.init()
how = os.environ["HOW"]
gradients = [np.ones(1000, np.float32), np.ones(2000, np.float16)]
for step in range(14):
    time.sleep(0.15 if how == "late" and hvd.rank() == 1 else 0.01)
    handles = []
    for i, gradient in enumerate(gradients):
        time.sleep(0.005)
        name = {"unnamed": None, "renamed": f"g{i}.{step}"}.get(how, f"g{i}")
        handles.append(hvd.allreduce_async(gradient, name=name))
    for handle in handles:
        hvd.synchronize(handle)
    if how != "unmarked":
        hvd.mark_step()
hvd.write_flight_record(f"{os.environ['FLIGHT']}.rank{hvd.rank()}.rec")
hvd.shutdown()
"""


def run_numpy(tmp_path: Path, how: str, **environment: str) -> None:
    flight = str(tmp_path / "flight")
    assert_all_succeed(launch(2, NUMPY, {"HOW": how, "FLIGHT": flight, **environment}))


def test_waiting_for_a_late_rank_is_no_computing_and_spreads_the_ranks(tmp_path: Path) -> None:
    out = tmp_path / "late.json"
    run_numpy(tmp_path, "late", RUEDA_TIMELINE=str(tmp_path / "t.json"))
    done = workload(str(tmp_path / "t.json"), "-o", str(out))
    assert done.returncode == 0, done.stderr
    assert f"rueda bench replay --model {out}" in done.stdout
    made = json.loads(out.read_text())
    assert made["name"] == "late"
    assert made["parameters"] == [["allreduce.g0", 1000], ["allreduce.g1", 1000]]  # as float32
    assert made["spread"]["rank"] > 0.3  # 20 and 160 ms
    # The mean of both. With what rank 0 waits it were 160 ms.
    assert 90 <= made["compute_ms"] < 140
    burst = [
        RUEDA,
        "bench",
        "burst",
        "-np",
        "2",
        "--model",
        str(out),
        "--mode",
        "planned",
        "--iterations",
        "5",
    ]
    measured = subprocess.run(burst, capture_output=True, text=True, timeout=CASE_LIMIT_S)
    assert measured.returncode == 0, measured.stderr
    assert "late" in measured.stdout


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("unmarked", "hvd.mark_step() at the end of each step"),
        ("renamed", "No collective recurs under the same name"),
    ],
)
def test_what_a_program_does_not_say_is_named(how: str, said: str, tmp_path: Path) -> None:
    run_numpy(tmp_path, how, RUEDA_TIMELINE=str(tmp_path / "t.json"))
    done = workload(str(tmp_path / "t.json"))
    assert done.returncode == 1 and said in done.stderr and not done.stdout


def test_tensors_without_a_name_are_told_apart_by_their_order(tmp_path: Path) -> None:
    run_numpy(tmp_path, "unnamed", RUEDA_TIMELINE=str(tmp_path / "t.json"))
    made = made_of(workload(str(tmp_path / "t.json")))
    assert made["parameters"] == [["allreduce.noname.#", 1000], ["allreduce.noname.# (2)", 1000]]


def test_a_flight_record_has_no_tensors_and_the_sentence_says_how_to_record_them(tmp_path: Path) -> None:
    run_numpy(tmp_path, "named")
    done = workload(*map(str, tmp_path.glob("flight.rank*.rec")))
    assert done.returncode == 1 and "RUEDA_TIMELINE=t.json" in done.stderr, done.stderr


def test_a_name_that_bench_would_not_read_is_refused(tmp_path: Path) -> None:
    done = workload(str(tmp_path), "-o", str(tmp_path / "w.txt"))
    assert done.returncode == 1 and "does not end with .json" in done.stderr
