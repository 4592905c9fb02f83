"""RUEDA_TORCH_ARENA=1: gradients are born in shared memory, and nothing else changes.

Every scenario runs without and with it in the same processes, and must give the same bits.
"""

import copy
import gc
import os
import warnings

import pytest
import torch
from arenas import are_in_arena, batch, compare, train, wide, wrap
from harness import on_every_rank
from nursery import ForkedWorld
from torch import nn
from torch.utils.checkpoint import checkpoint

import rueda.torch as hvd
from rueda import _core
from rueda.torch import arena


@pytest.fixture(scope="module")
def world():
    """Two ranks of one host: the arena is for them."""
    made = ForkedWorld(2, "shm,tcp")
    yield made
    made.stop()


@on_every_rank
def test_zero_grad_in_both_ways():
    for set_to_none in (True, False):
        compare(lambda is_on, way=set_to_none: train(wide(), is_on, set_to_none=way))


@on_every_rank
def test_only_gradients_are_placed():
    def scenario(is_on):
        net = wide()
        optimizer = wrap(net)
        x = batch(0).requires_grad_()
        placed = arena.state().placed
        ordinary = [torch.empty_like(p) for p in net.parameters()]
        assert arena.state().placed == placed
        (net(x).square().mean()).backward()
        assert (arena.state().placed > placed) == is_on
        optimizer.step()
        held = [x, x.grad, *ordinary, *(state["momentum_buffer"] for state in optimizer.state.values())]
        assert not any(_core.is_shared_buffer(tensor.data_ptr()) for tensor in held)
        return [*net.parameters()]

    compare(scenario)


@on_every_rank
def test_frozen_unused_and_thawed_parameters():
    def scenario(is_on):
        net = wide()
        net[0].weight.requires_grad_(False)
        extra = nn.Linear(64, 16)
        with torch.no_grad():
            extra.weight.fill_(0.5), extra.bias.fill_(0.25)
        net.add_module("extra", extra)
        optimizer = wrap(net)
        for step in range(4):
            if step == 2:
                net[0].weight.requires_grad_(True)
                optimizer.add_param_group({"params": [nn.Parameter(torch.ones(64, 32))]})
            optimizer.zero_grad()
            x = batch(step)
            loss = net[:5](x).square().mean()
            if step % 2 == 0 and hvd.rank() == 0:  # used on one rank, in some steps
                loss = loss + net.extra(x).square().mean()
            loss.backward()
            assert (_core.is_shared_buffer(net[2].weight.grad.data_ptr()) == 1) == is_on
            optimizer.step()
        return [*net.parameters()]

    compare(scenario)


@on_every_rank
def test_freezing_and_thawing_after_wrapping():
    def scenario(is_on):
        net = wide()
        optimizer = wrap(net)
        for step in range(6):
            net[2].weight.requires_grad_(step not in (2, 3))
            optimizer.zero_grad()
            net(batch(step)).square().mean().backward()
            assert (_core.is_shared_buffer(net[0].weight.grad.data_ptr()) == 1) == is_on
            optimizer.step()
        return [*net.parameters()]

    compare(scenario)


@on_every_rank
def test_two_models_that_learn_in_turns():
    def scenario(is_on):
        torch.manual_seed(7)
        generator, judge = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64)), wide(2)
        of_generator = hvd.DistributedOptimizer(
            torch.optim.SGD(generator.parameters(), lr=0.1), generator.named_parameters(prefix="generator")
        )
        of_judge = hvd.DistributedOptimizer(
            torch.optim.SGD(judge.parameters(), lr=0.1, momentum=0.9), judge.named_parameters(prefix="judge")
        )
        for step in range(12):
            noise = batch(step, 16)
            of_judge.zero_grad()
            (judge(generator(noise).detach()).mean() - judge(batch(step)).mean()).backward()
            assert are_in_arena(judge) == {is_on}
            of_judge.step()
            if step % 3 == 2:
                continue
            of_generator.zero_grad()
            judge(generator(noise)).square().mean().backward()
            of_generator.step()
            of_judge.synchronize()  # what the generator's loss left in the judge was reduced too
            of_judge.zero_grad()
        return [*generator.parameters(), *judge.parameters()]

    compare(scenario)


@on_every_rank
def test_crossing_the_step():
    results = []
    for crosses in (False, True):

        def scenario(is_on, crosses=crosses):
            net = wide()
            optimizer = wrap(net, **({"cross_step": True, "model": net} if crosses else {}))
            placed = arena.state().placed
            for step in range(6):
                optimizer.zero_grad()
                net(batch(step)).square().mean().backward()
                optimizer.step()
            assert (arena.state().placed > placed) == is_on
            results.append([tensor.clone() for tensor in net.state_dict().values()])
            return results[-1]

        compare(scenario)
    assert all(torch.equal(one, other) for one, other in zip(results[0], results[-1]))


@on_every_rank
def test_shared_parameters():
    def scenario(is_on):
        net = wide()
        net[2].weight = nn.Parameter(net[2].weight.detach().clone())
        tied = nn.Linear(128, 128)
        tied.weight, tied.bias = net[2].weight, net[2].bias
        net.insert(4, tied)
        return train(net, is_on)

    compare(scenario)


@on_every_rank
def test_accumulation():
    def scenario(is_on):
        net = wide()
        optimizer = wrap(net, backward_passes_per_step=3)
        for step in range(3):
            optimizer.zero_grad()
            for part in range(3):
                net(batch(10 * step + part)).square().mean().backward()
            assert are_in_arena(net) == {is_on}
            optimizer.step()
        return [*net.parameters()]

    compare(scenario)


