"""Complex tensors under backend "rueda": sums and averages of their real and imaginary parts."""

import pytest
import torch
import torch.distributed as dist
from conftest import WORLDS
from harness import on_every_rank
from process_groups import filled, groups

import rueda.torch as hvd

pytestmark = pytest.mark.parametrize("world", WORLDS[:3], indirect=True)


def complex_reductions(dtype, op):
    """Everything that reduces, on tensors of a complex type, or on their real views for `op` of another."""
    size, rank = hvd.size(), hvd.rank()
    real = dtype.to_real()

    def of(shape, seed):
        return torch.view_as_complex(filled((*shape, 2), real, seed))

    def run(view):
        whole, many, rooted = of((5, 3), 1), [of((2,), 2), of((3, 1), 3)], of((7,), 4)
        dist.all_reduce(view(whole), op)
        dist.group.WORLD.allreduce_coalesced([view(one) for one in many]).wait()
        dist.reduce(view(rooted), size - 1, op)
        part, listed = torch.zeros(4, dtype=dtype), torch.zeros(2, 3, dtype=dtype)
        dist.reduce_scatter_tensor(view(part), view(of((size * 4,), 5)), op)
        dist.reduce_scatter(view(listed), [view(of((2, 3), 6 + to)) for to in range(size)], op)
        uneven = torch.zeros(rank + 1, dtype=dtype)
        dist.reduce_scatter(view(uneven), [view(of((to + 1,), 20 + to)) for to in range(size)], op)
        together = [torch.zeros(2, dtype=dtype), torch.zeros(1, dtype=dtype)]
        with dist._coalescing_manager(async_ops=True) as manager:
            for seed, one in enumerate(together):
                dist.reduce_scatter_tensor(view(one), view(of((size * one.numel(),), 40 + seed)), op)
        manager.wait()
        return [whole, *many, rooted if rank == size - 1 else whole, part, listed, uneven, *together]

    return run


@on_every_rank
def test_complex_numbers_are_reduced_as_their_real_and_imaginary_parts():
    with groups():
        for dtype in (torch.complex64, torch.complex128, torch.complex32):
            for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist._make_nccl_premul_sum(0.5)):
                run = complex_reductions(dtype, op)
                for one, other in zip(run(lambda tensor: tensor), run(torch.view_as_real)):
                    assert one.dtype == dtype, one
                    # torch cannot compare complex32 itself
                    assert torch.equal(torch.view_as_real(one), torch.view_as_real(other)), (op, one, other)


@on_every_rank
def test_complex_tensors_of_every_layout_are_reduced():
    with groups():
        size, rank = hvd.size(), hvd.rank()
        mine = torch.tensor([[complex(rank, 1), 2j], [3, complex(1, -rank)]])
        total = size * (size - 1) / 2
        summed = torch.tensor([[complex(total, size), 2j * size], [3 * size, complex(size, -total)]])
        for view in (torch.Tensor.t, torch.conj, lambda one: one[:, 1]):
            given = mine.clone()
            dist.reduce(view(given), 0)
            if rank == 0:
                assert torch.equal(view(given), view(summed)), given
            inputs = [view(mine) for _ in range(size)]
            output = torch.zeros_like(mine)
            dist.reduce_scatter(view(output), inputs)
            assert torch.equal(view(output), view(summed)), output
            dist.group.WORLD.allreduce([view(given := mine.clone())]).wait()
            assert torch.equal(view(given), view(summed)), given


@on_every_rank
def test_products_and_extremes_of_complex_numbers_are_refused():
    with groups():
        size = hvd.size()
        ones = torch.ones(2 * size, dtype=torch.complex64)
        for op in (dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX):
            for refused in (
                lambda op=op: dist.all_reduce(ones, op),
                lambda op=op: dist.reduce(ones, 0, op),
                lambda op=op: dist.reduce_scatter_tensor(ones[:2], ones, op),
                lambda op=op: dist.reduce_scatter(ones[:2].clone(), list(ones.view(size, 2)), op),
            ):
                with pytest.raises(ValueError, match="complex"):
                    refused()
        dist.barrier()  # the engine goes on, in step


@on_every_rank
def test_as_many_real_numbers_on_another_rank_are_told():
    with groups():
        rank, size = hvd.rank(), hvd.size()
        for collective in (
            dist.all_reduce,
            lambda mine: dist.reduce(mine, 0),
            lambda mine: dist.group.WORLD.allreduce([mine]).wait(),
        ):
            mine = torch.ones(3, dtype=torch.complex64) if rank == 0 else torch.ones(6)
            with pytest.raises(
                hvd.HorovodInternalError, match=r"rank 0 has \[3, 2\], ranks? 1.* ha(s|ve) \[6\]"
            ):
                collective(mine)
            assert torch.equal(mine, torch.ones_like(mine)), "nothing was added"
        with pytest.raises(hvd.HorovodInternalError, match=rf"rank {size - 1} has \[4, 2\]"):
            dist.all_reduce(torch.ones(4 if rank == size - 1 else 3, dtype=torch.complex64))
        rows = torch.ones(size, 3, dtype=torch.complex64) if rank == 0 else torch.ones(size, 6)
        with pytest.raises(hvd.HorovodInternalError, match="shape"):
            dist.reduce_scatter_tensor(rows[0].clone(), rows)
        # A part of the numbers that a complex tensor holds may be half of one.
        halves = torch.view_as_real(torch.ones(size, dtype=torch.complex64))
        dist.reduce_scatter_tensor(
            half := torch.zeros(1), halves[: size // 2] if size % 2 == 0 else halves[:, 0]
        )
        assert half.item() == (size if rank % 2 == 0 or size % 2 == 1 else 0), half
        # Ranks that show the same complex numbers in different ways still agree.
        for view in (torch.view_as_real, lambda one: one):
            total = torch.ones(3, dtype=torch.complex64)
            dist.all_reduce(view(total) if rank == 0 else total)
            assert torch.equal(total, torch.full_like(total, size)), total


@on_every_rank
def test_torch_itself_refuses_conjugated_views_in_all_reduce_and_the_engine_goes_on():
    with groups():
        mine = torch.ones(3, dtype=torch.complex64)
        with pytest.raises(RuntimeError, match="resolve_conj"):
            dist.all_reduce(torch.conj(mine))
        dist.all_reduce(given := torch.conj(mine).resolve_conj())
        assert torch.equal(given, torch.full_like(mine, hvd.size()))
