"""``make bench``: measures this machine, prints tables, writes build/bench/report.json.

The numbers are for reading and comparing on one quiet machine; no test asserts them. All parts together take
most of an hour on two cores. ``--only`` selects some of allreduce, compare, training, process_group,
front_ends, graph, transport and kernels. Parts that need root (links with a limit) are left out and named if
this is not root.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "bench"
TREE = ROOT / "build" / "release"
RUEDA = str(Path(sys.executable).parent / "rueda")
sys.path.insert(0, str(ROOT / "tools"))
KERNELS = "^(sum|reduce4)/.*/(float32|bfloat16)/"


def output_of(command: List[str], limit_s: float = 600, **env: str) -> str:
    """Standard output of a command that has to succeed."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=limit_s,
        env={**os.environ, **env},
        cwd=ROOT,
    )
    if done.returncode != 0:
        raise SystemExit(f"bench: {' '.join(command)} ended with exit status {done.returncode}")
    return done.stdout


def report_of(command: List[str], report: Path, limit_s: float = 600, echo: bool = True, **env: str) -> Any:
    """Runs a command that writes a JSON report, prints its tables, and returns the report."""
    report.unlink(missing_ok=True)
    said = output_of([*command, "--report", str(report)], limit_s, **env)
    if echo:
        print(said, end="", flush=True)
    return json.loads(report.read_text())


def machine() -> Dict[str, Any]:
    """What the numbers depend on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "load_before": os.getloadavg()[0],
        "commit": output_of(["git", "describe", "--always", "--dirty"]).strip(),
    }


def build(program: str) -> Path:
    """A program of bench/, in the release build."""
    import build_wheel

    cmake = build_wheel.find_cmake() or "cmake"
    for command in ([cmake, "--preset", "release"], [cmake, "--build", str(TREE), "--target", program]):
        output_of(command, 1800)
    return TREE / program


# ---- what is measured ----


def allreduce() -> List[Dict[str, Any]]:
    """bench/allreduce.py on 2 ranks, with shared memory and over TCP."""
    rows: List[Dict[str, Any]] = []
    print(f"\n{'allreduce, 2 ranks':<20}{'bytes':>10}  {'library':<12}{'median us':>12}", end="")
    print(f"{'p10 .. p90':>22}{'GB/s':>8}")
    for transports in ("shm,tcp", "tcp"):
        command = [RUEDA, "run", "-np", "2", sys.executable, "bench/allreduce.py"]
        for row in report_of(command, OUT / "allreduce.json", echo=False, RUEDA_TRANSPORTS=transports):
            row["transport"] = "tcp" if row["library"] == "gloo" else transports.partition(",")[0]
            rows.append(row)
            spread = f"{row['p10_us']:.1f} .. {row['p90_us']:.1f}"
            name = f"{row['library']} {row['transport']}"
            print(f"{row['what']:<20}{row['bytes']:>10}  {name:<12}{row['median_us']:>12.1f}", end="")
            print(f"{spread:>22}{row['gb_per_s']:>8.2f}", flush=True)
    print(
        "GB/s: bytes of the tensor over the median time. gloo: torch.distributed with its defaults on lo, in"
    )
    print("the same processes and in turns with rueda; it sends every tensor of a burst by itself.")
    return rows


def transport() -> List[str]:
    """One channel between two processes, without the engine."""
    lines = output_of([str(build("transport_bench"))]).splitlines()
    print("\nchannels between two processes")
    print("\n".join(lines), flush=True)
    return lines


def kernels() -> List[Dict[str, Any]]:
    """Reductions in one thread, with every instruction set this processor has."""
    options = [f"--benchmark_filter={KERNELS}", "--benchmark_min_time=0.05", "--benchmark_format=json"]
    found = json.loads(output_of([str(build("kernels_bench")), *options]))
    rows = [{"name": one["name"], "gb_per_s": one["bytes_per_second"] / 1e9} for one in found["benchmarks"]]
    print(f"\n{'kernel / instruction set / type / bytes / sources':<52}{'GB/s of one operand':>20}")
    for row in rows:
        print(f"{row['name']:<52}{row['gb_per_s']:>20.1f}")
    return rows


def can_limit_links() -> bool:
    if os.geteuid() == 0:
        return True
    print("left out: links with a limit need root")
    return False


def compare() -> Any:
    """The libraries that are installed here, in turns; between hosts also the figure scaling.svg."""
    out = OUT / "compare"
    parts = "collective,burst,train" + (",replay,links" if can_limit_links() else "")
    command = [sys.executable, "bench/compare"]
    all_here = ["--rounds", "5", "--parts", parts, "--out", str(out)]
    print(output_of([*command, *all_here], 5400), end="", flush=True)
    found = json.loads((out / "compare.json").read_text())
    # More ranks than cores: some peers yield then, and others do not.
    crowd = ["--rounds", "3", "--parts", "collective", "--ranks", str(2 * (os.cpu_count() or 1))]
    crowd += ["--sizes", "4,1048576,67108864", "--out", str(out / "crowded")]
    print(output_of([*command, *crowd], 1800), end="", flush=True)
    found["crowded"] = json.loads((out / "crowded" / "compare.json").read_text())
    return found


def training() -> Dict[str, Any]:
    """Really trains PyTorch models, on one host and between two hosts whose links have 1 Gbit/s."""
    places = {"one host": ([RUEDA, "run", "-np", "2"], "lo", "silent,pointer,arena,ddp-gloo")}
    if can_limit_links():
        limited = [RUEDA, "bench", "replay", "-np", "2", "--rate", "1gbit", "--"]
        places["1 Gbit/s"] = (limited, "net0", "silent,pointer,ddp-gloo")
    found: Dict[str, Any] = {}
    for place, (launch, interface, ways) in places.items():
        for model, batch in (("small_cnn", "32"), ("resnet50", "8"), ("transformer", "8")):
            options = ["--model", model, "--batch-size", batch, "--ways", ways]
            command = [*launch, sys.executable, "bench/torch_training.py", *options]
            print(f"\ntraining, {place}")
            found[f"{model}, {place}"] = report_of(
                command, OUT / "training.json", 900, GLOO_SOCKET_IFNAME=interface
            )
    return found


def process_group() -> Any:
    """PyTorch's own DDP over backend rueda and over gloo."""
    print("\nDDP of a small CNN, ratios of step times, 2 ranks")
    command = [RUEDA, "run", "-np", "2", sys.executable, "bench/process_group.py"]
    return report_of(command, OUT / "process_group.json", GLOO_SOCKET_IFNAME="lo")


