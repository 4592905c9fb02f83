"""Front ends against one another and against TensorFlow's own strategy: `python bench/front_ends`.

    python bench/front_ends strategy    step time of one CNN, MultiWorkerMirroredStrategy over rueda
    python bench/front_ends scaling     efficiency of 2 ranks (step of one / step of two), by front end

Programs take turns. Ratios are taken within a round, and their spread over the rounds. Efficiencies compare
the fastest tenth of the steps, because everything else that the machine does disturbs two ranks on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, NamedTuple

from percentile import at

STEPS = Path(__file__).with_name("steps.py")
LIMIT_S = 120


class Times(NamedTuple):
    """The step times of one run, in milliseconds."""

    median: float
    tenth: float  # a tenth of the steps was faster: about the time when nothing else runs


def launcher() -> str:
    given = os.environ.get("RUEDA_BIN")
    return given or str(Path(sys.executable).with_name("rueda"))


def read(text: str) -> Times:
    """The values of one line."""
    lines = [line[line.index("{") :] for line in text.splitlines() if '"median_ms"' in line]
    told = json.loads(lines[-1])
    return Times(told["median_ms"], told["tenth_ms"])


def run_rueda(name: str, ranks: int, steps: int) -> Times:
    command = [launcher(), "run", "-np", str(ranks), sys.executable, str(STEPS), name, str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode != 0:
        raise SystemExit(f"{name} with {ranks} rank(s) failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return read(done.stdout)


def free_ports(count: int) -> List[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def run_strategy(workers: int, steps: int) -> Times:
    hosts = [f"127.0.0.1:{port}" for port in free_ports(workers)]
    processes = []
    for index in range(workers):
        config = {"cluster": {"worker": hosts}, "task": {"type": "worker", "index": index}}
        processes.append(
            subprocess.Popen(
                [sys.executable, str(STEPS), "strategy", str(steps)],
                env={**os.environ, "TF_CONFIG": json.dumps(config)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        said = [process.communicate(timeout=LIMIT_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(process.returncode != 0 for process in processes):
        raise SystemExit("strategy failed:\n" + "".join(err[-2000:] for _, err in said))
    return read(said[0][0])


def show(label: str, ratios: List[float]) -> Dict[str, object]:
    row = {"ratio": label, "p10": at(ratios, 0.1), "median": at(ratios, 0.5), "p90": at(ratios, 0.9)}
    print(f"{label:<44}{row['median']:>7.2f}   {row['p10']:.2f} .. {row['p90']:.2f}", flush=True)
    return row


def strategy(rounds: int, steps: int) -> List[Dict[str, object]]:
    pairs = [(run_strategy(2, steps), run_rueda("cnn", 2, steps)) for _ in range(rounds)]
    for theirs, ours in pairs:
        print(f"median of strategy {theirs.median:.2f} ms, of rueda {ours.median:.2f} ms")
    label = "MultiWorkerMirroredStrategy / rueda"
    return [
        show(label + ", median", [a.median / b.median for a, b in pairs]),
        show(label + ", fastest tenth", [a.tenth / b.tenth for a, b in pairs]),
    ]


def scaling(rounds: int, steps: int) -> List[Dict[str, object]]:
    names = ["torch", "tensorflow", "keras", "jax"]
    found: Dict[str, List[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            one, two = run_rueda(name, 1, steps), run_rueda(name, 2, steps)
            found[name].append(one.tenth / two.tenth)
            print(f"{name}: {one.tenth:.2f} ms alone, {two.tenth:.2f} ms with 2 ranks", flush=True)
    rows = [show(f"efficiency of 2 ranks, {name}", found[name]) for name in names]
    for name in names[1:]:
        against = [a / b for a, b in zip(found[name], found["torch"])]
        rows.append(show(f"efficiency, {name} / torch", against))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="front ends against one another")
    parser.add_argument("part", choices=["strategy", "scaling"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--report", type=Path)
    arguments = parser.parse_args()
    rows = (strategy if arguments.part == "strategy" else scaling)(arguments.rounds, arguments.steps)
    if arguments.report:
        arguments.report.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
