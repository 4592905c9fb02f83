"""Figure: how much the size of buckets matters, predicted by `rueda simulate`.

    python bench/figures/buffer.py [--rueda PATH] [--out docs/figures]

Four models on five fabrics of eight hosts, with each tensor alone, with buckets of 1, 2, 4 … 256 MiB, and
with the size that the library chooses by itself. Steps are shown relative to the shortest of their row.

Needs matplotlib for the picture. Writes buffer.svg, and buffer.json with all numbers.

Inputs:

* Models: bench/models, with the computing times of their files (one P100, 2017). On the three faster fabrics
  computing takes a tenth of that, as on GPUs of the generation that such networks belong to; the tenth is an
  assumption.
* TCP: latencies and costs of hosts as `rueda simulate` assumes them without a file (docs/simulate.md), one
  rank a host. The host of the fifth fabric has eight GPUs, 12 links of NVLink 3 each with 20 GB/s (NCCL's
  src/graph/topo.h: SM80_NVLINK_BW), and 200 Gbit/s of RDMA.
* A step is the median of 40 after the plan is learned. Nothing is drawn at random, and yet steps of one cell
  may differ by 40 %, where calls meet in other orders; eight steps were too few.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Tuple

from output import Found, make_figure, pyplot, save, simulate_all, write_cluster

MODELS = {"resnet50": "ResNet-50", "vgg16": "VGG-16", "bert_base": "BERT base", "gpt2": "GPT-2 small"}
MIB = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256]


class Fabric(NamedTuple):
    name: str
    cluster: Dict[str, Any]
    dilation: float  # of computing


FABRICS = [
    Fabric("TCP, 1 Gbit/s", {"hosts": 8, "link": {"rate": "1gbit"}}, 1),
    Fabric("TCP, 5 Gbit/s", {"hosts": 8, "link": {"rate": "5gbit"}}, 1),
    Fabric("TCP, 25 Gbit/s", {"hosts": 8, "link": {"rate": "25gbit"}}, 0.1),
    Fabric("RDMA, 100 Gbit/s", {"hosts": 8, "link": {"kind": "rdma", "rate": "100gbit"}}, 0.1),
    Fabric(
        "8 GPUs a host: NVLink 3, RDMA 200 Gbit/s",
        {
            "hosts": 8,
            "ranks_per_host": 8,
            "gpus": "nvlink",
            "within": {"rate": "1920gbit"},
            "link": {"kind": "rdma", "rate": "200gbit"},
        },
        0.1,
    ),
]


def bucket_words(mib: int) -> List[str]:
    """A bucket of one byte holds one tensor. Fusion is no limit: it is divided by two calls under way."""
    return ["--bucket", f"{mib}MiB" if mib > 0 else "1B", "--fusion", "512MiB"]


def compute(rueda: str, folder: Path, _most: int) -> Found:
    requests = []
    for at, fabric in enumerate(FABRICS):
        cluster = write_cluster(folder / f"fabric{at}.json", fabric.cluster)
        for model in MODELS:
            words = [
                "--cluster",
                cluster,
                "--model",
                model,
                "--dilation",
                str(fabric.dilation),
                "--steps",
                "40",
            ]
            requests += [[*words, *bucket_words(mib)] for mib in MIB] + [words]
    rows = iter(simulate_all(rueda, requests))
    found: Found = {"bucket_mib": MIB, "fabrics": []}
    for fabric in FABRICS:
        models = {}
        for model in MODELS:
            fixed = [next(rows)["step_ms"] for _ in MIB]
            chosen = next(rows)
            models[model] = {
                "compute_ms": chosen["compute_ms"],
                "step_ms": fixed,
                "chosen_bucket_bytes": chosen["bucket_bytes"],
                "chosen_step_ms": chosen["step_ms"],
            }
        found["fabrics"].append({**fabric._asdict(), "models": models})
    return found


def relative(row: Found) -> List[float]:
    """Percent over the shortest step of the row; the last one with the size that the library chooses."""
    steps = [*row["step_ms"], row["chosen_step_ms"]]
    return [100 * (step / min(steps) - 1) for step in steps]


def best_on_average(fabric: Found) -> Tuple[int, float]:
    """The fixed size that is best over the models, and by how many points the chosen ones are longer."""
    rows = [relative(row) for row in fabric["models"].values()]
    *fixed, chosen = [sum(column) / len(rows) for column in zip(*rows)]
    return MIB[fixed.index(min(fixed))], chosen - min(fixed)


def show(found: Found) -> None:
    for fabric in found["fabrics"]:
        print(f"{fabric['name']}: longer than the shortest step, in %, with 0, 1 … 256 MiB, and as chosen")
        for model, row in fabric["models"].items():
            chosen = f"{row['chosen_bucket_bytes'] / 2**20:g} MiB"
            print(f"    {MODELS[model]}: {[round(one, 1) for one in relative(row)]} ({chosen})")
        mib, points = best_on_average(fabric)
        print(f"    on average over the models {mib} MiB, and what is chosen is {points:.1f} points longer")


def draw(found: Found, path: Path) -> None:
    plots = pyplot()
    from matplotlib.colors import LogNorm

    figure, panels = plots.subplots(len(found["fabrics"]), 1, figsize=(9, 9.6))
    for axes, fabric in zip(panels, found["fabrics"]):
        rows = [relative(fabric["models"][model]) for model in MODELS]
        axes.imshow(
            [[max(0.5, one) for one in row] for row in rows],
            norm=LogNorm(0.5, 300),
            cmap="YlOrRd",
            aspect="auto",
        )
        for y, row in enumerate(rows):
            for x, one in enumerate(row):
                text = f"{one:.1f}" if one < 9.95 else f"{one:.0f}"
                axes.text(x, y, text, ha="center", va="center", color="white" if one > 60 else "black")
        axes.axvline(len(MIB) - 0.5, color="white", linewidth=4)
        axes.set_yticks(range(len(MODELS)), MODELS.values())
        labels = ["alone", *(str(mib) for mib in MIB[1:]), "chosen"]
        axes.set_xticks(range(len(labels)), labels)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        faster = "" if fabric["dilation"] == 1 else f", computing {1 / fabric['dilation']:g} times as fast"
        axes.set_title(fabric["name"] + faster, fontsize=9, loc="left")
    panels[-1].set_xlabel(
        "bucket in MiB; numbers: by how many % a step is longer than the shortest of its row"
    )
    figure.tight_layout()
    save(figure, path)


if __name__ == "__main__":
    make_figure("buffer", __doc__, 64, compute, show, draw)
