"""ShardedOptimizer: the weights of DistributedOptimizer, with a part of its state on each rank."""

import copy

import pytest
import torch
from crossing import OPTIMIZERS, same, train, values
from harness import on_every_rank
from training import adam, batches, loss_of, model, same_everywhere, sgd
from worlds import WORLDS, name_of

import rueda.torch as hvd
from rueda.torch.arguments import OTHER_MODEL
from rueda.torch.shards import Place

pytestmark = pytest.mark.parametrize("world", [WORLDS[0], WORLDS[2], WORLDS[4]], indirect=True, ids=name_of)


def sharded(optimizer, net, **options):
    return hvd.ShardedOptimizer(optimizer, model=net, **options)


def distributed(optimizer, net, **options):
    return hvd.DistributedOptimizer(optimizer, net.named_parameters(), **options)


def trained(wrap, make, steps=4, net=None, **options):
    """The weights after so many steps."""
    net = net or model()
    optimizer = wrap(make(net), net, **options)
    train(net, optimizer, steps=steps)
    return values(net)


@on_every_rank
def test_fifty_steps_give_the_bits_of_the_optimizer_that_is_not_sharded():
    for make in (sgd, adam):
        expected = trained(distributed, make, steps=50)
        assert same(trained(sharded, make, steps=50), expected)
        assert same(trained(sharded, make, steps=50, overlap=False), expected)


@on_every_rank
def test_every_element_wise_optimizer_of_torch_keeps_its_bits():
    others = {
        "adadelta": torch.optim.Adadelta,
        "adamax": torch.optim.Adamax,
        "nadam": torch.optim.NAdam,
        "radam": torch.optim.RAdam,
        "rprop": torch.optim.Rprop,
        "asgd": torch.optim.ASGD,
    }
    for name, make in {**OPTIMIZERS, **others}.items():
        if "fused" not in name:

            def of(net, make=make):
                return make(net.parameters())

            assert same(trained(sharded, of), trained(distributed, of)), name


@on_every_rank
def test_a_rank_keeps_its_share_of_the_state():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 65), torch.nn.Linear(65, 33))
    optimizer = sharded(torch.optim.Adam(net.parameters()), net, overlap=False)
    net(torch.ones(2, 64)).sum().backward()
    optimizer.step()

    def size(states):
        return sum(v.numel() * v.element_size() for state in states for v in state.values())

    mine = size(optimizer.state.values())
    whole = size(optimizer.state_dict()["state"].values())
    assert whole > 8 * sum(p.numel() for p in net.parameters())
    assert mine <= whole * (1 / hvd.size() + 0.05)


@on_every_rank
def test_types_frozen_layers_groups_and_missing_gradients():
    class Mixed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(5)
            self.scale = torch.nn.Parameter(torch.tensor(1.5))
            self.first = torch.nn.Linear(6, 7, dtype=torch.float64)
            self.frozen = torch.nn.Linear(7, 5).requires_grad_(False)
            self.now_and_then = torch.nn.Linear(5, 3)
            self.conv = torch.nn.Conv2d(3, 5, 3).to(memory_format=torch.channels_last)
            self.empty = torch.nn.Parameter(torch.empty(0))
            self.uneven = torch.nn.Parameter(torch.ones(5, dtype=torch.float64))  # of 4 ranks one has two

        def forward(self, x, step):
            hidden = self.frozen(self.first(x.double()).float()) * self.scale
            hidden = hidden * self.uneven.float()
            if (step + hvd.rank()) % 3:
                hidden = torch.cat([hidden[:, :2], self.now_and_then(hidden)], 1)
            image = hidden[:, :3, None, None].expand(-1, -1, 4, 4)
            return self.conv(image.contiguous(memory_format=torch.channels_last)).flatten(1)

    def run(wrap, zero, **options):
        net = Mixed()
        rest = [p for name, p in net.named_parameters() if not name.startswith("first")]
        groups = [{"params": net.first.parameters(), "lr": 0.05}, {"params": rest, "weight_decay": 0.1}]
        optimizer = wrap(torch.optim.SGD(groups, lr=0.1, momentum=0.9), net, **options)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        for step in range(7):
            torch.manual_seed(10 * step + hvd.rank())
            net(torch.randn(4, 6), step).square().mean().backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=zero)
            if step == 3:
                net.frozen.requires_grad_(True)
        assert optimizer.param_groups[0]["lr"] == 0.05 * 0.125
        assert optimizer.param_groups[0]["params"][0] is net.first.weight
        return values(net)

    for zero in (True, False):
        expected = run(distributed, zero)
        assert same(run(sharded, zero), expected)
        assert same(run(sharded, zero, overlap=False), expected)


