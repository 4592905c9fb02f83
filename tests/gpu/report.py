"""The report of the GPU suite: one JSON file with everything, and one page that says what matters. Pure, but
for write().
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Optional

_BIG, _SMALL = 64 << 20, 4


def write(content: Dict[str, Any], folder: Path) -> None:
    """Writes gpu_report.json and gpu_report.md, whole or not at all."""
    for name, text in (
        ("gpu_report.json", json.dumps(content, indent=1) + "\n"),
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
    lines += ["", "## Measured", "", "| what | value |", "|---|---|"]
    lines += [f"| {what} | {value} |" for what, value in measures(parts)] or ["| nothing | |"]
    lines += ["", "## Parts", "", "| part | backend | outcome | seconds |", "|---|---|---|---|"]
    for part in parts:
        backend = part["result"].get("backend", "")
        lines.append(f"| {part['name']} | {backend} | {part['status']} | {part['seconds']} |")
    for part in parts:
        if part["why"]:
            lines += ["", f"### {part['name']}: {part['status']}", "", "```", part["why"].rstrip(), "```"]
    return "\n".join(lines) + "\n"


_STATES = ("passed", "failed", "late", "skipped")


def measures(parts: List[Dict[str, Any]]) -> List[tuple]:
    """(what, value) of everything that was measured by parts that passed."""
    found: List[tuple] = []
    for part in parts:
        if part["status"] != "passed" or not part["name"].startswith("copy_rate"):
            continue
        result, where = part["result"], f"({_ranks(part)})"
        if "share_of_copy_rate" in result:
            found.append(
                (f"packing and unpacking, share of the copy rate {where}", result["share_of_copy_rate"])
            )
            found.append((f"packing and unpacking, GB/s {where}", result["packing_gigabytes_per_s"]))
        if "copy_gigabytes_per_s" in result:
            found.append(
                (f"copy on the device, read and written, GB/s {where}", result["copy_gigabytes_per_s"])
            )
    found += _against_nccl(_result(parts, "over_nccl"), _result(parts, "nccl_alone"))
    for part in parts:
        if part["status"] == "passed" and part["name"].startswith("resnet"):
            found += _training(part["result"], _ranks(part))
    return found


def _against_nccl(ours: Dict[str, Any], alone: Dict[str, Any]) -> List[tuple]:
    found: List[tuple] = []
    for size_bytes, name in ((_BIG, "64 MiB"), (_SMALL, "4 B")):
        mine, theirs = (result.get(f"allreduce_{size_bytes}_us") for result in (ours, alone))
        if mine is not None:
            compared = f", NCCL alone {theirs} us, {_percent(mine, theirs)}" if theirs else ""
            found.append((f"allreduce of {name}", f"{mine} us{compared}"))
    for key, name in (("submit_us", "submitted"), ("synchronize_us", "awaited")):
        if key in ours:
            found.append((f"host time for each tensor that is {name}", f"{ours[key]} us"))
    return found


def _training(result: Dict[str, Any], ranks: str) -> List[tuple]:
    ours = result.get("rueda_images_per_s")
    found = (
        [] if ours is None else [(f"ResNet-50, DistributedOptimizer ({ranks})", f"{ours} images/s a rank")]
    )
    others = (("plain_images_per_s", "plain loop"), ("ddp_over_nccl_images_per_s", "DDP over NCCL"))
    for key, name in others:
        theirs: Optional[float] = result.get(key)
        if theirs is not None:
            compared = f"; rueda {_percent(ours, theirs)}" if ours is not None else ""
            found.append((f"ResNet-50, {name} ({ranks})", f"{theirs} images/s a rank{compared}"))
    return found


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
