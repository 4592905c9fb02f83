"""Two steps that exchange more than gradients, replayed between hosts and predicted by `rueda simulate`.

    sudo PATH=$PWD/.venv/bin:$PATH python bench/exchange_replays.py [--costs machine.json] [-np 2 4]

"experts" has eight layers that wait for an alltoall in the forward pass and in the backward pass, and sums
eight gradients; "sharded" waits for an allgather before each layer, and reduces and scatters each gradient
while it computes. `--costs` are what `rueda simulate --validate --write-costs` has written on this machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Dict, List

LAYERS, COMPUTE_MS, FORWARD_MS = 8, 1200.0, 400.0
WEIGHTS, TOKENS = 2_000_000, 1_000_000  # elements of a layer
Exchange = Dict[str, Any]


def ready_ms(layer: int) -> float:
    """When backward has the gradient of the layer that it comes to as this one."""
    return FORWARD_MS + (COMPUTE_MS - FORWARD_MS) * (layer + 1) / LAYERS


def model(name: str, gradients: int, exchanges: List[Exchange]) -> Dict[str, Any]:
    return {
        "name": name,
        "source": "bench/exchange_replays.py",
        "compute_source": "bench/exchange_replays.py",
        "compute_ms": COMPUTE_MS,
        "total": gradients * WEIGHTS,
        "parameters": [[f"layer{layer}.weight", WEIGHTS] for layer in reversed(range(gradients))],
        "ready_ms": [ready_ms(layer) for layer in range(gradients)],
        "exchanges": sorted(exchanges, key=lambda one: float(one["at_ms"])),
    }


def exchange(name: str, operation: str, elements: int, at_ms: float, waits: bool = True) -> Exchange:
    return {"name": name, "operation": operation, "elements": elements, "at_ms": at_ms, "waits": waits}


def experts() -> Dict[str, Any]:
    exchanges = []
    for layer in range(LAYERS):
        forward = FORWARD_MS * (layer + 0.5) / LAYERS
        backward = ready_ms(layer) - (COMPUTE_MS - FORWARD_MS) * 0.5 / LAYERS
        exchanges.append(exchange(f"tokens{layer}", "alltoall", TOKENS, forward))
        exchanges.append(exchange(f"gradients{layer}", "alltoall", TOKENS, backward))
    return model("experts", LAYERS, exchanges)


def sharded(ranks: int) -> Dict[str, Any]:
    exchanges = []
    for layer in range(LAYERS):
        begin = FORWARD_MS * layer / LAYERS
        exchanges.append(exchange(f"gather{layer}", "allgather", WEIGHTS // ranks, begin))
        exchanges.append(exchange(f"scatter{layer}", "reducescatter", WEIGHTS, ready_ms(layer), waits=False))
    return model("sharded", 0, exchanges)


def run(*words: str) -> None:
    subprocess.run(["rueda", *words], check=True, stdout=subprocess.DEVNULL, timeout=600)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-np", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--costs", help="a cluster file with the costs of this machine")
    parser.add_argument("--iterations", default="9")
    given = parser.parse_args()
    costs = ["--costs", given.costs] if given.costs else []
    for ranks in given.np:
        for what in (experts(), sharded(ranks)):
            with tempfile.TemporaryDirectory() as scratch:
                file, report = Path(scratch) / "model.json", Path(scratch) / "report.json"
                file.write_text(json.dumps(what))
                asked = ["--model", str(file), "--json", str(report)]
                replay = ["-np", str(ranks), "--rate", "1gbit", "--dilation", "1"]
                run("bench", "replay", *replay, "--iterations", given.iterations, *asked)
                (row,) = json.loads(report.read_text())["results"]
                cluster = ["--hosts", str(ranks), "--bandwidth", "1gbit", "--latency", "10", *costs]
                run("simulate", *cluster, "--no-split", *asked)
                (predicted,) = json.loads(report.read_text())["results"]
            error = predicted["step_ms"] / row["step_ms"] - 1
            print(
                f"{what['name']}, {ranks} hosts: measured {row['step_ms']:.0f} ms "
                f"({row['step_min_ms']:.0f} to {row['step_max_ms']:.0f}), "
                f"predicted {predicted['step_ms']:.0f} ms, {error:+.1%}, "
                f"sums {'right' if row['correct'] else 'WRONG'}"
            )


if __name__ == "__main__":
    main()
