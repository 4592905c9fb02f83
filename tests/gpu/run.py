"""The GPU suite: checks and measures rueda on the GPU of this machine, within ten minutes.

    python tests/gpu/run.py [--report FOLDER] [--minutes 9.5]

It needs an installed rueda, Python 3.10 or newer, and torch with CUDA; JAX, CuPy and compute-sanitizer are
used where they are installed. It asks nothing. It writes gpu_report.json and gpu_report.md anew after each
part. Every part has a deadline, and the report has the error of a part that fails.

It measures the rate of packing and unpacking against that of a copy, a sum of 64 MiB and of 4 bytes against
NCCL alone, the host's time for each tensor, steps of ResNet-50 in bfloat16 against a plain loop and
against DDP over NCCL, and how soon a killed rank is named. Each figure has its target beside it, and whether
it was met; a part does not fail for a target that was missed. Exit status: 0 if every part passed or was
skipped, 1 if one failed, 2 without a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

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


_MANY = 4  # ranks share the GPU where two can


@dataclass(frozen=True)
class Part:
    """One entry of the suite."""

    name: str
    ranks: int
    limit_s: float
    settings: Dict[str, str] = field(default_factory=dict)
    title: str = ""  # in the report, if the part runs in several ways
    kills_last: bool = False  # the last rank ends by SIGKILL

    @property
    def label(self) -> str:
        """What the report calls it."""
        return f"{self.title or self.name}, {self.ranks} {'rank' if self.ranks == 1 else 'ranks'}"


def plan(nccl_ranks: int) -> List[Part]:
    """All parts, the most telling first. nccl_ranks: how many ranks NCCL lets use the GPU together."""

    def over(backend: str, name: str, ranks: int, limit_s: float = 60, **more: str) -> Part:
        settings = {"RUEDA_GPU_OPERATIONS": backend, **more}
        return Part(name, ranks, limit_s, settings, f"{name} over {backend}")

    def best(ranks: int) -> str:
        return "nccl" if ranks <= nccl_ranks else "staged"

    measured = 2 if nccl_ranks > 1 else 1
    parts = [over(best(ranks), "torch_collectives", ranks) for ranks in (2, 1)]
    parts += [over(best(ranks), "copy_rate", ranks, 40) for ranks in sorted({1, measured})]
    parts.append(over(best(measured), "over_nccl", measured, 40))
    parts.append(over("staged", "cuda_ipc", 2, 40))
    # One rank has hooks on its gradients only where it might get company.
    hooks = {"RUEDA_ELASTIC": "1", "RUEDA_GPU_RESNET": "plain,rueda"}
    parts.append(over(best(1), "resnet", 1, 90, **hooks))
    if nccl_ranks > 1:
        parts.append(over("nccl", "resnet", 2, 90, RUEDA_GPU_RESNET="rueda,ddp"))
    for backend in sorted({best(2), "staged"}):
        parts.append(replace(over(backend, "lost_rank", 2, 40), kills_last=True))
    for ranks in (2, 4):
        parts.append(over(best(ranks), "torch_distributed", ranks))
    parts.append(over(best(2), "torch_training", 2))
    parts.append(over(best(4), "torch_collectives", 4))
    parts += [over(best(ranks), name, ranks) for name in ("jax_programs", "cupy_arrays") for ranks in (1, 2)]
    parts.append(over("staged", "cuda_ipc", 4, 40))
    # Memory of torch that has no IPC handles; that of rueda has.
    virtual = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    parts.append(replace(over("staged", "cuda_ipc", 2, 40, **virtual), title="cuda_ipc, expandable segments"))
    if nccl_ranks >= _MANY:  # two pretended hosts of two; NCCL must let all of them use the GPU
        parts.append(over("nccl", "hierarchical", _MANY))
    others = [("torch_collectives", 2), ("torch_training", 2), ("torch_distributed", 2)]
    others += [("torch_collectives", 1), ("torch_collectives", 4)]
    return parts + [over("staged", name, ranks) for name, ranks in others if best(ranks) != "staged"]


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
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
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
        self._began = time.monotonic()
        self._until = self._began + minutes * 60
        self._settings = settings or {}
        self.sharing = ""  # how ranks share the GPU; a key of SHARING
        self.outcomes: List[Outcome] = []
        self.after_each: Callable[[], None] = lambda: None

    def content(self, facts: Dict[str, Any]) -> Dict[str, Any]:
        """Of the report. facts: about the machine."""
        return {
            "machine": facts,
            "sharing": self.sharing,
            "seconds": round(time.monotonic() - self._began, 1),
            "parts": [asdict(outcome) for outcome in self.outcomes],
        }

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
            try:
                outcome = run_part(
                    part.name, part.ranks, limit_s, settings, way, command, kills_last=part.kills_last
                )
            except Exception as error:  # of the suite itself; the other parts may still say something
                outcome = Outcome(part.label, part.ranks, "failed", why=f"the suite failed: {error!r}")
            outcome.name = part.label
        print(f"  {outcome.status} after {outcome.seconds} s", flush=True)
        self.outcomes.append(outcome)
        self.after_each()
        return outcome

    def find_sharing(self) -> int:
        """Finds out how NCCL lets two ranks share the GPU. Returns how many ranks it lets use it together."""
        for way in SHARING:
            outcome = self.run(Part("nccl_alone", 2, 60, title=f"nccl_alone ({way})"), way)
            if outcome.status == "passed":
                self.sharing = way
                return _MANY
            if outcome.status == "skipped":
                return 0
            outcome.status = "skipped"  # it says something about NCCL, and nothing about rueda
        outcome = self.run(Part("nccl_alone", 1, 40))
        if outcome.status == "passed":
            return 1
        outcome.status = "skipped"
        return 0


def run_all(suite: Suite) -> None:
    """Everything, as far as the time goes."""
    for part in plan(suite.find_sharing()):
        suite.run(part)
    checker = shutil.which("compute-sanitizer")
    if checker:
        chosen = {"RUEDA_GPU_OPERATIONS": "staged"}
        part = Part("torch_collectives", 1, 120, chosen, "torch_collectives under compute-sanitizer")
        # Without what CUDA answers to questions about host memory and streams, which it counts as errors.
        options = ["--tool", "memcheck", "--report-api-errors", "no", "--error-exitcode", "3"]
        suite.run(part, command=[checker, *options])


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks and measures rueda on the GPU of this machine.")
    parser.add_argument("--report", type=Path, default=Path.cwd(), help="folder of the report")
    parser.add_argument("--minutes", type=float, default=9.5, help="the longest that the suite may take")
    arguments = parser.parse_args()
    suite = Suite(arguments.minutes)
    facts = probe()
    sentence = why_not(facts)
    if sentence:
        print(sentence, file=sys.stderr)
        return 2
    arguments.report.mkdir(parents=True, exist_ok=True)
    facts = machine(facts)
    # After each part, so that a suite that is interrupted leaves what it has found.
    suite.after_each = lambda: report.write(suite.content(facts), arguments.report)
    run_all(suite)
    print(f"wrote gpu_report.json and gpu_report.md to {arguments.report}")
    return 1 if any(one.status in ("failed", "late") for one in suite.outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
