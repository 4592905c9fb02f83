"""DistributedOptimizer: what it computes, when it communicates, what it refuses."""

import warnings

import pytest
import torch
from harness import on_every_rank
from training import adam, batches, loss_of, model, same_everywhere, sgd

import rueda.torch as hvd


def train_alone(make_optimizer, steps):
    """One process with the batches of all ranks: the losses every rank together should see."""
    net = model()
    optimizer = make_optimizer(net)
    losses = []
    for parts in batches(steps, hvd.size()):
        whole = tuple(torch.cat(side) for side in zip(*parts))
        optimizer.zero_grad()
        loss = loss_of(net, whole)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_together(make_optimizer, steps, **options):
    net = model(seed=hvd.rank())
    optimizer = hvd.DistributedOptimizer(make_optimizer(net), net.named_parameters(), **options)
    hvd.broadcast_parameters(net.named_parameters(), 0)
    losses = []
    for parts in batches(steps, hvd.size()):
        optimizer.zero_grad()
        loss = loss_of(net, parts[hvd.rank()])
        loss.backward()
        optimizer.step()
        losses.append(hvd.allreduce(loss.detach()).item())
    return losses, net


@on_every_rank
def test_loss_curve_equals_one_process_with_the_whole_batch():
    for make in (sgd, adam):
        expected = train_alone(make, 15)
        for options in (
            {},
            {"groups": 2},
            {"gradient_predivide_factor": 2.0},
            {"gradient_predivide_factor": 2.0, "groups": 3},
        ):
            losses, net = train_together(make, 15, **options)
            assert losses == pytest.approx(expected, rel=1e-4), options
            assert same_everywhere(net)
        for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
            losses, net = train_together(make, 15, compression=compression)
            assert losses == pytest.approx(expected, rel=0.1)
            assert same_everywhere(net)


@on_every_rank
def test_groups_of_parameters_and_the_older_num_groups():
    expected = train_alone(sgd, 4)
    net = model()
    made = hvd.DistributedOptimizer(
        sgd(net), net.named_parameters(), groups=[[net[0].weight, net[4].bias], [net[2].weight]]
    )
    for parts in batches(4, hvd.size()):
        made.zero_grad()
        loss = loss_of(net, parts[hvd.rank()])
        loss.backward()
        made.step()
    assert hvd.allreduce(loss.detach()).item() == pytest.approx(expected[-1], rel=1e-4)
    with pytest.warns(DeprecationWarning, match="num_groups"):
        losses, _ = train_together(sgd, 2, num_groups=2)
    assert losses == pytest.approx(expected[:2], rel=1e-4)


@on_every_rank
def test_names_and_passes_can_be_read():
    for op in (hvd.Average, hvd.Adasum):
        net = model()
        optimizer = hvd.DistributedOptimizer(sgd(net), op=op, backward_passes_per_step=2)
        names = [optimizer._parameter_names[parameter] for parameter in net.parameters()]
        assert len(set(names)) == len(names) and hvd.allgather_object(names) == [names] * hvd.size()
        assert optimizer.backward_passes_per_step == 2
        optimizer.set_backward_passes_per_step(3)
        assert optimizer.backward_passes_per_step == 3


@on_every_rank
def test_parameters_may_be_unused_on_some_ranks():
    net = torch.nn.ModuleList([torch.nn.Linear(2, 2, bias=False) for _ in range(2)])
    for layer in net:
        torch.nn.init.ones_(layer.weight)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=1.0), net.named_parameters())
    net[0 if hvd.rank() == 0 else 1](torch.ones(1, 2)).sum().backward()
    optimizer.step()
    n = hvd.size()
    assert torch.allclose(net[0].weight, torch.full((2, 2), 1 - 1 / n))
    assert torch.allclose(net[1].weight, torch.full((2, 2), 1 - (n - 1) / n))


