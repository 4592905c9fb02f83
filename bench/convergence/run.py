"""Does a method that sends less learn as much? Its figure against DistributedOptimizer's, in paired runs.

    python bench/convergence/run.py --seeds 1 2 3 4 5 --json results.json
    python bench/convergence/run.py --task text --seeds 1 2 3 4 5 --json results.json
    python bench/convergence/run.py --epochs 1 --images 6000 --seeds 1 2 --methods int8 silent  # a short look

Each seed gives every method the same first weights and the same order of data, so the differences are those
of one seed. "plain" runs always: the others are compared with it. Methods take turns, seed after seed. --json
keeps each training when it has ended; the same command then goes on where it was interrupted.

It needs the command rueda (RUEDA_BIN, of build/release, or of PATH), and Debian's package
dataset-fashion-mnist or, for text, anarchism. train.py beside this file lists the methods.
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
from typing import Any, Dict, List

HERE = Path(__file__).resolve().parent
BUILT = HERE.parent.parent / "build" / "release" / "bin" / "rueda"
PLAIN = "plain"
METHODS = [
    "bf16",
    "fp16",
    "int8",
    "powersgd",
    "topk",
    "diloco",
    "diloco-short",
    "post-local",
    "delayed",
    "topk-starved",
]
DATA = {"fashion": "/usr/share/datasets/fashion-mnist", "text": "/usr/share/doc/anarchism/html"}
NOT_KEPT = {
    "task",
    "methods",
    "seeds",
    "json",
    "through",
    "data",
}  # options that may change while a file grows

Figures = Dict[str, Dict[int, float]]  # by method and seed


def find_rueda() -> str:
    found = os.environ.get("RUEDA_BIN") or (str(BUILT) if BUILT.exists() else shutil.which("rueda"))
    if found is None:
        raise SystemExit(f"There is no command rueda in PATH and no {BUILT}; build or install rueda first.")
    return found


def train(args: argparse.Namespace, method: str, seed: int) -> Dict[str, float]:
    """What train.py reports: "figure" and "seconds"."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        words = [*args.through.split(), find_rueda(), "run", "-np", str(args.ranks)]
        words += [sys.executable, str(HERE / "train.py")]
        options = {"method": method, "seed": seed, "report": report}
        for name in ("task", "data", "images", "epochs", "steps", "every", "start_after"):
            options[name] = getattr(args, name)
        for name in ("batch_size", "sequences", "lr", "local_lr"):
            options[name] = getattr(args, name)
        if args.optimizer is not None:
            options["optimizer"] = args.optimizer
        for name, value in options.items():
            words += [f"--{name.replace('_', '-')}", str(value)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        reported: Dict[str, float] = json.loads(report.read_text())
        return reported


class Kept:
    """The trainings of a task that have ended, in a file if one is given. The file may hold other tasks."""

    def __init__(self, path: Path | None, task: str, settings: Dict[str, Any]) -> None:
        self._path = path
        self._tasks: Dict[str, Any] = {}
        if path is not None and path.exists():
            self._tasks = json.loads(path.read_text())
        mine = self._tasks.setdefault(task, {"settings": settings, "runs": []})
        self._runs: List[Dict[str, Any]] = mine["runs"]
        theirs = mine["settings"]
        was = [f"{name} {theirs.get(name)}" for name in settings if settings[name] != theirs.get(name)]
        if was:
            raise SystemExit(f"{path} holds runs with other settings ({', '.join(was)}); name another file.")

    def figures(self) -> Figures:
        found: Figures = {}
        for run in self._runs:
            found.setdefault(run["method"], {})[run["seed"]] = run["figure"]
        return found

    def add(self, method: str, seed: int, reported: Dict[str, float]) -> None:
        self._runs.append({"method": method, "seed": seed, **reported})
        if self._path is not None:
            whole = self._path.with_suffix(".new")
            whole.write_text(json.dumps(self._tasks, indent=1))
            whole.replace(self._path)


def table(figures: Figures, methods: List[str], task: str) -> List[str]:
    """Lines of Markdown. Differences are those of seeds that "plain" has too: in points of accuracy, or in
    percent of the loss.
    """
    what, unit = ("accuracy, %", "points") if task == "fashion" else ("loss", "%")
    digits = 2 if task == "fashion" else 4
    lines = [
        f"| method | seeds | {what} | difference, {unit} | smallest | largest |",
        "|---|---|---|---|---|---|",
    ]
    plain = figures.get(PLAIN, {})
    for method in methods:
        pairs = [(mine, plain[seed]) for seed, mine in figures.get(method, {}).items() if seed in plain]
        if not pairs:
            continue
        differences = [mine - of if task == "fashion" else 100 * (mine / of - 1) for mine, of in pairs]
        mean, reached = statistics.fmean(differences), statistics.fmean(mine for mine, _ in pairs)
        lines.append(
            f"| {method} | {len(pairs)} | {reached:.{digits}f} | {mean:+.2f} | {min(differences):+.2f} "
            f"| {max(differences):+.2f} |"
        )
    return lines


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="what methods reach against DistributedOptimizer, in pairs")
    parser.add_argument("--task", choices=DATA, default="fashion")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--ranks", type=int, default=4, help="each as a host of its own")
    parser.add_argument("--epochs", type=int, default=10, help="fashion")
    parser.add_argument("--images", type=int, default=60000, help="fashion: of the training set")
    parser.add_argument("--steps", type=int, default=2000, help="text")
    parser.add_argument("--every", type=int, default=50, help="steps from one exchange to the next")
    parser.add_argument("--start-after", type=int, default=100, help="steps of the methods named -late")
    parser.add_argument("--batch-size", type=int, default=32, help="fashion: images per rank and step")
    parser.add_argument("--sequences", type=int, default=2, help="text: of 64 letters, per rank and step")
    parser.add_argument(
        "--lr", type=float, default=0.02, help="fashion; times the ranks, where gradients are averaged"
    )
    parser.add_argument("--local-lr", type=float, default=0.04, help="fashion: of ranks that step alone")
    parser.add_argument("--optimizer", choices=["sgd"], help="text: SGD with momentum in place of AdamW")
    parser.add_argument("--data", type=Path, help="folder of the images or of the HTML pages")
    parser.add_argument("--json", type=Path, help="keep every training here, and go on from it")
    parser.add_argument("--through", default="", help='words before each command: "nice -n 19"')
    return parser


def main() -> None:
    args = options().parse_args()
    args.data = args.data or Path(DATA[args.task])
    settings = {name: value for name, value in vars(args).items() if name not in NOT_KEPT}
    kept = Kept(args.json, args.task, settings)
    methods = [PLAIN, *(one for one in args.methods if one != PLAIN)]
    for seed in args.seeds:
        for method in methods:
            if seed in kept.figures().get(method, {}):
                continue
            kept.add(method, seed, reported := train(args, method, seed))
            print(f"{method}, seed {seed}: {reported['figure']:.4f}", file=sys.stderr, flush=True)
    seeds = " ".join(map(str, args.seeds))
    print(f"{args.task}, seeds {seeds}, ", end="")
    print(", ".join(f"{name} {value}" for name, value in settings.items()))
    print("\n".join(table(kept.figures(), methods, args.task)))


if __name__ == "__main__":
    main()
