"""Operations in flight that share memory, where rueda works on copies: strided, negated and conjugated
tensors, and lists of outputs. The result is that of one after the other, as for all other tensors.
"""

import random

import pytest
import torch
import torch.distributed as dist
from conftest import WORLDS
from harness import on_every_rank
from process_groups import groups

import rueda.torch as hvd
from rueda.open_operations import open_operations, writing_back

pytestmark = pytest.mark.parametrize("world", WORLDS[:3], indirect=True)


def filled(*shape):
    return torch.full(shape, float(hvd.rank()))


def total():
    return float(sum(range(hvd.size())))


def negated(size):
    """A tensor of this rank's number whose memory holds the negatives."""
    return torch._neg_view(-filled(size))  # as z.conj().imag is, but contiguous


@on_every_rank
def test_strided_tensors_are_reduced_one_after_the_other():
    with groups():
        n = hvd.size()
        for i in range(20):
            t = filled(2000)[::2]
            for work in [dist.all_reduce(t, async_op=True) for _ in range(3)]:
                work.wait()
            assert torch.equal(t, torch.full((1000,), total() * n * n)), i
            whole = filled(30, 30)
            works = [
                dist.all_reduce(whole, async_op=True),
                dist.all_reduce(whole.t()[:, :7], async_op=True),
                dist.broadcast(whole[0], 1, async_op=True),
                dist.broadcast(whole[:, 3], 1, async_op=True),
                dist.all_reduce(whole, async_op=True),
            ]
            for work in reversed(works):
                work.wait()
            expected = torch.full((30, 30), total())
            expected[:7] *= n  # every rank had this already, so the broadcasts change nothing
            assert torch.equal(whole, expected * n), i


@on_every_rank
def test_lists_of_outputs_are_written_before_others_read_them():
    with groups():
        n = hvd.size()
        for i in range(20):
            whole, mine = torch.zeros(n * 500), filled(500)
            works = [
                dist.all_reduce(whole.fill_(1.0), async_op=True),
                dist.all_gather(list(whole.chunk(n)), mine, async_op=True),
                dist.all_reduce(whole, async_op=True),
                dist.all_to_all(list(whole.chunk(n)), list(whole.chunk(n)), async_op=True),
                dist.all_gather(list(whole.chunk(n)), whole[:500], async_op=True),
                dist.reduce_scatter(mine, list(whole.chunk(n)), async_op=True),
            ]
            for work in works:
                work.wait()
            # The alltoall gives rank r the r-th block of everybody, all equal; the allgather their firsts.
            expected = torch.arange(float(n)).repeat_interleave(500) * n
            assert torch.equal(whole, expected), i
            assert torch.equal(mine, filled(500) * n * n), i
        assert not writing_back


@on_every_rank
def test_negated_views_are_reduced_one_after_the_other():
    n, before = hvd.size(), set(open_operations)
    for i in range(20):
        t = negated(1000)
        assert t.is_neg()
        handles = [hvd.allreduce_async_(t, name=f"sum.{k}", op=hvd.Sum) for k in range(3)]
        handles.append(hvd.broadcast_async_(t, 1, name="root"))
        gathered = hvd.allgather_async(t, name="rows")
        hvd.poll(handles[0])
        assert all(hvd.synchronize(handle) is t for handle in handles), i  # though others waited for them
        assert hvd.synchronize(handles[0]) is None
        assert torch.equal(t, torch.full((1000,), total() * n * n)), i
        assert torch.equal(hvd.synchronize(gathered), torch.full((1000 * n,), total() * n * n)), i
    assert not set(open_operations) - before and not writing_back


@on_every_rank
def test_a_failed_operation_is_told_to_its_caller_and_not_to_the_next():
    t, before = negated(1000), set(open_operations)
    wrong = hvd.allreduce_async_(t[: 500 + hvd.rank()], name="wrong", op=hvd.Sum)
    right = hvd.allreduce_async_(t, name="right", op=hvd.Sum)
    assert torch.equal(hvd.synchronize(right), torch.full((1000,), total()))
    with pytest.raises(hvd.HorovodInternalError, match="shape"):
        hvd.synchronize(wrong)
    assert not set(open_operations) - before and not writing_back


@on_every_rank
def test_what_starts_together_is_refused():
    t = negated(100)
    with pytest.raises(ValueError, match="grouped_allreduce got tensors 0 and 2 that share memory"):
        hvd.grouped_allreduce_([t, torch.ones(3), t], name="twice")
    both = hvd.grouped_allreduce([t, t], name="new", op=hvd.Sum)  # only read
    assert all(torch.equal(one, torch.full((100,), total())) for one in both)
    with groups():
        t = filled(100)[::2]
        with pytest.raises(ValueError, match="all_reduce got tensors 0 and 1 that share memory"):
            dist.distributed_c10d.all_reduce_coalesced([t, t])
        with pytest.raises(ValueError, match="tensors 0 and 1"), dist._coalescing_manager():
            dist.all_reduce(t)
            dist.all_reduce(t)
        dist.distributed_c10d.all_reduce_coalesced([t, filled(100)[1::2]])
        assert torch.equal(t, torch.full((50,), total()))