@on_every_rank
def test_gradients_of_several_passes_are_summed_before_one_reduction():
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net), net.named_parameters(), backward_passes_per_step=2)
    first, second = batches(2, hvd.size())
    for parts in (first, second):
        loss_of(net, parts[hvd.rank()]).backward()
    optimizer.synchronize()
    reference = model()
    for parts in (first, second):
        for part in parts:
            (loss_of(reference, part) / hvd.size()).backward()
    for mine, expected in zip(net.parameters(), reference.parameters()):
        assert torch.allclose(mine.grad, expected.grad, atol=1e-6)
    with optimizer.skip_synchronize():
        optimizer.step()
    optimizer.set_backward_passes_per_step(1)
    optimizer.zero_grad()
    loss_of(net, first[hvd.rank()]).backward()
    optimizer.step()
    assert same_everywhere(net)


@on_every_rank
def test_a_step_before_the_last_pass_reduces_at_once():
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net), net.named_parameters(), backward_passes_per_step=2)
    loss_of(net, batches(1, hvd.size())[0][hvd.rank()]).backward()
    optimizer.step()
    assert same_everywhere(net)


def distributed(net, **options):
    return hvd.DistributedOptimizer(sgd(net), net.named_parameters(), **options)


EXTRA_PASS = {
    "plain": distributed,
    "crossing": lambda net: distributed(net, cross_step=True, model=net),
    "sharded": lambda net: hvd.ShardedOptimizer(sgd(net), model=net),
}


@on_every_rank
def test_too_many_passes_raise_inside_backward_and_no_step_uses_what_they_made():
    again = "on every rank call optimizer.zero_grad.., and compute them again"
    batch = batches(1, hvd.size())[0][hvd.rank()]
    for way, make in EXTRA_PASS.items():
        net = model()
        optimizer = make(net)
        before = [parameter.clone() for parameter in net.parameters()]

        def step_alone(optimizer=optimizer):
            with optimizer.skip_synchronize():
                optimizer.step()

        def step_with_counts_anew(optimizer=optimizer):
            optimizer.set_backward_passes_per_step(1)
            optimizer.step()

        uses = [optimizer.synchronize, optimizer.step, step_alone, step_with_counts_anew, optimizer.step]
        for settle in (False, True):  # whether the reductions have ended
            loss_of(net, batch).backward()
            if settle:
                optimizer.synchronize() if way == "sharded" else optimizer.param_groups
            with pytest.raises(
                (AssertionError, RuntimeError), match=r"Gradients were computed|got a gradient"
            ):
                loss_of(net, batch).backward()
            for use in uses:
                with pytest.raises((AssertionError, RuntimeError), match=again):
                    use()
            assert all(map(torch.equal, before, net.parameters()))
            optimizer.zero_grad()
        loss_of(net, batch).backward()
        optimizer.step()
        if way != "plain":
            optimizer.finish()
        assert same_everywhere(net)


@on_every_rank
def test_clipping_between_synchronize_and_step():
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net), net.named_parameters())
    loss_of(net, batches(1, hvd.size())[0][hvd.rank()]).backward()
    optimizer.synchronize()
    norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.01)
    assert hvd.allgather(norm.reshape(1)).unique().numel() == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with optimizer.skip_synchronize():
            optimizer.step()
    loss_of(net, batches(1, hvd.size())[0][hvd.rank()]).backward()
    optimizer.synchronize()
    with pytest.warns(
        UserWarning, match=r"optimizer.step\(\) called without optimizer.skip_synchronize\(\) context"
    ):
        optimizer.step()
    assert same_everywhere(net)


@on_every_rank
def test_zero_grad_is_refused_while_gradients_are_reduced_and_passes_arguments_on():
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net), net.named_parameters())
    loss_of(net, batches(1, hvd.size())[0][hvd.rank()]).backward()
    text = r"optimizer.zero_grad\(\) was called after loss.backward\(\) but before optimizer.step\(\)"
    with pytest.raises(AssertionError, match=text):
        optimizer.zero_grad()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    assert all(p.grad is not None and not p.grad.any() for p in net.parameters())
    optimizer.zero_grad(set_to_none=True)
    assert all(p.grad is None for p in net.parameters())


