"""PyTorch's own ways to train on backend "rueda": the same losses as on Gloo, to six digits."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from conftest import WORLDS
from harness import on_every_rank
from process_groups import groups
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import rueda.torch as hvd

pytestmark = pytest.mark.parametrize("world", WORLDS[:1], indirect=True)


class Net(torch.nn.Module):
    """Two layers used, one not always, and buffers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(16, 32)
        self.norm = torch.nn.BatchNorm1d(32)
        self.sometimes = torch.nn.Linear(32, 32)
        self.last = torch.nn.Linear(32, 10)

    def forward(self, x, whole=True):
        x = self.norm(self.first(x)).relu()
        return self.last(self.sometimes(x).relu() if whole else x)


def plain():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))


def losses(net, steps=8, optimizer=None, arguments=lambda step: ()):
    """What training reports on this rank, rounded to six digits."""
    optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(100 + hvd.rank())
    seen = []
    for step in range(steps):
        x, y = torch.randn(8, 16), torch.randint(0, 10, (8,))
        optimizer.zero_grad()
        loss = cross_entropy(net(x, *arguments(step)), y)
        loss.backward()
        optimizer.step()
        seen.append(float(f"{loss.item():.6g}"))
    return seen


def on_both(gloo, run):
    mine, glooish = run(dist.group.WORLD), run(gloo)
    assert mine == glooish and len(set(mine)) > 1, (mine, glooish)


@on_every_rank
def test_ddp_trains_as_on_gloo_with_every_option():
    with groups() as gloo:
        for options in (
            {},
            {"gradient_as_bucket_view": True},
            {"static_graph": True},
            {"bucket_cap_mb": 0.001},
            {"broadcast_buffers": False},
        ):
            on_both(
                gloo,
                lambda group, given=options: losses(
                    DistributedDataParallel(Net(), process_group=group, **given)
                ),
            )

        def unused(group):
            net = DistributedDataParallel(Net(), process_group=group, find_unused_parameters=True)
            return losses(net, arguments=lambda step: (step % 2 == hvd.rank() % 2,))

        on_both(gloo, unused)


@on_every_rank
def test_ddp_joins_with_uneven_inputs():
    """Where joined ranks do not count, the reducer keeps a Work in C++ that Python has dropped."""

    def run(group, by_initial_size):
        net = DistributedDataParallel(plain(), process_group=group)
        with net.join(divide_by_initial_world_size=by_initial_size):
            losses(net, steps=3 + hvd.rank())
        return [round(parameter.sum().item(), 5) for parameter in net.parameters()]

    with groups() as gloo:
        for by_initial_size in (True, False):
            on_both(gloo, lambda group, by=by_initial_size: run(group, by))


@on_every_rank
def test_ddp_accumulates_without_sync_and_takes_hooks():
    def accumulate(group):
        net = DistributedDataParallel(plain(), process_group=group)
        x = torch.full((2, 16), float(hvd.rank()))
        with net.no_sync():
            net(x).sum().backward()
        net(x).square().sum().backward()
        return [round(parameter.grad.sum().item(), 4) for parameter in net.parameters()]

    def hooked(group):
        def hook(state, bucket):
            work = dist.all_reduce(bucket.buffer().div_(hvd.size()), group=group, async_op=True)
            return work.get_future().then(lambda done: done.value()[0])

        net = DistributedDataParallel(plain(), process_group=group)
        net.register_comm_hook(None, hook)
        return losses(net)

    def sharded_optimizer(group):
        net = DistributedDataParallel(plain(), process_group=group)
        kind = torch.optim.SGD
        optimizer = ZeroRedundancyOptimizer(
            net.parameters(), optimizer_class=kind, process_group=group, lr=0.1, momentum=0.9
        )
        return losses(net, optimizer=optimizer)

    with groups() as gloo:
        on_both(gloo, accumulate)
        on_both(gloo, hooked)
        on_both(gloo, sharded_optimizer)


