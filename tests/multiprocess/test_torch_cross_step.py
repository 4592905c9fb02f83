"""cross_step=True: the same bits as a step that waits for everything."""

import gc

import pytest
import torch
from crossing import OPTIMIZERS, outstanding, same, train, values, wrap
from harness import on_every_rank
from training import batches, loss_of, model, sgd

import rueda.torch as hvd
from rueda.torch import cross_step

pytestmark = pytest.mark.parametrize("world", [(2, "shm,tcp"), (3, "tcp")], indirect=True, scope="session")


@on_every_rank
def test_every_optimizer_gives_the_bits_of_a_step_that_waits():
    for name, make in OPTIMIZERS.items():
        results = []
        for crosses in (False, True):
            net = model()
            optimizer = wrap(make(net.parameters()), net, crosses)
            train(net, optimizer)
            assert not crosses or outstanding(optimizer) == 6, "the last step must have left its updates"
            results.append(values(net, optimizer))
        assert same(*results), name


@on_every_rank
def test_passes_groups_of_options_schedulers_and_both_ways_to_zero():
    def run(crosses, zero):
        net = model()
        groups = [{"params": net[0].parameters(), "lr": 0.2}, {"params": net[2:].parameters()}]
        optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
        optimizer = wrap(optimizer, net, crosses, backward_passes_per_step=2)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        train(net, optimizer, scheduler=scheduler, zero=zero, passes=2)
        assert not crosses or outstanding(optimizer) == 6, "reading the options must not wait"
        return values(net, optimizer)

    for zero in (True, False):
        assert same(run(False, zero), run(True, zero))


@on_every_rank
def test_a_learning_rate_in_a_tensor_is_that_of_the_step():
    def run(crosses):
        net = model()
        optimizer = wrap(torch.optim.Adam(net.parameters(), lr=torch.tensor(0.01)), net, crosses)
        for parts in batches(3, hvd.size()):
            loss_of(net, parts[hvd.rank()]).backward()
            optimizer.step()
            optimizer.param_groups[0]["lr"].mul_(0.1)
            optimizer.zero_grad()
        return values(net)

    assert same(run(False), run(True))


@on_every_rank
def test_clipping_makes_a_whole_step():
    def run(crosses):
        net = model()
        optimizer = wrap(sgd(net), net, crosses)
        for parts in batches(3, hvd.size()):
            loss_of(net, parts[hvd.rank()]).backward()
            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.01)
            with optimizer.skip_synchronize():
                optimizer.step()
            optimizer.zero_grad()
        assert not crosses or outstanding(optimizer) == 0
        return values(net, optimizer)

    assert same(run(False), run(True))


@on_every_rank
def test_an_exception_between_steps_leaves_the_updates_for_the_next_forward():
    def run(crosses):
        net = model()
        optimizer = wrap(sgd(net), net, crosses)
        train(net, optimizer, steps=1)
        with pytest.raises(RuntimeError, match="shapes"):
            net(torch.ones(1, 5))
        train(net, optimizer, steps=1)
        return values(net, optimizer)

    assert same(run(False), run(True))


@on_every_rank
def test_an_exception_in_backward_leaves_what_a_step_that_waits_leaves():
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise ArithmeticError("a gradient that fails")

    def run(crosses):
        net = model()
        optimizer = wrap(sgd(net), net, crosses)
        train(net, optimizer, steps=2)
        with pytest.raises(ArithmeticError, match="that fails"):
            Fails.apply(net(torch.ones(4, 6))).sum().backward()  # before any gradient is there
        optimizer.zero_grad()
        train(net, optimizer, steps=2)
        return values(net, optimizer)

    assert same(run(False), run(True))


@on_every_rank
def test_two_optimizers_of_one_model_and_one_that_is_dropped():
    def run(crosses):
        net = model()
        names = dict(net.named_parameters())
        options = {"cross_step": True, "model": net} if crosses else {}
        halves = [
            hvd.DistributedOptimizer(
                make(part.parameters()),
                [(n, p) for n, p in names.items() if any(p is q for q in part.parameters())],
                **options,
            )
            for make, part in ((OPTIMIZERS["momentum"], net[:2]), (OPTIMIZERS["adam"], net[2:]))
        ]
        for parts in batches(3, hvd.size()):
            loss_of(net, parts[hvd.rank()]).backward()
            for half in halves:
                half.step()
                half.zero_grad()
        del half, halves
        gc.collect()
        loss_of(net, parts[hvd.rank()])  # makes the updates although their optimizers are gone
        return values(net)

    assert same(run(False), run(True))
    gc.collect()
    assert not cross_step._outstanding


