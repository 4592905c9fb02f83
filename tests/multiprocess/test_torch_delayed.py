"""DelayedOptimizer: each step uses the gradients of the step before, and all ranks stay equal."""

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


def delayed(optimizer, net, **options):
    return hvd.DelayedOptimizer(optimizer, net.named_parameters(), **options)


def take(net, optimizer, steps, first=0):
    """Steps with the batches of this rank."""
    for parts in batches(first + steps, hvd.size())[first:]:
        loss_of(net, parts[hvd.rank()]).backward()
        optimizer.step()
        optimizer.zero_grad()


class Reference:
    """The same training without overlap: averages are waited for at once, and used one step later."""

    def __init__(self, net, plain, warmup_steps=0, max_norm=None):
        self.net, self.plain, self.max_norm = net, plain, max_norm
        self.warmup_left = warmup_steps
        self.waiting = self.agreed = None

    def step(self):
        own = [p.grad for p in self.net.parameters()]
        averages = [hvd.allreduce(grad, op=hvd.Average) for grad in own]
        if self.warmup_left:
            self.warmup_left -= 1
            self.apply(averages, self.max_norm)
            return
        self.finish()
        self.waiting = averages
        self.agreed = [p.detach().clone() for p in self.net.parameters()]
        state = copy.deepcopy(self.plain.state_dict())
        self.apply(own)
        self.plain.load_state_dict(state)

    def finish(self):
        if self.agreed is not None:
            for parameter, value in zip(self.net.parameters(), self.agreed):
                parameter.data.copy_(value)
        if self.waiting is not None:
            self.apply(self.waiting, self.max_norm)
        self.waiting = self.agreed = None

    def apply(self, gradients, max_norm=None):
        for parameter, gradient in zip(self.net.parameters(), gradients):
            parameter.grad = gradient
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), max_norm)
        if all(bool(torch.isfinite(grad).all()) for grad in gradients):
            self.plain.step()

    def zero_grad(self):
        self.plain.zero_grad()


def agreed(optimizer):
    """What all ranks have, as numbered tensors."""
    return optimizer.state_dict()["delayed"]["agreed"]


@in_worlds
@on_every_rank
def test_own_gradients_count_at_once_and_those_of_others_one_step_later():
    for make in (sgd, adam):
        for warmup_steps in (0, 3):
            net, other = model(), model()
            optimizer = delayed(make(net), net, warmup_steps=warmup_steps)
            reference = Reference(other, make(other), warmup_steps)
            for step in range(7):
                take(net, optimizer, 1, first=step)
                take(other, reference, 1, first=step)
                assert same(values(net), values(other)), (make, warmup_steps, step)
                assert same_everywhere(net) == (step < warmup_steps)
                everyones = hvd.allgather_object(agreed(optimizer))
                assert all(same(mine, everyones[0]) for mine in everyones)
                assert len(everyones[0]) == (0 if step < warmup_steps else 6)
            optimizer.finish()
            reference.finish()
            assert same(values(net), values(other))
            assert same_everywhere(net)
            optimizer.finish()  # nothing is left
            assert same(values(net), values(other))
            assert agreed(optimizer) == {}


@in_worlds
@on_every_rank
def test_alone_or_with_equal_data_it_is_the_wrapped_optimizer():
    alone = [hvd.add_process_set([rank]) for rank in range(hvd.size())]
    try:
        for make in (sgd, adam):
            for one in {alone[hvd.rank()], alone[0]}:  # of the second, not all are members
                net, other = model(), model()
                optimizer = delayed(make(net), net, process_set=one)
                plain = make(other)
                take(net, optimizer, 5)
                take(other, plain, 5)
                assert same(values(net), values(other))

            net, other = model(), model()
            optimizer, plain = delayed(make(net), net), make(other)
            for x, y in [parts[0] for parts in batches(5, 1)]:
                for one, its in ((net, optimizer), (other, plain)):
                    loss_of(one, (x, y)).backward()
                    its.step()
                    its.zero_grad()
            assert all(
                torch.allclose(p, q, rtol=1e-5, atol=1e-6)
                for p, q in zip(net.parameters(), other.parameters())
            )
    finally:
        for one in alone:
            hvd.remove_process_set(one)


@in_worlds
@on_every_rank
def test_a_sum_and_gradients_that_finish_leaves_alone():
    net, other = model(), model()
    summed = delayed(torch.optim.SGD(net.parameters(), lr=0.1 / hvd.size()), net, op=hvd.Sum)
    averaged = delayed(torch.optim.SGD(other.parameters(), lr=0.1), other)
    take(net, summed, 4)
    take(other, averaged, 4)
    for p, q in zip(net.parameters(), other.parameters()):
        assert torch.allclose(p, q, rtol=1e-5, atol=1e-6)
    loss_of(net, batches(1, 1)[0][0]).backward()
    grads = [p.grad.clone() for p in net.parameters()]
    summed.finish()
    assert same_everywhere(net)
    assert all(torch.equal(p.grad, grad) for p, grad in zip(net.parameters(), grads))


