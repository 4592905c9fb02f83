"""Random collectives on tensors of the GPU and of the CPU, some started on side streams whose work is still
running, against results that each rank computes on the CPU.

RUEDA_GPU_SECONDS: how long; RUEDA_GPU_SEED: of the random numbers. All ranks draw the same numbers, so each
knows the tensors of the others.
"""

from __future__ import annotations

import os
import random
import time
from contextlib import nullcontext
from typing import Any, Callable, Dict, List

import torch
import world
from world import RANK, SIZE, device

import rueda.torch as hvd

SECONDS = float(os.environ.get("RUEDA_GPU_SECONDS", "20" if not world.IS_STAND_IN else "3"))
SEED = int(os.environ.get("RUEDA_GPU_SEED", "1"))
LEAST_ROUNDS = 8
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
# The stand-in takes tensors of integers for tensors of the CPU.
NUMBERS = (*FLOATS, torch.int32, torch.int64, torch.uint8, torch.int8)
CPU = torch.device("cpu")


def make(draw: random.Random, rank: int, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """Whole numbers from 0 to 4, so that sums are exact in every type."""
    generator = torch.Generator().manual_seed(draw.getrandbits(40) + rank)
    return torch.randint(0, 5, (rows, columns), generator=generator).to(dtype)


def everyones(draw: random.Random, rows: List[int], columns: int, dtype: torch.dtype) -> List[torch.Tensor]:
    """The tensor of each rank, with so many rows."""
    state = draw.getstate()
    found = []
    for rank in range(SIZE):
        draw.setstate(state)
        found.append(make(draw, rank, rows[rank], columns, dtype))
    return found


def total_of(tensors: List[torch.Tensor]) -> torch.Tensor:
    """Their sum; integers wrap around."""
    wide = torch.int64 if not tensors[0].is_floating_point() else torch.float64
    return torch.stack([tensor.to(wide) for tensor in tensors]).sum(0).to(tensors[0].dtype)


class Programs:
    """Each method starts one collective and returns what ends it, and what must come out."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw

    def equal(self, rows: int, columns: int, dtype: torch.dtype) -> List[torch.Tensor]:
        return everyones(self.draw, [rows] * SIZE, columns, dtype)

    def allreduce(
        self, name: str, rows: int, columns: int, dtype: torch.dtype, put: Callable[..., Any]
    ) -> Any:
        op = self.draw.choice([hvd.Sum, hvd.Min, hvd.Max])
        all_of = self.equal(rows, columns, dtype)
        stacked = torch.stack([one.to(torch.float64) for one in all_of])
        extreme = (stacked.amin(0) if op == hvd.Min else stacked.amax(0)).to(dtype)
        handle = hvd.allreduce_async(put(all_of[RANK]), op=op, name=f"{name}.{op}")
        return lambda: [hvd.synchronize(handle)], [total_of(all_of) if op == hvd.Sum else extreme]

    def in_place(
        self, name: str, rows: int, columns: int, dtype: torch.dtype, put: Callable[..., Any]
    ) -> Any:
        all_of = self.equal(rows, columns, dtype)
        mine = put(all_of[RANK])
        handle = hvd.allreduce_async_(mine, op=hvd.Sum, name=name)
        return lambda: [hvd.synchronize(handle), mine], [total_of(all_of)] * 2

    def group(self, name: str, rows: int, columns: int, dtype: torch.dtype, put: Callable[..., Any]) -> Any:
        many = [self.equal(rows, columns, dtype) for _ in range(self.draw.choice([2, 5]))]
        handle = hvd.grouped_allreduce_async(
            [put(all_of[RANK]) for all_of in many], op=hvd.Sum, name=f"{name}.{len(many)}"
        )
        return lambda: hvd.synchronize(handle), [total_of(all_of) for all_of in many]

    def allgather(
        self, name: str, rows: int, columns: int, dtype: torch.dtype, put: Callable[..., Any]
    ) -> Any:
        counts = [self.draw.choice([0, 1, rows]) for _ in range(SIZE)]
        all_of = everyones(self.draw, counts, columns, dtype)
        handle = hvd.allgather_async(put(all_of[RANK]), name=name)
        return lambda: [hvd.synchronize(handle)], [torch.cat(all_of)]

    def broadcast(
        self, name: str, rows: int, columns: int, dtype: torch.dtype, put: Callable[..., Any]
    ) -> Any:
        root = self.draw.randrange(SIZE)
        all_of = self.equal(rows, columns, dtype)
        handle = hvd.broadcast_async(put(all_of[RANK]), root, name=name)
        return lambda: [hvd.synchronize(handle)], [all_of[root]]

    def alltoall(
        self, name: str, rows: int, columns: int, dtype: torch.dtype, put: Callable[..., Any]
    ) -> Any:
        splits = [[self.draw.choice([0, 1, 7]) for _ in range(SIZE)] for _ in range(SIZE)]
        all_of = everyones(self.draw, [sum(row) for row in splits], columns, dtype)
        handle = hvd.alltoall_async(put(all_of[RANK]), splits=splits[RANK], name=name)
        begins = [sum(row[:RANK]) for row in splits]
        parts = [one[first : first + row[RANK]] for one, first, row in zip(all_of, begins, splits)]
        return lambda: [hvd.synchronize(handle)[0]], [torch.cat(parts)]

    def reducescatter(
        self, name: str, rows: int, columns: int, dtype: torch.dtype, put: Callable[..., Any]
    ) -> Any:
        all_of = self.equal(rows, columns, dtype)
        handle = hvd.reducescatter_async(put(all_of[RANK]), op=hvd.Sum, name=name)
        each, more = divmod(rows, SIZE)
        first = RANK * each + min(RANK, more)
        return lambda: [hvd.synchronize(handle)], [total_of(all_of)[first : first + each + (more > RANK)]]


KINDS = ("allreduce", "in_place", "group", "allgather", "broadcast", "alltoall", "reducescatter")


def check_random_programs() -> None:
    draw, own = random.Random(SEED), random.Random(SEED * 1000 + RANK)
    sides = [torch.cuda.Stream() for _ in range(3)] if not world.IS_STAND_IN else []
    programs = Programs(draw)
    counts: Dict[str, int] = dict.fromkeys(KINDS, 0)
    until, rounds = time.monotonic() + SECONDS, 0

    def goes_on() -> bool:
        mine = torch.tensor([int(rounds < LEAST_ROUNDS or time.monotonic() < until)])
        return bool(hvd.allreduce(mine, op=hvd.Min, name="go").item())

    while goes_on():
        rounds += 1
        pending = []
        for _ in range(draw.choice([1, 1, 3, 6])):
            kind, dtype = draw.choice(KINDS), draw.choice(NUMBERS)
            rows, columns = draw.choice([1, 3, 8, 257, 4096]), draw.choice([1, 2, 33, 256])
            where = device if draw.random() < 0.8 else CPU
            side = draw.choice(sides) if sides and where != CPU and draw.random() < 0.5 else None
            name = f"{kind}.{sum(counts.values()) % 40}"

            def put(x: torch.Tensor, to: torch.device = where) -> torch.Tensor:
                if not world.IS_STAND_IN and to != CPU and own.random() < 0.5:
                    torch.cuda._sleep(own.randrange(10**4, 3 * 10**6))
                return x.to(to, copy=True)

            with torch.cuda.stream(side) if side is not None else nullcontext():
                end, wanted = getattr(programs, kind)(name, rows, columns, dtype, put)
            pending.append((end, wanted, where, (kind, dtype, rows, columns, side is not None)))
            counts[kind] += 1
        for end, wanted, where, what in pending:
            found = end()
            if where != CPU and own.random() < 0.3:  # memory that is free now may be given out again
                torch.full((4096, 33), 77.0, device=where)
            for one, right in zip(found, wanted):
                assert one.device == where and one.dtype == right.dtype and one.shape == right.shape, what
                assert torch.equal(one.cpu(), right), (what, one.cpu(), right)
    world.say(programs=sum(counts.values()), kinds=counts)
    assert all(counts.values()) or world.IS_STAND_IN, counts


hvd.init()
world.require_engine()
world.run_checks(dict(globals()))
hvd.shutdown()