@on_every_rank
def test_accumulation_compression_sums_and_closures():
    def run(wrap, passes=1, **options):
        net = model()
        optimizer = wrap(sgd(net), net, backward_passes_per_step=passes, **options)
        train(net, optimizer, steps=3, passes=passes)
        return values(net)

    for options in (
        {"passes": 3},
        {"compression": hvd.Compression.fp16},
        {"op": hvd.Sum},
        {"gradient_predivide_factor": 2.0},
    ):
        assert same(run(sharded, **options), run(distributed, **options)), options

    def with_closure(wrap):
        net = model()
        optimizer = wrap(adam(net), net)
        losses = []
        for parts in batches(3, hvd.size()):

            def closure(parts=parts):
                optimizer.zero_grad()
                loss = loss_of(net, parts[hvd.rank()])
                loss.backward()
                return loss

            losses.append(float(optimizer.step(closure)))
        return losses, values(net)

    (losses, one), (expected, other) = with_closure(sharded), with_closure(distributed)
    assert losses == expected and same(one, other)


@on_every_rank
def test_clipping_sees_the_parts_of_all_ranks():
    def run(wrap, order):
        net = model()
        optimizer = wrap(sgd(net), net)
        norms = []
        for parts in batches(3, hvd.size()):
            loss_of(net, parts[hvd.rank()]).backward()
            if wrap is sharded:
                norms.append(optimizer.clip_grad_norm_(0.01, order))
                optimizer.step()
            else:
                optimizer.synchronize()
                norms.append(torch.nn.utils.clip_grad_norm_(net.parameters(), 0.01, order))
                with optimizer.skip_synchronize():
                    optimizer.step()
            optimizer.zero_grad()
        return torch.stack([norm.double() for norm in norms]), values(net)

    for order in (2.0, 1.0, float("inf")):
        (norms, one), (expected, other) = run(sharded, order), run(distributed, order)
        assert torch.allclose(norms, expected, rtol=1e-5) and norms[0] > 0.01
        assert all(torch.allclose(one[name], other[name], atol=1e-6) for name in other)


@on_every_rank
def test_a_scaler_skips_the_same_steps_on_all_ranks():
    def run(wrap, when):
        net = model()
        optimizer = wrap(sgd(net), net)
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)
        scales = []
        for step, parts in enumerate(batches(5, hvd.size())):
            loss = loss_of(net, parts[hvd.rank()])
            if step in (1, 2) and hvd.rank() == hvd.size() - 1:
                loss = loss + (net[0].bias * torch.tensor([float("inf")] + [0.0] * 7)[:8]).sum()
            scaler.scale(loss).backward()
            if when == "synchronize" or wrap is distributed:
                optimizer.synchronize()
            if when == "unscale":
                scaler.unscale_(optimizer)
            with optimizer.skip_synchronize():
                scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            scales.append(scaler.get_scale())
        return scales, values(net)

    expected, weights = run(distributed, "synchronize")
    assert min(expected) == 16.0
    for when in ("synchronize", "unscale", "step"):
        scales, mine = run(sharded, when)
        assert scales == expected, when
        assert same(mine, weights), when
        assert all(bool(torch.isfinite(value).all()) for value in mine.values())


@on_every_rank
def test_the_whole_state_is_that_of_the_optimizer_that_is_not_sharded():
    for make in (sgd, adam):
        net, other = model(), model()
        mine, whole = sharded(make(net), net), distributed(make(other), other)
        train(net, mine, steps=3)
        train(other, whole, steps=3)
        saved, expected = mine.state_dict(), whole.state_dict()
        assert saved["param_groups"] == expected["param_groups"]
        for index, entry in expected["state"].items():
            assert same(saved["state"][index], entry)
        on_root = mine.state_dict(root_rank=hvd.size() - 1)
        assert (on_root is not None) == (hvd.rank() == hvd.size() - 1)
        if on_root is None:
            with pytest.raises(ValueError, match=r"got NoneType .* give every rank the whole one"):
                mine.load_state_dict(on_root)
        # Each takes what the other has written.
        mine.load_state_dict(expected)
        whole.load_state_dict(saved)
        train(net, mine, steps=2)
        train(other, whole, steps=2)
        assert same(values(net), values(other))


@on_every_rank
def test_what_all_ranks_have_saved_continues_on_fewer_and_on_one():
    for make in (sgd, adam):
        net = model()
        optimizer = sharded(make(net), net)
        train(net, optimizer, steps=5)
        saved, weights = optimizer.state_dict(), net.state_dict()
        for count in range(1, hvd.size()):
            some = hvd.add_process_set(range(count))
            try:

                def resume(wrap, weights=weights, saved=saved, some=some, make=make):
                    net = model(seed=1)
                    net.load_state_dict(weights)
                    optimizer = wrap(make(net), net, process_set=some)
                    optimizer.load_state_dict(
                        copy.deepcopy(saved)
                    )  # torch goes on with the tensors themselves
                    train(net, optimizer, steps=5)
                    return values(net)

                if hvd.rank() < count:
                    assert same(resume(sharded), resume(distributed)), count
            finally:
                hvd.remove_process_set(some)