class Listed(torch.optim.SGD):
    """Keeps momentum in a list, as no optimizer of torch does."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                kept = self.state[parameter].setdefault("momenta", [torch.zeros_like(parameter)])
                if parameter.grad is not None:
                    kept[0].mul_(0.9).add_(parameter.grad)
                    parameter.sub_(kept[0], alpha=group["lr"])


@in_worlds
@on_every_rank
def test_state_in_containers_and_gradients_that_are_not_finite():
    net = model()
    optimizer = delayed(Listed(net.parameters(), lr=0.1), net)
    take(net, optimizer, 4)
    optimizer.finish()
    assert same_everywhere(net)
    momenta = [state["momenta"][0] for state in optimizer.state.values()]
    assert all(torch.equal(one, hvd.allgather(one[None])[0]) for one in momenta)
    loss = loss_of(net, batches(1, 1)[0][0])
    (loss * float("nan")).backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.finish()  # without a scaler, as a step of the wrapped optimizer
    assert all(bool(p.isnan().all()) for p in net.parameters())


@in_worlds
@on_every_rank
def test_parameters_are_changed_after_finish_and_not_before():
    net = model()
    optimizer = delayed(sgd(net), net)
    take(net, optimizer, 2)
    optimizer.finish()
    with torch.no_grad():
        net[0].weight.clamp_(-0.1, 0.1)
    take(net, optimizer, 1)
    optimizer.finish()
    assert same_everywhere(net)
    take(net, optimizer, 1)
    net.load_state_dict(model().state_dict())
    for _ in range(2):  # nothing goes on without the agreed parameters
        with pytest.raises(RuntimeError, match=r"0\.weight was changed between two steps.* call optimizer"):
            optimizer.step()
    with pytest.raises(RuntimeError, match="was changed between"):
        optimizer.finish()
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)


@in_worlds
@on_every_rank
def test_clipping_sees_combined_gradients():
    net, other = model(), model()
    optimizer = delayed(sgd(net), net, warmup_steps=2)
    reference = Reference(other, sgd(other), 2, max_norm=0.05)
    for step, parts in enumerate(batches(6, hvd.size())):
        loss_of(net, parts[hvd.rank()]).backward()
        optimizer.synchronize()
        optimizer.synchronize()  # sends nothing twice
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.05)
        assert (norm == 0) == (step == 2)
        with optimizer.skip_synchronize():
            optimizer.step()
        optimizer.zero_grad()
        take(other, reference, 1, first=step)
        assert same(values(net), values(other)), step


@in_worlds
@on_every_rank
def test_a_training_goes_on_from_a_saved_state():
    for options in ({}, {"warmup_steps": 2}, {"compression": hvd.Compression.fp16}):
        for at in (1, 2, 5):
            net = model()
            optimizer = delayed(adam(net), net, **options)
            take(net, optimizer, at)
            saved = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
            take(net, optimizer, 3, first=at)

            other = model(seed=1)
            resumed = delayed(adam(other), other, **options)
            take(other, resumed, 4)  # has been elsewhere, and something is under way
            other.load_state_dict(saved[0])
            resumed.load_state_dict(saved[1])
            take(other, resumed, 3, first=at)
            assert same(values(net, optimizer), values(other, resumed)), (options, at)


@in_worlds
@on_every_rank
def test_all_ranks_go_on_equal_from_the_state_of_one():
    for how in ("objects", "broadcasts", "broadcasts, the state loaded between them"):
        net = model()
        optimizer = delayed(adam(net), net)
        take(net, optimizer, 3)
        kept = agreed(optimizer)
        if how == "objects":
            saved = hvd.broadcast_object((net.state_dict(), optimizer.state_dict()), root_rank=1)
            net.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
            assert same(agreed(optimizer), kept)
        else:  # a rank comes anew
            if hvd.rank() == 1:
                net = model(seed=1)
                optimizer = delayed(adam(net), net)
            saved = optimizer.state_dict()
            hvd.broadcast_parameters(net.state_dict(), root_rank=0)
            if "between" in how and hvd.rank() == 0:
                optimizer.load_state_dict(saved)
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
            assert same_everywhere(net)
        optimizer.zero_grad()
        take(net, optimizer, 2, first=3)
        optimizer.finish()
        assert same_everywhere(net)


@in_worlds
@on_every_rank
def test_a_gradient_that_overflows_on_one_rank_is_skipped_by_all():
    for clips in (False, True):
        net, other = model(), model()
        optimizer = delayed(sgd(net), net)
        reference = Reference(other, sgd(other), max_norm=0.5 if clips else None)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        for step, parts in enumerate(batches(6, hvd.size())):
            loss = loss_of(net, parts[hvd.rank()])
            if step == 3 and hvd.rank() == 0:
                loss = loss * float("inf")
            scaler.scale(loss).backward()
            if clips:
                scaler.unscale_(optimizer)
                optimizer.synchronize()
                torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                with optimizer.skip_synchronize():
                    scaler.step(optimizer)
            else:
                scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            loss = loss_of(other, parts[hvd.rank()])
            (loss * float("inf") if step == 3 and hvd.rank() == 0 else loss).backward()
            reference.step()
            reference.zero_grad()
            assert same(values(net), values(other)), (clips, step)  # scales are powers of two
        assert scaler.get_scale() == (4.0 if hvd.rank() == 0 else 8.0)

    scaler.scale(loss_of(net, batches(1, 1)[0][0])).backward()
    optimizer.synchronize()
    with pytest.raises(ValueError, match=r"call scaler.unscale_\(optimizer\) before"):
        scaler.unscale_(optimizer)
    optimizer.finish()


@in_worlds
@on_every_rank
def test_gradients_that_are_missing_sparse_or_unfrozen():
    class Words(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.table = torch.nn.Embedding(5, 4, sparse=True)
            self.unused = torch.nn.Linear(4, 1)
            self.late = torch.nn.Linear(4, 1).requires_grad_(False)

        def forward(self, words, uses):
            table = self.table(words)
            return self.late(table) + (self.unused(table) if uses else 0)

    for as_dense in (False, True):
        net = Words()
        optimizer = delayed(torch.optim.SGD(net.parameters(), lr=0.5), net, sparse_as_dense=as_dense)
        firsts = [values(net)]
        for step in range(5):
            if step == 2:
                net.late.requires_grad_(True)
            net(torch.tensor([hvd.rank(), 4]), uses=hvd.rank() == 0).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            optimizer.finish()
            firsts.append(values(net))
            assert same_everywhere(net), (as_dense, step)
        changed = [
            [name for name in before if not torch.equal(before[name], after[name])]
            for before, after in zip(firsts, firsts[1:])
        ]
        early = ["model.table.weight", "model.unused.weight", "model.unused.bias"]
        assert changed[0] == changed[1] == early
        assert changed[2] == [*early, "model.late.weight", "model.late.bias"]


@in_worlds
@on_every_rank
def test_what_makes_no_sense_is_refused_in_a_sentence():
    net = model()
    refused = [
        ({"warmup_steps": -1}, "DelayedOptimizer: warmup_steps is -1, but .* of at least 0"),
        ({"op": hvd.Adasum}, "DelayedOptimizer: op is .* only supports Average and Sum"),
        ({"op": hvd.Sum, "gradient_predivide_factor": 2.0}, "not supported with op != Average"),
        ({"compression": hvd.PowerSGD(rank=2)}, "compression=PowerSGD.* use one of Compression.none"),
        ({"compression": "fp16"}, "compression must be one of"),
        ({"process_set": hvd.ProcessSet([0])}, "DelayedOptimizer: Process set provided does not exist"),
    ]
    for options, text in refused:
        with pytest.raises(ValueError, match=text):
            delayed(sgd(net), net, **options)
    with pytest.raises(ValueError, match="LBFGS evaluates a closure"):
        delayed(torch.optim.LBFGS(net.parameters()), net)
    optimizer = delayed(sgd(net), net)
    with pytest.raises(ValueError, match="takes no closure"):
        optimizer.step(lambda: 0.0)
    with pytest.raises(ValueError, match="already"):
        delayed(optimizer, net)


OVERLAPS = """
import torch, rueda.torch as hvd
hvd.init()
net = torch.nn.Linear(4, 1)
hvd.broadcast_parameters(net.state_dict(), root_rank=0)
optimizer = hvd.DelayedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())

def step():
    net(torch.ones(2, 4) * (1 + hvd.rank())).sum().backward()
    optimizer.step()
    optimizer.zero_grad()

def tell(name):
    open(os.path.join(folder, name), "x").close()

def hear(name):
    deadline = time.monotonic() + 60
    while not os.path.exists(os.path.join(folder, name)):
        assert time.monotonic() < deadline, name
        time.sleep(0.01)

if hvd.rank() == 0:
    step()  # does not wait for the gradients of rank 1
    net(torch.ones(2, 4))
    tell("has stepped")
else:
    hear("has stepped")
    step()
step()
ends(optimizer)
"""


@pytest.mark.parametrize("ends", ["lambda o: None", "lambda o: o.finish()", "lambda o: hvd.shutdown()"])
def test_a_step_returns_before_other_ranks_have_stepped_and_a_process_may_end_with_gradients_under_way(
    tmp_path, ends
):
    body = f"import os, time\nfolder, ends = {str(tmp_path)!r}, {ends}\n" + OVERLAPS
    assert_all_succeed(launch(2, body))
