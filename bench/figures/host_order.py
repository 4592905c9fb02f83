"""Figure: what the order of the hosts is worth to a ring, predicted by `rueda simulate`.

    python bench/figures/host_order.py [--rueda PATH] [--out docs/figures]

One sum of 64 MiB by the algorithm `ring`, with the hosts in the order of the cluster file, and in the one
that `--host-order best` finds. Left: eight and sixteen hosts whose pairs have random rates, and two
arrangements that occur: two racks whose hosts are listed in turns, and a cable at fault. Right: the first of
the random clusters with chunks from 16 KiB to 4 MiB (`--chunk`, RUEDA_CHUNK_BYTES).

The bus rate is 2 (n-1)/n times the bytes, divided by the time: what each link of the ring carries.

Needs matplotlib for the picture. Writes host_order.svg, and host_order.json with all numbers.

Inputs: none are published. The rates of a random pair are 1 to 25 Gbit/s, each doubling as likely as any
other, from Python's own generator with the seeds that are shown. Everything else is as `rueda simulate`
assumes it without a file (docs/simulate.md).
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any, Dict, List, Tuple

from output import Found, make_figure, pyplot, save, simulate_all, write_cluster, write_model

BYTES = 64 << 20
CHUNK_KIB = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096]
SEEDS = {8: [1, 2, 3, 4, 5], 16: [6, 7, 8]}


def cluster_of(hosts: int, rates_mbit: Dict[Tuple[int, int], int]) -> Dict[str, Any]:
    links = [{"hosts": [f"h{a}", f"h{b}"], "rate": f"{mbit}mbit"} for (a, b), mbit in rates_mbit.items()]
    return {"hosts": [{"name": f"h{i}"} for i in range(hosts)], "link": {"rate": "25gbit"}, "links": links}


def random_cluster(hosts: int, seed: int) -> Dict[str, Any]:
    source = random.Random(seed)
    pairs = itertools.combinations(range(hosts), 2)
    return cluster_of(hosts, {pair: round(1000 * 25 ** source.random()) for pair in pairs})


def clusters() -> Dict[str, Dict[str, Any]]:
    found = {
        f"{n} hosts, seed {seed}": random_cluster(n, seed) for n, seeds in SEEDS.items() for seed in seeds
    }
    pairs = list(itertools.combinations(range(8), 2))
    found["two racks in turns"] = cluster_of(8, {(a, b): 5000 for a, b in pairs if (a - b) % 2 == 1})
    found["one slow pair"] = cluster_of(8, {(2, 3): 2500})
    return found


def bus_gbit(step_ms: float, hosts: int) -> float:
    return 2 * (hosts - 1) / hosts * 8 * BYTES / (step_ms * 1e6)


def compute(rueda: str, folder: Path, _most: int) -> Found:
    model = folder / "sum.json"
    write_model(model, "sum", 0.001, [("all", BYTES // 4, 0.001)])
    # Negotiated, because a plan would begin each sum with a barrier.
    words = ["--model", str(model), "--algorithm", "ring", "--no-plans", "--steps", "4"]
    requests: List[List[str]] = []
    files = {}
    for at, (name, cluster) in enumerate(clusters().items()):
        files[name] = write_cluster(folder / f"{at}.json", cluster)
        requests += [[*words, "--cluster", files[name], "--host-order", order] for order in ("given", "best")]
    first = next(iter(files.values()))
    for kib in CHUNK_KIB:
        more = [*words, "--cluster", first, "--chunk", f"{kib}KiB"]
        requests += [[*more, "--host-order", order] for order in ("given", "best")]
    rows = iter(simulate_all(rueda, requests))

    def both() -> Found:
        given, best = next(rows), next(rows)
        hosts = given["hosts"]
        return {
            "given_gbit": bus_gbit(given["step_ms"], hosts),
            "best_gbit": bus_gbit(best["step_ms"], hosts),
            "best_order": best["host_order"],
        }

    return {
        "bytes": BYTES,
        "clusters": {name: {**both(), "cluster": cluster} for name, cluster in clusters().items()},
        "chunk_kib": CHUNK_KIB,
        "chunks": [both() for _ in CHUNK_KIB],
    }


def show(found: Found) -> None:
    for name, row in found["clusters"].items():
        print(
            f"{name}: {row['given_gbit']:.2f} Gbit/s as given, {row['best_gbit']:.2f} best "
            f"({row['best_gbit'] / row['given_gbit']:.1f} times): {','.join(row['best_order'])}"
        )
    for kib, row in zip(found["chunk_kib"], found["chunks"]):
        print(f"chunks of {kib} KiB: {row['given_gbit']:.2f} Gbit/s as given, {row['best_gbit']:.2f} best")


def draw(found: Found, path: Path) -> None:
    plots = pyplot()
    figure, (left, right) = plots.subplots(1, 2, figsize=(10, 4.2), width_ratios=(1.5, 1))
    grey, blue = "#9a9a9a", "#1b6ca8"
    rows = found["clusters"]
    places = range(len(rows))
    left.barh([p - 0.2 for p in places], [r["given_gbit"] for r in rows.values()], 0.38, color=grey)
    left.barh([p + 0.2 for p in places], [r["best_gbit"] for r in rows.values()], 0.38, color=blue)
    for place, row in zip(places, rows.values()):
        times = f"{row['best_gbit'] / row['given_gbit']:.1f} times"
        left.text(row["best_gbit"] + 0.3, place + 0.2, times, va="center", fontsize=8)
    left.set_yticks(places, rows)
    left.invert_yaxis()
    left.set_xlim(0, 1.2 * max(row["best_gbit"] for row in rows.values()))
    left.set_xlabel("bus rate of the ring in Gbit/s")
    for key, colour, name in (("given_gbit", grey, "as given"), ("best_gbit", blue, "--host-order best")):
        right.plot(found["chunk_kib"], [r[key] for r in found["chunks"]], "o-", color=colour, label=name)
    right.set_xscale("log", base=2)
    names = [f"{kib}" if kib < 1024 else f"{kib // 1024}Mi" for kib in found["chunk_kib"]]
    right.set_xticks(found["chunk_kib"], names)
    right.set_ylim(bottom=0)
    right.set_xlabel("chunk in KiB (Mi: MiB)")
    right.set_ylabel("bus rate of the ring in Gbit/s")
    right.set_title(f"{next(iter(rows))}", fontsize=9)
    right.legend(fontsize=8, frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    save(figure, path)


if __name__ == "__main__":
    make_figure("host_order", __doc__, 16, compute, show, draw)
