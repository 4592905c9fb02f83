"""The cost of one allreduce in a tf.function without waiting for other ranks, in microseconds per tensor.

    rueda run -np 1 python bench/front_ends/graph_cost.py

Two graphs of 200 small tensors take turns: one only adds, the other also reduces the sums in a job of one
rank. The cost is the time of the second minus that of the first: the front end and the bookkeeping in the
engine. With ``--engine build/release/libidle_engine.so``, an engine that does nothing replaces the real
one, which leaves the time of the front end. ``make bench`` (``python bench/run.py --only graph``) builds it
and runs both.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import tensorflow as tf
from percentile import at

from rueda import _core

TENSORS, TURNS, CALLS = 200, 25, 10


def microseconds(call: Callable[[], Any]) -> float:
    """Per tensor, averaged over a turn."""
    call()
    began = time.perf_counter()
    for _ in range(CALLS):
        call()
    return 1e6 * (time.perf_counter() - began) / CALLS / TENSORS


def load_front_end(engine: str) -> Any:
    """rueda.tensorflow, its plugin calling the library `engine` if that is not empty."""
    if engine:
        beside = _core.library_path()
        _core.library_path = lambda: beside  # needed to find the plugin, which then uses RUEDA_LIBRARY
        os.environ["RUEDA_LIBRARY"] = os.path.abspath(engine)
    import rueda.tensorflow

    return rueda.tensorflow


def main() -> None:
    parser = argparse.ArgumentParser(description="the cost of an allreduce in a tf.function")
    parser.add_argument("--engine", default="", metavar="FILE", help="a library in the engine's place")
    parser.add_argument("--report", type=Path, help="the medians are written here, as JSON")
    arguments = parser.parse_args()
    hvd = load_front_end(arguments.engine)
    hvd.init()
    if hvd.size() != 1:
        raise SystemExit(f"graph_cost: {hvd.size()} ranks would wait for one another; start it with -np 1.")
    variables = [tf.Variable(tf.ones([16])) for _ in range(TENSORS)]

    @tf.function
    def plain() -> Any:
        return tf.add_n([v + 1.0 for v in variables])

    @tf.function
    def reduced() -> Any:
        return tf.add_n([hvd.mpi_ops._allreduce(v + 1.0, f"t{i}") for i, v in enumerate(variables)])

    calls: Dict[str, Callable[[], Any]] = {
        "plain": lambda: plain().numpy(),
        "reduced": lambda: reduced().numpy(),
    }
    if not (calls["plain"]() == calls["reduced"]()).all():
        raise SystemExit("graph_cost: the allreduce changed the values of a single rank.")
    times: Dict[str, List[float]] = {name: [] for name in calls}
    for turn in range(TURNS + 2):
        for name, call in calls.items():
            spent = microseconds(call)
            if turn >= 2:
                times[name].append(spent)
    cost = [r - p for r, p in zip(times["reduced"], times["plain"])]
    rows = {**times, "cost": cost}
    for name, values in rows.items():
        spread = f"{at(values, 0.1):6.2f} .. {at(values, 0.9):6.2f}"
        print(f"{name:<10}{at(values, 0.5):8.2f} us per tensor   {spread}")
    if arguments.report:
        arguments.report.write_text(json.dumps({name: at(values, 0.5) for name, values in rows.items()}))


if __name__ == "__main__":
    main()
