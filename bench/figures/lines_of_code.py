"""Figure: the lines that a training program needs only because it is distributed.

    python bench/figures/lines_of_code.py [--out docs/figures]
    python bench/figures/lines_of_code.py --run     runs the four programs: two workers each, some minutes

bench/figures/lines_of_code/ has one training four times, with TensorFlow's own loop: in one process, with
rueda, with MultiWorkerMirroredStrategy, and with ParameterServerStrategy. A line of a distributed program
counts if it is not in single.py, and is neither empty, nor a comment, nor a docstring: a diff decides, not
a person. Indentation does not count, so that a `with strategy.scope():` costs one line and not all those
below it. All four are formatted by `ruff format`. A line that merely differs from the one in single.py
counts too.

What is not counted: how processes are started. rueda has `rueda run -np 2`; the two strategies need the
variable TF_CONFIG, another one for each process, and whoever starts these.

Needs matplotlib for the picture. Writes lines_of_code.svg, and lines_of_code.json with the counted lines.
"""

from __future__ import annotations

import argparse
import difflib
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import tokenize
from pathlib import Path
from typing import Any, Dict, List, Set

from output import ROOT, Found, make_figure, pyplot, save

PROGRAMS = Path(__file__).resolve().parent / "lines_of_code"
NAMES = {
    "rueda_tensorflow": "rueda",
    "multi_worker_mirrored_strategy": "MultiWorkerMirroredStrategy",
    "parameter_server_strategy": "ParameterServerStrategy",
}
SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}


def code_lines(text: str) -> List[str]:
    """The lines with code on them, without indentation. A text that is a statement is a docstring."""
    kept: Set[int] = set()
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_docstring = token.type == tokenize.STRING and before in SKIPPED
        if token.type not in SKIPPED | {tokenize.ENDMARKER} and not is_docstring:
            kept.update(range(token.start[0], token.end[0] + 1))
        if token.type != tokenize.COMMENT:
            before = token.type
    return [line.strip() for at, line in enumerate(text.splitlines(), 1) if at in kept]


def counted_lines(single: str, distributed: str) -> List[str]:
    """What the second program has and the first has not."""
    changes = difflib.ndiff(code_lines(single), code_lines(distributed))
    return [line[2:] for line in changes if line.startswith("+ ")]


def compute(_rueda: str, _folder: Path, _most: int) -> Found:
    single = (PROGRAMS / "single.py").read_text()
    texts = {name: (PROGRAMS / f"{name}.py").read_text() for name in NAMES}
    return {
        "single": len(code_lines(single)),
        "programs": {
            name: {"lines": len(code_lines(text)), "counted": counted_lines(single, text)}
            for name, text in texts.items()
        },
    }


def show(found: Found) -> None:
    print(f"one process: {found['single']} lines")
    for name, program in found["programs"].items():
        print(f"{NAMES[name]}: {program['lines']} lines, {len(program['counted'])} of them not in single.py")
        for line in program["counted"]:
            print(f"    + {line}")


def draw(found: Found, path: Path) -> None:
    plots = pyplot()
    figure, axes = plots.subplots(figsize=(7, 1.9))
    counts = [len(program["counted"]) for program in found["programs"].values()]
    axes.barh(range(len(counts)), counts, 0.6, color=["#1b6ca8", "#9a9a9a", "#9a9a9a"])
    for place, count in enumerate(counts):
        axes.text(count + 0.3, place, f"{count}", va="center")
    axes.set_yticks(range(len(counts)), [NAMES[name] for name in found["programs"]])
    axes.invert_yaxis()
    axes.set_xlabel(f"lines that are not in the program of one process, which has {found['single']}")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    save(figure, path)


# ---- running them ----


def free_ports(count: int) -> List[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def run_cluster(name: str, jobs: Dict[str, int], folder: str) -> str:
    """Each process has its own TF_CONFIG. Returns what the first one prints; then the others are ended."""
    ports = iter(free_ports(sum(jobs.values())))
    cluster = {job: [f"127.0.0.1:{next(ports)}" for _ in range(count)] for job, count in jobs.items()}
    started = []
    for job, count in jobs.items():
        for index in range(count):
            task = {"cluster": cluster, "task": {"type": job, "index": index}}
            words = [sys.executable, str(PROGRAMS / f"{name}.py"), folder]
            variables = {**os.environ, "TF_CONFIG": json.dumps(task)}
            started.append(subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, text=True))
    try:
        said, _ = started[0].communicate(timeout=600)
        if started[0].returncode != 0:
            sys.exit(f"lines_of_code.py: {name} ended with {started[0].returncode}")
    finally:
        for one in started[1:]:
            one.terminate()  # servers of TensorFlow never end by themselves
            one.wait(60)
    return said


def run_one(words: List[str]) -> str:
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=600)
    if done.returncode != 0:
        sys.exit(f"lines_of_code.py: {' '.join(words)} ended with {done.returncode}")
    return done.stdout


def check(name: str, said: str, folder: str) -> None:
    losses = [float(line.split()[-1]) for line in said.splitlines() if "loss" in line]
    is_saved = any(Path(folder).glob("model-1.index"))
    print(f"{name}: loss {losses[0]} to {losses[-1]}, {'saved' if is_saved else 'NOT SAVED'}", flush=True)
    if losses[-1] > 0.6 * losses[0] or not is_saved:
        sys.exit(f"lines_of_code.py: {name} did not train and save")


def run_all(rueda: str) -> None:
    python = [sys.executable]
    with tempfile.TemporaryDirectory() as folder:
        folders = {name: f"{folder}/{name}" for name in ("single", *NAMES)}
        program = {name: [str(PROGRAMS / f"{name}.py"), folders[name]] for name in folders}
        check("single", run_one([*python, *program["single"]]), folders["single"])
        words = [rueda, "run", "-np", "2", *python, *program["rueda_tensorflow"]]
        check("rueda_tensorflow", run_one(words), folders["rueda_tensorflow"])
        clusters: Dict[str, Dict[str, Any]] = {
            "multi_worker_mirrored_strategy": {"worker": 2},
            "parameter_server_strategy": {"chief": 1, "worker": 2, "ps": 1},
        }
        for name, jobs in clusters.items():
            check(name, run_cluster(name, jobs, folders[name]), folders[name])


def run() -> None:
    parser = argparse.ArgumentParser(description="runs the programs that are counted")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--rueda", default=str(ROOT / "build/release/bin/rueda"))
    run_all(parser.parse_args().rueda)


if __name__ == "__main__":
    if "--run" in sys.argv[1:]:
        run()
    else:
        make_figure("lines_of_code", __doc__, 2, compute, show, draw)