@on_every_rank
def test_process_sets_and_ranks_outside_of_them():
    if hvd.size() < 3:
        return
    some = hvd.add_process_set(range(hvd.size() - 1))
    try:

        def run(wrap):
            net = model()
            optimizer = wrap(adam(net), net, process_set=some)
            for parts in batches(4, hvd.size()):
                loss_of(net, parts[hvd.rank()]).backward()
                optimizer.step()
                optimizer.zero_grad()
            return values(net)

        assert same(run(sharded), run(distributed))
    finally:
        hvd.remove_process_set(some)


@on_every_rank
def test_parameters_may_get_new_memory_and_new_ones_may_come():
    def run(wrap):
        net = model()
        late = torch.nn.Parameter(torch.ones(5))
        optimizer = wrap(sgd(net), net)
        for step, parts in enumerate(batches(4, hvd.size())):
            loss = loss_of(net, parts[hvd.rank()])
            if step > 1:
                loss = loss + late.square().sum() * (1 + hvd.rank())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step == 1:
                if wrap is sharded:
                    optimizer.finish()
                for parameter in net.parameters():
                    parameter.data = parameter.data.clone()
                optimizer.add_param_group({"params": [late]})
        return {**values(net), "late": late.detach().clone()}

    assert same(run(sharded), run(distributed))


@on_every_rank
def test_compiled_models():
    def run(wrap):
        net = model()
        compiled = torch.compile(net, backend="eager")
        optimizer = wrap(sgd(net), compiled)
        train(compiled, optimizer, steps=3)
        return values(net)

    assert same(run(sharded), run(distributed))


@on_every_rank
def test_parameters_are_awaited_module_by_module():
    net = model()
    optimizer = sharded(sgd(net), net)
    train(net, optimizer, steps=2)
    if hvd.size() == 1:
        return
    outstanding = optimizer._gathering._updates
    assert len(outstanding) == 6
    net[0](torch.ones(1, 6))
    assert len(outstanding) == 4
    net.state_dict()
    assert not outstanding and same_everywhere(net)
    train(net, optimizer, steps=1)
    with pytest.raises(RuntimeError, match=r"0\.weight got a gradient before all of it had arrived"):
        torch.nn.functional.linear(torch.ones(1, 6), net[0].weight).sum().backward()
    optimizer.finish()
    assert same_everywhere(net)
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.zero_grad()


class Lamb(torch.optim.Optimizer):
    """Scales the update of a tensor by the norm of the tensor."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"] * float(p.norm() / p.grad.norm()))


@on_every_rank
def test_what_cannot_be_sharded_is_refused_in_a_sentence():
    net = model()
    ps = list(net.parameters())
    refused = [
        (torch.optim.LBFGS(ps), {"model": net}, "LBFGS cannot be sharded, because .* searches along a line"),
        (torch.optim.SparseAdam(ps), {"model": net}, "takes sparse gradients"),
        (Lamb(ps), {"model": net}, "Lamb cannot be sharded, because .*trial with a small matrix"),
        (sgd(net), {}, "needs model=.*or overlap=False"),
        (sgd(net), {"model": model()}, OTHER_MODEL[:40]),
        (sgd(net), {"model": net, "op": hvd.Adasum}, "ShardedOptimizer: op is"),
        (sgd(net), {"model": net, "backward_passes_per_step": 0}, "must be > 0"),
        (distributed(sgd(net), net), {"model": net}, "already"),
    ]
    if hasattr(torch.optim, "Adafactor"):
        refused.append((torch.optim.Adafactor(ps), {"model": net}, "rows and columns of sums"))
    for optimizer, options, text in refused:
        with pytest.raises(ValueError, match=text):
            hvd.ShardedOptimizer(optimizer, **options)
    optimizer = sharded(sgd(net), net)
    for wrap, options in ((hvd.DistributedOptimizer, {}), (hvd.LocalSGD, {"every": 2})):
        with pytest.raises(ValueError, match="already"):
            wrap(optimizer, net.named_parameters(), **options)
    with pytest.raises(ValueError, match="each rank has another part"):
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    with pytest.raises(ValueError, match=r"root_rank is 99, but .* has ranks \[0, 1"):
        optimizer.state_dict(root_rank=99)
    image = torch.nn.Conv2d(3, 4, 3)
    late = sharded(sgd(image), image)
    image.to(memory_format=torch.channels_last)
    image(torch.ones(1, 3, 5, 5)).sum().backward()
    with pytest.raises(ValueError, match="convert the model before the optimizer is made"):
        late.step()
    table = torch.nn.Embedding(5, 8, sparse=True)
    rows = sharded(torch.optim.SGD(table.parameters(), lr=0.1), table)
    with pytest.raises(ValueError, match="The gradient of parameter weight is sparse"):
        table(torch.tensor([1])).sum().backward()
        rows.step()


def test_shares_are_those_of_the_engine(world):
    for count in range(20):
        for size in range(1, 6):
            cuts = [Place(rank, size).cut(count) for rank in range(size)]
            lengths = [end - start for start, end in cuts]
            assert lengths == [count // size + (rank < count % size) for rank in range(size)]
            assert [start for start, _ in cuts[1:]] == [end for _, end in cuts[:-1]]