@on_every_rank
def test_step_without_backward_makes_zero_gradients():
    net = model()
    before = [p.detach().clone() for p in net.parameters()]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
    optimizer.step()
    assert all(not p.grad.any() and torch.equal(p, old) for p, old in zip(net.parameters(), before))


@on_every_rank
def test_sparse_gradients_both_ways():
    n, me = hvd.size(), hvd.rank()
    for as_dense in (False, True):
        embedding = torch.nn.Embedding(n + 1, 2, sparse=True)
        torch.nn.init.zeros_(embedding.weight)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(embedding.parameters(), lr=1.0),
            embedding.named_parameters(),
            sparse_as_dense=as_dense,
        )
        embedding(torch.tensor([0, me + 1])).sum().backward()
        optimizer.step()
        expected = torch.full((n + 1, 2), -1.0 / n)
        expected[0] = -1.0
        assert torch.allclose(embedding.weight, expected)
        assert embedding.weight.grad.is_sparse


@on_every_rank
def test_the_wrapper_is_a_subclass_with_the_same_name_and_without_state():
    net = model()
    plain = adam(net)
    loss_of(net, batches(1, 1)[0][0]).backward()
    plain.step()
    plain.zero_grad()
    optimizer = hvd.DistributedOptimizer(plain, net.named_parameters())
    assert isinstance(optimizer, torch.optim.Adam) and type(optimizer).__name__ == "Adam"
    assert type(optimizer).__module__ == "rueda.torch.optimizer"
    assert not optimizer.state and optimizer.param_groups[0]["lr"] == 0.01
    optimizer.load_state_dict(plain.state_dict())
    assert float(optimizer.state[net[0].weight]["step"]) == 1.0
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    loss_of(net, batches(1, hvd.size())[0][hvd.rank()]).backward()
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.005)


@on_every_rank
def test_optimizers_with_required_arguments_and_step_hooks_work():
    class Custom(torch.optim.SGD):
        def __init__(self, params, rate, note):
            super().__init__(params, lr=rate)
            self.note = note

    net = model()
    calls = []
    optimizer = hvd.DistributedOptimizer(Custom(net.parameters(), 0.1, "kept"), net.named_parameters())
    assert optimizer.note == "kept"
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    loss_of(net, batches(1, hvd.size())[0][hvd.rank()]).backward()
    optimizer.step()
    assert calls == [1] and same_everywhere(net)


@on_every_rank
def test_gradients_in_other_memory_formats_are_reduced():
    torch.manual_seed(0)
    net = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
    x = torch.full((1, 3, 5, 5), float(hvd.rank())).to(memory_format=torch.channels_last)
    net(x).sum().backward()
    optimizer.step()
    assert torch.allclose(net.weight.grad, torch.full_like(net.weight, 9 * (hvd.size() - 1) / 2))
    assert same_everywhere(net)


@on_every_rank
def test_without_names_ranks_still_match():
    net = model()
    groups = [
        {"params": net[0].parameters()},
        {"params": [*net[2].parameters(), *net[4].parameters()], "lr": 0.5},
    ]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(groups, lr=0.1))
    loss_of(net, batches(1, hvd.size())[0][hvd.rank()]).backward()
    optimizer.step()
    assert same_everywhere(net)


@on_every_rank
def test_only_members_of_the_process_set_reduce():
    me, n = hvd.rank(), hvd.size()
    others = hvd.add_process_set(range(1, n))
    net = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(net.weight)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=1.0), net.named_parameters(), groups=1, process_set=others
    )
    net(torch.tensor([[float(me)]])).sum().backward()
    optimizer.step()
    expected = 0.0 if me == 0 else -sum(range(1, n)) / (n - 1)
    assert net.weight.item() == pytest.approx(expected)
    assert hvd.remove_process_set(others)


@on_every_rank
def test_a_second_wrapper_replaces_the_first():
    net = model()
    for _ in range(2):
        optimizer = hvd.DistributedOptimizer(sgd(net), net.named_parameters())
    loss_of(net, batches(1, hvd.size())[0][hvd.rank()]).backward()
    optimizer.step()
    assert same_everywhere(net)


