"""Figure: how much of their speed jobs keep with parameter servers, predicted by `rueda simulate`.

    python bench/figures/servers.py [--rueda PATH] [--out docs/figures] [--most 256]

Left: up to 256 GPUs, with servers as in TensorFlow 1.x, one beside the workers of each host of four GPUs.
Each variable is whole on the server that had the fewest bytes before, as tf_cnn_benchmarks places them. One
number is fitted, at 16 GPUs: the goodput, what the connections of a host carry together.
Right: ratios of servers to workers, on hosts of their own, beside published runs of Inception-V3. For each of
the two testbeds the goodput is fitted to one run.

Needs matplotlib for the picture. Writes servers.svg, and servers.json with all numbers.

Inputs, all published (images a second, batches of 64):

* Horovod's README of 2017 and its pull requests 19 and 44: TensorFlow 1.3, gRPC, four Pascal GPUs a host.
  The number of servers was not published; one a host is an assumption, as is their place beside the workers.
* github.com/e-bug/distributed-tensorflow-benchmarks: Piz Daint, one P100 a host, and p2.xlarge, one K80 a
  host. Where the servers were is not used here: they get hosts of their own.
* Models: bench/models, Inception-V3 without its auxiliary head, which tf_cnn_benchmarks does not train.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

from output import ROOT, Found, make_figure, predict, pyplot, save

BATCH = 64
NAMES = {"inception_v3": "Inception-V3", "resnet101": "ResNet-101", "vgg16": "VGG-16"}


@dataclass(frozen=True)
class Testbed:
    """Images a second: of one GPU, and of all of them with parameter servers."""

    gpus: int
    single: Dict[str, float]
    servers: Dict[str, float]

    def efficiency(self, model: str) -> float:
        return self.servers[model] / (self.gpus * self.single[model])


FITTED = Testbed(
    16,
    {"inception_v3": 134.4, "resnet101": 119.4, "vgg16": 130.9},
    {"inception_v3": 1345.8, "resnet101": 959.6, "vgg16": 74.7},
)  # 25 Gbit/s
UNSEEN = Testbed(
    64,
    {"inception_v3": 148.8, "resnet101": 136.0, "vgg16": 149.6},
    {"inception_v3": 4225.3, "resnet101": 2996.0, "vgg16": 97.0},
)  # another fabric, of 40 Gbit/s


@dataclass(frozen=True)
class Ratios:
    """Runs of Inception-V3 with one GPU a host: (GPUs, servers, images a second)."""

    name: str
    single: float
    fitted: Tuple[int, int, float]
    runs: List[Tuple[int, int, float]]


PIZ_DAINT = Ratios(
    "Piz Daint, P100",
    138.23,
    (64, 40, 7118.0),
    [(8, 2, 1018.2), (16, 4, 2001.0), (32, 12, 3840.0), (64, 40, 7118.0), (128, 116, 9219.7)],
)
P2 = Ratios("EC2 p2.xlarge, K80", 30.55, (64, 64, 996.3), [(64, 64, 996.3), (128, 128, 0.276 * 128 * 30.55)])


class Simulator:
    def __init__(self, rueda: str, folder: Path) -> None:
        self.rueda = rueda
        self.folder = folder
        self.known: Dict[Tuple[Any, ...], float] = {}
        model = json.loads((ROOT / "bench/models/inception_v3.json").read_text())
        kept = [i for i, (name, _) in enumerate(model["parameters"]) if not name.startswith("AuxLogits")]
        for key in ("parameters", "ready_ms"):
            model[key] = [model[key][i] for i in kept]
        model["total"] = sum(count for _, count in model["parameters"])
        self.inception = folder / "inception_v3.json"
        self.inception.write_text(json.dumps(model))

    def efficiency(
        self, model: str, single: float, gpus: int, per_host: int, servers: int, shared: bool, gbit: float
    ) -> float:
        """The share of their speed that the GPUs keep. gbit: goodput of a host, each way."""
        key = (model, single, gpus, per_host, servers, shared, round(gbit, 4))
        if key in self.known:
            return self.known[key]
        hosts = max(1, gpus // per_host)
        cluster = self.folder / "cluster.json"
        cluster.write_text(
            json.dumps(
                {
                    "hosts": hosts,
                    "ranks_per_host": min(per_host, gpus),
                    "link": {"rate": f"{gbit * 1000:.0f}mbit", "latency_us": 50},
                    "reduce_gbps": 1e5,
                    "costs": {"payload": 1, "byte_ns": 0, "message_us": 0, "copy_gbps": 1e5},
                }
            )
        )
        words = ["--cluster", str(cluster), "--strategy", "tensorflow-servers"]
        words += ["--model", str(self.inception) if model == "inception_v3" else model]
        words += ["--compute", str(1000 * BATCH / single), "--servers", str(servers)]
        words += [
            "--server-hosts",
            "shared" if shared else "dedicated",
            "--placement",
            "greedy",
            "--steps",
            "4",
        ]
        self.known[key] = predict(self.rueda, words)
        return self.known[key]


def best_gbit(error: Callable[[float], float], least: float, most: float) -> float:
    """The goodput with the least error: a grid, then a finer one around its best point."""
    step: float = (most / least) ** (1 / 12)
    points = [least * step**i for i in range(13)]
    for _ in range(3):
        best = min(points, key=error)
        step **= 0.4
        points = [best * step**i for i in (-2, -1, 0, 1, 2)]
    return min(points, key=error)


def fit_hosts(simulator: Simulator, bed: Testbed) -> float:
    def error(gbit: float) -> float:
        total = 0.0
        for model, single in bed.single.items():
            found = simulator.efficiency(model, single, bed.gpus, 4, bed.gpus // 4, True, gbit)
            total += math.log(found / bed.efficiency(model)) ** 2
        return total

    return best_gbit(error, 2, 40)


def fit_ratios(simulator: Simulator, ratios: Ratios) -> float:
    gpus, servers, images = ratios.fitted

    def error(gbit: float) -> float:
        found = simulator.efficiency("inception_v3", ratios.single, gpus, 1, servers, False, gbit)
        return abs(math.log(found / (images / (gpus * ratios.single))))

    return best_gbit(error, 0.5, 60)


def compute(rueda: str, folder: Path, most: int) -> Found:
    simulator = Simulator(rueda, folder)
    gbit = fit_hosts(simulator, FITTED)
    counts = [gpus for gpus in (1, 2, 4, 8, 16, 32, 64, 128, 256) if gpus <= most]
    curves = {
        model: [
            simulator.efficiency(model, single, gpus, 4, max(1, gpus // 4), True, gbit) for gpus in counts
        ]
        for model, single in FITTED.single.items()
    }
    other = {
        model: simulator.efficiency(model, single, UNSEEN.gpus, 4, UNSEEN.gpus // 4, True, gbit)
        for model, single in UNSEEN.single.items()
    }
    panels = []
    for ratios in (PIZ_DAINT, P2):
        goodput = fit_ratios(simulator, ratios)
        rows = [
            {
                "gpus": gpus,
                "servers": servers,
                "published": images / (gpus * ratios.single),
                "predicted": simulator.efficiency(
                    "inception_v3", ratios.single, gpus, 1, servers, False, goodput
                ),
                "is_fitted": (gpus, servers, images) == ratios.fitted,
            }
            for gpus, servers, images in ratios.runs
        ]
        sweep = [
            {
                "servers": servers,
                "predicted": simulator.efficiency(
                    "inception_v3", ratios.single, 64, 1, servers, False, goodput
                ),
            }
            for servers in (1, 2, 4, 8, 16, 32, 64)
        ]
        panels.append({"name": ratios.name, "goodput_gbit": goodput, "runs": rows, "sweep_64_gpus": sweep})
    published = {bed.gpus: {model: bed.efficiency(model) for model in NAMES} for bed in (FITTED, UNSEEN)}
    return {
        "goodput_gbit": gbit,
        "gpus": counts,
        "predicted": curves,
        "published": published,
        "predicted_64_gpus_of_other_testbed": other,
        "ratios": panels,
    }


def draw(found: Found, path: Path) -> None:
    plots = pyplot()
    figure, (left, right) = plots.subplots(1, 2, figsize=(10, 4.2))
    colours = dict(zip(NAMES, ("#1b6ca8", "#c1582b", "#4a8b4a")))
    for model, colour in colours.items():
        curve = [100 * share for share in found["predicted"][model]]
        left.plot(found["gpus"], curve, color=colour, label=f"{NAMES[model]}, predicted")
        left.plot([FITTED.gpus], [100 * FITTED.efficiency(model)], "o", color=colour)
        left.plot([UNSEEN.gpus], [100 * UNSEEN.efficiency(model)], "o", color=colour, markerfacecolor="none")
    left.plot([], [], "o", color="black", label="published, 25 Gbit/s (fitted)")
    left.plot(
        [], [], "o", color="black", markerfacecolor="none", label="published, another testbed, 40 Gbit/s"
    )
    left.set_xscale("log", base=2)
    left.set_xticks(found["gpus"], [str(gpus) for gpus in found["gpus"]])
    left.set_title(
        f"Parameter servers, one a host of 4 GPUs, {found['goodput_gbit']:.1f} Gbit/s fitted at 16",
        fontsize=9,
    )
    left.set_xlabel("GPUs")
    left.set_ylabel("efficiency in %")
    left.legend(fontsize=8, frameon=False)
    labels: List[str] = []
    for panel, colour in zip(found["ratios"], ("#1b6ca8", "#c1582b")):
        places = range(len(labels), len(labels) + len(panel["runs"]))
        labels += [f"{row['gpus']}\n({row['servers']})" for row in panel["runs"]]
        predicted = [100 * row["predicted"] for row in panel["runs"]]
        right.bar(places, predicted, color=colour, alpha=0.5, label=f"{panel['name']}, predicted")
        for place, row in zip(places, panel["runs"]):
            face = colour if row["is_fitted"] else "none"
            right.plot([place], [100 * row["published"]], "o", color=colour, markerfacecolor=face)
    right.plot([], [], "o", color="black", markerfacecolor="none", label="published (filled: fitted)")
    right.set_xticks(range(len(labels)), labels)
    right.set_title("Inception-V3, servers on hosts of their own", fontsize=9)
    right.set_xlabel("GPUs (servers)")
    right.legend(fontsize=8, frameon=False, loc="upper right")
    for axes in (left, right):
        axes.set_ylim(0, 105)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    save(figure, path)


def show(found: Found) -> None:
    print(f"goodput fitted at 16 GPUs: {found['goodput_gbit']:.1f} Gbit/s a host")
    for model, curve in found["predicted"].items():
        points = ", ".join(f"{gpus}: {100 * e:.1f} %" for gpus, e in zip(found["gpus"], curve))
        print(f"{NAMES[model]}: {points}; published at 16: {100 * FITTED.efficiency(model):.1f} %")
        other = found["predicted_64_gpus_of_other_testbed"][model]
        print(
            f"    64 GPUs of the other testbed: {100 * other:.1f} %, "
            f"published {100 * UNSEEN.efficiency(model):.1f} %"
        )
    for panel in found["ratios"]:
        print(f"{panel['name']}, goodput {panel['goodput_gbit']:.1f} Gbit/s:")
        for row in panel["runs"]:
            note = " (fitted)" if row["is_fitted"] else ""
            print(
                f"    {row['gpus']} GPUs, {row['servers']} servers: {100 * row['predicted']:.1f} %, "
                f"published {100 * row['published']:.1f} %{note}"
            )


if __name__ == "__main__":
    make_figure("servers", __doc__, 256, compute, show, draw)
