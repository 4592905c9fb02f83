"""The record of what is in flight: what enters it leaves it, and a shutdown empties it."""

from harness import assert_all_succeed, on_every_rank
from nursery import launch

PREPARE = """
import gc, weakref
import numpy as np
import pytest, torch
import torch.distributed as dist
import rueda.numpy
import rueda.torch as hvd
from rueda.open_operations import open_operations
"""


@on_every_rank
def test_nothing_stays_in_flight_once_all_results_are_taken():
    import numpy as np
    import torch

    import rueda.numpy
    import rueda.torch as hvd
    from rueda.open_operations import open_operations

    def train(net, x, compression, **options):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        optimizer = hvd.DistributedOptimizer(
            optimizer, net.named_parameters(), compression=compression, **options
        )
        for _ in range(3):
            optimizer.zero_grad()
            net(x).sum().backward()
            optimizer.step()

    before = len(open_operations)
    for compression in (hvd.Compression.none, hvd.Compression.fp16):
        train(torch.nn.Embedding(10, 3, sparse=True), torch.tensor([1, 2]), compression)
        for options in ({}, {"groups": 1}, {"op": hvd.Adasum}):
            train(torch.nn.Linear(3, 1), torch.ones(2, 3), compression, **options)
    handle = hvd.allreduce_async(torch.ones(1), op=hvd.Sum)
    assert hvd.synchronize(int(handle)).item() == hvd.size()  # a plain number will do
    hvd.grouped_allgather([torch.ones(1), torch.ones(2)])
    rueda.numpy.alltoall(np.ones(hvd.size()))
    assert len(open_operations) == before


def test_a_shutdown_empties_the_record_and_lets_go_of_the_tensors() -> None:
    body = """
hvd.init()
dist.init_process_group("rueda", rank=hvd.rank(), world_size=2)
net = torch.nn.Linear(1000, 100)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
tensor, array, of_group = torch.ones(1), np.ones(1), torch.ones(1)
alive = [weakref.ref(one) for one in (tensor, of_group)]
is_first = hvd.rank() == 0
if is_first:  # the other rank never joins in
    handles = [hvd.allreduce_async_(tensor, name="a"), rueda.numpy.allreduce_async(array, name="b")]
    work = dist.all_reduce(of_group, async_op=True)
    net(torch.ones(1, 1000)).sum().backward()
    assert len(open_operations) == 5  # two gradients
hvd.barrier()
hvd.shutdown()
assert not open_operations
del tensor, of_group
gc.collect()
if is_first:
    assert work.is_completed() and not work.is_success()
    with pytest.raises(RuntimeError, match="when Horovod was shut down"):
        work.wait()
    del work
    gc.collect()
    assert [one() for one in alive] == [None, None]
"""
    assert_all_succeed(launch(2, PREPARE + body))
