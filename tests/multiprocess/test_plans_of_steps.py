"""Steps of every kind of training become learned plans: nothing is negotiated in the steady state."""

import pytest
import torch
import torch.distributed as dist
from conftest import WORLDS
from harness import on_every_rank
from process_groups import groups
from silence import STEPS, check_silence
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import rueda.torch as hvd

pytestmark = [
    pytest.mark.parametrize("world", [WORLDS[0], WORLDS[2]], indirect=True),
    pytest.mark.thorough("world0"),
]


def net():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(16, 16) for _ in range(6)]
    return torch.nn.Sequential(*layers, torch.nn.Linear(16, 4))


def train(model, optimizer, after=lambda loss: None):
    def step(number):
        optimizer.zero_grad()
        loss = model(torch.full((4, 16), float(number % 7))).square().mean()
        loss.backward()
        optimizer.step()
        after(loss.detach())

    return step


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=1e-3)


@on_every_rank
def test_gradients_and_metrics_without_a_name():
    model = net()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())

    def after(loss):
        mean = hvd.allreduce(loss)
        gathered = hvd.allgather(loss[None])
        assert gathered.shape == (hvd.size(),) and torch.isclose(mean, gathered.mean())
        hvd.grouped_allreduce([loss, loss + 1])
        hvd.broadcast(loss, root_rank=hvd.size() - 1)

    check_silence(train(model, optimizer, after))


# A metric and a sparse gradient have other numbers of rows in each step and on each rank.
@on_every_rank
def test_rows_that_change():
    words = torch.nn.Embedding(50, 8, sparse=True)
    top = torch.nn.Linear(8, 4)
    model = torch.nn.Sequential(words, top)
    named = model.named_parameters()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1e-3), named)

    def step(number):
        rows = [(7 * number + 3 * rank) % 11 for rank in range(hvd.size())]
        optimizer.zero_grad()
        chosen = torch.arange(rows[hvd.rank()] + 1) % 50
        model(chosen).square().mean().backward()
        optimizer.step()
        mine = torch.full((rows[hvd.rank()], 2), float(hvd.rank()))
        everyone = hvd.allgather(mine)
        assert everyone[:, 0].tolist() == [float(r) for r, n in enumerate(rows) for _ in range(n)]
        splits = torch.tensor([(number + hvd.rank() + to) % 4 for to in range(hvd.size())], dtype=torch.int32)
        sent = torch.full((int(splits.sum()),), float(hvd.rank()))
        received, counts = hvd.alltoall(sent, splits, name="experts")
        assert counts.tolist() == [(number + of + hvd.rank()) % 4 for of in range(hvd.size())]
        assert received.tolist() == [float(of) for of, n in enumerate(counts.tolist()) for _ in range(n)]

    check_silence(step)


@on_every_rank
def test_rows_that_change_without_a_name():
    with groups():
        size, rank = hvd.size(), hvd.rank()
        model = DistributedDataParallel(net(), bucket_cap_mb=0.001)
        gradients = train(model, sgd(model))

        def step(number):
            gradients(number)
            mine = [(number + rank + to) % 3 for to in range(size)]
            others = [(number + of + rank) % 3 for of in range(size)]
            rows = torch.empty(sum(others), 2)
            dist.all_to_all_single(rows, torch.full((sum(mine), 2), float(rank)), others, mine)
            assert rows[:, 0].tolist() == [float(of) for of, n in enumerate(others) for _ in range(n)]

        check_silence(step, STEPS - 40)  # two small plans of equal length look like layers


@on_every_rank
def test_compressed_gradients():
    for compression in (hvd.PowerSGD(rank=2, min_elements=100), hvd.TopK(ratio=0.1, min_elements=100)):
        model = net()
        options = {"compression": compression}
        optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), **options)
        check_silence(train(model, optimizer))
        tensors = optimizer.state_dict()["compression"]["tensors"]
        assert sum("residual" in kept for kept in tensors.values()) == 6  # the last layer's is too small


