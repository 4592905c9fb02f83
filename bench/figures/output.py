"""What the figures of this folder have in common: their command line, and asking `rueda simulate`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

ROOT = Path(__file__).resolve().parents[2]
Found = Dict[str, Any]


def simulate(rueda: str, words: List[str]) -> Found:
    """The first row of what `rueda simulate` predicts."""
    command = [rueda, "simulate", *words, "--no-split", "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        sys.exit(f"{Path(sys.argv[0]).name}: {' '.join(command)}: {done.stderr}")
    row: Found = json.loads(done.stdout)["results"][0]
    return row


def predict(rueda: str, words: List[str]) -> float:
    """The efficiency that `rueda simulate` predicts, 0..1."""
    return float(simulate(rueda, words)["efficiency"])


def simulate_all(rueda: str, requests: List[List[str]]) -> List[Found]:
    """The first row for each request, one process on each core."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(lambda words: simulate(rueda, words), requests))


def write_cluster(path: Path, cluster: Found) -> str:
    path.write_text(json.dumps(cluster))
    return str(path)


def write_model(
    path: Path,
    name: str,
    compute_ms: float,
    tensors: List[Tuple[str, int, float]],
    exchanges: Sequence[Dict[str, Any]] = (),
) -> None:
    """tensors: name, elements, and when it is ready, in milliseconds from the beginning of a step."""
    model = {
        "name": name,
        "source": Path(sys.argv[0]).name,
        "compute_ms": compute_ms,
        "compute_source": Path(sys.argv[0]).name,
        "total": sum(elements for _, elements, _ in tensors),
        "parameters": [[tensor, elements] for tensor, elements, _ in tensors],
        "ready_ms": [ready for _, _, ready in tensors],
        "exchanges": list(exchanges),
    }
    path.write_text(json.dumps(model))


def pyplot() -> Any:
    """matplotlib, set up to draw the same SVG from the same numbers. They need none, so it comes late."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plots

    matplotlib.rcParams.update({"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "rueda"})
    return plots


def save(figure: Any, path: Path) -> None:
    figure.savefig(path, format="svg", metadata={"Date": None})


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
