"""The GPU suite: checks and measures rueda on the GPU of this machine, within ten minutes.

    python tests/gpu/run.py [--report FOLDER] [--minutes 10]

It needs an installed rueda, Python 3.10 or newer, and torch with CUDA; JAX, CuPy and compute-sanitizer are
used where they are installed. It writes gpu_report.json and gpu_report.md. Every part has a deadline, and the
report has the error of a part that fails. Exit status: 0 if every part passed or was skipped, 1 if one
failed, 2 without a GPU.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional

import report
from ranks import SHARING, Outcome, run_part

_PROBE = """
import json, torch
found = torch.cuda.is_available()
gpus = torch.cuda.device_count() if found else 0
facts = {"torch": torch.__version__, "cuda": torch.version.cuda, "gpus": gpus}
if found:
    facts["gpu"] = torch.cuda.get_device_name(0)
    facts["gigabytes"] = round(torch.cuda.get_device_properties(0).total_memory / 1e9, 1)
print(json.dumps(facts))
"""


@dataclass(frozen=True)
class Part:
    """One entry of the suite."""

    name: str
    ranks: int
    limit_s: float
    settings: Dict[str, str] = field(default_factory=dict)
    title: str = ""  # in the report, if the part runs in several ways

    @property
    def label(self) -> str:
        """What the report calls it."""
        return f"{self.title or self.name}, {self.ranks} {'rank' if self.ranks == 1 else 'ranks'}"


def plan(has_nccl: bool) -> List[Part]:
    """All parts, the most telling first. has_nccl: whether NCCL lets two ranks share the GPU."""
    backends = ["nccl", "staged"] if has_nccl else ["staged"]
    parts: List[Part] = []
    for backend in backends:
        chosen = {"RUEDA_GPU_OPERATIONS": backend}
        for ranks in (1, 2, 4):
            parts.append(Part("torch_collectives", ranks, 60, chosen, f"torch_collectives over {backend}"))
        for name in ("torch_training", "torch_distributed"):
            parts.append(Part(name, 2, 60, chosen, f"{name} over {backend}"))
    chosen = {"RUEDA_GPU_OPERATIONS": backends[0]}
    parts.append(Part("torch_distributed", 4, 60, chosen))
    parts += [Part(name, ranks, 60, chosen) for name in ("jax_programs", "cupy_arrays") for ranks in (1, 2)]
    measured = 2 if has_nccl else 1
    parts += [
        Part("copy_rate", 1, 40, chosen),
        Part("copy_rate", measured, 40, chosen) if measured > 1 else None,
        Part("over_nccl", measured, 40, chosen),
        Part("resnet", 1, 90, {**chosen, "RUEDA_GPU_RESNET": "plain,rueda", "RUEDA_ELASTIC": "1"}),
        Part("resnet", 2, 90, {**chosen, "RUEDA_GPU_RESNET": "rueda,ddp"}) if has_nccl else None,
    ]
    return [part for part in parts if part is not None]


def probe() -> Dict[str, Any]:
    """What torch says about the GPU of this machine; {"error": …} if it cannot be asked."""
    try:
        command = [sys.executable, "-c", _PROBE]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return {"error": "torch did not answer within 120 s"}
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        return {"error": lines[-1] if lines else f"Python ended with {done.returncode}"}
    facts: Dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


def why_not(facts: Dict[str, Any]) -> str:
    """The sentence with which the suite ends at once; "" if it can run."""
    if sys.version_info < (3, 10):
        return f"The GPU suite needs Python 3.10 or newer, and this is {platform.python_version()}."
    try:
        importlib.metadata.version("rueda")
    except importlib.metadata.PackageNotFoundError:
        return (
            "The GPU suite tests an installed rueda, and there is none; run `pip install rueda-….whl` first."
        )
    if "error" in facts:
        return f"The GPU suite needs torch with CUDA, but torch cannot be used: {facts['error']}."
    if not facts["gpus"]:
        return f"The GPU suite needs a GPU, but torch {facts['torch']} sees none on this machine."
    return ""


def machine(facts: Dict[str, Any]) -> Dict[str, Any]:
    """What the report says about this machine."""
    versions = {}
    for package in ("rueda", "jax", "cupy-cuda12x", "cupy-cuda13x", "numba"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    driver = ""
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        done = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
        driver = done.stdout.split("\n")[0].strip()
    return {
        **facts,
        **versions,
        "driver": driver,
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
    }


class Suite:
    """Runs parts until the time is used up."""

    def __init__(self, minutes: float, settings: Optional[Dict[str, str]] = None) -> None:
        self._until = time.monotonic() + minutes * 60
        self._settings = settings or {}
        self.sharing = ""  # how ranks share the GPU; a key of SHARING
        self.outcomes: List[Outcome] = []

    def run(self, part: Part, sharing: str = "", command: Optional[List[str]] = None) -> Outcome:
        """Runs one part and keeps its outcome."""
        left = self._until - time.monotonic()
        if left < 10:
            outcome = Outcome(part.label, part.ranks, "skipped", why="the time of the suite was used up")
        else:
            print(f"{part.label} …", flush=True)
            settings = {**self._settings, **part.settings}
            limit_s = min(part.limit_s, left)
            way = sharing or (self.sharing if part.ranks > 1 else "")
            outcome = run_part(part.name, part.ranks, limit_s, settings, way, command)
            outcome.name = part.label
        print(f"  {outcome.status} after {outcome.seconds} s", flush=True)
        self.outcomes.append(outcome)
        return outcome

    def find_sharing(self) -> bool:
        """Finds out how NCCL lets two ranks share the GPU, if it does."""
        for way in SHARING:
            outcome = self.run(Part("nccl_alone", 2, 60, title=f"nccl_alone ({way})"), way)
            if outcome.status == "passed":
                self.sharing = way
                return True
            if outcome.status == "skipped":
                return False
            outcome.status = "skipped"  # it says something about NCCL, and nothing about rueda
        return False


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks and measures rueda on the GPU of this machine.")
    parser.add_argument("--report", type=Path, default=Path.cwd(), help="folder of the report")
    parser.add_argument("--minutes", type=float, default=10.0, help="the longest that the suite may take")
    arguments = parser.parse_args()
    facts = probe()
    sentence = why_not(facts)
    if sentence:
        print(sentence, file=sys.stderr)
        return 2
    arguments.report.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    suite = Suite(arguments.minutes)
    has_nccl = suite.find_sharing()
    for part in plan(has_nccl):
        suite.run(part)
    checker = shutil.which("compute-sanitizer")
    if checker:
        chosen = {"RUEDA_GPU_OPERATIONS": "staged"}
        part = Part("torch_collectives", 1, 120, chosen, "torch_collectives under compute-sanitizer")
        suite.run(part, command=[checker, "--tool", "memcheck", "--error-exitcode", "3"])
    content = {
        "machine": machine(facts),
        "sharing": suite.sharing,
        "seconds": round(time.monotonic() - began, 1),
        "parts": [asdict(outcome) for outcome in suite.outcomes],
    }
    report.write(content, arguments.report)
    return 1 if any(one.status in ("failed", "late") for one in suite.outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
