"""Bytes that leave a host's interface for a sum of float32 between hosts, by wire type, and by formula.

    sudo python bench/interface_bytes.py --hosts 4 --megabytes 100
    sudo python bench/interface_bytes.py --packets

Each host is a network name space with a rank of its own. The bytes are those that Linux counts at its port,
with headers of Ethernet, IP and TCP, acknowledgements, and rueda's own messages. The formula is that of
docs/wire_types.md: 2 (H-1)/H times the encoded size. Linux hands such a port segments of up to 64 KiB, and
counts their headers once, as for a network card that cuts them itself; with --packets it cuts them before, so
that the headers of every packet of 1,500 bytes are counted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Dict, List

BLOCK, BLOCK_BYTES = 256, {"float32": 1024, "bf16": 512, "fp16": 512, "int8": 260}
LIMIT_S = 1200.0

RANK = """
import subprocess, sys

def ports():
    # Of this name space, where /sys shows the devices of the one in which it was mounted.
    with open("/proc/self/net/dev") as file:
        found = dict(line.split(":") for line in file if ":" in line)
    return {name.strip(): int(numbers.split()[8]) for name, numbers in found.items() if name.strip() != "lo"}

def sent():
    return sum(ports().values())

elements, sums = int(sys.argv[1]), int(sys.argv[2])
if sys.argv[3] == "packets":
    for port in ports():
        subprocess.run(["ip", "link", "set", port, "gso_max_segs", "1"], check=True)
import numpy as np
import rueda.numpy as hvd
hvd.init()
values = np.random.default_rng(hvd.rank()).standard_normal(elements).astype(np.float32)
hvd.allreduce(values, name="grad")  # opens connections
for _ in range(sums):
    hvd.barrier()
    before = sent()
    hvd.allreduce(values, name="grad")
    hvd.barrier()
    print(f"SENT {hvd.rank()} {sent() - before}", flush=True)
"""


def formula(wire: str, elements: int, hosts: int) -> float:
    """Bytes that a host sends."""
    return 2 * (hosts - 1) / hosts * BLOCK_BYTES[wire] * -(-elements // BLOCK)


def why_not_here() -> str:
    """Why this machine cannot do it; empty if it can."""
    if os.geteuid() != 0:
        return "network name spaces need root"
    has_commands = shutil.which("ip") and shutil.which("tc")
    return "" if has_commands else "the commands ip and tc (iproute2) are not here"


def check_command(command: str | None) -> None:
    """Ends this program if the command rueda is not there."""
    if not command or not Path(command).exists():
        raise SystemExit("there is no command rueda; install it, or name it with --command")


def measure(arguments: argparse.Namespace, wire: str, elements: int) -> List[int]:
    """What each host sends for each sum."""
    hosts, sums, cut = arguments.hosts, arguments.sums, "packets" if arguments.packets else "segments"
    words = [arguments.command, "bench", "replay", "-np", str(hosts), "--rate", "10gbit", "--"]
    words += [sys.executable, "-c", RANK, str(elements), str(sums), cut]
    environment: Dict[str, str] = {**os.environ, "RUEDA_WIRE": wire} if wire != "float32" else {**os.environ}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    found = [line.split("SENT ")[1].split() for line in done.stdout.splitlines() if "SENT " in line]
    if done.returncode != 0 or len(found) != hosts * sums:
        raise SystemExit(f"rueda bench replay failed ({done.returncode}): {done.stderr or done.stdout}")
    return [int(size) for _, size in found]


def main() -> None:
    parser = argparse.ArgumentParser(description="bytes on the interface for a sum, by wire type")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--megabytes", type=float, default=100, help="of float32 (default 100)")
    parser.add_argument("--sums", type=int, default=3)
    parser.add_argument("--packets", action="store_true", help="count the headers of every packet")
    parser.add_argument(
        "--wires", nargs="+", choices=sorted(BLOCK_BYTES), default=["float32", "bf16", "int8"]
    )
    parser.add_argument("--command", default=os.environ.get("RUEDA_BIN") or shutil.which("rueda"))
    arguments = parser.parse_args()
    if why := why_not_here():
        raise SystemExit(f"cannot measure here: {why}")
    check_command(arguments.command)
    elements = int(arguments.megabytes * 1e6 / 4)
    print("| wire type | formula, MB a host | counted, median | smallest to largest | ratio of the median |")
    print("|---|---|---|---|---|")
    for wire in arguments.wires:
        sizes = measure(arguments, wire, elements)
        wanted = formula(wire, elements, arguments.hosts)
        middle = statistics.median(sizes)
        counted = f"{middle / 1e6:.2f} | {min(sizes) / 1e6:.2f} to {max(sizes) / 1e6:.2f}"
        print(f"| {wire} | {wanted / 1e6:.2f} | {counted} | {middle / wanted:.3f} |", flush=True)


if __name__ == "__main__":
    main()
