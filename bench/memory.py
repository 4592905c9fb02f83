"""Prints the resident memory of rank 0 after the phases of a small job.

    rueda run -np 2 python bench/memory.py
    rueda bench replay -np 4 --rate 1gbit -- python bench/memory.py      (as root: 4 hosts)

The phases: init, small allreduces, 24 steps with the same 41 MB of gradients, allreduces of 64 MiB.
RUEDA_LIBRARY selects another build of the library.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import rueda.numpy as hvd

STEPS = 24
LARGE, SMALL = 250_000, 500  # float32 elements of a gradient
WHOLE = 16 << 20


def resident_mib() -> float:
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("memory: /proc/self/smaps_rollup has no Rss; this measures on Linux only")


def report(phase: str) -> None:
    if hvd.rank() == 0:
        print(f"{phase:12} {resident_mib():6.1f} MiB", flush=True)


def main() -> None:
    hvd.init()
    report("init")
    for _ in range(50):
        hvd.allreduce(np.ones(1000, np.float32), name="small")
    report("small")
    gradients = [np.ones(LARGE, np.float32)] * 40 + [np.ones(SMALL, np.float32)] * 60
    gradients = [gradient.copy() for gradient in gradients]
    for _ in range(STEPS):
        handles = [hvd.allreduce_async(gradient, name=f"g{i}") for i, gradient in enumerate(gradients)]
        for handle in handles:
            hvd.synchronize(handle)
        del handles
    report("steps")
    whole = np.ones(WHOLE, np.float32)
    for _ in range(3):
        hvd.allreduce(whole, name="whole")
    report("64 MiB")
    hvd.shutdown()


if __name__ == "__main__":
    main()
