"""Gradients of every differentiable collective, against what calculus or the contract says."""

import torch
from harness import on_every_rank

import rueda.torch as hvd


def leaf(*shape):
    return torch.arange(1.0, 1.0 + torch.Size(shape).numel()).reshape(shape).requires_grad_()


def weight(rank=None):
    return float((hvd.rank() if rank is None else rank) + 1)


def mean_weight():
    return (hvd.size() + 1) / 2


@on_every_rank
def test_allreduce_reduces_the_gradient_with_the_same_arguments():
    n = hvd.size()
    for op, scale in ((hvd.Average, 1.0), (hvd.Sum, n)):
        x = leaf(3)
        (hvd.allreduce(x, op=op, prescale_factor=2.0, postscale_factor=0.5) * weight()).sum().backward()
        assert torch.allclose(x.grad, torch.full((3,), mean_weight() * scale))
    x = leaf(3)
    hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16, name="c").sum().backward()
    assert torch.allclose(x.grad, torch.full((3,), float(n)))


@on_every_rank
def test_grouped_allreduce_gradients():
    x, y = leaf(2), leaf(3)
    a, b = hvd.grouped_allreduce([x, y], op=hvd.Sum)
    (a.sum() * weight() + 2 * b.sum()).backward()
    n = hvd.size()
    assert torch.allclose(x.grad, torch.full((2,), mean_weight() * n))
    assert torch.allclose(y.grad, torch.full((3,), 2.0 * n))


@on_every_rank
def test_allgather_averages_and_cuts_out_own_rows():
    me, n = hvd.rank(), hvd.size()
    x = torch.ones(me + 1, 2, requires_grad=True)
    out = hvd.allgather(x)
    rows = torch.arange(float(out.shape[0])).reshape(-1, 1)
    (out * rows * weight()).sum().backward()
    start = sum(range(1, me + 1))
    expected = rows[start : start + me + 1] * mean_weight()
    assert torch.allclose(x.grad, expected.expand(-1, 2))
    x, y = torch.ones(2, requires_grad=True), torch.ones(me, 1, requires_grad=True)
    a, b = hvd.grouped_allgather([x, y], name="grouped")
    (a.sum() * weight() + 3 * b.sum()).backward()
    assert torch.allclose(x.grad, torch.full((2,), mean_weight()))
    assert torch.allclose(y.grad, torch.full((me, 1), 3.0))
    assert n == hvd.size()


@on_every_rank
def test_broadcast_gives_the_averaged_gradient_to_root_alone():
    for root in range(hvd.size()):
        x = leaf(4)
        (hvd.broadcast(x, root) * weight()).sum().backward()
        expected = mean_weight() if hvd.rank() == root else 0.0
        assert torch.allclose(x.grad, torch.full((4,), expected))


@on_every_rank
def test_alltoall_sends_gradients_back():
    me, n = hvd.rank(), hvd.size()
    x = torch.ones(n, 2, requires_grad=True)
    (hvd.alltoall(x) * weight()).sum().backward()
    assert torch.equal(x.grad[:, 0], torch.tensor([weight(r) for r in range(n)]))
    x = torch.ones(sum(range(n)) + 1, requires_grad=True)  # one row is not sent
    out, received = hvd.alltoall(x, list(range(n)))
    assert not received.requires_grad and received.tolist() == [me] * n
    (out * weight()).sum().backward()
    expected = [weight(r) for r in range(n) for _ in range(r)] + [0.0]
    assert x.grad.tolist() == expected


@on_every_rank
def test_reducescatter_gathers_the_gradient():
    me, n = hvd.rank(), hvd.size()
    counts = [2 if r == 0 else 1 for r in range(n)]
    expected = torch.tensor([weight(r) for r in range(n) for _ in range(counts[r])])
    for op, scale in ((hvd.Sum, n), (hvd.Average, 1)):
        x = leaf(n + 1)
        (hvd.reducescatter(x, op=op, prescale_factor=2.0) * weight()).sum().backward()
        assert torch.allclose(x.grad, expected * scale * 2.0)
    x, y = leaf(n + 1), leaf(n)
    a, b = hvd.grouped_reducescatter([x, y], op=hvd.Sum)
    (a.sum() * weight() + b.sum()).backward()
    assert torch.allclose(x.grad, expected * n) and torch.allclose(y.grad, torch.full((n,), float(n)))
    assert me == hvd.rank()


@on_every_rank
def test_outputs_of_inputs_without_gradient_need_none():
    assert not hvd.allreduce(torch.ones(2)).requires_grad
    assert not hvd.allgather(torch.ones(2)).requires_grad


@on_every_rank
def test_sync_batch_norm_equals_batch_norm_over_the_whole_batch():
    for shape in ((3, 4), (3, 4, 5), (2, 4, 3, 3)):
        for momentum in (0.1, None):
            _compare_batch_norms(shape, momentum)


def _compare_batch_norms(shape, momentum):
    n = hvd.size()
    torch.manual_seed(1)
    # Ranks have batches of different length: rank r holds r + shape[0] samples.
    sizes = [shape[0] + r for r in range(n)]
    whole = torch.randn(sum(sizes), *shape[1:]) * 3 + 100
    weights = torch.randn_like(whole)
    start = sum(sizes[: hvd.rank()])
    part = slice(start, start + sizes[hvd.rank()])

    plain = {2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm1d, 4: torch.nn.BatchNorm2d}[len(shape)](
        4, momentum=momentum
    )
    synced = hvd.SyncBatchNorm(4, momentum=momentum)
    with torch.no_grad():
        plain.weight.copy_(torch.arange(1.0, 5.0))
        synced.weight.copy_(plain.weight)
    x, y = whole.clone().requires_grad_(), whole[part].clone().requires_grad_()
    expected, out = plain(x), synced(y)
    assert torch.allclose(out, expected[part], atol=1e-3), (out - expected[part]).abs().max()
    (expected * weights).sum().backward()
    (out * weights[part]).sum().backward()
    assert torch.allclose(y.grad, x.grad[part], atol=1e-3)
    assert torch.allclose(synced.running_mean, plain.running_mean, rtol=1e-4)
    assert torch.allclose(synced.running_var, plain.running_var, rtol=1e-3)
    total = hvd.allreduce(synced.weight.grad, op=hvd.Sum)
    assert torch.allclose(total, plain.weight.grad, rtol=1e-3, atol=1e-2)
    synced.eval(), plain.eval()
    assert torch.allclose(synced(whole[part]), plain(whole[part]), atol=1e-3)


@on_every_rank
def test_sync_batch_norm_takes_an_empty_batch_and_refuses_one_dimension():
    norm = hvd.SyncBatchNorm(4)
    rows = 0 if hvd.rank() == 0 else 5
    out = norm(torch.randn(rows, 4))
    assert out.shape == (rows, 4) and torch.isfinite(norm.running_mean).all()
    try:
        norm(torch.randn(4))
    except ValueError as error:
        assert str(error) == "expected at least 2D input (got 1D input)"
    else:
        raise AssertionError("a 1-D input was accepted")