@on_every_rank
def test_names_are_free_although_a_model_was_dropped_with_its_updates_outstanding():
    for _ in range(20):
        net = model()
        optimizer = wrap(sgd(net), net, True)
        train(net, optimizer, steps=1)
        del net, optimizer
        gc.collect()


@on_every_rank
def test_compression_sparse_gradients_and_long_ones_in_parts():
    def run(crosses, **options):
        torch.manual_seed(3)
        net = torch.nn.Sequential(torch.nn.Embedding(5, 8, sparse=True), torch.nn.Linear(8, 3))
        optimizer = wrap(torch.optim.SGD(net.parameters(), lr=0.1), net, crosses, **options)
        for step in range(3):
            net(torch.tensor([0, 1 + hvd.rank() % 4, step])).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return values(net)

    with pytest.MonkeyPatch.context() as patch:
        for part_bytes in (cross_step.PART_BYTES, 64):
            patch.setattr("rueda.torch.optimizer.PART_BYTES", part_bytes)
            for options in ({}, {"compression": hvd.Compression.bf16}, {"sparse_as_dense": True}):
                assert same(run(False, **options), run(True, **options)), options


@on_every_rank
def test_compiled_models():
    def run(crosses):
        net = model()
        compiled = torch.compile(net, backend="eager")
        optimizer = hvd.DistributedOptimizer(
            sgd(net), net.named_parameters(), **({"cross_step": True, "model": compiled} if crosses else {})
        )
        train(compiled, optimizer, steps=3)
        return values(net)

    assert same(run(False), run(True))
    net = model()
    net[0].compile(backend="eager")
    with pytest.raises(ValueError, match=r"torch\.compile\(module\)"):
        wrap(sgd(net), net, True)


class CountsInGroups(torch.optim.SGD):
    """Keeps a number for all parameters where it cannot be seen for each."""

    def step(self, closure=None):
        for group in self.param_groups:
            group["count"] = group.get("count", 0) + 1
        return super().step(closure)


@on_every_rank
def test_what_cannot_cross_is_refused_in_a_sentence():
    net = model()
    named = list(net.named_parameters())
    refused = [
        (sgd(net), {"cross_step": True}, "needs model="),
        (sgd(net), {"model": net}, "leave it out"),
        (sgd(net), {"cross_step": True, "model": model()}, "model holds none of the optimizer's parameters"),
        (sgd(net), {"cross_step": True, "model": net, "op": hvd.Adasum}, "op=Adasum needs all gradients"),
        (sgd(net), {"cross_step": True, "model": net, "groups": 2}, "groups are reduced as a whole"),
        (
            torch.optim.LBFGS(net.parameters()),
            {"cross_step": True, "model": net},
            "LBFGS needs all gradients",
        ),
    ]
    for optimizer, options, text in refused:
        with pytest.raises(ValueError, match=text):
            hvd.DistributedOptimizer(optimizer, named, **options)
    optimizer = wrap(sgd(net), net, True)
    with pytest.raises(ValueError, match="takes no closure"):
        optimizer.step(lambda: 0)
    counting = wrap(CountsInGroups(net.parameters(), lr=0.1), net, True)
    del optimizer
    gc.collect()
    train(net, counting, steps=1)
    with pytest.raises(RuntimeError, match=r"CountsInGroups changes its parameter groups \(count\)"):
        counting.finish()


@on_every_rank
def test_the_front_goes_first():
    net = model()
    optimizer = wrap(sgd(net), net, True)
    train(net, optimizer, steps=2)
    priorities = {one.name: one.priority for one in optimizer._reducer._gradients.values()}
    assert priorities["0.weight"] == priorities["0.bias"] > priorities["2.weight"] > priorities["4.weight"]
    assert priorities["0.weight"] < 0
    optimizer.finish()
