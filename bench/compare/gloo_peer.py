"""A rank of torch.distributed with Gloo, measured as `rueda bench` measures.

    gloo_peer.py OUT RANK SIZE MEETING collective BYTES:CALLS...
    gloo_peer.py OUT RANK SIZE MEETING burst MODEL.json:CALLS
    gloo_peer.py OUT RANK SIZE MEETING replay MODEL.json:STEPS:COMPUTE_MS:READY

Each rank writes lines "LABEL START END" (nanoseconds of CLOCK_MONOTONIC) to OUT.RANK. In a burst, "each"
sends every tensor by itself with async_op, "flat" sends all of them as one, and "ddp" sends DDP's buckets
(1 MiB, then 25 MiB). A replay sleeps instead of computing, and sends a bucket of DDP when its last gradient
is ready: READY is "model" (as the file says) or "even" (through backward). Gradients are views of their
buckets, as with DDP(gradient_as_bucket_view=True), which is the faster of DDP's two settings because
nothing is copied.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import IO, Callable, List, Tuple

import torch
import torch.distributed as dist

WARM_UPS = 4
FIRST_BUCKET, BUCKET = 1 << 20, 25 << 20  # bytes; DDP's own
Step = Callable[[], None]


def now() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class Job:
    """What all measurements share."""

    def __init__(self, out: IO[str], rank: int, size: int) -> None:
        self.out, self.rank, self.size = out, rank, size

    def measure(
        self, label: str, data: torch.Tensor, calls: int, step: Step, warm_ups: int = WARM_UPS
    ) -> None:
        """Rewrites data, meets the other ranks, runs step, and checks that data is the sum."""
        whole = len(data) // 64 * 64
        rows, rest = data[:whole].view(-1, 64), data[whole:]
        for call in range(warm_ups + calls):
            pattern = ((torch.arange(64) + call) % 64).float()  # of every 64 elements
            for part in (rows, rest):
                part.copy_((pattern + self.rank)[: part.shape[-1]])
            dist.barrier()
            start = now()
            step()
            end = now()
            dist.barrier()  # the check would take the cores from ranks that have not finished
            total = pattern * self.size + self.size * (self.size - 1) // 2
            if not all(bool((part == total[: part.shape[-1]]).all()) for part in (rows, rest)):
                raise SystemExit(f"gloo_peer: rank {self.rank}: a sum of {label} is wrong")
            if call >= warm_ups:
                self.out.write(f"{label} {start} {end}\n")


def buckets_of(counts: List[int]) -> List[List[int]]:
    """The indices of the tensors in each bucket. A bucket is closed when it has reached its size."""
    buckets: List[List[int]] = [[]]
    filled = 0
    for index, count in enumerate(counts):
        buckets[-1].append(index)
        filled += 4 * count
        if filled >= (FIRST_BUCKET if len(buckets) == 1 else BUCKET):
            buckets.append([])
            filled = 0
    return [bucket for bucket in buckets if bucket]


def read_model(path: str) -> List[int]:
    return [count for _, count in json.loads(Path(path).read_text())["parameters"]]


def ready_shares(path: str, ready: str) -> List[float]:
    """When each gradient is ready, as a share of the step."""
    model = json.loads(Path(path).read_text())
    if ready == "model" and "ready_ms" in model:
        return [ms / model["compute_ms"] for ms in model["ready_ms"]]
    count = len(model["parameters"])
    return [1 / 3 + 2 / 3 * (i + 1) / count for i in range(count)]


def collectives(job: Job, specs: List[str]) -> None:
    for spec in specs:
        size, calls = map(int, spec.split(":"))
        data = torch.zeros(size // 4)
        job.measure(str(size), data, calls, lambda data=data: dist.all_reduce(data))  # type: ignore[misc]


def gradients(counts: List[int]) -> Tuple[torch.Tensor, List[torch.Tensor], List[torch.Tensor]]:
    """All gradients as one tensor, one by one, and as DDP's buckets. All three use the same memory."""
    whole = torch.zeros(sum(counts))
    sizes = [sum(counts[i] for i in bucket) for bucket in buckets_of(counts)]
    return whole, list(whole.split(counts)), list(whole.split(sizes))


def burst(job: Job, spec: str) -> None:
    path, _, calls = spec.rpartition(":")
    counts = read_model(path)
    whole, tensors, buckets = gradients(counts)

    def each() -> None:
        for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
            work.wait()

    def ddp() -> None:
        for work in [dist.all_reduce(bucket, async_op=True) for bucket in buckets]:
            work.wait()

    job.measure("each", whole, int(calls), each)
    job.measure("flat", whole, int(calls), lambda: dist.all_reduce(whole))
    job.measure("ddp", whole, int(calls), ddp)


def replay(job: Job, spec: str) -> None:
    path, steps, compute_ms, when = spec.rsplit(":", 3)
    counts = read_model(path)
    shares = ready_shares(path, when)
    whole, _, buckets = gradients(counts)
    last_gradients = [bucket[-1] for bucket in buckets_of(counts)]
    compute = float(compute_ms) / 1e3

    def step() -> None:
        start = time.monotonic()
        works = []
        for bucket, last in zip(buckets, last_gradients):
            time.sleep(max(0.0, start + shares[last] * compute - time.monotonic()))
            works.append(dist.all_reduce(bucket, async_op=True))
        time.sleep(max(0.0, start + compute - time.monotonic()))
        for work in works:
            work.wait()

    job.measure("step", whole, int(steps), step, warm_ups=1)


def main() -> None:
    out, rank_text, size_text, meeting, what, *specs = sys.argv[1:]
    rank = int(os.environ["RUEDA_RANK"] if rank_text == "env" else rank_text)
    size = int(size_text)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
    with open(f"{out}.{rank}", "w") as file:
        job = Job(file, rank, size)
        if what == "collective":
            collectives(job, specs)
        else:
            {"burst": burst, "replay": replay}[what](job, specs[0])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
