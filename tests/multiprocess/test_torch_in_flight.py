"""DistributedOptimizer while gradients are being reduced: restoring, torch's GradScaler, closures, sparse
gaps.
"""

import pytest
import torch
from harness import on_every_rank
from training import batches, loss_of, model, same_everywhere, sgd

import rueda.torch as hvd


def wide_model():
    """Large enough that a reduction takes longer than the way from one backward pass to the next."""
    torch.manual_seed(0)
    return torch.nn.Linear(1000, 1000)


@on_every_rank
def test_loading_state_and_changing_passes_await_reductions_under_way():
    net = wide_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
    state = optimizer.state_dict()
    x = torch.full((1, 1000), float(hvd.rank()))
    for forget in (
        lambda: optimizer.load_state_dict(state),
        lambda: optimizer.set_backward_passes_per_step(1),
    ):
        for _ in range(10):
            net(x).sum().backward()
            forget()
            optimizer.zero_grad()
            net(x).sum().backward()  # under the same names
            optimizer.step()
            assert torch.allclose(net.weight.grad, torch.full((1000, 1000), (hvd.size() - 1) / 2))
            optimizer.zero_grad()
    assert same_everywhere(net)


@on_every_rank
def test_adasum_gives_weights_back_when_state_is_loaded_under_way():
    net = wide_model()
    before = net.weight.detach().clone()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters(), op=hvd.Adasum
    )
    state = optimizer.state_dict()
    for _ in range(5):
        net(torch.ones(1, 1000)).sum().backward()
        optimizer.load_state_dict(state)
        assert torch.equal(net.weight, before)
        optimizer.zero_grad()


@on_every_rank
def test_state_can_be_loaded_after_backward_broke_off():
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net), net.named_parameters())
    state, weights = optimizer.state_dict(), {k: v.clone() for k, v in net.state_dict().items()}
    batch = batches(1, hvd.size())[0][hvd.rank()]

    def break_off(grad):
        raise RuntimeError("broken off")

    hook = net[0].weight.register_hook(break_off)
    with pytest.raises(RuntimeError, match="broken off"):
        loss_of(net, batch).backward()
    hook.remove()
    net.load_state_dict(weights)
    optimizer.load_state_dict(state)
    optimizer.zero_grad()
    loss_of(net, batch).backward()
    optimizer.step()
    assert same_everywhere(net)


@on_every_rank
def test_a_gradient_scaler_needs_no_synchronize():
    whole = model()
    alone = sgd(whole)
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net), net.named_parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step, parts in enumerate(batches(6, hvd.size())):
        x, y = parts[hvd.rank()]
        overflows = step == 2
        if overflows and hvd.rank() == 1:
            x = x * float("inf")
        before = net[0].weight.detach().clone()
        scaler.scale(loss_of(net, (x, y))).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        assert scaler.get_scale() == (1024.0 if step < 2 else 512.0)
        assert torch.equal(net[0].weight, before) == overflows
        if not overflows:
            loss_of(whole, tuple(torch.cat(side) for side in zip(*parts))).backward()
            alone.step()
            alone.zero_grad()
    assert same_everywhere(net)
    for mine, expected in zip(net.parameters(), whole.parameters()):
        assert torch.allclose(mine, expected, atol=1e-5)


@on_every_rank
def test_reading_param_groups_leaves_reduced_gradients_that_are_not_reduced_again():
    net = wide_model()
    torch.nn.init.zeros_(net.weight)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=1.0), net.named_parameters(), op=hvd.Sum
    )
    n = hvd.size()
    net(torch.full((1, 1000), float(hvd.rank()))).sum().backward()
    total = torch.full((1000, 1000), n * (n - 1) / 2)
    assert optimizer.param_groups[0]["params"][0] is net.weight
    assert torch.equal(net.weight.grad, total)
    optimizer.step()
    assert torch.equal(net.weight, -total)


def closure_steps(net, optimizer, parts_of_steps, select):
    losses = []
    for parts in parts_of_steps:

        def closure(parts=parts):
            optimizer.zero_grad()
            loss = loss_of(net, select(parts))
            loss.backward()
            return loss

        losses.append(float(optimizer.step(closure)))
    return losses


@on_every_rank
def test_a_closure_may_run_backward():
    makers = (sgd, lambda net: torch.optim.LBFGS(net.parameters(), max_iter=5, line_search_fn="strong_wolfe"))
    for make in makers:
        whole, net = model(), model()
        data = batches(4, hvd.size())
        expected = closure_steps(
            whole, make(whole), data, lambda parts: tuple(torch.cat(side) for side in zip(*parts))
        )
        optimizer = hvd.DistributedOptimizer(make(net), net.named_parameters())
        losses = closure_steps(net, optimizer, data, lambda parts: parts[hvd.rank()])
        assert losses == pytest.approx(expected, rel=1e-2)
        assert same_everywhere(net)


@on_every_rank
def test_a_closure_that_only_evaluates_leaves_the_gradients_alone():
    net = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.zeros_(net.weight)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=1.0), net.named_parameters(), op=hvd.Sum
    )
    n = hvd.size()
    net(torch.full((1, 2), float(hvd.rank()))).sum().backward()
    assert optimizer.step(lambda: float(hvd.rank())) == n * (n - 1) / 2
    assert torch.equal(net.weight, torch.full((1, 2), -n * (n - 1) / 2))


@on_every_rank
def test_a_rank_without_a_sparse_gradient_adds_no_entries():
    torch.manual_seed(0)
    embedding, layer = torch.nn.Embedding(10, 3, sparse=True), torch.nn.Linear(3, 1)
    net = torch.nn.ModuleList([embedding, layer])
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
    for step in range(3):
        optimizer.zero_grad()
        uses_it = hvd.rank() == 0 or step == 0
        before = embedding.weight.detach().clone()
        layer(embedding(torch.tensor([1, 2])) if uses_it else torch.ones(2, 3)).sum().backward()
        optimizer.step()
        users = hvd.size() if step == 0 else 1
        assert embedding.weight.grad.is_sparse and embedding.weight.grad._nnz() == 2 * users
        moved = (embedding.weight != before).any(dim=1)
        assert moved.tolist() == [row in (1, 2) for row in range(10)]
    assert same_everywhere(net)
