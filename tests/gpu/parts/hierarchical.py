"""Allreduces by NCCL inside two pretended hosts, and by rueda's transports between them."""

from __future__ import annotations

import json
import os

import torch
import world
from world import RANK, SIZE, device, mine, total

import rueda.torch as hvd
from rueda import _core

half = SIZE // 2
os.environ["RUEDA_HIERARCHICAL_ALLREDUCE"] = "1"
os.environ["RUEDA_HOSTNAME"] = f"half-{RANK // half}"
os.environ["RUEDA_LOCAL_RANK"], os.environ["RUEDA_LOCAL_SIZE"] = str(RANK % half), str(half)
hvd.init()
world.require_engine()


def check_sums_of_all_sizes_and_types():
    for count in (0, 1, 2, 3, 1000, 70_001):
        assert (hvd.allreduce(mine(count), op=hvd.Sum) == total).all(), count
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8):
        assert (hvd.allreduce(mine(7, dtype=dtype), op=hvd.Sum) == total).all(), dtype
    assert (hvd.allreduce(mine(7), op=hvd.Max) == SIZE).all()
    assert (hvd.allreduce(mine(7), prescale_factor=2.0, postscale_factor=4.0) == 8 * total / SIZE).all()
    outs = hvd.grouped_allreduce([mine(i) for i in range(1, 50)], op=hvd.Sum)
    assert all((out == total).all() for out in outs)


def check_both_levels_were_used():
    assert json.loads(_core.describe())["last_algorithm"] == "nccl_hierarchical"


def check_time():
    size_bytes = 4096 if world.IS_STAND_IN else 64 << 20
    tensor = torch.zeros(size_bytes // 4, device=device)
    seconds = world.seconds_on_gpu(lambda: hvd.allreduce_(tensor, name="one", op=hvd.Sum), 20)
    world.say(**{f"allreduce_{size_bytes}_us": round(seconds * 1e6, 1)})


world.run_checks(globals())