@on_every_rank
def test_groups_compression_and_other_types():
    for options in ({"groups": 2}, {"compression": hvd.Compression.fp16}, {"op": hvd.Sum}):
        compare(lambda is_on, options=options: train(wide(), is_on, **options))
    for dtype in (torch.float64, torch.bfloat16):
        compare(
            lambda is_on, dtype=dtype: train(
                wide().to(dtype), is_on, loss=lambda net, x: net(x.to(dtype)).square().mean()
            )
        )


@on_every_rank
def test_gradients_that_the_user_replaces():
    def scenario(is_on):
        net = wide()
        optimizer = wrap(net)
        for step in range(3):
            optimizer.zero_grad()
            net(batch(step)).square().mean().backward()
            optimizer.synchronize()
            for p in net.parameters():
                p.grad = p.grad.clamp(-0.01, 0.01)
            with optimizer.skip_synchronize():
                optimizer.step()
            for p in net.parameters():  # persistent, private memory that backward adds to
                p.grad = torch.full_like(p, 0.125)
            net(batch(step)).square().mean().backward()
            optimizer.step()
        return [*net.parameters(), *(p.grad for p in net.parameters())]

    compare(scenario)


@on_every_rank
def test_checkpointing_and_deepcopy():
    for reentrant in (False, True):

        def loss(net, x, reentrant=reentrant):
            return checkpoint(net, x.requires_grad_(), use_reentrant=reentrant).square().mean()

        compare(lambda is_on, loss=loss: train(wide(), is_on, loss=loss))

    def copied(is_on):
        net = wide()
        results = train(net, is_on, steps=2)
        twin = copy.deepcopy(net)
        gradients = [copy.deepcopy(p.grad) for p in net.parameters()]
        assert all(torch.equal(p.grad, copied) for p, copied in zip(net.parameters(), gradients))
        for p in net.parameters():
            p.grad.zero_()
        assert all(copied.abs().sum() > 0 for copied in gradients)
        return [*results, *gradients, *train(twin, is_on)]

    compare(copied)


@on_every_rank
def test_grad_scaler():
    def scenario(is_on):
        net = wide()
        optimizer = wrap(net)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for step in range(4):
            optimizer.zero_grad()
            x = batch(step)
            if step == 1 and hvd.rank() == 1:
                x[0] = float("inf")
            scaler.scale(net(x).square().mean()).backward()
            assert are_in_arena(net) == {is_on}
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
        return [*net.parameters()]

    compare(scenario)


@on_every_rank
def test_compiled_models():
    def scenario(is_on):
        net = wide()
        compiled = torch.compile(net, backend="aot_eager")
        results = train(net, is_on, loss=lambda _, x: compiled(x).square().mean())
        torch._dynamo.reset()
        return results

    compare(scenario)


@on_every_rank
def test_convolutions_and_normalisation():
    def scenario(is_on):
        torch.manual_seed(3)
        net = nn.Sequential(nn.Conv2d(1, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3))
        return train(net, is_on, loss=lambda net, x: net(x.reshape(-1, 1, 8, 8)).square().mean())

    compare(scenario)


@on_every_rank
def test_what_users_do_with_gradients():
    def scenario(is_on):
        net = wide()
        train(net, is_on, steps=1)
        grad = net[2].weight.grad
        assert grad.data_ptr() % 64 == 0
        before = grad.clone()
        shared = grad.share_memory_()  # moves it to memory of torch's own
        assert shared.is_shared() and not _core.is_shared_buffer(shared.data_ptr())
        assert torch.equal(shared, before)
        other = net[0].weight.grad
        kept = other.clone()
        other.resize_(4096, 64)  # out of the block, into one that torch chooses
        assert torch.equal(other[:128], kept)
        other[4095] = 1.0
        view = net[4].weight.grad.reshape(-1)[3:]
        array = view.numpy()
        array += 1
        net[4].weight.grad = None
        return [shared, kept, view, other[:128]]

    compare(scenario)


@on_every_rank
def test_blocks_come_back_from_other_threads_and_after_their_optimizer():
    import threading

    def scenario(is_on):
        net = wide()
        results = train(net, is_on, steps=1)
        held = [p.grad for p in net.parameters()]
        for p in net.parameters():
            p.grad = None
        copies = [tensor.clone() for tensor in held]
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
        return [*results, *copies]

    compare(scenario)
    gc.collect()
    assert memory_of_arena() == 0  # all gradients and optimizers are gone: so are the pages


def memory_of_arena():
    """Bytes of this process's own arena that are backed by pages: the largest of the memfds."""
    descriptors = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    found = [os.stat(fd) for fd in descriptors if os.path.exists(fd) and "memfd:rueda" in os.readlink(fd)]
    return max(found, key=lambda info: info.st_size).st_blocks * 512


@on_every_rank
def test_bits_are_the_same_where_only_one_rank_has_an_arena():
    def scenario(is_on):
        net = wide()
        if hvd.rank() == 1:
            os.environ["RUEDA_TORCH_ARENA"] = "0"
        optimizer = wrap(net)
        for step in range(3):
            optimizer.zero_grad()
            net(batch(step)).square().mean().backward()
            assert are_in_arena(net) == {is_on and hvd.rank() == 0}
            optimizer.step()
        return [*net.parameters()]

    compare(scenario)


@on_every_rank
def test_a_world_with_sparse_gradients():
    def scenario(is_on):
        torch.manual_seed(5)
        table = nn.Embedding(50, 32, sparse=True)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(table.parameters(), lr=0.1), table.named_parameters()
        )
        for step in range(2):
            optimizer.zero_grad()
            table(torch.tensor([step, hvd.rank(), 7])).square().sum().backward()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                optimizer.step()
        return [table.weight]

    compare(scenario)
