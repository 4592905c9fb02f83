"""Training replayed between hosts, with the buckets that rueda chooses, with fixed sizes, and over Gloo.

    sudo PATH=$PWD/.venv/bin:$PATH python bench/bucket_sizes.py /tmp/sizes.json

Twelve cases: ResNet-50, VGG-16, BERT and GPT-2 on 2 hosts of 5 Gbit/s and on 4 and 8 of 1 Gbit/s, in network
namespaces (`rueda bench replay`). Each runs with the tuner as it is by default, and with
RUEDA_PLAN_BUCKET_BYTES from 1 to 256 MiB; then a plain PyTorch loop (`replay_loop.py`) and DDP's buckets over
Gloo (`compare/gloo_peer.py`). Every measurement is written to the file at once, and what is there already is
not measured again, so an interrupted run goes on. The table shows steps as multiples of the default's.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List

HERE = Path(__file__).parent
MODELS = ["resnet50", "vgg16", "bert_base", "gpt2"]
CLUSTERS = [(2, "5gbit"), (4, "1gbit"), (8, "1gbit")]
SIZES = [1 << power for power in range(9)]  # MiB
DEFAULT = "default"
LIMIT_S = 900


def run(command: List[str], **settings: str) -> str:
    """What the command prints; SystemExit with its last words if it fails."""
    env = {**os.environ, "GLOO_SOCKET_IFNAME": "net0", "OMP_NUM_THREADS": "1", **settings}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"{' '.join(command)} took more than {LIMIT_S} s") from None
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed: {(done.stderr or done.stdout)[-800:]}")
    return done.stdout


def dilation(rate: str) -> float:
    """How much `rueda bench replay` stretches computing at that rate."""
    return 6.25 / float(rate[: -len("gbit")])


def compute_ms(model: str, rate: str) -> float:
    model_file = json.loads((HERE / "models" / f"{model}.json").read_text())
    return float(model_file["compute_ms"]) * dilation(rate)


def over_gloo(model: str, hosts: int, rate: str, steps: int) -> float:
    """Milliseconds of a step: from the first rank's beginning to the last one's end."""
    with tempfile.TemporaryDirectory() as scratch:
        spec = f"{HERE / 'models' / model}.json:{steps}:{compute_ms(model, rate)}:model"
        peer = [sys.executable, str(HERE / "compare" / "gloo_peer.py"), f"{scratch}/times", "env", str(hosts)]
        run([*replay(hosts, rate), "--", *peer, f"{scratch}/meeting", "replay", spec])
        ranks = []
        for rank in range(hosts):
            lines = Path(f"{scratch}/times.{rank}").read_text().splitlines()
            ranks.append([tuple(map(int, line.split()[1:3])) for line in lines])
    spans = [max(end for _, end in step) - min(start for start, _ in step) for step in zip(*ranks)]
    return statistics.median(spans[-steps:]) / 1e6


def by_loop(model: str, hosts: int, rate: str, steps: int) -> float:
    program = [sys.executable, str(HERE / "replay_loop.py"), str(HERE / "models" / f"{model}.json")]
    said = run(
        [*replay(hosts, rate), "--", *program, "--steps", str(steps), "--dilation", str(dilation(rate))]
    )
    found = re.search(r"step (\d+) ms", said)
    if found is None:
        raise SystemExit(f"replay_loop.py did not say how long a step took: {said[-400:]}")
    return float(found[1])


def by_replay(model: str, hosts: int, rate: str, steps: int, **settings: str) -> float:
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        options = ["--model", model, "--iterations", str(steps), "--json", report.name]
        run(replay(hosts, rate) + options, **settings)
        (row,) = json.loads(Path(report.name).read_text())["results"]
    if not row["correct"]:
        raise SystemExit(f"{model} on {hosts} hosts: a sum is wrong")
    return float(row["step_ms"])


def replay(hosts: int, rate: str) -> List[str]:
    return ["rueda", "bench", "replay", "-np", str(hosts), "--rate", rate]


def measure(model: str, hosts: int, rate: str, way: str, steps: int) -> float:
    if way == "gloo":
        return over_gloo(model, hosts, rate, steps)
    if way == "loop":
        return by_loop(model, hosts, rate, steps)
    if way == DEFAULT:
        return by_replay(model, hosts, rate, steps)
    size = int(way.split()[0]) << 20
    return by_replay(model, hosts, rate, steps, RUEDA_PLAN_BUCKET_BYTES=str(size))


def table(measured: Dict[str, Dict[str, List[float]]], asked: List[str]) -> str:
    """One line a case, and the mean of each column."""
    ways = [way for way in asked if all(case.get(way) for case in measured.values())]
    lines = ["| | default, ms | " + " | ".join(ways[1:]) + " |", "|---" * (len(ways) + 1) + "|"]
    shares: Dict[str, List[float]] = {way: [] for way in ways}
    for name, case in measured.items():
        base = statistics.median(case[DEFAULT])
        for way in ways:
            shares[way].append(statistics.median(case[way]) / base)
        lines.append(
            f"| {name} | {base:.0f} | " + " | ".join(f"{shares[way][-1]:.3f}" for way in ways[1:]) + " |"
        )
    means = " | ".join(f"{statistics.mean(shares[way]):.3f}" for way in ways[1:])
    return "\n".join([*lines, f"| mean | | {means} |"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="where the measurements are kept")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument(
        "--steps", type=int, default=6, help="of each replay; from the fourth on a plan runs (6)"
    )
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="MiB")
    given = parser.parse_args()
    ways = [DEFAULT, *(f"{size} MiB" for size in given.sizes), "loop", "gloo"]
    measured: Dict[str, Any] = json.loads(given.file.read_text()) if given.file.exists() else {}
    for repeat in range(given.repeats):
        for hosts, rate in CLUSTERS:
            for model in MODELS:
                case = measured.setdefault(f"{model}, {hosts} hosts, {rate}", {})
                for way in ways:
                    if len(case.setdefault(way, [])) <= repeat:
                        case[way].append(measure(model, hosts, rate, way, given.steps))
                        given.file.write_text(json.dumps(measured, indent=1))
                        print(f"{model}, {hosts} hosts, {way}: {case[way][-1]:.1f} ms", file=sys.stderr)
    print(table(measured, ways))


if __name__ == "__main__":
    main()
