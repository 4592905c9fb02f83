"""LocalSGD and DiLoCo: steps of each rank alone, and equal bits on all ranks when they have communicated."""

import copy

import pytest
import torch
from crossing import same, values
from harness import assert_all_succeed, on_every_rank
from nursery import launch
from training import adam, batches, loss_of, model, same_everywhere, sgd
from worlds import WORLDS, name_of

import rueda.torch as hvd

in_worlds = pytest.mark.parametrize("world", [WORLDS[0], WORLDS[2], WORLDS[4]], indirect=True, ids=name_of)


def local_sgd(optimizer, net, **options):
    return hvd.LocalSGD(optimizer, net.named_parameters(), **options)


def diloco(optimizer, net, **options):
    return hvd.DiLoCo(optimizer, net.named_parameters(), **options)


def take(net, optimizer, steps, first=0):
    """Steps with the batches of this rank; yields the number of each."""
    for step, parts in enumerate(batches(first + steps, hvd.size())[first:], first + 1):
        loss_of(net, parts[hvd.rank()]).backward()
        optimizer.step()
        optimizer.zero_grad()
        yield step


def run(net, optimizer, steps, first=0):
    return list(take(net, optimizer, steps, first))


def alone(net, make, steps, first=0):
    """The same steps without communication."""
    run(net, make(net), steps, first)
    return net


def mean(tensor):
    return hvd.allreduce(tensor)


@in_worlds
@on_every_rank
def test_ranks_agree_after_so_many_steps_and_not_before():
    for make in (sgd, adam):
        net = model()
        optimizer = local_sgd(make(net), net, every=3)
        agreed = [step for step in take(net, optimizer, 7) if same_everywhere(net)]
        assert agreed == [3, 6]
        optimizer.synchronize_parameters()
        assert same_everywhere(net)

    net, other = model(), model()
    run(net, local_sgd(sgd(net), net, every=3), 3)
    alone(other, sgd, 3)
    assert all(torch.equal(p, mean(q.detach())) for p, q in zip(net.parameters(), other.parameters()))


@in_worlds
@on_every_rank
def test_a_warm_up_is_synchronous_and_the_state_may_be_averaged():
    net, other = model(), model()
    optimizer = local_sgd(sgd(net), net, every=4, warmup_steps=5)
    synchronous = hvd.DistributedOptimizer(sgd(other), other.named_parameters())
    run(net, optimizer, 5)
    run(other, synchronous, 5)
    assert same(values(net, optimizer), values(other, synchronous))
    agreed = [step for step in take(net, optimizer, 8, first=5) if same_everywhere(net)]
    assert agreed == [9, 13]

    for is_averaged in (True, False):
        net = model()
        optimizer = local_sgd(adam(net), net, every=2, average_state=is_averaged)
        run(net, optimizer, 2)
        for state in optimizer.state.values():
            for key in ("exp_avg", "exp_avg_sq"):
                everyones = hvd.allgather(state[key][None])
                assert bool((everyones == everyones[0]).all()) == is_averaged


@in_worlds
@on_every_rank
def test_diloco_is_what_its_paper_says():
    for nesterov, momentum in ((True, 0.9), (False, 0.9), (True, 0.0)):
        net = model()
        options = {"outer_lr": 0.7, "outer_momentum": momentum, "nesterov": nesterov}
        optimizer = diloco(adam(net), net, every=3, **options)
        run(net, optimizer, 6)

        other = model()
        inner = adam(other)
        agreed = [p.detach().clone() for p in other.parameters()]
        speed = [torch.zeros_like(p) for p in agreed]
        for turn in range(2):
            run(other, inner, 3, first=3 * turn)
            for value, velocity, p in zip(agreed, speed, other.parameters()):
                change = mean(value - p.detach())
                velocity.mul_(momentum).add_(change)
                value.sub_(0.7 * (change + momentum * velocity if nesterov else velocity))
                p.data.copy_(value)
        assert same_everywhere(net)
        for p, q in zip(net.parameters(), other.parameters()):
            assert torch.allclose(p, q, rtol=1e-5, atol=1e-6)


