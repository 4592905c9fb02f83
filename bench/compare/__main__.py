"""Measures rueda and its peers in the same run: ``python bench/compare``.

Parts: ``collective`` (allreduce or other collectives at several sizes), ``burst`` (all gradients of a model),
``train`` (really trains a small network, against DDP), ``replay`` (training between hosts with limited links,
against DDP over Gloo, and its figure; needs root), ``links`` (how much of a limited link's rate an allreduce
uses, and training that crosses the step; needs root). Each library runs once in every round, in turns. The
results are written to ``--out``: compare.json and scaling.svg. A peer that cannot take part is named with the
reason. No figure is printed that this run did not measure.

As root, everything except the installation of peers happens in a network namespace of its own, whose TCP uses
the congestion control of ``--congestion``. With BBR, the default of some kernels, loopback reaches only half
of its bandwidth.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import links
import peers
import ratios
import replay

import tools

PARTS = ["collective", "burst", "train", "replay", "links"]
COLLECTIVES = ["allreduce", "allgather", "broadcast", "reducescatter", "alltoall"]
IN_SPACE = "COMPARE_IN_NAME_SPACE"


def take_part(options: argparse.Namespace, left_out: Dict[str, str]) -> List[peers.Peer]:
    """The peers that can run here. left_out receives the reasons why others cannot."""
    present = []
    for kind in peers.ALL:
        if options.peers and kind.name not in options.peers.split(",") and kind is not peers.Rueda:
            continue
        for transport in kind.transports:
            if transport not in options.transports.split(","):
                continue
            peer = kind(transport, options.ranks, options.out)
            try:
                peer.prepare()
                present.append(peer)
            except tools.Unavailable as why:
                left_out[f"{peer.name} {transport}"] = str(why)
    return present


def rounds_of(
    options: argparse.Namespace,
    present: List[peers.Peer],
    measure: Callable[[peers.Peer], peers.Medians],
    left_out: Dict[str, str],
) -> List[ratios.Round]:
    """Runs every peer once per round, in an order that changes from round to round."""
    rounds: List[ratios.Round] = []
    taking = list(present)
    shuffle = random.Random(1)
    for number in range(options.rounds):
        found: ratios.Round = {}
        shuffle.shuffle(taking)
        for peer in list(taking):
            try:
                for label, us in measure(peer).items():
                    found[peer.name, peer.transport, label] = us
            except tools.Unavailable as why:
                left_out[f"{peer.name} {peer.transport}"] = str(why)
                taking.remove(peer)
        rounds.append(found)
        print(f"compare: round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    return rounds


def as_json(rounds: List[ratios.Round]) -> List[Dict[str, float]]:
    return [{"|".join(key): us for key, us in one.items()} for one in rounds]


def measure_collective(what: str, sizes: List[int], peer: peers.Peer) -> peers.Medians:
    return peer.collective(what, sizes)


def collective(options: argparse.Namespace, present: List[peers.Peer], left_out: Dict[str, str]) -> Any:
    """A table for each collective and transport."""
    labels = options.sizes.split(",")
    sizes = [int(label) for label in labels]
    report: Dict[str, Any] = {}
    for what in options.collectives.split(","):
        measure = functools.partial(measure_collective, what, sizes)
        rounds = rounds_of(options, present, measure, left_out)
        transports = dict.fromkeys(peer.transport for peer in present)
        tables = {over: ratios.table(rounds, "rueda", over, labels) for over in transports}
        for over, rows in tables.items():
            title = f"{what}, {options.ranks} ranks; times over those of rueda {over}"
            ratios.print_table(title, rows, labels)
        report[what] = {"rounds": as_json(rounds), "tables": tables}
    return report


def burst(options: argparse.Namespace, present: List[peers.Peer], left_out: Dict[str, str]) -> Any:
    """Each way of sending of each peer, relative to the planned burst of rueda."""
    can = [peer for peer in present if not isinstance(peer, peers.OneCcl)]
    rounds = rounds_of(options, can, lambda peer: peer.burst(options.model, 5), left_out)
    named: List[ratios.Round] = [
        {(f"{name}: {way}", over, "time"): us for (name, over, way), us in one.items()} for one in rounds
    ]
    report: Dict[str, Any] = {"rounds": as_json(rounds)}
    for over in ("shm", "tcp"):
        report[over] = ratios.table(named, "rueda: planned", over, ["time"])
        title = f"gradients of {options.model}, {options.ranks} ranks; times over rueda {over}, planned"
        ratios.print_table(title, report[over], ["time"])
    return report


def train(options: argparse.Namespace) -> Any:
    out = options.out / "train"
    for left in (out, Path(f"{out}.meeting")):
        left.unlink(missing_ok=True)
    script = [sys.executable, str(tools.HERE / "train_peer.py"), str(out), str(options.rounds)]
    env = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    tools.run([tools.rueda_command(), "run", "-np", str(options.ranks), *script], 600, env)
    rounds = [json.loads(line) for line in out.read_text().splitlines()]
    over_ddp = ratios.quartiles([one["rueda"] / one["ddp"] for one in rounds])
    alone = {
        name: ratios.quartiles([one[name] / one["alone"] for one in rounds]) for name in ("rueda", "ddp")
    }
    print(
        f"\ntraining a small network, {options.ranks} ranks: images a second of rueda over DDP's {over_ddp};"
    )
    print(f"of what the cores give without communication: rueda {alone['rueda']}, DDP {alone['ddp']}")
    return {"rounds": rounds, "rueda_over_ddp": over_ddp._asdict()}


def limited_links(options: argparse.Namespace) -> Any:
    shares = links.measure(options.out, min(options.rounds, 3))
    return {"shares": shares, "cross_step": links.cross_step(options.out, options.rate, options.steps)}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="compare", description="rueda and its peers in the same run")
    parser.add_argument("--parts", default="collective,burst,train", help=f"some of {','.join(PARTS)}")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", default="4,65536,1048576,67108864", help="bytes, comma-separated")
    parser.add_argument("--collectives", default="allreduce", help=f"some of {','.join(COLLECTIVES)}")
    parser.add_argument("--transports", default="shm,tcp", help="of the ranks of this machine")
    parser.add_argument("--model", default="resnet50", help="of bench/models")
    parser.add_argument("--peers", default="", help=f"some of {','.join(kind.name for kind in peers.ALL)}")
    parser.add_argument(
        "--congestion", default="reno", help="TCP's congestion control for all; empty: the machine's"
    )
    parser.add_argument("--rate", default="1gbit", help="replay: rate of the links")
    parser.add_argument("--replay-ranks", default="2,4,8", help="replay: numbers of hosts")
    parser.add_argument(
        "--ready", default="model", choices=["model", "even"], help="replay: when gradients are ready"
    )
    parser.add_argument("--steps", type=int, default=4, help="replay: steps measured")
    parser.add_argument("--figure", type=Path, help="replay: where the figure is written as well")
    parser.add_argument("--out", type=Path, default=tools.ROOT / "build" / "bench" / "compare")
    options = parser.parse_args()
    unknown = set(options.parts.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}")
    unknown = set(options.collectives.split(",")) - set(COLLECTIVES)
    if unknown:
        parser.error(f"unknown collective {', '.join(sorted(unknown))}; choose from {', '.join(COLLECTIVES)}")
    if not all(size.isdigit() and int(size) % 4 == 0 and int(size) > 0 for size in options.sizes.split(",")):
        parser.error("--sizes are whole float32 values in bytes, such as 4,65536")
    if options.rounds < 1 or options.ranks < 2:
        parser.error("compare at least 2 ranks in at least 1 round")
    options.out = options.out.resolve()
    options.figure = options.figure and options.figure.resolve()
    return options


def enter_name_space(congestion: str) -> str:
    """Starts this program again in its own network namespace; returns the congestion control in force."""
    current = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    if IN_SPACE in os.environ:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=10)
        current.write_text(congestion)
    elif congestion and os.geteuid() == 0:
        os.environ[IN_SPACE] = "1"
        os.execvp("unshare", ["unshare", "--net", sys.executable, str(tools.HERE), *sys.argv[1:]])
    return current.read_text().strip()


def main() -> int:
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    left_out: Dict[str, str] = {}
    if IN_SPACE not in os.environ:
        take_part(options, {})  # installs and builds what is missing while there is a network
    congestion = enter_name_space(options.congestion)
    present = take_part(options, left_out)
    report: Dict[str, Any] = {
        "machine": {"cores": os.cpu_count(), "load": os.getloadavg()[0], "congestion_control": congestion},
        "settings": {f"{peer.name} {peer.transport}": peer.settings for peer in present},
    }
    wanted: List[Tuple[str, Callable[[], Any]]] = [
        ("collective", lambda: collective(options, present, left_out)),
        ("burst", lambda: burst(options, present, left_out)),
        ("train", lambda: train(options)),
        ("replay", lambda: replay.measure(options)),
        ("links", lambda: limited_links(options)),
    ]
    for name, part in wanted:
        if name not in options.parts.split(","):
            continue
        try:
            report[name] = part()
        except tools.Unavailable as why:
            left_out[name] = str(why)
    for name, why in left_out.items():
        print(f"left out: {name}: {why}")
    report["left_out"] = left_out
    path = options.out / "compare.json"
    path.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written to {path}; above x 1 rueda is faster, in brackets the quartiles over the rounds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
