"""The report of the GPU suite: one JSON file with everything, and one page that says what matters. Pure, but
for write().
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional

_BIG, _SMALL = 64 << 20, 4


def write(content: Dict[str, Any], folder: Path) -> None:
    """Writes gpu_report.json and gpu_report.md, whole or not at all."""
    found = [asdict(one) for one in measures(content["parts"])]
    for name, text in (
        ("gpu_report.json", json.dumps({**content, "measures": found}, indent=1) + "\n"),
        ("gpu_report.md", page(content)),
    ):
        unfinished = folder / f"{name}.part"
        unfinished.write_text(text)
        unfinished.replace(folder / name)


def page(content: Dict[str, Any]) -> str:
    """The page, as Markdown."""
    machine, parts = content["machine"], content["parts"]
    count = {state: sum(part["status"] == state for part in parts) for state in _STATES}
    lines = ["# rueda on a GPU", ""]
    gpu = f"{machine.get('gpu', 'GPU')}, {machine.get('gigabytes', '?')} GB"
    versions = f"torch {machine.get('torch', '?')}, rueda {machine.get('rueda', '?')}"
    lines.append(f"{gpu}, driver {machine.get('driver') or '?'}; {versions}, Python {machine['python']}.")
    lines.append(", ".join(f"{number} {state}" for state, number in count.items() if number) + ".")
    sharing = content["sharing"]
    lines.append(
        f"Ranks shared one GPU; NCCL allowed it (way: {sharing})."
        if sharing
        else "NCCL let no two ranks share the GPU, or was not found."
    )
    lines += ["", "## Measured", "", "| what | value | target | met |", "|---|---|---|---|"]
    words = {True: "yes", False: "**no**", None: ""}
    lines += [
        f"| {one.what} | {one.value} | {one.target} | {words[one.is_met]} |" for one in measures(parts)
    ] or ["| nothing | | | |"]
    lines += ["", "## Parts", "", "| part | backend | outcome | seconds |", "|---|---|---|---|"]
    for part in parts:
        backend = part["result"].get("backend", "")
        lines.append(f"| {part['name']} | {backend} | {part['status']} | {part['seconds']} |")
    for part in parts:
        if part["why"]:
            lines += ["", f"### {part['name']}: {part['status']}", "", "```", part["why"].rstrip(), "```"]
    return "\n".join(lines) + "\n"


_STATES = ("passed", "failed", "late", "skipped")


@dataclass(frozen=True)
class Measure:
    """One figure of the report."""

    what: str
    value: str
    target: str = ""  # what it should be; "" if nothing was promised
    is_met: Optional[bool] = None  # None without a target, or where one of two figures is missing


def measures(parts: List[Dict[str, Any]]) -> List[Measure]:
    """Everything that was measured by parts that passed."""
    found: List[Measure] = []
    for part in parts:
        if part["status"] == "passed" and part["name"].startswith("copy_rate"):
            found += _packing(part["result"], f"({_ranks(part)})")
    found += _against_nccl(_result(parts, "over_nccl"), _result(parts, "nccl_alone"))
    for part in parts:
        if part["status"] == "passed" and part["name"].startswith("resnet"):
            found += _training(part["result"], _ranks(part))
        if part["status"] == "passed" and part["name"].startswith("lost_rank"):
            found += _loss(part)
    return found


def _packing(result: Dict[str, Any], where: str) -> List[Measure]:
    found: List[Measure] = []
    share = result.get("share_of_copy_rate")
    if share is not None:
        what = f"packing and unpacking 64 MiB of 256 tensors, share of the copy rate {where}"
        found.append(Measure(what, f"{share}", "at least 0.9", share >= 0.9))
        rate = f"{result['packing_gigabytes_per_s']} GB/s"
        found.append(Measure(f"packing and unpacking, read and written {where}", rate))
    if "copy_gigabytes_per_s" in result:
        rate = f"{result['copy_gigabytes_per_s']} GB/s"
        found.append(Measure(f"copy on the device, read and written {where}", rate))
    return found


def _against_nccl(ours: Dict[str, Any], alone: Dict[str, Any]) -> List[Measure]:
    found: List[Measure] = []
    for size_bytes, name in ((_BIG, "64 MiB"), (_SMALL, "4 B")):
        mine, theirs = (result.get(f"allreduce_{size_bytes}_us") for result in (ours, alone))
        if mine is None:
            continue
        compared = f", NCCL alone {theirs} us, {_percent(mine, theirs)}" if theirs else ""
        is_big = size_bytes == _BIG
        target = f"at most {'2 %' if is_big else '5 us'} more than NCCL alone"
        is_met = None if theirs is None else mine <= (theirs * 1.02 if is_big else theirs + 5)
        found.append(Measure(f"allreduce of {name}", f"{mine} us{compared}", target, is_met))
    if "submit_us" in ours:
        value = ours["submit_us"]
        found.append(
            Measure("host time for each tensor that is submitted", f"{value} us", "at most 3 us", value <= 3)
        )
    if "synchronize_us" in ours:
        found.append(Measure("host time for each tensor that is awaited", f"{ours['synchronize_us']} us"))
    return found


def _training(result: Dict[str, Any], ranks: str) -> List[Measure]:
    ours: Optional[float] = result.get("rueda_images_per_s")
    found: List[Measure] = []
    if ours is not None:
        found.append(Measure(f"ResNet-50, DistributedOptimizer ({ranks})", f"{ours} images/s a rank"))
    others = (("plain_images_per_s", "plain loop"), ("ddp_over_nccl_images_per_s", "DDP over NCCL"))
    for key, name in others:
        theirs: Optional[float] = result.get(key)
        if theirs is None:
            continue
        what, value = f"ResNet-50, {name} ({ranks})", f"{theirs} images/s a rank"
        if ours is None:
            found.append(Measure(what, value))
            continue
        value += f"; rueda {_percent(ours, theirs)}"
        found.append(Measure(what, value, "rueda has at least 99 % of it", ours >= 0.99 * theirs))
    return found


def _loss(part: Dict[str, Any]) -> List[Measure]:
    noticed_s: Optional[float] = part["result"].get("noticed_s")
    if noticed_s is None:
        return []
    what = f"a killed rank is named ({part['name']})"
    return [Measure(what, f"after {noticed_s} s", "within 5 s", noticed_s <= 5)]


def _result(parts: List[Dict[str, Any]], name: str) -> Dict[str, Any]:
    """That of the last part of this name that passed."""
    passed = [
        part["result"] for part in parts if part["name"].startswith(name) and part["status"] == "passed"
    ]
    return passed[-1] if passed else {}


def _ranks(part: Dict[str, Any]) -> str:
    return "1 rank" if part["ranks"] == 1 else f"{part['ranks']} ranks"


def _percent(mine: float, theirs: float) -> str:
    return f"{(mine / theirs - 1) * 100:+.1f} %"
