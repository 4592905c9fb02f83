"""Figure: efficiency of later models on later GPUs, predicted by `rueda simulate`.

    python bench/figures/beyond.py [--rueda PATH] [--out docs/figures] [--most 1024]

BERT base, GPT-2 small, a large LSTM and a mixture of experts, on hosts of eight A100 or H100, with one
network port for a host or one for each GPU. Gradients are summed in float32, without compression. The
alltoalls that bring tokens to experts and back stop computing, in every second layer (bench/figures/moe.py);
with them the simulation comes to 128 GPUs.

Needs matplotlib for the picture. Writes beyond.svg, and beyond.json with all numbers.

Inputs:

* Inside a host: NVLink 3 has 12 links for each A100 and NVLink 4 has 18 for each H100 (NVIDIA's data
  sheets), with 20.0 and 20.6 GB/s each that NCCL's own table counts (src/graph/topo.h: SM80_NVLINK_BW,
  SM90_NVLINK_BW). NVLink SHARP is not modelled.
* Between hosts: 200 and 400 Gbit/s, once for a host, or eight times as in DGX A100 and DGX H100 (NVIDIA's
  data sheets: eight ports of 200 and of 400 Gbit/s for the GPUs). RDMA.
* Latencies: NCCL's table (docs/simulate.md, "gpus"). It has none for an alltoall, which takes one step, and
  as long as the port of a host needs for what its GPUs send to others.
* Computing: bench/models and bench/figures/moe.py count operations. An A100 does 312 and an H100 989
  Tflop/s (bfloat16, dense; data sheets). Assumed: 40 % of that is reached, half as much by the LSTM, as its
  file assumes half of the others' on a P100; batches are four times those of the files (BERT 128 x 128
  tokens, GPT-2 16 x 1024, LSTM 80 x 35) and 32 sequences for the mixture of experts; computing varies from
  step to step by 1 %.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, NamedTuple

import moe
from output import Found, make_figure, pyplot, save, simulate_all, write_cluster, write_model

MOST_OF_EXPERTS = 128  # GPUs; from 296 on the library learns no plan for 48 alltoalls
MODELS = {
    "bert_base": "BERT base",
    "gpt2": "GPT-2 small",
    "lstm_large": "large LSTM",
    "moe": "mixture of experts",
}
BATCH = 4  # times that of the files
SEQUENCES = 32  # of the mixture of experts
REACHED = 0.4
P100 = 8e12  # operations a second that the files assume


class Gpu(NamedTuple):
    name: str
    operations: float  # peak, a second
    nvlink_gbps: float
    port_gbit: int

    def dilation(self) -> float:
        return BATCH * P100 / (REACHED * self.operations)

    def moe_ms(self) -> float:
        return 1e3 * SEQUENCES * moe.OPERATIONS / (REACHED * self.operations)


GPUS = [Gpu("A100", 312e12, 12 * 20.0, 200), Gpu("H100", 989e12, 18 * 20.6, 400)]
PORTS = [1, 8]  # of a host


def cluster_of(gpu: Gpu, ports: int) -> Dict[str, Any]:
    return {
        "hosts": 1,
        "ranks_per_host": 8,
        "gpus": "nvlink",
        "within": {"rate": f"{8 * gpu.nvlink_gbps:.0f}gbit"},
        "link": {"kind": "rdma", "rate": f"{ports * gpu.port_gbit}gbit"},
    }


def counts_of(model: str, counts: List[int]) -> List[int]:
    return [count for count in counts if model != "moe" or count <= MOST_OF_EXPERTS]


def compute(rueda: str, folder: Path, most: int) -> Found:
    counts = [2**power for power in range(3, 11) if 2**power <= most]
    requests: List[List[str]] = []
    for gpu in GPUS:
        shared = folder / f"moe_{gpu.name}.json"
        alltoalls = moe.exchanges(gpu.moe_ms(), SEQUENCES)
        write_model(shared, "moe", gpu.moe_ms(), moe.tensors(gpu.moe_ms()), alltoalls)
        for ports in PORTS:
            cluster = write_cluster(folder / f"{gpu.name}_{ports}.json", cluster_of(gpu, ports))
            for model in MODELS:
                words = ["--cluster", cluster, "--step-noise", "0.01", "--steps", "8"]
                words += ["--model", str(shared) if model == "moe" else model]
                words += [] if model == "moe" else ["--dilation", str(gpu.dilation())]
                requests += [[*words, "--ranks", str(count)] for count in counts_of(model, counts)]
    rows = iter(simulate_all(rueda, requests))
    panels = []
    for gpu in GPUS:
        for ports in PORTS:
            curves: Dict[str, Dict[str, Any]] = {}
            for model in MODELS:
                of_model = [next(rows) for _ in counts_of(model, counts)]
                curves[model] = {
                    "compute_ms": of_model[0]["compute_ms"],
                    "step_ms": [row["step_ms"] for row in of_model],
                    "efficiency": [row["efficiency"] for row in of_model],
                }
            panels.append({"gpu": gpu.name, "ports": ports, "port_gbit": gpu.port_gbit, "curves": curves})
    return {"gpus": counts, "panels": panels}


def title_of(panel: Found) -> str:
    a_host = "a host" if panel["ports"] == 1 else "a GPU"
    return f"{panel['gpu']}, {panel['port_gbit']} Gbit/s {a_host}"


def show(found: Found) -> None:
    for panel in found["panels"]:
        print(f"{title_of(panel)}: efficiency in % with {found['gpus']} GPUs")
        for model, curve in panel["curves"].items():
            print(f"    {MODELS[model]}: {[round(100 * share, 1) for share in curve['efficiency']]}")


def draw(found: Found, path: Path) -> None:
    plots = pyplot()
    figure, panels = plots.subplots(2, 2, figsize=(10, 7), sharex=True, sharey=True)
    colours = dict(zip(MODELS, ("#1b6ca8", "#c1582b", "#4a8b4a", "#7b5aa6")))
    for axes, panel in zip(panels.flat, found["panels"]):
        for model, curve in panel["curves"].items():
            shares = [100 * share for share in curve["efficiency"]]
            axes.plot(
                found["gpus"][: len(shares)],
                shares,
                "o-",
                markersize=4,
                color=colours[model],
                label=MODELS[model],
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks(found["gpus"], [str(count) for count in found["gpus"]])
        axes.set_ylim(0, 105)
        axes.set_title(title_of(panel), fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[1]:
        axes.set_xlabel("GPUs, eight a host")
    for axes in panels[:, 0]:
        axes.set_ylabel("efficiency in %")
    panels[1, 1].legend(fontsize=8, frameon=False, loc="lower left")
    figure.tight_layout()
    save(figure, path)


if __name__ == "__main__":
    make_figure("beyond", __doc__, 1024, compute, show, draw)
