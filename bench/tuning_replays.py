"""What the tuner gains and what it costs: long replays of training with it and without it.

    sudo PATH=$PWD/.venv/bin:$PATH python bench/tuning_replays.py /tmp/tuning.json
    sudo PATH=$PWD/.venv/bin:$PATH python bench/tuning_replays.py /tmp/tuning.json --only VGG-16      one case

Hosts are network namespaces (`rueda bench replay`). "from 64 MiB" begins with buckets that are too large on
purpose (RUEDA_PLAN_BUCKET_BYTES, and RUEDA_TUNE=on); the other cases begin with the library's first guess.
Each case runs without the tuner, then with it for many more steps, and without it again, since a machine
drifts. The mean step with the tuner contains all that its trials cost; its median is a step of what was kept.
Every measurement is written to the file at once, and what is there already is not measured again. Settings
in the environment, RUEDA_TUNE_PERCENT for example, reach the replays.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List

LARGE = {"RUEDA_PLAN_BUCKET_BYTES": str(64 << 20), "RUEDA_TUNE": "on"}
# name: options of the replay, steps with the tuner, settings. A trial takes 100 steps if it finds something,
# and begins only when 1 % of the time pays for it, so there are many steps, and most cases have short ones.
CASES: Dict[str, Any] = {
    "ResNet-50, 2 hosts, 5 Gbit/s, from 64 MiB": ("resnet50 -np 2 --rate 5gbit --dilation 0.5", 1500, LARGE),
    "ResNet-50, 2 hosts, 5 Gbit/s": ("resnet50 -np 2 --rate 5gbit --dilation 0.5", 1500, {}),
    "ResNet-50, 4 hosts, 10 Gbit/s": ("resnet50 -np 4 --rate 10gbit --dilation 0.4", 1000, {}),
    "BERT base, 2 hosts, 5 Gbit/s, from 64 MiB": ("bert_base -np 2 --rate 5gbit", 450, LARGE),
    "VGG-16, 4 hosts, 10 Gbit/s": ("vgg16 -np 4 --rate 10gbit --dilation 1", 600, {}),  # 3 to 4 s a step
}
PARTS = ("plain", "tuned", "plain again")
PLAIN_STEPS = 60
LIMIT_S = 3600


def replay(options: str, steps: int, settings: Dict[str, str]) -> Dict[str, Any]:
    """The row of the replay, and the table of what was tried."""
    with tempfile.TemporaryDirectory() as scratch:
        report, log = Path(scratch, "report.json"), Path(scratch, "tried.csv")
        model, *rest = options.split()
        command = ["rueda", "bench", "replay", "--model", model, *rest]
        command += ["--iterations", str(steps), "--json", str(report)]
        env = {**os.environ, "RUEDA_TUNE_LOG": str(log), **settings}
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=LIMIT_S, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)} failed: {(done.stderr or done.stdout)[-800:]}")
        (row,) = json.loads(report.read_text())["results"]
        tried = list(csv.DictReader(log.read_text().splitlines())) if log.exists() else []
    if not row["correct"]:
        raise SystemExit(f"{options}: a sum is wrong")
    return {"median_ms": row["step_ms"], "mean_ms": row["step_mean_ms"], "steps": steps, "tried": tried}


def measure(name: str, case: Dict[str, Any], most_steps: int) -> None:
    options, steps, settings = CASES[name]
    steps = min(steps, most_steps)
    part = next(part for part in PARTS if part not in case)
    if part == "tuned":
        case[part] = replay(options, steps, {"RUEDA_TUNE_AFTER_SECONDS": "5", **settings})
    else:
        case[part] = replay(options, min(PLAIN_STEPS, steps), {**settings, "RUEDA_TUNE": "off"})


def table(measured: Dict[str, Dict[str, Any]]) -> str:
    lines = ["| | off: mean, before and after | on: mean | on: median | trials | kept |"]
    lines.append("|---|---|---|---|---|---|")
    for name, case in measured.items():
        if any(part not in case for part in PARTS):
            continue
        before, tuned, after = (case[part] for part in PARTS)
        trials = tuned["tried"][:-1]  # the last row is what is in use
        kept = [one["tried"] for one in trials if one["kept"] == "1"]
        times = f"{before['mean_ms']:.0f}, {after['mean_ms']:.0f} | {tuned['mean_ms']:.0f}"
        times += f" | {tuned['median_ms']:.0f}"
        lines.append(f"| {name} | {times} | {len(trials)} | {'; then '.join(kept) or 'nothing'} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="where the measurements are kept")
    parser.add_argument("--only", help="cases whose names contain this")
    parser.add_argument("--most", type=int, default=1000, help="so many replays, and then no more")
    parser.add_argument("--steps", type=int, default=10000, help="of a replay at most, to try this program")
    given = parser.parse_args()
    measured: Dict[str, Any] = json.loads(given.file.read_text()) if given.file.exists() else {}
    names: List[str] = [name for name in CASES if given.only is None or given.only in name]
    if not names:
        parser.error(f"--only {given.only} is in the name of no case; there are: {'; '.join(CASES)}")
    left = given.most
    for name in [name for name in names for _ in PARTS]:
        case = measured.setdefault(name, {})
        if PARTS[-1] in case or left == 0:
            continue
        left -= 1
        measure(name, case, given.steps)
        given.file.write_text(json.dumps(measured, indent=1))
        print(f"{name}: {', '.join(case)}", file=sys.stderr)
    print(table(measured))


if __name__ == "__main__":
    main()