@in_worlds
@on_every_rank
def test_fragments_take_turns_and_their_changes_may_travel_during_a_step():
    def agreed_parts(net):
        def is_same(p):
            everyones = hvd.allgather(p.detach()[None])
            return bool((everyones == everyones[0]).all())

        return "".join("=" if is_same(p) else "." for p in net.parameters())

    for overlap in (False, True):
        net = model()
        options = {"compression": hvd.Compression.fp16, "overlap": overlap}
        optimizer = diloco(sgd(net), net, every=6, fragments=3, **options)
        seen = {step: agreed_parts(net) for step in take(net, optimizer, 13)}
        late = 1 if overlap else 0
        for turn in (0, 6):
            assert [seen[turn + step + late] for step in (2, 4, 6)] == ["==....", "..==..", "....=="]
            assert seen[turn + 3 - late] == "......"
        optimizer.synchronize_parameters()
        assert same_everywhere(net)


@in_worlds
@on_every_rank
def test_a_checkpoint_continues_to_the_same_bits():
    wrappers = [
        (local_sgd, {"every": 3, "warmup_steps": 2}),
        (local_sgd, {"every": 2, "warmup_steps": 9}),
        (diloco, {"every": 4}),
        (diloco, {"every": 4, "fragments": 2, "overlap": True}),
        (diloco, {"every": 4, "fragments": 4, "overlap": True, "warmup_steps": 2}),
    ]
    for wrap, options in wrappers:
        for at in (1, 4, 7):
            net = model()
            optimizer = wrap(adam(net), net, **options)
            run(net, optimizer, at)
            saved = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
            run(net, optimizer, 8, first=at)

            other = model(seed=1)
            resumed = wrap(adam(other), other, **options)
            run(other, resumed, 3)  # has been elsewhere
            other.load_state_dict(saved[0])
            resumed.load_state_dict(saved[1])
            run(other, resumed, 8, first=at)
            assert same(values(net, optimizer), values(other, resumed)), (options, at)