def front_ends() -> Dict[str, Any]:
    """TensorFlow's own strategy against rueda, and the efficiency of two ranks with each front end."""
    found = {}
    for part in ("strategy", "scaling"):
        print(f"\nfront ends: {part}")
        found[part] = report_of([sys.executable, "bench/front_ends", part], OUT / f"{part}.json", 1800)
    return found


def graph() -> List[Dict[str, float]]:
    """One allreduce in a graph of TensorFlow: what the front end takes, and what it takes with the engine."""
    idle = build("idle_engine").with_name("libidle_engine.so")
    engines = {"front end": ["--engine", str(idle)], "and engine": []}
    print("\nallreduce in a tf.function, one rank: us per tensor above an addition, medians of five runs")
    rows: List[Dict[str, float]] = []
    for _ in range(5):
        row = {}
        for name, options in engines.items():
            command = [RUEDA, "run", "-np", "1", sys.executable, "bench/front_ends/graph_cost.py", *options]
            row[name] = report_of(command, OUT / "graph_cost.json", 120, echo=False)["cost"]
        rows.append(row)
    for name in engines:
        costs = sorted(row[name] for row in rows)
        print(f"{name:<12}{costs[len(costs) // 2]:>8.2f}   {costs[0]:.2f} .. {costs[-1]:.2f}", flush=True)
    return rows


PARTS: Dict[str, Callable[[], Any]] = {
    "allreduce": allreduce,
    "compare": compare,
    "training": training,
    "process_group": process_group,
    "front_ends": front_ends,
    "graph": graph,
    "transport": transport,
    "kernels": kernels,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="measures this machine")
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    wanted = parser.parse_args().only.split(",")
    unknown = set(wanted) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}")
    OUT.mkdir(parents=True, exist_ok=True)
    report: Dict[str, Any] = {"machine": machine()}
    found = report["machine"]
    print(f"{found['processor']}, {found['cores']} cores, load {found['load_before']:.1f} before the start")
    path = OUT / "report.json"
    for name in wanted:
        report[name] = PARTS[name]()
        # Written after each part, so that a later failure loses nothing.
        path.write_text(json.dumps(report, indent=1) + "\n")
    print(f"\nwritten to {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
