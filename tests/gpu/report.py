"""The report of the GPU suite: one JSON file with everything, and one page that says what matters. Pure, but
for write().
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

_BIG, _SMALL = 64 << 20, 4


def write(content: Dict[str, Any], folder: Path) -> None:
    """Writes gpu_report.json and gpu_report.md, whole or not at all."""
    found = [asdict(one) for one in measures(content["parts"], content["sharing"])]
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
    lines.append(_SHARED[sharing])
    lines += ["", "## Measured", "", "| what | value | target | met |", "|---|---|---|---|"]
    words = {True: "yes", False: "**no**", None: ""}
    lines += [
        f"| {one.what} | {one.value} | {one.target} | {words[one.is_met]} |"
        for one in measures(parts, sharing)
    ] or ["| nothing | | | |"]
    lines += ["", "## Parts", "", "| part | backend | outcome | seconds |", "|---|---|---|---|"]
    for part in parts:
        backend = part["result"].get("backend", "")
        lines.append(f"| {part['name']} | {backend} | {part['status']} | {part['seconds']} |")
    for part in parts:
        if part["why"]:
            lines += ["", f"### {part['name']}: {part['status']}", "", "```", part["why"].rstrip(), "```"]
    return "\n".join(lines) + "\n"


_SHARED = {
    "": "NCCL let no two ranks share the GPU, or was not found.",
    "switch": "Ranks shared one GPU; NCCL allowed it (NCCL_MULTI_RANK_GPU_ENABLE).",
    "hosts": "Ranks shared one GPU; NCCL took each for a host of its own (NCCL_HOSTID). They take "
    "turns on the GPU, so what several ranks measure over NCCL says nothing about speed.",
}
_STATES = ("passed", "failed", "late", "skipped")


@dataclass(frozen=True)
class Measure:
    """One figure of the report."""

    what: str
    value: str
    target: str = ""  # what it should be; "" if nothing was promised
    is_met: Optional[bool] = None  # None without a target, or where one of two figures is missing


def measures(parts: List[Dict[str, Any]], sharing: str = "") -> List[Measure]:
    """Everything that was measured by parts that passed. sharing: how several ranks had the GPU."""
    found: List[Measure] = []
    passed = [part for part in parts if part["status"] == "passed"]
    for part in passed:
        if part["name"].startswith("copy_rate"):
            found += _for_ranks(part, sharing, _packing(part["result"]))
    for part in passed:
        if part["name"].startswith("over_nccl"):
            alone = _result(passed, "nccl_alone", part["ranks"])
            found += _for_ranks(part, sharing, _against_nccl(part["result"], alone))
            found += _for_ranks(part, "", _of_host(part["result"]))
        if part["name"].startswith("host_costs"):
            found += _for_ranks(part, sharing, _of_gradients(part["result"]))
    for part in passed:
        if part["name"].startswith("resnet"):
            how = ", compiled" if "compiled" in part["name"] else ""
            found += _for_ranks(part, sharing, _training(part["result"], how))
        if part["name"].startswith("lost_rank"):
            found += _loss(part)
    return found


# Before NCCL 2.30 its kernels in two processes on one GPU wait for each other while only one of them runs.
_TAKES_TURNS = "none: these ranks take turns on the GPU"


def _for_ranks(part: Dict[str, Any], sharing: str, found: List[Measure]) -> List[Measure]:
    """The figures with the number of ranks, and without targets where they say nothing about speed."""
    named = [replace(one, what=f"{one.what} ({_ranks(part)})") for one in found]
    if part["ranks"] == 1 or sharing != "hosts":
        return named
    return [replace(one, target=_TAKES_TURNS, is_met=None) if one.target else one for one in named]


_WAYS = {
    "sum_float32": "a sum of float32",
    "average_float32": "an average of float32",
    "average_bfloat16": "an average of bfloat16",
}


def _packing(result: Dict[str, Any]) -> List[Measure]:
    found: List[Measure] = []
    if "copy_gigabytes_per_s" in result:
        rate = f"{result['copy_gigabytes_per_s']} GB/s"
        found.append(Measure("copy on the device, read and written", rate))
    for way, name in _WAYS.items():
        what, target = (
            f"packing and unpacking 64 MiB of 256 tensors for {name}",
            "at least 0.9 of the copy rate",
        )
        share = result.get(f"{way}_share_of_copy_rate")
        if share is not None:
            value = f"{share} of the copy rate, {result[f'{way}_gigabytes_per_s']} GB/s read and written"
            found.append(Measure(what, value, target, share >= 0.9))
        elif f"{way}_note" in result:
            found.append(Measure(what, f"not known: {result[f'{way}_note']}", target))
    return found


def _against_nccl(ours: Dict[str, Any], alone: Dict[str, Any]) -> List[Measure]:
    """One call, until the host knows that the GPU has its result; and a series, divided by its calls."""
    found: List[Measure] = []
    for way, name in (
        ("one", "one allreduce of {}, until the result is there"),
        ("series", "allreduce of {} in a series"),
    ):
        for size_bytes, size in ((_BIG, "64 MiB"), (_SMALL, "4 B")):
            mine, theirs = (result.get(f"{way}_{size_bytes}_us") for result in (ours, alone))
            if mine is None:
                continue
            compared = f", NCCL alone {theirs} us, {_percent(mine, theirs)}" if theirs else ""
            target, is_met = _limit(way, size_bytes, mine, theirs)
            found.append(Measure(name.format(size), f"{mine} us{compared}", target, is_met))
    return found


def _limit(way: str, size_bytes: int, mine: float, theirs: Optional[float]) -> Tuple[str, Optional[bool]]:
    """The target of a sum, and whether it is met: for one small sum and for large ones in a series."""
    if (way, size_bytes) == ("one", _SMALL):
        return "at most 5 us more than NCCL alone", None if theirs is None else mine <= theirs + 5
    if (way, size_bytes) == ("series", _BIG):
        return "at most 2 % more than NCCL alone", None if theirs is None else mine <= theirs * 1.02
    return "", None


def _of_host(ours: Dict[str, Any]) -> List[Measure]:
    found: List[Measure] = []
    if "submit_us" in ours:
        value = ours["submit_us"]
        found.append(
            Measure("host time for each tensor that is submitted", f"{value} us", "at most 3 us", value <= 3)
        )
    if "synchronize_us" in ours:
        found.append(Measure("host time for each tensor that is awaited", f"{ours['synchronize_us']} us"))
    return found


def _of_gradients(ours: Dict[str, Any]) -> List[Measure]:
    """Beyond a plain loop: what the host does for a gradient in backward, and then in the step."""
    found: List[Measure] = []
    for key, where in (("backward", "in backward"), ("step", "in the optimizer's step")):
        mine, theirs = (ours.get(f"gradient_{key}_{way}_us") for way in ("rueda", "ddp"))
        if mine is None:
            continue
        compared = "" if theirs is None else f", DDP over NCCL {theirs} us"
        is_met = None if theirs is None or key == "step" else mine <= theirs
        target = "no more than DDP" if key == "backward" else ""
        found.append(Measure(f"host time for each gradient {where}", f"{mine} us{compared}", target, is_met))
    return found


def _training(result: Dict[str, Any], how: str) -> List[Measure]:
    ours: Optional[float] = result.get("rueda_images_per_s")
    found: List[Measure] = []
    if ours is not None:
        found.append(Measure(f"ResNet-50{how}, DistributedOptimizer", f"{ours} images/s a rank"))
    others = (("plain_images_per_s", "plain loop"), ("ddp_over_nccl_images_per_s", "DDP over NCCL"))
    for key, name in others:
        theirs: Optional[float] = result.get(key)
        if theirs is None:
            continue
        what, value = f"ResNet-50{how}, {name}", f"{theirs} images/s a rank"
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


def _result(passed: List[Dict[str, Any]], name: str, ranks: int) -> Dict[str, Any]:
    """That of the last part of this name with this many ranks."""
    results = [part["result"] for part in passed if part["name"].startswith(name) and part["ranks"] == ranks]
    return results[-1] if results else {}


def _ranks(part: Dict[str, Any]) -> str:
    return "1 rank" if part["ranks"] == 1 else f"{part['ranks']} ranks"


def _percent(mine: float, theirs: float) -> str:
    return f"{(mine / theirs - 1) * 100:+.1f} %"