@on_every_rank
def test_columns_are_exchanged_in_any_order():
    """A wait for columns that lie between one another would be one for neighbours that wait as well."""
    with groups():
        n, rank = hvd.size(), hvd.rank()
        left, right = (rank - 1) % n, (rank + 1) % n
        for i in range(10):
            field = filled(8, 10)
            works = [
                dist.irecv(field[:, 0], left, tag=1),
                dist.irecv(field[:, 9:], right, tag=2),
                dist.isend(field[:, 8], right, tag=1),
                dist.isend(field[:, 1], left, tag=2),
            ]
            for work in works if i % 2 else reversed(works):
                work.wait()
            expected = filled(8, 10)
            expected[:, 0], expected[:, 9] = left, right
            assert torch.equal(field, expected), i


@on_every_rank
def test_gradients_that_a_list_of_outputs_fills_meanwhile():
    with groups():
        n = hvd.size()
        net = torch.nn.Linear(4, n, bias=False)
        net.weight.grad = torch.zeros(n, 4)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.0), net.named_parameters(), op=hvd.Sum
        )
        for i in range(5):
            optimizer.zero_grad(set_to_none=False)
            work = dist.all_gather(list(net.weight.grad), filled(4), async_op=True)
            # The hook waits for the list, and reduces what it wrote.
            (net(torch.ones(1, 4)).sum() * 0).backward()
            optimizer.synchronize()
            work.wait()
            expected = torch.arange(float(n)).unsqueeze(1).expand(n, 4) * n
            assert torch.equal(net.weight.grad, expected), i
            with optimizer.skip_synchronize():
                optimizer.step()


# ---- programs at random ----


def views(base):
    """Views of a base of 48 elements, and what they are as a list of places in it."""
    grid, places = base.view(6, 8), torch.arange(48)
    table = places.view(6, 8)
    return [
        (base[4:20], places[4:20]),
        (base[::2], places[::2]),
        (base[1::2], places[1::2]),
        (grid[:, 2:5], table[:, 2:5]),
        (grid.t(), table.t()),
        (grid[3], table[3]),
        (grid[:, 7], table[:, 7]),
    ]


def chosen(random, n):
    what = random.choice(["all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all"])
    return what, random.randrange(7), random.randrange(n), random.randrange(4)


def begun(base, n, operation):
    what, view, root, start = operation
    tensor, _ = views(base)[view]
    blocks = [base[start + 4 * k : start + 4 * k + 4] for k in range(n)]
    if what == "all_reduce":
        return dist.all_reduce(tensor, async_op=True)
    if what == "broadcast":
        return dist.broadcast(tensor, root, async_op=True)
    if what == "all_gather":
        return dist.all_gather(blocks, base[40:48:2], async_op=True)
    if what == "reduce_scatter":
        return dist.reduce_scatter(base[33:48:4], blocks, async_op=True)
    return dist.all_to_all(blocks, blocks, async_op=True)


def applied(bases, operation):
    """The operation on the bases of all ranks."""
    what, view, root, start = operation
    n = len(bases)
    places = views(bases[0])[view][1].reshape(-1)
    blocks = [list(range(start + 4 * k, start + 4 * k + 4)) for k in range(n)]
    if what == "all_reduce":
        reduced = sum(base[places] for base in bases)
        for base in bases:
            base[places] = reduced
    elif what == "broadcast":
        for base in bases:
            base[places] = bases[root][places].clone()
    elif what == "all_gather":
        sent = [base[40:48:2].clone() for base in bases]
        for base in bases:
            for block, values in zip(blocks, sent):
                base[block] = values
    elif what == "reduce_scatter":
        sums = [sum(base[block] for base in bases) for block in blocks]
        for base, values in zip(bases, sums):
            base[33:48:4] = values
    else:
        sent = [[base[block].clone() for block in blocks] for base in bases]
        for rank, base in enumerate(bases):
            for k, block in enumerate(blocks):
                base[block] = sent[k][rank]


@on_every_rank
def test_programs_at_random():
    with groups():
        n, rank = hvd.size(), hvd.rank()
        for seed in range(40):
            program = random.Random(seed)
            bases = [torch.arange(48.0) + 100 * r for r in range(n)]
            base = bases[rank].clone()
            operations = [chosen(program, n) for _ in range(8)]
            works = [begun(base, n, one) for one in operations]
            random.Random(seed + 1000 * rank).shuffle(works)
            for work in works:
                work.wait()
            for one in operations:
                applied(bases, one)
            assert torch.equal(base, bases[rank]), (seed, operations)
