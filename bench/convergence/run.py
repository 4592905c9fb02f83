"""Does a method that sends less learn as much? Test accuracy against DistributedOptimizer, in paired runs.

    python bench/convergence/run.py --methods local diloco silent --seeds 1 2 3 4 5 --epochs 10
    python bench/convergence/run.py --methods powersgd topk topk-starved --seeds 1 2 3 4 5
    python bench/convergence/run.py --epochs 1 --images 6000 --seeds 1 2          # a short look

Each seed gives every method the same first weights and the same order of images, so the differences are those
of one seed. "plain" runs always: the others are compared with it. It needs the command rueda (RUEDA_BIN, of
build/release, or of PATH) and Debian's package dataset-fashion-mnist. train.py beside this file lists the
methods, as TOGETHER and ALONE.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, List

HERE = Path(__file__).resolve().parent
BUILT = HERE.parent.parent / "build" / "release" / "bin" / "rueda"
PLAIN = "plain"
METHODS = ["sharded", "local", "post-local", "diloco", "diloco-fp16", "diloco-stream", "silent"]


def find_rueda() -> str:
    found = os.environ.get("RUEDA_BIN") or (str(BUILT) if BUILT.exists() else shutil.which("rueda"))
    if found is None:
        raise SystemExit(f"There is no command rueda in PATH and no {BUILT}; build or install rueda first.")
    return found


def accuracy_of(args: argparse.Namespace, method: str, seed: int) -> float:
    """Test accuracy in percent."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        words = [find_rueda(), "run", "-np", str(args.ranks), sys.executable, str(HERE / "train.py")]
        options = {
            "--method": method,
            "--seed": seed,
            "--report": report,
            "--data": args.data,
            "--images": args.images,
            "--epochs": args.epochs,
            "--every": args.every,
            "--batch-size": args.batch_size,
            "--lr": args.lr,
            "--local-lr": args.local_lr,
        }
        for name, value in options.items():
            words += [name, str(value)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return 100 * float(json.loads(report.read_text())["accuracy"])


def table(results: Dict[str, List[float]]) -> List[str]:
    """Lines of Markdown. results: accuracy in percent by method, one for each seed."""
    lines = ["| method | accuracy, % | difference, points | smallest | largest |", "|---|---|---|---|---|"]
    for method, reached in results.items():
        differences = [mine - plain for mine, plain in zip(reached, results[PLAIN])]
        mean = statistics.fmean(differences)
        lines.append(
            f"| {method} | {statistics.fmean(reached):.2f} | {mean:+.2f} | {min(differences):+.2f} "
            f"| {max(differences):+.2f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description="accuracy against DistributedOptimizer, in paired runs")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--images", type=int, default=60000, help="of the training set")
    parser.add_argument("--every", type=int, default=10, help="steps from one exchange to the next")
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument(
        "--lr", type=float, default=0.02, help="times the ranks: learning rate where gradients are averaged"
    )
    parser.add_argument(
        "--local-lr", type=float, default=0.04, help="learning rate of ranks that step on their own"
    )
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--json", type=Path, help="write every accuracy here")
    args = parser.parse_args()

    results: Dict[str, List[float]] = {}
    for method in [PLAIN, *(one for one in args.methods if one != PLAIN)]:
        results[method] = []
        for seed in args.seeds:
            results[method].append(accuracy_of(args, method, seed))
            print(f"{method}, seed {seed}: {results[method][-1]:.2f} %", file=sys.stderr, flush=True)
    seeds = " ".join(map(str, args.seeds))
    print(f"{args.ranks} ranks, {args.epochs} epochs of {args.images} images, seeds {seeds}, ", end="")
    print(
        f"every {args.every} steps, {args.batch_size} images per rank and step, "
        f"learning rates {args.lr} and {args.local_lr}"
    )
    print("\n".join(table(results)))
    if args.json:
        settings = {key: str(value) for key, value in vars(args).items()}
        args.json.write_text(json.dumps({"settings": settings, "accuracy": results}, indent=1))


if __name__ == "__main__":
    main()
