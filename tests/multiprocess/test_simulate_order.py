"""The buckets of a simulated job, and those of a real one: the same tensors in the same order.

No time is compared. While the plan is learned, a round of negotiation waits so long that all gradients of a
step are in it, whatever else the machine does.
"""

from __future__ import annotations

import json
import struct
import subprocess
from pathlib import Path
from typing import Dict, List, Tuple

import pytest
from harness import CASE_LIMIT_S, assert_all_succeed, launch
from launch_support import RUEDA
from timeline_records import HEADER, NAME, slots

# In the order in which they are ready, KiB: small ones between large ones, some that travel alone.
GRADIENTS = [96, 300, 640, 20, 2048, 52, 900, 400, 1200, 12, 8, 700, 3000, 36, 512, 512, 4, 260]
CYCLE_MS = 300

PROGRAM = """
import json, os
import numpy as np
import rueda.numpy as hvd

hvd.init()
model = json.load(open(os.environ["MODEL"]))
gradients = [(name, np.ones(count, np.float32)) for name, count in model["parameters"]]
for step in range(12):
    handles = [hvd.allreduce_async(values, name=name, op=hvd.Sum) for name, values in gradients]
    for handle in handles:
        hvd.synchronize(handle)
hvd.shutdown()
"""

CALL, TENSOR = 8, 6  # kinds of slots (src/rueda/trace/record_format.h)
IS_PLANNED = 1


def planned_buckets(record: bytes) -> List[List[str]]:
    """The tensors of each call of a plan, in the order of the calls."""
    texts: Dict[int, str] = {}
    found: Dict[int, Tuple[int, List[str]]] = {}  # by the place of the call among its kind
    is_planned = False
    parts = list(slots(record))
    for at, part in enumerate(parts):
        kind, name = part[0], struct.unpack_from("<I", part, 4)[0]
        if kind == NAME:
            length = int.from_bytes(part[2:4], "little")
            texts[name] = part[HEADER : HEADER + length].decode()
        elif kind == CALL:
            is_planned = bool(struct.unpack_from("<H", parts[at + 1], 2)[0] & IS_PLANNED)
            if is_planned:
                found[at] = (struct.unpack_from("<q", part, 8)[0], [])
                last = at
        elif kind == TENSOR and is_planned:
            found[last][1].append(texts[name].removeprefix("allreduce."))
    return [names for _, names in sorted(found.values())]


def last_step(buckets: List[List[str]]) -> List[List[str]]:
    """The buckets behind those that carry the first tensors of the step before."""
    step: List[List[str]] = []
    while sum(map(len, step)) < len(GRADIENTS):
        step.insert(0, buckets[len(buckets) - 1 - len(step)])
    return step


@pytest.mark.parametrize("ranks", [2, 4])
def test_simulated_buckets_are_those_of_a_real_job(tmp_path: Path, ranks: int) -> None:
    model = tmp_path / "m.json"
    parameters = [[f"layer{i}", 256 * kib] for i, kib in enumerate(GRADIENTS)]
    total = sum(count for _, count in parameters)
    described = {"name": "m", "source": "a test", "compute_ms": 5, "compute_source": "a test", "total": total}
    model.write_text(json.dumps({**described, "parameters": parameters}))
    settings = {
        "MODEL": str(model),
        "RUEDA_TIMELINE": str(tmp_path / "t.json"),
        "RUEDA_CYCLE_TIME": str(CYCLE_MS),
        "RUEDA_TUNE": "off",
    }
    assert_all_succeed(launch(ranks, PROGRAM, settings))
    records = [(tmp_path / f"t.json.rank{rank}.rec").read_bytes() for rank in range(ranks)]
    real = [last_step(planned_buckets(record)) for record in records]
    assert all(of_rank == real[0] for of_rank in real)

    words = ["--hosts", "1", "--per-host", str(ranks), "--model", str(model), "--cycle", str(CYCLE_MS)]
    done = subprocess.run(
        [RUEDA, "simulate", *words, "--no-split", "--json", "-"],
        capture_output=True,
        text=True,
        timeout=CASE_LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["results"]
    simulated = [call["names"] for call in row["last_calls"]]
    assert simulated == real[0]
    assert len(simulated) < len(GRADIENTS), "some were fused"
