"""Tensors whose elements are the negatives of what their memory holds: torch negates them when it reads."""

import pytest
import torch
from harness import on_every_rank

import rueda.torch as hvd

pytestmark = pytest.mark.parametrize("world", [(2, "shm,tcp"), (3, "tcp")], indirect=True, scope="session")


def negated(*values):
    """These values as a contiguous view of memory that holds their negatives."""
    view = torch._neg_view(-torch.tensor(values))
    assert view.is_neg() and view.is_contiguous() and view.tolist() == list(values)
    return view


def mine():
    """One element for every rank, each this rank's number plus one. A view on all ranks but the first, since
    a sum over negatives alone would come out right.
    """
    values = [float(hvd.rank() + 1)] * hvd.size()
    return negated(*values) if hvd.rank() > 0 else torch.tensor(values)


@on_every_rank
def test_every_collective_reads_the_elements_of_a_negated_view():
    n, total = hvd.size(), sum(range(1, hvd.size() + 1))
    imaginary = torch.complex(torch.tensor([1.0]), torch.tensor([3.0])).conj().imag
    assert hvd.allreduce(imaginary, op=hvd.Max).tolist() == [-3.0]
    assert hvd.allreduce(mine(), op=hvd.Sum).tolist() == [total] * n
    assert hvd.synchronize(hvd.allreduce_async(mine(), op=hvd.Min)).tolist() == [1.0] * n
    one, other = hvd.grouped_allreduce([mine(), torch.ones(1)], op=hvd.Sum)
    assert one.tolist() == [total] * n and other.tolist() == [n]
    assert hvd.broadcast(mine(), 1).tolist() == [2.0] * n
    rows = [float(rank + 1) for rank in range(n)]
    assert hvd.allgather(mine()[:1]).tolist() == rows and hvd.alltoall(mine()).tolist() == rows
    assert hvd.reducescatter(mine(), op=hvd.Sum).tolist() == [total]
    watched = mine().requires_grad_()
    hvd.allreduce(watched, op=hvd.Sum).sum().backward()
    assert watched.grad.tolist() == [n] * n


@on_every_rank
def test_collectives_in_place_write_the_elements_of_a_negated_view():
    n, total = hvd.size(), sum(range(1, hvd.size() + 1))
    for reduce in (
        lambda x: hvd.allreduce_(x, op=hvd.Sum),
        lambda x: hvd.synchronize(hvd.allreduce_async_(x, op=hvd.Sum)),
        lambda x: hvd.grouped_allreduce_([x, torch.ones(1)], op=hvd.Sum)[0],
    ):
        x = mine()
        assert reduce(x) is x and x.tolist() == [total] * n
    x = mine()
    assert hvd.broadcast_(x, 1) is x and x.tolist() == [2.0] * n
    x = mine()
    hvd.broadcast_parameters({"x": x}, 1)
    assert x.tolist() == [2.0] * n


class Negate(torch.autograd.Function):
    """The identity, but its gradient comes negated, as a view or not."""

    @staticmethod
    def forward(ctx, x, as_view):
        ctx.as_view = as_view
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return (torch._neg_view(grad.clone()) if ctx.as_view else -grad), None


@on_every_rank
def test_an_optimizer_averages_negated_gradients():
    n = hvd.size()
    for options in ({}, {"groups": 1}, {"compression": hvd.Compression.fp16}):
        parameter = torch.nn.Parameter(torch.zeros(n))
        optimizer = torch.optim.SGD([parameter], lr=1.0)
        optimizer = hvd.DistributedOptimizer(optimizer, [("p", parameter)], **options)
        for step in range(3):  # gradients of a kind that is known go another way than the first
            as_view = hvd.rank() > 0 and step > 0
            optimizer.zero_grad()
            (Negate.apply(parameter, as_view) * (hvd.rank() + 1)).sum().backward()
            assert parameter.grad.is_neg() == as_view
            optimizer.step()
        assert parameter.tolist() == [3 * (n + 1) / 2] * n