@on_every_rank
def test_construction_errors():
    net = model()

    def refuse(kind, text, named=None, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(kind, match=text):
                hvd.DistributedOptimizer(sgd(net), named, **options)

    pairs = (
        r"named_parameters should be a sequence of tuples \(name, parameter\), usually produced by "
        r"model.named_parameters\(\)."
    )
    refuse(ValueError, pairs, named=list(net.parameters()))
    duplicates = "Parameter names in named_parameters must be unique. Found duplicates: x"
    refuse(ValueError, duplicates, named=[("x", p) for p in net.parameters()])
    refuse(ValueError, duplicates, named=[("x", p) for p in net.parameters()], op=hvd.Adasum)
    missing = (
        "named_parameters was specified, but one or more model parameters were not named. Python object ids: "
    )
    refuse(ValueError, missing, named=[("w", net[0].weight)])
    refuse(
        ValueError,
        r"gradient_predivide_factor not supported with op != Average",
        op=hvd.Sum,
        gradient_predivide_factor=2.0,
    )
    refuse(ValueError, "backward_passes_per_step must be > 0", backward_passes_per_step=0)
    refuse(ValueError, "backward_passes_per_step must be a whole number", backward_passes_per_step=1.5)
    refuse(ValueError, "named_parameters should be a sequence of tuples", named=5)
    numbered = list(enumerate(net.parameters()))
    refuse(TypeError, r"The name has to be a string, not int \(0\)", named=numbered)
    groups = "groups should be a non-negative integer or a list of list of torch.Tensor."
    refuse(ValueError, groups, groups=0)
    refuse(ValueError, groups, groups=-1)
    refuse(TypeError, "", groups="x")
    refuse(TypeError, "not bool", groups=True)
    refuse(ValueError, "compression must be one of .*, unlike 'fp16'.", compression="fp16")
    refuse(ValueError, "op must be one of Average, .*, not 77.", op=77)
    for factor in (0.0, float("nan")):
        refuse(ValueError, "must be a finite number other than 0", gradient_predivide_factor=factor)
    refuse(TypeError, "process_set must be a ProcessSet, not list.", process_set=[0, 1])
    lists = "groups should be an integer or a list of list of torch.Tensor, not a list with "
    refuse(TypeError, lists + "int", groups=[1, 2])
    refuse(TypeError, lists + "Parameter", groups=list(net.parameters()))
    refuse(ValueError, "groups must consist of torch.Tensor.", groups=[[1, 2]])
    w = net[0].weight
    refuse(ValueError, "A parameter can only appear once in groups.", groups=[[w], [w]])
    hvd.DistributedOptimizer(sgd(net), groups=[])
    for op in (hvd.Average, hvd.Adasum):
        wrapped = hvd.DistributedOptimizer(sgd(net), op=op)
        with pytest.raises(ValueError, match="This optimizer is a DistributedOptimizer already"):
            hvd.DistributedOptimizer(wrapped)


@on_every_rank
def test_parameters_added_later_are_reduced():
    net = model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net[0].parameters(), lr=0.1))
    optimizer.add_param_group({"params": net[2].parameters(), "lr": 0.2})
    optimizer.add_param_group({"params": list(net[4].parameters())})
    loss_of(net, batches(1, hvd.size())[0][hvd.rank()]).backward()
    optimizer.step()
    assert same_everywhere(net)


@on_every_rank
def test_mixed_precision_with_a_gradient_scaler():
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net), net.named_parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    for parts in batches(3, hvd.size()):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(net, parts[hvd.rank()])
        scaler.scale(loss).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
    assert same_everywhere(net)


@on_every_rank
def test_compiled_models_are_reduced():
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net), net.named_parameters())
    compiled = torch.compile(net, backend="eager")
    for parts in batches(2, hvd.size()):
        optimizer.zero_grad()
        loss_of(compiled, parts[hvd.rank()]).backward()
        optimizer.step()
    assert same_everywhere(net)
