"""Starts jobs on many hosts of ssh that are all this machine, with the tree of agents and without it.

    python bench/launch_tree.py --hosts 70 --ranks 70 --fan-outs 70,32
    python bench/launch_tree.py --hosts 20 --ranks 200 --fan-outs 4

Each host is an sshd of its own on 127.0.0.x, with throw-away keys, so a login costs what it costs, and this
machine computes for both of its ends: on real hosts, the logins of a level run beside one another. A rank
calls init, sums 4 bytes over all ranks a few times, and ends. `cpu_s` is what `rueda run` and the ssh that it
has started have computed, `run_fds` the descriptors that `rueda run` held when all ranks had started.
`start_s` ends when the last rank's process runs, `whole_s` with the job. Of the slowest rank are `first_ms`,
the first sum, for which connections come up, and `next_ms`, the median of four more; `rank_fds` is the median
of the descriptors that ranks held and `most_fds` the most of a rank: one holds a socket more for each other
rank here, as all hosts are one machine and share its relay to the store. Hundreds of ranks share the cores of
one machine here: an answer may take longer than RUEDA_PEER_TIMEOUT_SECONDS allows, which the bench therefore
sets to 300. OpenSSH must be installed. RUEDA_BIN and RUEDA_LIBRARY select another build.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from subprocess import DEVNULL, PIPE, Popen
from typing import Dict, List

from init import allreduce, rueda

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "multiprocess"))

from ssh_hosts import IS_INSTALLED, ssh_hosts  # noqa: E402

IS_RANK = "RUEDA_BENCH_LAUNCH_TREE"
MOST_HOSTS = 250  # 127.0.0.2 and on
JOB = ("hosts", "ranks", "fan_out")
FIGURES = ("start_s", "whole_s", "cpu_s", "run_fds", "first_ms", "next_ms", "rank_fds", "most_fds")
COLUMNS = (*JOB, *FIGURES)
NEXT = 4  # sums after the first


def run_rank() -> None:
    """One rank of the job that is measured."""
    from rueda import _core as core

    print("up", flush=True)
    if core.init(None) != core.OK:
        raise SystemExit(f"launch_tree: {core.last_error()}")
    took = [1e3 * allreduce(core, b"small") for _ in range(1 + NEXT)]
    print("over", took[0], median(took[1:]), len(os.listdir("/proc/self/fd")), flush=True)
    core.shutdown()


def measure(client: Path, hosts: int, ranks: int, fan_out: int) -> Dict[str, float]:
    """Runs one job; client: the configuration of ssh that knows the hosts."""
    share, more = divmod(ranks, hosts)
    names = ",".join(f"h{i + 1}:{share + (i < more)}" for i in range(hosts))
    options = ["-F", str(client), "--ssh-fan-out", str(fan_out), "--start-timeout", "300", "--no-prefix"]
    command = [rueda(), "run", "-np", str(ranks), "-H", names, *options, sys.executable, __file__]
    environment = {"RUEDA_PEER_TIMEOUT_SECONDS": "300", **os.environ, IS_RANK: "1"}
    began = time.monotonic()
    process = Popen(command, env=environment, stdin=DEVNULL, stdout=PIPE, text=True)
    assert process.stdout is not None
    seen = {"up": 0, "over": 0}
    started_s, run_fds = 0.0, 0
    told: List[List[float]] = []  # by each rank at its end
    try:
        for line in process.stdout:
            word, *numbers = line.split() or [""]
            if word not in seen:
                continue
            if numbers:
                told.append([float(number) for number in numbers])
            seen[word] += 1
            if word == "up" and seen["up"] == ranks:
                started_s = time.monotonic() - began
                run_fds = len(os.listdir(f"/proc/{process.pid}/fd"))
    except BaseException:
        process.terminate()
        process.wait(30)
        raise
    _, status, usage = os.wait4(process.pid, 0)
    whole_s = time.monotonic() - began
    if status != 0 or seen != {"up": ranks, "over": ranks}:
        raise SystemExit(
            f"launch_tree: the job ended with {os.waitstatus_to_exitcode(status)}, ranks: {seen}"
        )
    return {
        "hosts": hosts,
        "ranks": ranks,
        "fan_out": fan_out,
        "start_s": started_s,
        "whole_s": whole_s,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "run_fds": run_fds,
        "first_ms": max(first for first, _, _ in told),
        "next_ms": max(later for _, later, _ in told),
        "rank_fds": median(descriptors for _, _, descriptors in told),
        "most_fds": max(descriptors for _, _, descriptors in told),
    }


def main() -> None:
    if IS_RANK in os.environ:
        return run_rank()
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--hosts", type=int, default=100, help=f"2 to {MOST_HOSTS} (100)")
    parser.add_argument("--ranks", type=int, default=100, help="of all hosts together (100)")
    parser.add_argument("--fan-outs", default="250,32", help="a number as large as --hosts: no tree (250,32)")
    arguments = parser.parse_args()
    if not 2 <= arguments.hosts <= MOST_HOSTS or arguments.ranks < arguments.hosts:
        raise SystemExit(f"launch_tree: give 2 to {MOST_HOSTS} --hosts, and a rank for each (--ranks)")
    if not IS_INSTALLED:
        raise SystemExit("launch_tree: OpenSSH's sshd is not installed")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no sshd is left
    print(" ".join(f"{name:>9}" for name in COLUMNS), flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="rueda-bench-tree-") as folder,
        ssh_hosts(Path(folder), arguments.hosts) as client,
    ):
        for word in arguments.fan_outs.split(","):
            row = measure(client, arguments.hosts, arguments.ranks, int(word))
            print(" ".join(f"{round(row[name], 2):>9}" for name in COLUMNS), flush=True)
    return None


if __name__ == "__main__":
    main()
