"""Figure: how much of their speed jobs keep with ring-allreduce by NCCL, predicted by `rueda simulate`.

    python bench/figures/scaling.py [--rueda PATH] [--out docs/figures] [--most 512]

The jobs are those of Horovod in 2017: negotiated in cycles of 5 ms, fused up to 64 MiB, without plans,
with rings alone; what its negotiation costs rank 0 is left out, because MPI gathers its requests. Four
numbers are fitted, all to the six published values at 16 GPUs: what the connections of a host carry
with TCP and with RDMA, how much longer kernels take beside communication, and how much the computing of
a GPU varies from step to step. With them 64 GPUs of another testbed (its rate is 40 / 25 times as high,
and not fitted) and 128 and 512 GPUs are predicted.

Needs matplotlib for the picture. Writes scaling.svg, and scaling.json with all numbers.

Inputs, all published (images a second, batches of 64, four Pascal GPUs a host behind PCIe, TensorFlow 1.3):

* Horovod's README of 2017 and its pull requests 19 and 44: 16 GPUs with 25 Gbit/s, 64 GPUs with 40 Gbit/s.
* Horovod's documentation (docs/benchmarks.rst): 128 GPUs with RoCE of 25 Gbit/s keep 90, 90 and 79 %, and 512
  GPUs 90, 90 and 68 %, both for Inception-V3, ResNet-101 and VGG-16. With TCP its article shows 88 % for the
  first two at 128.
* NVIDIA's developer blog, "Massively Scale Your Deep Learning Training with NCCL 2.4": trees came with that
  version in 2019, and before it NCCL had rings alone.
* Models: bench/models, Inception-V3 without its auxiliary head, which tf_cnn_benchmarks does not train.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Dict, List, Optional

import servers
from output import Found, make_figure, predict, pyplot, save
from servers import BATCH, FITTED, NAMES, UNSEEN

Numbers = Dict[str, float]
NCCL_16 = {
    "tcp": {"inception_v3": 1990.7, "resnet101": 1685.1, "vgg16": 1308.7},
    "rdma": {"inception_v3": 2022.6, "resnet101": 1746.2, "vgg16": 1787.4},
}
NCCL_64_TCP = {"inception_v3": 7932.1, "resnet101": 7741.6, "vgg16": 6084.2}  # of UNSEEN
PUBLISHED: List[Dict[str, Any]] = [  # shares of the speed of so many single GPUs
    {"gpus": 128, "wire": "tcp", "inception_v3": 0.88, "resnet101": 0.88},
    {"gpus": 128, "wire": "rdma", "inception_v3": 0.90, "resnet101": 0.90, "vgg16": 0.79},
    {"gpus": 512, "wire": "rdma", "inception_v3": 0.90, "resnet101": 0.90, "vgg16": 0.68},
]
BEGIN = {"tcp": 14.0, "rdma": 21.0, "slow": 0.03, "noise": 0.02}


class Simulator:
    def __init__(self, rueda: str, folder: Path) -> None:
        self.rueda = rueda
        self.folder = folder
        self.inception = servers.Simulator(rueda, folder).inception

    def efficiency(
        self, numbers: Numbers, wire: str, model: str, single: float, gpus: int, rate: float = 1
    ) -> float:
        """The share of their speed that the GPUs keep. rate: of the links, relative to the fitted one."""
        cluster = self.folder / "gpus.json"
        cluster.write_text(
            json.dumps(
                {
                    "hosts": max(1, gpus // 4),
                    "ranks_per_host": min(4, gpus),
                    "gpus": "pcie",
                    "link": {"kind": wire, "rate": f"{rate * numbers[wire] * 1000:.0f}mbit"},
                    "within": {"rate": "80gbit"},
                    "costs": {"payload": 1, "slow_share": numbers["slow"], "control_us": 0},
                }
            )
        )
        words = ["--cluster", str(cluster)]
        words += ["--model", str(self.inception) if model == "inception_v3" else model]
        words += ["--compute", str(1000 * BATCH / single), "--step-noise", str(numbers["noise"])]
        words += ["--steps", "10" if gpus > 16 else "30"]
        words += ["--no-plans", "--cycle", "5", "--fusion", "128MiB"]  # divided by two calls under way
        words += ["--algorithm", "ring"]
        return predict(self.rueda, words)


def fit(simulator: Simulator) -> Numbers:
    """Changes one number after the other as long as the squares of the relative errors become smaller."""

    def squares(numbers: Numbers) -> float:
        total = 0.0
        for wire, images in NCCL_16.items():
            for model, published in images.items():
                single = FITTED.single[model]
                found = simulator.efficiency(numbers, wire, model, single, FITTED.gpus)
                total += math.log(found / (published / (FITTED.gpus * single))) ** 2
        return total

    best = dict(BEGIN)
    least = squares(best)
    for factor in (1.4, 1.15, 1.05):
        moved = True
        while moved:
            moved = False
            for name in best:
                for by in (factor, 1 / factor):
                    tried = {**best, name: best[name] * by}
                    error = squares(tried)
                    if error < 0.995 * least:
                        best, least, moved = tried, error, True
    return {**best, "error": math.sqrt(least / 6)}


def compute(rueda: str, folder: Path, most: int) -> Found:
    simulator = Simulator(rueda, folder)
    numbers = fit(simulator)
    print(f"fitted: {numbers}", flush=True)
    counts = [gpus for gpus in (4, 16, 64, 128, 256, 512) if gpus <= most]
    curves: Dict[str, Dict[str, List[float]]] = {}
    for wire in ("tcp", "rdma"):
        curves[wire] = {}
        for model in NAMES:
            single = FITTED.single[model]
            curves[wire][model] = [
                simulator.efficiency(numbers, wire, model, single, gpus) for gpus in counts
            ]
            print(wire, model, [round(100 * share, 1) for share in curves[wire][model]], flush=True)
    other = {
        model: {
            "predicted": simulator.efficiency(numbers, "tcp", model, UNSEEN.single[model], 64, 40 / 25),
            "published": images / (64 * UNSEEN.single[model]),
        }
        for model, images in NCCL_64_TCP.items()
    }
    return {"fitted": numbers, "gpus": counts, "predicted": curves, "other_testbed_64_gpus": other}


def published_at(gpus: int, wire: str, model: str) -> Optional[float]:
    if gpus == FITTED.gpus:
        return NCCL_16[wire][model] / (gpus * FITTED.single[model])
    for row in PUBLISHED:
        if row["gpus"] == gpus and row["wire"] == wire:
            value = row.get(model)
            return None if value is None else float(value)
    return None


def show(found: Found) -> None:
    for wire, models in found["predicted"].items():
        for model, curve in models.items():
            for gpus, share in zip(found["gpus"], curve):
                published = published_at(gpus, wire, model)
                note = "" if published is None else f", published {100 * published:.1f} %"
                print(f"{NAMES[model]}, {wire}, {gpus} GPUs: {100 * share:.1f} %{note}")
    for model, both in found["other_testbed_64_gpus"].items():
        print(
            f"{NAMES[model]}, tcp, 64 GPUs of the other testbed: {100 * both['predicted']:.1f} %, "
            f"published {100 * both['published']:.1f} %"
        )


def draw(found: Found, path: Path) -> None:
    plots = pyplot()
    figure, panels = plots.subplots(1, 2, figsize=(10, 4.2), sharey=True)
    colours = dict(zip(NAMES, ("#1b6ca8", "#c1582b", "#4a8b4a")))
    for axes, (wire, title) in zip(panels, (("tcp", "TCP"), ("rdma", "RDMA"))):
        for model, colour in colours.items():
            curve = [100 * share for share in found["predicted"][wire][model]]
            axes.plot(found["gpus"], curve, color=colour, label=f"{NAMES[model]}, predicted")
            for gpus in found["gpus"]:
                share = published_at(gpus, wire, model)
                if share is not None:
                    face = colour if gpus == FITTED.gpus else "none"
                    axes.plot([gpus], [100 * share], "o", color=colour, markerfacecolor=face)
        axes.plot([], [], "o", color="black", label="published, fitted")
        axes.plot([], [], "o", color="black", markerfacecolor="none", label="published, not fitted")
        axes.set_xscale("log", base=2)
        axes.set_xticks(found["gpus"], [str(gpus) for gpus in found["gpus"]])
        axes.set_title(f"NCCL over {title}, {found['fitted'][wire]:.1f} Gbit/s a host fitted", fontsize=9)
        axes.set_xlabel("GPUs")
        axes.set_ylim(0, 105)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("efficiency in %")
    panels[0].legend(fontsize=8, frameon=False, loc="lower left")
    figure.tight_layout()
    save(figure, path)


if __name__ == "__main__":
    make_figure("scaling", __doc__, 512, compute, show, draw)
