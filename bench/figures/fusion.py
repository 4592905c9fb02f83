"""Figure: what fusing the gradients of ResNet-101 is worth, predicted by `rueda simulate`.

    python bench/figures/fusion.py [--rueda PATH] [--out docs/figures]
    sudo python bench/figures/fusion.py --measure      as root, on an idle machine: some minutes

How much more throughput a job has with fusion than without it, by ranks and by the latency of a link. Left:
as Horovod does it, negotiated in cycles of 5 ms and fused up to 64 MiB, against no fusion. Middle: the
buckets that this library chooses for its plans, against plans of single tensors. Horovod's article reports
up to 65 % from fusion, for models of many layers over TCP (Sergeev and Del Balso 2018); it names neither
model nor machine, so no cell is "that" number. Right: a burst of all gradients, between the namespaces of
one machine; --measure runs it (`rueda bench burst` inside `rueda bench replay`) and writes
fusion_measured.json, which is drawn beside the prediction if it is there.

Needs matplotlib for the picture. Writes fusion.svg, and fusion.json with all numbers that are predicted.

Inputs: bench/models/resnet101.json (314 tensors, 178 MB, 557 ms of computing on a P100). Hosts have one
rank and 25 Gbit/s; other costs are those that `rueda simulate` assumes without a file (docs/simulate.md).
Rings, as Horovod's were. Unlike Horovod, two calls are under way at once, and a tensor of 1 MiB or more
travels alone where buckets are negotiated. All cells are priced call by call (`--detail call`).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List

from output import ROOT, Found, make_figure, pyplot, save, simulate_all, write_cluster, write_model

MODEL = "resnet101"
RANKS = [4, 8, 16, 32, 64, 128]
LATENCIES_US = [10, 20, 40, 80, 160, 320]
HOROVOD = ["--no-plans", "--cycle", "5", "--fusion"]
WAYS: Dict[str, List[List[str]]] = {  # with fusion, and without
    "horovod": [[*HOROVOD, "128MiB"], [*HOROVOD, "1B"]],  # divided by two calls under way
    "library": [[], ["--bucket", "1B"]],
}
TITLES = {"horovod": "negotiated, 64 MiB as Horovod", "library": "plans, buckets as the library chooses"}
BURST_RANKS, BURST_RATE, BURST_CORES = [8, 16], "1gbit", 2
BURST_MODES = {"fused": "64MiB", "unfused": "1B"}


def burst_requests(folder: Path) -> List[List[str]]:
    parameters = json.loads((ROOT / f"bench/models/{MODEL}.json").read_text())["parameters"]
    model = folder / "burst.json"
    write_model(model, "burst", 0.001, [(name, elements, 0.001) for name, elements in parameters])
    requests = []
    for ranks in BURST_RANKS:
        cluster = {"hosts": ranks, "machine": "m", "cores": BURST_CORES, "link": {"rate": BURST_RATE}}
        path = write_cluster(folder / f"burst{ranks}.json", cluster)
        words = [
            "--model",
            str(model),
            "--cluster",
            path,
            "--algorithm",
            "ring",
            "--no-plans",
            "--steps",
            "4",
        ]
        requests += [[*words, "--fusion", size] for size in BURST_MODES.values()]
    return requests


def compute(rueda: str, folder: Path, _most: int) -> Found:
    requests = []
    for latency in LATENCIES_US:
        cluster = write_cluster(
            folder / f"{latency}.json", {"hosts": 1, "link": {"rate": "25gbit", "latency_us": latency}}
        )
        words = ["--cluster", cluster, "--model", MODEL, "--algorithm", "ring", "--detail", "call"]
        for ranks in RANKS:
            more = [*words, "--ranks", str(ranks), "--steps", "4"]
            requests += [[*more, *way] for ways in WAYS.values() for way in ways]
    rows = iter(simulate_all(rueda, requests + burst_requests(folder)))
    maps: Dict[str, List[List[Dict[str, float]]]] = {way: [] for way in WAYS}
    for _ in LATENCIES_US:
        for way in WAYS:
            maps[way].append([])
        for _ in RANKS:
            for way in WAYS:
                fused, unfused = next(rows), next(rows)
                maps[way][-1].append({"fused_ms": fused["step_ms"], "unfused_ms": unfused["step_ms"]})
    bursts = [{mode: next(rows)["step_ms"] for mode in BURST_MODES} for _ in BURST_RANKS]
    burst = {"rate": BURST_RATE, "cores": BURST_CORES, "ranks": BURST_RANKS, "ms": bursts}
    return {"ranks": RANKS, "latency_us": LATENCIES_US, "maps": maps, "burst": burst}


def gain(fused: float, unfused: float) -> float:
    """Percent more throughput."""
    return 100 * (unfused / fused - 1)


def show(found: Found) -> None:
    for way, rows in found["maps"].items():
        print(f"{TITLES[way]}: percent more throughput with {found['ranks']} ranks")
        for latency, row in zip(found["latency_us"], rows):
            print(f"    {latency} us: {[round(gain(*cell.values())) for cell in row]}")
    for ranks, ms in zip(found["burst"]["ranks"], found["burst"]["ms"]):
        print(f"burst, {ranks} namespaces: {ms['fused']:.0f} ms fused, {ms['unfused']:.0f} ms unfused")


def draw_map(axes: Any, found: Found, way: str) -> None:
    from matplotlib.colors import Normalize

    cells = [[gain(*cell.values()) for cell in row] for row in found["maps"][way]]
    axes.imshow(cells, norm=Normalize(0, 150), cmap="YlGnBu", aspect="auto", origin="lower")
    for y, row in enumerate(cells):
        for x, percent in enumerate(row):
            axes.text(
                x, y, f"{percent:.0f}", ha="center", va="center", color="white" if percent > 80 else "black"
            )
    axes.set_xticks(range(len(found["ranks"])), [str(ranks) for ranks in found["ranks"]])
    axes.set_yticks(range(len(found["latency_us"])), [str(us) for us in found["latency_us"]])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("ranks, one a host")
    axes.set_title(f"{TITLES[way]}:\n% more throughput with fusion", fontsize=9)


def draw_bursts(axes: Any, found: Found, measured: Found) -> None:
    burst = found["burst"]
    kinds = [("predicted", "#9a9a9a", burst["ms"])]
    if measured:
        kinds.append((f"measured, {measured['date']}", "#1b6ca8", measured["ms"]))
    places = range(len(burst["ranks"]))
    for at, (name, colour, all_ms) in enumerate(kinds):
        shift = 0.4 * (at - (len(kinds) - 1) / 2)
        gains = [gain(ms["fused"], ms["unfused"]) for ms in all_ms]
        axes.bar([place + shift for place in places], gains, 0.36, color=colour, label=name)
        for place, percent in zip(places, gains):
            axes.text(place + shift, percent, f"{percent:.0f}", ha="center", va="bottom")
    axes.set_xticks(places, [str(ranks) for ranks in burst["ranks"]])
    axes.set_xlim(-0.6, len(places) - 0.4)
    axes.margins(y=0.25)
    axes.set_xlabel("namespaces, 1 Gbit/s each")
    axes.set_ylabel("% more throughput with fusion")
    axes.set_title("all gradients at once", fontsize=9)
    axes.legend(fontsize=8, frameon=False, loc="upper right")
    axes.spines[["top", "right"]].set_visible(False)


def draw(found: Found, path: Path) -> None:
    plots = pyplot()
    beside = path.with_name("fusion_measured.json")
    measured = json.loads(beside.read_text()) if beside.exists() else {}
    figure, panels = plots.subplots(1, 3, figsize=(11, 4), width_ratios=(1.2, 1.2, 0.8))
    draw_map(panels[0], found, "horovod")
    draw_map(panels[1], found, "library")
    panels[0].set_ylabel("latency of a link, one way, in us")
    draw_bursts(panels[2], found, measured)
    figure.tight_layout()
    save(figure, path)


def burst_ms(rueda: str, ranks: int, mode: str, report: Path) -> float:
    """The median of ten bursts. Inside a job, a burst runs in one mode only."""
    command = [rueda, "bench", "replay", "-np", str(ranks), "--rate", BURST_RATE, "--"]
    command += [rueda, "bench", "burst", "--model", MODEL, "--algorithm", "ring", "--memory", "private"]
    command += ["--mode", mode, "--iterations", "10", "--json", str(report)]
    print(" ".join(command), flush=True)
    done = subprocess.run(command, timeout=1800)
    if done.returncode != 0:
        sys.exit(f"fusion.py: {' '.join(command)} ended with {done.returncode}")
    (row,) = json.loads(report.read_text())["results"]
    if row["mode"] != mode or row["ranks"] != ranks or not row["correct"]:
        sys.exit(f"fusion.py: {' '.join(command)} reports {row}")
    return float(row["median_us"]) / 1e3


def measure() -> None:
    parser = argparse.ArgumentParser(description="measures bursts with and without fusion")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--rueda", default=str(ROOT / "build/release/bin/rueda"))
    parser.add_argument("--out", type=Path, default=ROOT / "docs/figures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "burst.json"
        all_ms = [
            {mode: burst_ms(arguments.rueda, ranks, mode, report) for mode in BURST_MODES}
            for ranks in BURST_RANKS
        ]
        machine = json.loads(report.read_text())["machine"]
    found = {
        "date": datetime.date.today().isoformat(),
        "machine": {**machine, "cores": os.cpu_count()},
        "rate": BURST_RATE,
        "ranks": BURST_RANKS,
        "ms": all_ms,
    }
    (arguments.out / "fusion_measured.json").write_text(json.dumps(found, indent=1) + "\n")
    predicted = arguments.out / "fusion.json"
    if predicted.exists():
        draw(json.loads(predicted.read_text()), arguments.out / "fusion.svg")


if __name__ == "__main__":
    if "--measure" in sys.argv[1:]:
        measure()
    else:
        make_figure("fusion", __doc__, 128, compute, show, draw)
