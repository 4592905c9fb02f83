"""torch.distributed on backend rueda with tensors on a GPU: collectives, futures, DDP, FSDP2."""

from __future__ import annotations

import torch
import torch.distributed as dist
import world
from torch.nn.parallel import DistributedDataParallel
from world import RANK, SIZE, device, mine, total

import rueda.torch as hvd
import rueda.torch.distributed  # noqa: F401 (makes the backend known)

n, me = SIZE, RANK
bound = {} if world.IS_STAND_IN else {"device_id": device}
dist.init_process_group("cpu:rueda,cuda:rueda", **bound)
world.require_engine()


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).to(device)


def batch():
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(me)).to(device)


def check_collectives():
    x = mine()
    dist.all_reduce(x)
    assert (x == total).all()
    y = mine(4, dtype=torch.bfloat16)
    dist.all_reduce(y, op=dist.ReduceOp.MAX)
    assert (y == n).all()
    numbers = torch.arange(1.0, n + 1, device=device)
    outs = [torch.empty(3, device=device) for _ in range(n)]
    dist.all_gather(outs, mine(3))
    assert (torch.stack(outs) == numbers[:, None]).all()
    flat = torch.empty(n * 2, device=device)
    dist.all_gather_into_tensor(flat, mine(2))
    assert (flat.view(n, 2) == numbers[:, None]).all()
    part = torch.empty(2, device=device)
    dist.reduce_scatter_tensor(part, mine(2 * n))
    assert (part == total).all()
    dist.reduce_scatter(part, [mine(2) for _ in range(n)], op=dist.ReduceOp.MAX)
    assert (part == n).all()
    dist.broadcast(x.fill_(me), n - 1)
    assert (x == n - 1).all()
    out = torch.empty(n, device=device)
    dist.all_to_all_single(out, mine(n))
    assert (out == numbers).all()
    pieces = [torch.empty(2, device=device) for _ in range(n)]
    dist.all_to_all(pieces, [mine(2) for _ in range(n)])
    assert (torch.stack(pieces) == numbers[:, None]).all()
    gathered = [torch.empty(2, device=device) for _ in range(n)] if me == 0 else None
    dist.gather(mine(2), gathered)
    assert me != 0 or (torch.stack(gathered) == numbers[:, None]).all()
    dist.scatter(part, [mine(2) * (r + 1) for r in range(n)] if me == 0 else None)
    assert (part == me + 1).all()
    root = mine()
    dist.reduce(root, 0)
    assert (root == (total if me == 0 else me + 1)).all()
    strided = mine(4, 6).t()
    dist.all_reduce(strided)
    assert (strided == total).all()
    dist.barrier()


def check_messages():
    if n == 1:
        return
    x = mine(7)
    if me == 0:
        dist.send(x, 1)
    elif me == 1:
        dist.recv(x, 0)
        assert (x == 1).all()


def check_futures_and_works():
    world.waits_of_host.clear()
    x = mine(1000)
    work = dist.all_reduce(x, async_op=True)
    doubled = work.get_future().then(lambda done: done.value()[0] * 2)
    doubled.wait()
    assert (doubled.value() == 2 * total).all()
    y = mine(1000)
    work = dist.all_reduce(y, async_op=True)
    work.wait()
    assert (y == total).all() and work.is_completed()
    assert not world.waits_of_host


def check_groups():
    if n < 2:
        return
    pair = dist.new_group([0, 1])
    x = mine()
    if me < 2:
        dist.all_reduce(x, group=pair)
        assert (x == 3).all()


def trained(wrap) -> torch.Tensor:
    model = net()
    wrapped = wrap(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        wrapped(batch()).pow(2).mean().backward()
        optimizer.step()
    return wrapped


def flat(model) -> torch.Tensor:
    parts = [getattr(p, "full_tensor", lambda p=p: p)().detach().reshape(-1) for p in model.parameters()]
    return torch.cat(parts)


def expected() -> torch.Tensor:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        model(batch()).pow(2).mean().backward()
        for parameter in model.parameters():
            hvd.allreduce_(parameter.grad)
        optimizer.step()
    return flat(model)


def check_ddp():
    here = {} if world.IS_STAND_IN else {"device_ids": [device.index]}
    for settings in ({}, {"gradient_as_bucket_view": True}, {"static_graph": True}):
        model = trained(lambda m, s=settings: DistributedDataParallel(m, **here, **s))
        torch.testing.assert_close(flat(model), expected(), msg=str(settings))


def check_ddp_with_a_hook():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    def wrap(model):
        wrapped = DistributedDataParallel(model)
        wrapped.register_comm_hook(None, default_hooks.fp16_compress_hook)
        return wrapped

    torch.testing.assert_close(flat(trained(wrap)), expected(), rtol=2e-2, atol=2e-3)


def check_fsdp2():
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        return

    mesh = dist.init_device_mesh(device.type, (n,))

    def wrap(model):
        for layer in (model[0], model[2]):
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    torch.testing.assert_close(flat(trained(wrap)), expected())


def check_objects():
    outs = [None] * n
    dist.all_gather_object(outs, {"rank": me})
    assert outs == [{"rank": r} for r in range(n)]


world.run_checks(dict(globals()))
dist.destroy_process_group()
