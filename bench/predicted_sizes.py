"""What the size of buckets is worth, as `rueda simulate` predicts it: twelve cases, nine fixed sizes.

    python bench/predicted_sizes.py sizes.json                  # the table of docs/simulate.md
    python bench/predicted_sizes.py sizes.json --tune 1000      # also what the tuner makes of the first guess

Every prediction is written to the file at once, and what is there already is not predicted again: delete the
file for another build. The same request gives the same numbers on any machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from pathlib import Path
from statistics import mean
from typing import Dict, List

MODELS = ("resnet50", "vgg16", "bert_base", "gpt2")
NETWORKS = {
    "2 hosts, 5 Gbit/s": ("--hosts", "2", "--bandwidth", "5gbit", "--dilation", "1.25"),
    "4 hosts, 1 Gbit/s": ("--hosts", "4", "--bandwidth", "1gbit", "--dilation", "6.25"),
    "8 hosts, 1 Gbit/s": ("--hosts", "8", "--bandwidth", "1gbit", "--dilation", "6.25"),
}
SIZES = [2**k for k in range(9)]  # MiB
CHOSEN, TUNED = "chosen", "tuned"


def predict(model: str, network: str, *options: str) -> float:
    """Milliseconds of a step."""
    command = [os.environ.get("RUEDA_BIN", "rueda"), "simulate", "--model", model, *NETWORKS[network]]
    command += ["--steps", "40", "--no-split", "--json", "-", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=3600)
    return float(json.loads(done.stdout)["results"][0]["step_ms"])


def text_of(steps: Dict[str, float]) -> str:
    """One cell of the table."""
    fixed = {size: steps[str(size)] / steps[CHOSEN] - 1 for size in SIZES}
    best, worst = min(fixed, key=fixed.__getitem__), max(fixed, key=fixed.__getitem__)
    tuned = f", tuned {steps[TUNED]:,.0f}" if TUNED in steps else ""
    return (
        f"{steps[CHOSEN]:,.0f} ms{tuned}; best {best} MiB {100 * fixed[best]:+.1f} %, "
        f"worst {worst} MiB {100 * fixed[worst]:+.1f} %"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="where the predictions are kept")
    parser.add_argument("--tune", type=int, default=0, help="steps in which the tuner may try something")
    given = parser.parse_args()
    found: Dict[str, Dict[str, float]] = json.loads(given.file.read_text()) if given.file.exists() else {}
    wanted: Dict[str, List[str]] = {CHOSEN: []}
    wanted.update({str(size): ["--bucket", f"{size}MiB", "--fusion", "512MiB"] for size in SIZES})
    if given.tune > 0:
        wanted[TUNED] = ["--tune", str(given.tune)]
    cases = [(model, network) for model in MODELS for network in NETWORKS]
    for name, options in wanted.items():
        for model, network in cases:
            steps = found.setdefault(f"{model}, {network}", {})
            if name not in steps:
                steps[name] = predict(model, network, *options)
                given.file.write_text(json.dumps(found, indent=1))
    print(f"| | {' | '.join(NETWORKS)} |\n|{'---|' * (1 + len(NETWORKS))}")
    for model in MODELS:
        print(f"| {model} | {' | '.join(text_of(found[f'{model}, {network}']) for network in NETWORKS)} |")
    for name in [*map(str, SIZES), TUNED]:
        if all(name in steps for steps in found.values()):
            average = mean(steps[name] / steps[CHOSEN] - 1 for steps in found.values())
            print(f"{name}: {100 * average:+.2f} % on average over all cases")


if __name__ == "__main__":
    main()