@on_every_rank
def test_ddp_takes_hooks_whose_callbacks_wait_for_other_operations():
    def power(group):
        net = DistributedDataParallel(plain(), process_group=group)
        state = powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=1, start_powerSGD_iter=2)
        net.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        return losses(net)

    def nested(group):
        def hook(state, bucket):
            def again(done):
                work = dist.all_reduce(done.value()[0], group=group, async_op=True)
                return work.get_future().wait()[0].div_(hvd.size() ** 2)

            return dist.all_reduce(bucket.buffer(), group=group, async_op=True).get_future().then(again)

        net = DistributedDataParallel(plain(), process_group=group)
        net.register_comm_hook(None, hook)
        return losses(net)

    with groups() as gloo:
        on_both(gloo, power)
        on_both(gloo, nested)


@on_every_rank
def test_fsdp2_trains_as_on_gloo():
    def run(group):
        mesh = DeviceMesh.from_group(group, "cpu")
        net = plain()
        for layer in net:
            if isinstance(layer, torch.nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(net, mesh=mesh)
        return losses(net)

    with groups() as gloo:
        on_both(gloo, run)
        sharded = fully_shard(plain())  # without a mesh: over the default group
        assert losses(sharded) == losses(DistributedDataParallel(plain(), process_group=gloo))


@on_every_rank
def test_dtensors_are_redistributed():
    with groups():
        size = hvd.size()
        mesh = init_device_mesh("cpu", (size,))
        whole = torch.arange(16.0).view(4, 4)
        rows = distribute_tensor(whole, mesh, [Shard(0)])
        assert torch.equal(rows.redistribute(mesh, [Replicate()]).to_local(), whole)
        assert torch.equal(rows.redistribute(mesh, [Shard(1)]).full_tensor(), whole)
        product = rows @ distribute_tensor(whole, mesh, [Replicate()])
        assert torch.equal(product.full_tensor(), whole @ whole)
        parts = DTensor.from_local(torch.ones(4), mesh, [Partial()]).redistribute(mesh, [Shard(0)])
        assert parts.full_tensor().tolist() == [size] * 4
        plane = init_device_mesh("cpu", (size, 1), mesh_dim_names=("data", "model"))
        both = distribute_tensor(whole, plane, [Shard(0), Shard(1)])
        assert torch.equal(both.full_tensor(), whole)


@on_every_rank
def test_functional_collectives_work_eagerly_and_compiled():
    with groups():
        size, rank, world = hvd.size(), hvd.rank(), dist.group.WORLD
        mine = torch.arange(4.0) + 10 * rank

        def everything(x):
            return (
                functional.all_reduce(x * 2, "sum", world) + 1,
                functional.all_gather_tensor(x, 0, world),
                functional.reduce_scatter_tensor(x, "avg", 0, world),
                functional.all_to_all_single(x, None, None, world),
                functional.broadcast(x, 1, world),
            )

        total = sum(torch.arange(4.0) + 10 * r for r in range(size))
        expected = (
            2 * total + 1,
            torch.cat([torch.arange(4.0) + 10 * r for r in range(size)]),
            (total / size).chunk(size)[rank],
            torch.cat([(torch.arange(4.0) + 10 * r).chunk(size)[rank] for r in range(size)]),
            torch.arange(4.0) + 10,
        )
        compiled = torch.compile(everything, fullgraph=True, backend="aot_eager")
        for run in (everything, compiled):
            for got, wanted in zip(run(mine), expected):
                assert torch.equal(got + 0, wanted), (got, wanted)

        def in_place(x):
            dist.all_reduce(x)
            output = torch.empty(size * 4)
            dist.all_gather_into_tensor(output, x)
            return output * 2

        inside = torch.compile(in_place, fullgraph=True, backend="aot_eager")
        assert torch.equal(inside(mine.clone()), 2 * total.repeat(size))
