"""Runs the front ends' tests over several versions of frameworks, Spark and Ray, for ``make test-matrix``.

Each environment is its own venv in ~/.cache/rueda/matrix (debian_files.cache()), which is made once and
kept. A cell is one environment with some suites. ``--only 'WORD;WORD'`` runs the cells whose label is or
contains a word, ``--list`` shows them, and ``--prepare`` only makes the environments. The last outcomes of
all cells are printed as a table and written to build/matrix.md. The exit status is 1 if a cell of this run
failed.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

import check_results
import run_command
from debian_files import cache

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
TOOLS = ["pytest==9.2.0", "pytest-timeout==2.4.0", "cloudpickle==3.1.2"]
INSTALL_LIMIT_S = 1200
CELL_LIMIT_S = 2700
PATIENCE = 5  # older frameworks are slower

TENSORFLOW = ["tests/multiprocess/test_tensorflow_*.py", "tests/python/test_tensorflow_*.py"]
KERAS = ["tests/multiprocess/test_keras_*.py"]
TF_KERAS = ["tests/multiprocess/test_tf_keras_*.py"]
JAX = ["tests/multiprocess/test_jax_*.py", "tests/python/test_jax_*.py"]
SPARK = ["tests/multiprocess/test_spark_*.py", "tests/python/test_spark_*.py"]
RAY = ["tests/multiprocess/test_ray_*.py", "tests/python/test_ray_*.py"]
TORCH = ["tests/multiprocess/test_torch_*.py", "tests/python/test_torch_*.py"]


@dataclass(frozen=True)
class Cell:
    """Some suites in one environment."""

    packages: Tuple[str, ...]  # pinned; the first is the one that matters
    suites: Tuple[str, ...]  # patterns of test files
    select: str = ""  # pytest -k
    environment: Tuple[Tuple[str, str], ...] = ()
    label: str = ""

    def name(self) -> str:
        return self.label or ", ".join(package.replace("==", " ") for package in self.packages)


def keras(backend: str, *packages: str, label: str) -> Cell:
    return Cell(packages, tuple(KERAS), backend, (("KERAS_BACKEND", backend),), label)


OLD_TF = ("tensorflow==2.16.2", "keras==3.3.3", "tf_keras==2.16.0")
MIXED_TF = ("tensorflow==2.16.2", "keras==3.15.1")
NEW_TF = ("tensorflow==2.21.0", "keras==3.15.1", "tf_keras==2.21.0")
OLD_JAX = ("jax==0.5.3", "jaxlib==0.5.3", "keras==3.9.2", "optax==0.2.4")
NEW_JAX = ("jax==0.10.2", "jaxlib==0.10.2", "keras==3.15.1", "optax==0.2.8")
TORCH_CPU = ("torch==2.13.0", "keras==3.15.1", "numpy<3")
ROWS = ("pyarrow>=15", "pandas>=2.2,<3", "fsspec", *TORCH_CPU)  # beside Spark, which needs Java 17

CELLS = [
    Cell(OLD_TF, tuple(TENSORFLOW), label="TensorFlow 2.16.2"),
    Cell(NEW_TF, tuple(TENSORFLOW), label="TensorFlow 2.21.0"),
    keras("tensorflow", *OLD_TF, label="Keras 3.3.3 on TensorFlow 2.16.2"),
    keras("tensorflow", *MIXED_TF, label="Keras 3.15.1 on TensorFlow 2.16.2"),
    keras("tensorflow", *NEW_TF, label="Keras 3.15.1 on TensorFlow 2.21.0"),
    Cell(OLD_TF, tuple(TF_KERAS), label="tf_keras 2.16.0 on TensorFlow 2.16.2"),
    Cell(NEW_TF, tuple(TF_KERAS), label="tf_keras 2.21.0 on TensorFlow 2.21.0"),
    Cell(OLD_JAX, tuple(JAX), label="JAX 0.5.3, optax 0.2.4"),
    Cell(NEW_JAX, tuple(JAX), label="JAX 0.10.2, optax 0.2.8"),
    keras("jax", *OLD_JAX, label="Keras 3.9.2 on JAX 0.5.3"),
    keras("jax", *NEW_JAX, label="Keras 3.15.1 on JAX 0.10.2"),
    Cell(TORCH_CPU, tuple(TORCH), label="PyTorch 2.13.0"),
    keras("torch", *TORCH_CPU, label="Keras 3.15.1 on PyTorch 2.13.0"),
    Cell(("pyspark==3.5.9", *ROWS), tuple(SPARK), label="PySpark 3.5.9"),
    Cell(("pyspark==4.3.0", *ROWS), tuple(SPARK), label="PySpark 4.3.0"),
    Cell(("ray[train,tune]==2.51.0", "torch==2.13.0", "numpy<3"), tuple(RAY), label="Ray 2.51.0"),
    Cell(("ray[train,tune]==2.60.0", "torch==2.13.0", "numpy<3"), tuple(RAY), label="Ray 2.60.0"),
]

QUIET = {
    "RUEDA_TEST_THOROUGH": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "RUEDA_TEST_PATIENCE": str(PATIENCE),
}


# ---- environments ----


def environment_folder(packages: Sequence[str]) -> Path:
    """The folder of the venv for these packages. Each set of pinned versions has its own."""
    key = hashlib.sha256(json.dumps([sys.version, *sorted(packages), *TOOLS]).encode()).hexdigest()[:8]
    return cache() / "matrix" / f"{re.sub('[^a-z0-9.]+', '-', packages[0].lower())}-{key}"


def make_environment(packages: Sequence[str]) -> str:
    """Makes the venv unless it exists. Returns the reason if that fails, otherwise ""."""
    folder = environment_folder(packages)
    if (folder / "complete").exists():
        return ""
    shutil.rmtree(folder, ignore_errors=True)
    python = str(folder / "bin" / "python")
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages, *TOOLS]
    for command in ([sys.executable, "-m", "venv", str(folder)], install):
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INSTALL_LIMIT_S
            )
        except subprocess.TimeoutExpired:
            return f"installing took longer than {INSTALL_LIMIT_S} s"
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            return "installing failed: " + (lines[-1] if lines else done.stderr[-300:])
    (folder / "complete").touch()
    return ""


# ---- cells ----


@dataclass
class Outcome:
    """The outcome of one cell."""

    cell: Cell
    passed: int = 0
    failed: List[str] = field(default_factory=list)  # tests
    skipped: Counter[str] = field(default_factory=Counter)  # by reason
    why: str = ""  # it could not run
    seconds: float = 0.0

    @property
    def is_ok(self) -> bool:
        return self.passed > 0 and not self.failed and not self.why

    def row(self) -> str:
        notes = [self.why] if self.why else []
        notes += [f"failed: {name}" for name in self.failed[:3]]
        notes += [f"{count} skipped: {reason}" for reason, count in self.skipped.items()]
        verdict = "passed" if self.is_ok else "FAILED"
        counts = f"{self.passed} / {len(self.failed)} / {sum(self.skipped.values())}"
        return f"| {self.cell.name()} | {verdict} | {counts} | {'; '.join(notes) or ' '} |"


def read_report(outcome: Outcome, report: Path, status: int) -> None:
    """Adds a JUnit report. A run that died counts as a failure, too."""
    found = check_results.read_report(report)
    outcome.passed += len(found.passed)
    outcome.failed += found.failed
    outcome.skipped.update(reason for _, reason in found.skipped)
    if check_results.died(report, status):
        outcome.why = run_command.describe_exit(status)
    elif outcome.passed == 0 and not outcome.failed:
        outcome.why = "no test ran"


def run_cell(cell: Cell, number: int, library: str) -> Outcome:
    """Runs the suites of one cell in its environment."""
    outcome = Outcome(cell)
    began = time.monotonic()
    outcome.why = make_environment(cell.packages)
    if not outcome.why:
        files = sorted(str(p.relative_to(ROOT)) for pattern in cell.suites for p in ROOT.glob(pattern))
        report = BUILD / f"matrix.{number}.xml"
        report.unlink(missing_ok=True)
        python = str(environment_folder(cell.packages) / "bin" / "python")
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *files]
        command += ["-o", f"timeout={180 * PATIENCE}"]
        command += ["-k", cell.select] if cell.select else []
        environment = {**QUIET, "RUEDA_LIBRARY": library, **dict(cell.environment)}
        read_report(outcome, report, run_command.run(command, CELL_LIMIT_S, environment))
    outcome.seconds = time.monotonic() - began
    return outcome


def remember(outcome: Outcome) -> Dict[str, str]:
    """Adds the row of a cell to the last rows of the others. Returns all rows, by label."""
    path = BUILD / "matrix.json"
    rows: Dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    rows[outcome.cell.name()] = f"{outcome.row()} {today} {commit_name()} |"
    path.write_text(json.dumps(rows, indent=1))
    return rows


def table(rows: Dict[str, str]) -> str:
    """The last outcomes of all cells that have run, as Markdown."""
    python = ".".join(map(str, sys.version_info[:3]))
    head = f"`make test-matrix`, Python {python}, Linux x86-64, CPU.\n\n"
    head += (
        "| versions | outcome | passed / failed / skipped | notes | when, commit |\n|---|---|---|---|---|\n"
    )
    return head + "".join(f"{rows[cell.name()]}\n" for cell in CELLS if cell.name() in rows)


def commit_name() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def find_library() -> Optional[Path]:
    """librueda.so with its plugins beside it."""
    given = os.environ.get("RUEDA_LIBRARY")
    path = Path(given) if given else BUILD / "release" / "librueda.so"
    return path.resolve() if path.exists() else None


def select(only: str) -> List[Cell]:
    """The cells that have one of these labels (separated by semicolons), or whose label contains the word."""
    labels = {cell.name().lower() for cell in CELLS}
    words = [word.strip().lower() for word in only.split(";") if word.strip()]

    def fits(label: str) -> bool:
        return any(word == label or (word not in labels and word in label) for word in words)

    return [cell for cell in CELLS if not words or fits(cell.name().lower())]


def main() -> int:
    parser = argparse.ArgumentParser(description="the front ends' tests over several versions")
    parser.add_argument("--only", default="", help="labels or words of labels, separated by ;")
    parser.add_argument("--list", action="store_true", help="show the cells")
    parser.add_argument("--prepare", action="store_true", help="only make the environments")
    arguments = parser.parse_args()
    cells = select(arguments.only)
    if not cells:
        parser.error(f"no cell's label has {arguments.only}; see --list")
    if arguments.list:
        print("\n".join(cell.name() for cell in cells))
        return 0
    if arguments.prepare:
        problems: Dict[str, str] = {cell.name(): make_environment(cell.packages) for cell in cells}
        print("\n".join(f"{name}: {why or 'ready'}" for name, why in problems.items()))
        return 1 if any(problems.values()) else 0
    library = find_library()
    if library is None:
        print(
            "test_matrix: there is no build/release/librueda.so; run `make test` first, or set RUEDA_LIBRARY."
        )
        return 1
    BUILD.mkdir(exist_ok=True)
    outcomes = []
    for number, cell in enumerate(cells):
        print(f"=== {cell.name()}", flush=True)
        outcomes.append(run_cell(cell, number, str(library)))
        print(f"=== {cell.name()}: {outcomes[-1].seconds:.0f} s", flush=True)
        text = table(remember(outcomes[-1]))
        (BUILD / "matrix.md").write_text(text)
    print(text)
    return 0 if all(outcome.is_ok for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
