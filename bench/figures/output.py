"""What the figures of this folder have in common: their command line, and asking `rueda simulate`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

ROOT = Path(__file__).resolve().parents[2]
Found = Dict[str, Any]


def predict(rueda: str, words: List[str]) -> float:
    """The efficiency that `rueda simulate` predicts, 0..1."""
    command = [rueda, "simulate", *words, "--no-split", "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        sys.exit(f"{Path(sys.argv[0]).name}: {done.stderr}")
    return float(json.loads(done.stdout)["results"][0]["efficiency"])


def make_figure(
    name: str,
    description: Optional[str],
    most: int,
    compute: Callable[[str, Path, int], Found],
    show: Callable[[Found], None],
    draw: Callable[[Found, Path], None],
) -> None:
    """Runs as a program: computes, prints, and writes NAME.json and NAME.svg.

    compute: from the path of rueda, a folder for its files, and the most GPUs.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rueda", default=str(ROOT / "build/release/bin/rueda"))
    parser.add_argument("--out", type=Path, default=ROOT / "docs/figures")
    parser.add_argument("--most", type=int, default=most, help="GPUs")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        found = compute(arguments.rueda, Path(folder), arguments.most)
    show(found)
    (arguments.out / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    draw(found, arguments.out / f"{name}.svg")
