"""The GPU suite: checks and measures rueda on the GPU of this machine, within ten minutes.

    python tests/gpu/run.py [--report FOLDER] [--minutes 9.5]

It needs an installed rueda, Python 3.10 or newer, and torch with CUDA; JAX, CuPy and compute-sanitizer are
used where they are installed. It asks nothing. It writes gpu_report.json and gpu_report.md anew after each
part. Every part has a deadline, and the report has the error of a part that fails.

It measures the rate of packing and unpacking against that of a copy, for sums and averages; sums of 64 MiB
and of 4 bytes against NCCL alone, both one at a time and in a series; the host's time for each tensor, and
for each gradient of a model beside DDP; steps of ResNet-50 in bfloat16 against a plain loop and against DDP
over NCCL, as it is and compiled; and how soon a killed rank is named.
One rank is measured first, then two that share the GPU. Each figure has its target beside it, whether it was
met, and for how many ranks; a part does not fail for a target that was missed. Exit status: 0 if every part
passed or was skipped, 1 if one failed, 2 without a GPU.
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
    is_checked: bool = False  # under compute-sanitizer

    @property
    def label(self) -> str:
        """What the report calls it."""
        return f"{self.title or self.name}, {self.ranks} {'rank' if self.ranks == 1 else 'ranks'}"


def over(backend: str, name: str, ranks: int, limit_s: float = 60, **settings: str) -> Part:
    """The part, with this way of using GPUs and further variables."""
    return Part(name, ranks, limit_s, {"RUEDA_GPU_OPERATIONS": backend, **settings}, f"{name} over {backend}")


def checked(part: Part, limit_s: float) -> Part:
    """The same under compute-sanitizer."""
    settings = {**part.settings, "RUEDA_GPU_CHECKED": "1"}
    title = f"{part.title} under compute-sanitizer"
    return replace(part, settings=settings, limit_s=limit_s, title=title, is_checked=True)


def plan_alone(has_nccl: bool) -> List[Part]:
    """What one rank can show; it has the GPU for itself, so these figures say most about speed."""
    backend = "nccl" if has_nccl else "staged"
    parts = [over(backend, "torch_collectives", 1), over(backend, "copy_rate", 1, 40)]
    parts.append(over(backend, "over_nccl", 1, 40))
    parts.append(over(backend, "host_costs", 1, 60, RUEDA_ELASTIC="1"))
    # One rank has hooks on its gradients only where it might get company.
    ways = "plain,rueda,ddp" if has_nccl else "plain,rueda"
    parts.append(over(backend, "resnet", 1, 90, RUEDA_ELASTIC="1", RUEDA_GPU_RESNET=ways))
    return parts


def plan(nccl_ranks: int) -> List[Part]:
    """All other parts, the most telling first. nccl_ranks: how many ranks NCCL lets use the GPU together."""

    def best(ranks: int) -> str:
        return "nccl" if ranks <= nccl_ranks else "staged"

    has_two = nccl_ranks >= 2
    parts = [over(best(2), "torch_collectives", 2)]
    if has_two:
        parts.append(over("nccl", "over_nccl", 2))
    parts.append(over(best(2), "host_costs", 2))
    parts.append(over("staged", "cuda_ipc", 2, 40))
    for backend in sorted({best(2), "staged"}):
        parts.append(replace(over(backend, "lost_rank", 2, 40), kills_last=True))
    parts.append(checked(over(best(1), "torch_collectives", 1), 90))
    if has_two:
        parts.append(over("nccl", "resnet", 2, 90, RUEDA_GPU_RESNET="rueda,ddp"))
        parts.append(over("nccl", "copy_rate", 2))
    parts += [over(best(2), name, 2) for name in ("torch_distributed", "torch_training", "torch_sharded")]
    parts.append(over(best(2), "random_programs", 2))
    parts.append(over(best(2), "user_script", 2))
    parts.append(over(best(2), "compiled", 2, 120))
    parts.append(checked(over("staged", "cuda_ipc", 2), 60))  # kernels that add
    parts += [over(best(4), name, 4) for name in ("torch_distributed", "torch_collectives")]
    parts += [over(best(ranks), name, ranks) for name in ("jax_programs", "cupy_arrays") for ranks in (1, 2)]
    parts.append(over("staged", "cuda_ipc", 4, 40))
    # Memory of torch that has no IPC handles; that of rueda has.
    virtual = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    parts.append(replace(over("staged", "cuda_ipc", 2, 40, **virtual), title="cuda_ipc, expandable segments"))
    if nccl_ranks >= _MANY:  # two pretended hosts of two; NCCL must let all of them use the GPU
        parts.append(over("nccl", "hierarchical", _MANY))
    compiled = over(best(1), "resnet", 1, 120, RUEDA_ELASTIC="1", RUEDA_GPU_COMPILE="1")
    parts.append(replace(compiled, title="resnet, compiled"))
    if has_two:  # Adasum has something to combine
        parts.append(checked(over("nccl", "torch_collectives", 2), 90))
    others = [
        ("random_programs", 2),
        ("torch_collectives", 2),
        ("torch_training", 2),
        ("torch_distributed", 2),
        ("user_script", 2),
    ]
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
        importlib.metadata.version("rueda-train")
    except importlib.metadata.PackageNotFoundError:
        return "The GPU suite tests an installed rueda, and there is none: `pip install rueda_train-….whl`."
    if "error" in facts:
        return f"The GPU suite needs torch with CUDA, but torch cannot be used: {facts['error']}."
    if not facts["gpus"]:
        return f"The GPU suite needs a GPU, but torch {facts['torch']} sees none on this machine."
    return ""


def machine(facts: Dict[str, Any]) -> Dict[str, Any]:
    """What the report says about this machine."""
    versions = {"rueda": importlib.metadata.version("rueda-train")}
    for package in ("jax", "cupy-cuda12x", "cupy-cuda13x", "numba"):
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

    def run(self, part: Part, sharing: str = "") -> Outcome:
        """Runs one part and keeps its outcome."""
        left = self._until - time.monotonic()
        command = sanitizer() if part.is_checked else []
        if left < 10:
            outcome = Outcome(part.label, part.ranks, "skipped", why="the time of the suite was used up")
        elif part.is_checked and not command:
            outcome = Outcome(part.label, part.ranks, "skipped", why="compute-sanitizer was not found")
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

    def finds_nccl(self) -> bool:
        """Whether NCCL works for one rank, which also measures it."""
        outcome = self.run(Part("nccl_alone", 1, 40))
        is_there = outcome.status == "passed"
        outcome.status = outcome.status if is_there else "skipped"  # it says nothing about rueda
        return is_there

    def find_sharing(self) -> int:
        """Finds out how NCCL lets ranks share the GPU. Returns how many of them it lets use it together."""
        for way in SHARING:
            if self._shares(2, way):
                self.sharing = way
                return _MANY if self._shares(_MANY, way) else 2
        return 1

    def _shares(self, ranks: int, way: str) -> bool:
        outcome = self.run(Part("nccl_alone", ranks, 40, title=f"nccl_alone ({way})"), way)
        if outcome.status != "passed":
            outcome.status = "skipped"
        return outcome.status == "passed" or "is_right" in outcome.result  # it may be too slow to be timed


def sanitizer() -> List[str]:
    """The command of compute-sanitizer, for rueda's kernels; empty where it is not installed."""
    found = shutil.which("compute-sanitizer")
    # Without what CUDA answers to questions about host memory and streams, which it counts as errors.
    options = ["--tool", "memcheck", "--report-api-errors", "no", "--error-exitcode", "3"]
    return [found, *options, "--kernel-name", "kns=rueda_"] if found else []


def run_all(suite: Suite) -> None:
    """Everything, as far as the time goes."""
    has_nccl = suite.finds_nccl()
    for part in plan_alone(has_nccl):
        suite.run(part)
    for part in plan(suite.find_sharing() if has_nccl else 0):
        suite.run(part)


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