@on_every_rank
def test_distributed_data_parallel():
    with groups():
        model = DistributedDataParallel(net(), bucket_cap_mb=0.001)
        check_silence(train(model, sgd(model), dist.all_reduce))


@on_every_rank
def test_fsdp2():
    with groups():
        model = net()
        for layer in model:
            fully_shard(layer)
        fully_shard(model)
        check_silence(train(model, sgd(model)))


@on_every_rank
def test_sharded_optimizers():
    with groups():
        model = DistributedDataParallel(net())
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=1e-3)
        check_silence(train(model, optimizer))


@on_every_rank
def test_parameters_gathered_during_the_next_forward_pass():
    model = net()
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    check_silence(train(model, hvd.ShardedOptimizer(adam, model=model), hvd.allreduce))


@on_every_rank
def test_parameters_exchanged_after_several_steps():
    model = net()
    named = list(model.named_parameters())
    check_silence(train(model, hvd.LocalSGD(sgd(model), named, every=2)), 2 * STEPS)
    parts = {"every": 3, "fragments": 3, "overlap": True}
    check_silence(train(model, hvd.DiLoCo(sgd(model), named, **parts)), 3 * STEPS)


@on_every_rank
def test_gradients_that_travel_during_the_next_step():
    model = net()
    check_silence(train(model, hvd.DelayedOptimizer(sgd(model), model.named_parameters(), warmup_steps=20)))


@on_every_rank
def test_barriers_of_one_name():
    model = net()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())

    def after(loss):
        hvd.barrier()
        hvd.allreduce(loss, name="loss")
        hvd.barrier()

    check_silence(train(model, optimizer, after))


@on_every_rank
def test_stages_of_a_pipeline():
    with groups():
        rank, size = hvd.rank(), hvd.size()
        pairs = [dist.new_group([first, first + 1]) for first in range(size - 1)]
        ends = dist.new_group([0, size - 1])

        def step(number):
            for part in range(4):  # of a batch, forward and backward
                activation = torch.full((8,), float(number % 5 + part))
                if rank > 0:
                    dist.broadcast(activation, src=rank - 1, group=pairs[rank - 1])
                    assert activation[0] == number % 5 + part + rank - 1
                activation.fill_(number % 5 + part + rank)
                if rank < size - 1:
                    dist.broadcast(activation, src=rank, group=pairs[rank])
            for part in range(4):
                gradient = torch.full((8,), float(number % 5 + part))
                if rank < size - 1:
                    dist.broadcast(gradient, src=rank + 1, group=pairs[rank])
                    assert gradient[0] == number % 5 + part + size - 2 - rank
                gradient.fill_(number % 5 + part + size - 1 - rank)
                if rank > 0:
                    dist.broadcast(gradient, src=rank, group=pairs[rank - 1])
            if rank in (0, size - 1):  # they share the weights of the embedding
                tied = torch.full((64,), float(rank))
                dist.all_reduce(tied, group=ends)
                assert tied[0] == size - 1
            loss = torch.tensor(float(number % 7))
            dist.all_reduce(loss)
            assert loss == size * (number % 7)

        check_silence(step)


@on_every_rank
def test_sharding_within_groups_and_copies_between_them():
    if hvd.size() != 4:
        return
    with groups():
        model = net()
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "shards"))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        check_silence(train(model, sgd(model)))


@on_every_rank
def test_shards_of_gradients_and_exchanged_rows():
    with groups():
        size = hvd.size()
        part, whole = torch.zeros(10), torch.zeros(10 * size)
        rows = torch.zeros(3 * size)

        def step(number):
            whole.fill_(number % 5 + hvd.rank())
            dist.reduce_scatter_tensor(part, whole)
            assert part[0] == size * (number % 5) + size * (size - 1) / 2
            dist.all_gather_into_tensor(whole, part)
            dist.all_to_all_single(rows, torch.full((3 * size,), float(hvd.rank() + number % 3)))
            assert rows.tolist() == [float(rank + number % 3) for rank in range(size) for _ in range(3)]

        check_silence(step)