@in_worlds
@on_every_rank
def test_gradients_are_averaged_within_a_host_and_parameters_between_hosts():
    if hvd.size() != 4:
        return
    hosts = [hvd.add_process_set([0, 1]), hvd.add_process_set([2, 3])]
    try:
        for wrap in (local_sgd, diloco):
            net = model()
            optimizer = wrap(sgd(net), net, every=4, local_set=hosts[hvd.rank() // 2])
            for step in take(net, optimizer, 8):
                flat = torch.cat([p.detach().flatten() for p in net.parameters()])
                everyones = hvd.allgather(flat[None])
                assert torch.equal(everyones[0], everyones[1]) and torch.equal(everyones[2], everyones[3])
                assert torch.equal(everyones[0], everyones[2]) == (step % 4 == 0)
        some = hosts[0]
        net = model()
        optimizer = local_sgd(sgd(net), net, every=2, process_set=some)
        run(net, optimizer, 2)
        first, second = hvd.allgather(net[0].bias.detach()[None])[:2]
        assert torch.equal(first, second)
        if hvd.rank() >= 2:
            other = alone(model(), sgd, 2)
            assert same(values(net), values(other))
    finally:
        for host in hosts:
            hvd.remove_process_set(host)


@in_worlds
@on_every_rank
def test_a_scaler_that_skips_a_step_on_one_rank_keeps_the_count_of_all():
    for wrap, options in [(local_sgd, {}), (local_sgd, {"warmup_steps": 3}), (diloco, {})]:
        net = model()
        optimizer = wrap(sgd(net), net, every=3, **options)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        for step, parts in enumerate(batches(6, hvd.size())):
            loss = loss_of(net, parts[hvd.rank()])
            if step == 4 and hvd.rank() == 0:
                loss = loss * float("inf")
            scaler.scale(loss).backward()
            if step % 2:
                optimizer.synchronize()
                scaler.unscale_(optimizer)
            with optimizer.skip_synchronize():
                scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        assert same_everywhere(net)
        assert all(bool(torch.isfinite(p).all()) for p in net.parameters())
        assert scaler.get_scale() == (4.0 if hvd.rank() == 0 else 8.0)

    net, other = model(), model()
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    optimizer = local_sgd(sgd(net), net, every=3)
    for parts in batches(2, hvd.size()):
        scaler.scale(loss_of(net, parts[hvd.rank()])).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert same(values(net), values(alone(other, sgd, 2)))  # scales are powers of two


@in_worlds
@on_every_rank
def test_what_makes_no_sense_is_refused_in_a_sentence():
    net = model()
    some = hvd.ProcessSet([0])
    refused = [
        (local_sgd, {"every": 0}, "LocalSGD: every is 0, but it must be a whole number of at least 1"),
        (diloco, {"every": 2.5}, "DiLoCo: every is 2.5"),
        (local_sgd, {"every": 2, "warmup_steps": -1}, "warmup_steps is -1, but .* of at least 0"),
        (local_sgd, {"every": 2, "backward_passes_per_step": 0}, "must be > 0"),
        (local_sgd, {"every": 2, "process_set": some, "local_set": hvd.ProcessSet([0, 1])}, "local_set has"),
        (diloco, {"every": 9, "fragments": 0}, "fragments is 0"),
        (diloco, {"every": 9, "fragments": 7}, "fragments is 7, but there are 6 parameters .* and 9 steps"),
        (diloco, {"every": 2, "fragments": 3}, "fragments is 3, but .* 2 steps"),
        (diloco, {"every": 1, "overlap": True}, "DiLoCo: overlap needs every to be at least 2"),
        (diloco, {"every": 2, "outer_lr": 0}, "outer_lr is 0.0 and outer_momentum 0.9"),
        (diloco, {"every": 2, "outer_momentum": 1}, "from 0 to below 1"),
        (diloco, {"every": 2, "compression": "fp16"}, "compression must be one of"),
    ]
    for wrap, options, text in refused:
        with pytest.raises(ValueError, match=text):
            wrap(sgd(net), net, **options)
    other = hvd.ProcessSet([(hvd.rank() + 1) % hvd.size()])
    with pytest.raises(ValueError, match="give each rank the set to which it belongs"):
        local_sgd(sgd(net), net, every=2, local_set=other)
    with pytest.raises(ValueError, match="DiLoCo: Process set provided does not exist"):
        diloco(sgd(net), net, every=2, process_set=some)
    with pytest.raises(TypeError, match="local_set must be a ProcessSet, not int"):
        local_sgd(sgd(net), net, every=2, local_set=1)
    optimizer = diloco(sgd(net), net, every=4, fragments=2)
    for one in (optimizer, local_sgd(sgd(net), net, every=2)):
        with pytest.raises(ValueError, match="not one of LocalSGD, DiLoCo or DelayedOptimizer"):
            hvd.elastic.TorchState(net, one, copy_parameters=False)
    with pytest.raises(ValueError, match="already"):
        local_sgd(optimizer, net, every=2)
    with pytest.raises(ValueError, match="fragments are fixed"):
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})
    with pytest.raises(ValueError, match="state is of 2 fragments, but this DiLoCo has 1; give fragments=2"):
        diloco(sgd(net), net, every=4).load_state_dict(optimizer.state_dict())


ENDS = """
import os, time
import torch, rueda.torch as hvd
hvd.init()
net = torch.nn.Linear(4, 1)
hvd.broadcast_parameters(net.state_dict(), root_rank=0)
sgd = torch.optim.SGD(net.parameters(), lr=0.1)
optimizer = hvd.DiLoCo(sgd, net.named_parameters(), every=2, overlap=True)
path = os.path.join(folder, "rank 0 ends")
for step in (1, 2):
    deadline = time.monotonic() + 60
    while hvd.rank() == 1 and step == 2 and not os.path.exists(path):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
if hvd.rank() == 0:
    open(path, "x").close()
"""


def test_a_process_that_ends_waits_until_others_have_its_changes(tmp_path):
    assert_all_succeed(launch(2, f"folder = {str(tmp_path)!r}\n" + ENDS))
