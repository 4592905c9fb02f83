"""What the tests of the torch.distributed backend share: a job's groups, and Gloo's beside them."""

import warnings
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

import rueda.torch as hvd

# A thread of Gloo that drops the last reference to its group joins itself, and PyTorch aborts. So the last
# group is kept until its threads have nothing to do any more.
_kept = []


@contextmanager
def groups(timeout_s=30.0):
    """Default group on rueda; gives a Gloo group of the same ranks. Destroys both."""
    warnings.filterwarnings("ignore", message=".*is deprecated.*", category=FutureWarning)
    dist.init_process_group("rueda", timeout=timedelta(seconds=timeout_s))
    try:
        assert dist.get_rank() == hvd.rank() and dist.get_world_size() == hvd.size()
        _kept[:] = [dist.new_group(backend="gloo")]
        yield _kept[0]
        dist.barrier()
    finally:
        dist.destroy_process_group()


def both(gloo, run):
    """run(group) on rueda and on Gloo: two results to compare."""
    return run(None), run(gloo)


def filled(shape, dtype, seed):
    """Small whole numbers, which every type adds exactly; other ones on every rank."""
    generator = torch.Generator().manual_seed(1000 * seed + hvd.rank())
    values = torch.randint(0, 3, shape, generator=generator)
    return values.to(dtype) if dtype != torch.bool else values > 0
