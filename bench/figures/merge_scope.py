"""Figure: GoogLeNet and VGG-19 on eight GPUs behind one PCIe root, predicted by `rueda simulate`.

    python bench/figures/merge_scope.py [--rueda PATH] [--out docs/figures]

How many gradients travel together: TensorFlow's CollectiveAllReduce merges 1 or 32 of them (the option
all_reduce_merge_scope of tf_cnn_benchmarks), or all in one buffer; beside them the buckets that this
library chooses. Each without copies, as TensorFlow's scoped allocator and this library's arena lay out
gradients, and with copies into a buffer and out of it.

Needs matplotlib for the picture. Writes merge_scope.svg, and merge_scope.json with all numbers.

Inputs:

* Hopsworks showed the two models on eight GTX 1080 Ti behind one PCIe root, with TensorFlow's
  CollectiveAllReduce, but as pictures without numbers. So **nothing published is drawn here**, and the
  prediction cannot be compared.
* bench/models/googlenet.json and vgg19.json: one GTX 1080 Ti, batch 16.
* A ring behind one root carries the 12 GB/s that NCCL counts for PCIe 3.0 x16 (src/graph/topo.h: PCI_BW).
* A copy reads and writes GPU memory at 484 GB/s (NVIDIA's page of the card). It delays computing by
  packing, and the end of the step by unpacking the last buffer.
* Merged gradients are one gradient that is ready with the last of them. When calls run is decided by this
  library for all of them; TensorFlow's own scheduling is not simulated.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from output import ROOT, Found, make_figure, pyplot, save, simulate_all, write_cluster, write_model

MODELS = {"googlenet": "GoogLeNet", "vgg19": "VGG-19"}
GPUS, BATCH = 8, 16
COPIED_IN_A_MS = 484e9 / 1e3 / 2  # bytes; each is read and written
CLUSTER = {"hosts": 1, "ranks_per_host": GPUS, "gpus": "pcie", "within": {"rate": "96gbit"}}
# How many gradients are merged; none: as the library chooses.
SCOPES: Dict[str, Optional[int]] = {
    "merge scope 1": 1,
    "merge scope 32": 32,
    "one buffer": 10**6,
    "buckets as rueda chooses": None,
}
COLOURS = {"#1b6ca8": "without copies", "#c1582b": "with copies"}
Tensor = Tuple[str, int, float]  # name, elements, ready


def tensors_of(model: str) -> Tuple[float, List[Tensor]]:
    read = json.loads((ROOT / f"bench/models/{model}.json").read_text())
    tensors = [(name, count, ready) for (name, count), ready in zip(read["parameters"], read["ready_ms"])]
    return float(read["compute_ms"]), tensors


def merged(tensors: List[Tensor], scope: int) -> List[Tensor]:
    groups = [tensors[at : at + scope] for at in range(0, len(tensors), scope)]
    return [(group[0][0], sum(count for _, count, _ in group), group[-1][2]) for group in groups]


def packed(tensors: List[Tensor]) -> List[Tensor]:
    """Each gradient is ready when it and those before it have been copied."""
    copied = 0.0
    found = []
    for name, count, ready in tensors:
        copied += 4 * count / COPIED_IN_A_MS
        found.append((name, count, round(ready + copied, 4)))
    return found


def compute(rueda: str, folder: Path, _most: int) -> Found:
    cluster = write_cluster(folder / "cluster.json", CLUSTER)
    requests: List[List[str]] = []
    kept = []
    for model in MODELS:
        compute_ms, tensors = tensors_of(model)
        for at, scope in enumerate(SCOPES.values()):
            groups = tensors if scope is None else merged(tensors, scope)
            has_copies = scope != 1  # a gradient alone needs none
            for variant in (groups, packed(groups)) if has_copies else (groups,):
                path = folder / f"{model}{at}{len(requests)}.json"
                write_model(path, model, max(compute_ms, variant[-1][2]), variant)
                words = ["--model", str(path), "--cluster", cluster, "--steps", "8"]
                requests.append(words if scope is None else [*words, "--bucket", "1B"])
            kept.append((model, scope, compute_ms, 4 * groups[-1][1], has_copies))
    rows = iter(simulate_all(rueda, requests))
    found: Found = {"gpus": GPUS, "batch": BATCH, "models": {model: {} for model in MODELS}}
    names = {scope: name for name, scope in SCOPES.items()}
    for model, scope, compute_ms, last_bytes, has_copies in kept:
        row = next(rows)
        entry = {"compute_ms": compute_ms, "step_ms": row["step_ms"], "calls": row["calls"]}
        if has_copies:
            # Of the buckets of a plan only their size is known; the last one may be smaller.
            unpack = (row["bucket_bytes"] if scope is None else last_bytes) / COPIED_IN_A_MS
            entry["step_with_copies_ms"] = next(rows)["step_ms"] + unpack
        found["models"][model][names[scope]] = entry
    return found


def images(step_ms: float) -> float:
    return GPUS * BATCH / step_ms * 1e3


def show(found: Found) -> None:
    for model, ways in found["models"].items():
        for way, row in ways.items():
            copies = row.get("step_with_copies_ms")
            more = "" if copies is None else f", with copies {images(copies):.0f} ({copies:.1f} ms)"
            rate = f"{images(row['step_ms']):.0f} images/s ({row['step_ms']:.1f} ms)"
            print(f"{MODELS[model]}, {way}: {rate}{more}")


def draw(found: Found, path: Path) -> None:
    plots = pyplot()
    from matplotlib.patches import Patch

    figure, panels = plots.subplots(1, 2, figsize=(10, 3.4), sharey=True)
    for axes, (model, ways) in zip(panels, found["models"].items()):
        most = images(next(iter(ways.values()))["compute_ms"])
        for place, row in enumerate(ways.values()):
            copies = row.get("step_with_copies_ms")
            shifts = (0.0,) if copies is None else (-0.2, 0.2)
            for step_ms, colour, shift in zip((row["step_ms"], copies), COLOURS, shifts):
                axes.barh(place + shift, images(step_ms), 0.36, color=colour)
                label = f"{images(step_ms):.0f}"
                place_of = {"va": "center", "ha": "right", "fontsize": 8, "color": "white"}
                axes.text(images(step_ms) - 0.01 * most, place + shift, label, **place_of)
        axes.axvline(most, color="black", linewidth=0.8, linestyle="--")
        axes.set_xlim(0, 1.1 * most)
        axes.set_title(f"{MODELS[model]} (dashed: eight times one GPU)", fontsize=9)
        axes.set_xlabel("images a second, eight GPUs, batch 16 each")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(range(len(SCOPES)), SCOPES)
    panels[0].invert_yaxis()
    patches = [Patch(color=colour, label=name) for colour, name in COLOURS.items()]
    figure.legend(handles=patches, fontsize=8, frameon=False, ncols=2, loc="lower center")
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    save(figure, path)


if __name__ == "__main__":
    make_figure("merge_scope", __doc__, 8, compute, show, draw)
