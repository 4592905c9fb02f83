"""``make demo``: runs examples/pytorch/fashion_mnist.py with 1 and with 2 ranks and compares the results."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "demo"
WANTED_ACCURACY = 0.88
LIMIT_S = 900


def train(ranks: int, timeline: Path) -> Dict[str, Any]:
    """Runs the example with the launcher. Returns the report of rank 0."""
    command = Path(sys.executable).parent / "rueda"
    report = OUT / f"report-{ranks}.json"
    report.unlink(missing_ok=True)
    script = ROOT / "examples" / "pytorch" / "fashion_mnist.py"
    line = [str(command), "run", "-np", str(ranks), sys.executable, str(script), "--report", str(report)]
    print(f"$ {' '.join(line)}", flush=True)
    env = {**os.environ, "RUEDA_TIMELINE": str(timeline)}
    result = subprocess.run(line, env=env, stdin=subprocess.DEVNULL, timeout=LIMIT_S)
    if result.returncode != 0 or not report.exists():
        raise SystemExit(f"demo: training with {ranks} rank(s) failed with exit status {result.returncode}")
    found: Dict[str, Any] = json.loads(report.read_text())
    return found


def main() -> int:
    argparse.ArgumentParser(description="trains with 1 and with 2 ranks and compares them").parse_args()
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    timeline = OUT / "timeline.json"
    one, two = train(1, OUT / "timeline-1.json"), train(2, timeline)
    prints = two["parameters_sha256"]
    is_same = len(prints) == 2 and len(set(prints)) == 1
    is_accurate = min(one["accuracy"], two["accuracy"]) >= WANTED_ACCURACY
    print()
    print(f"accuracy, 1 rank         {100 * one['accuracy']:.2f} %")
    print(f"accuracy, 2 ranks        {100 * two['accuracy']:.2f} %")
    print(f"samples/s, 1 rank        {one['samples_per_s']:.0f}")
    print(f"samples/s, 2 ranks       {two['samples_per_s']:.0f}  ({os.cpu_count()} cores)")
    print(
        f"parameters of 2 ranks    {'identical bit for bit' if is_same else 'DIFFERENT'} ({prints[0][:16]}…)"
    )
    print(f"timeline                 {timeline} (open in https://ui.perfetto.dev or chrome://tracing)")
    for is_good, why in (
        (is_same, "the ranks ended with different parameters"),
        (is_accurate, f"accuracy below {100 * WANTED_ACCURACY:.0f} %"),
        (timeline.exists(), f"no timeline at {timeline}"),
    ):
        if not is_good:
            print(f"demo: {why}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
