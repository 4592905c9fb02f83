"""Backend "rueda" of torch.distributed: every collective against Gloo's results, and what it refuses."""

import gc
import weakref

import numpy
import pytest
import torch
import torch.distributed as dist
from conftest import WORLDS
from harness import on_every_rank
from process_groups import both, filled, groups

import rueda.torch as hvd

pytestmark = pytest.mark.parametrize("world", WORLDS[:3], indirect=True)

REAL = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
WHOLE = [torch.uint8, torch.int8, torch.int32, torch.int64]
OPS = [dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]


def same(pair):
    mine, glooish = pair
    assert len(mine) == len(glooish)
    for one, other in zip(mine, glooish):
        assert one.dtype == other.dtype and torch.equal(one, other), (one, other)


def reductions(dtype, op):
    size = hvd.size()

    def run(group):
        whole = filled((5, 3), dtype, 1)
        dist.all_reduce(whole, op, group)
        rooted = filled((7,), dtype, 2)
        dist.reduce(rooted, size - 1, op, group)
        part = torch.zeros(4, dtype=dtype)
        dist.reduce_scatter_tensor(part, filled((size * 4,), dtype, 3), op, group)
        from_list = torch.zeros(2, 3, dtype=dtype)
        dist.reduce_scatter(from_list, list(filled((size, 2, 3), dtype, 4)), op, group)
        return [whole, rooted if hvd.rank() == size - 1 else whole, part, from_list]

    return run


@on_every_rank
def test_reductions_of_every_type_and_operation_equal_gloos():
    with groups() as gloo:
        for dtype in REAL + WHOLE:
            for op in OPS:
                same(both(gloo, reductions(dtype, op)))


@on_every_rank
def test_averages_factors_and_booleans_mean_what_torch_says():
    with groups():
        size = hvd.size()
        mean = torch.full((3,), float(hvd.rank()))
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        assert torch.allclose(mean, torch.full((3,), (size - 1) / 2))
        part = torch.zeros(2)
        dist.reduce_scatter_tensor(part, torch.arange(2.0 * size), dist.ReduceOp.AVG)
        assert part.tolist() == [2.0 * hvd.rank(), 2.0 * hvd.rank() + 1]
        scaled = torch.ones(3)
        dist.all_reduce(scaled, dist._make_nccl_premul_sum(0.5))
        assert scaled.tolist() == [0.5 * size] * 3
        mine = torch.tensor([hvd.rank() == 0, True, False])
        for op, expected in (("MAX", [True, True, False]), ("MIN", [False, True, False])):
            flags = mine.clone()
            dist.all_reduce(flags, getattr(dist.ReduceOp, op))
            assert flags.tolist() == expected


@on_every_rank
def test_what_the_engine_cannot_do_is_refused_before_anything_is_sent():
    with groups():
        for name in ("BAND", "BOR", "BXOR"):
            with pytest.raises(ValueError, match=f"does not reduce with ReduceOp.{name}"):
                dist.all_reduce(torch.ones(2, dtype=torch.int32), getattr(dist.ReduceOp, name))
        with pytest.raises(ValueError, match=r"cannot reduce torch.float8_e5m2"):
            dist.group.WORLD.allreduce([torch.zeros(2, dtype=torch.float8_e5m2)])
        with pytest.raises(ValueError, match="takes dense tensors"):
            dist.all_reduce(torch.eye(2).to_sparse())
        with pytest.raises(ValueError, match="needs an output of"):
            dist.group.WORLD.all_gather_single(torch.zeros(1), torch.zeros(3))
        with pytest.raises(ValueError, match="list of 1 tensors"):
            dist.group.WORLD.alltoall([torch.zeros(1)], [torch.zeros(1)])
        with pytest.raises(ValueError, match="any source"):
            dist.recv(torch.zeros(1))
        dist.barrier()  # the engine goes on, in step


def movements(dtype):
    size, rank = hvd.size(), hvd.rank()

    def run(group):
        sent = filled((3, 2), dtype, 5)
        dist.broadcast(sent, size - 1, group)
        gathered = [torch.zeros(2, 2, dtype=dtype) for _ in range(size)]
        dist.all_gather(gathered, filled((2, 2), dtype, 6), group)
        joined = torch.zeros(size * 3, dtype=dtype)
        dist.all_gather_into_tensor(joined, filled((3,), dtype, 7), group)
        at_root = [torch.zeros(4, dtype=dtype) for _ in range(size)] if rank == 1 else None
        dist.gather(filled((4,), dtype, 8), at_root, 1, group)
        dealt = torch.zeros(2, dtype=dtype)
        dist.scatter(dealt, list(filled((size, 2), dtype, 9)) if rank == 1 else None, 1, group)
        even = torch.zeros(size, 2, dtype=dtype)
        dist.all_to_all_single(even, filled((size, 2), dtype, 10), group=group)
        rows = torch.zeros(size * (rank + 1), 2, dtype=dtype)
        give, take = [to + 1 for to in range(size)], [rank + 1] * size
        dist.all_to_all_single(rows, filled((sum(give), 2), dtype, 11), take, give, group)
        return [sent, *gathered, joined, *(at_root or []), dealt, even, rows]

    return run


@on_every_rank
def test_movements_of_every_type_equal_gloos():
    with groups() as gloo:
        for dtype in [*REAL, *WHOLE, torch.bool]:
            same(both(gloo, movements(dtype)))
        exotic = filled((4,), torch.float32, 1).to(torch.float8_e4m3fn)  # bytes to the engine
        everyone = torch.zeros(4 * hvd.size(), dtype=torch.float8_e4m3fn)
        dist.group.WORLD.all_gather_single(everyone, exotic).wait()
        assert torch.equal(everyone[4 * hvd.rank() :][:4].view(torch.uint8), exotic.view(torch.uint8))


@on_every_rank
def test_any_layout_goes_in_and_out():
    with groups():
        size, rank = hvd.size(), hvd.rank()
        column = torch.zeros(4, 3)
        column[:, 1] = rank + 1
        dist.all_reduce(column[:, 1])
        assert column.sum(0).tolist() == [0, 4 * size * (size + 1) / 2, 0]
        scalar = torch.tensor(float(rank))
        dist.all_reduce(scalar)
        assert scalar.item() == size * (size - 1) / 2
        dist.all_reduce(torch.zeros(0))
        dist.all_gather_into_tensor(torch.zeros(0), torch.zeros(0))
        strided = torch.zeros(size * 2, 2).t()
        dist.all_gather_into_tensor(strided, torch.full((4,), float(rank)))
        assert strided.reshape(-1).tolist() == [float(r) for r in range(size) for _ in range(4)]
        # In place, as FSDP gathers: the input is this rank's block of the output.
        whole = torch.full((size * 5,), -1.0)
        whole[5 * rank : 5 * rank + 5] = rank
        dist.all_gather_into_tensor(whole, whole[5 * rank : 5 * rank + 5])
        assert whole.tolist() == [float(r) for r in range(size) for _ in range(5)]
        # Overlapping otherwise: the input is kept aside.
        shifted = torch.full((size * 2,), float(rank))
        dist.all_gather_into_tensor(shifted, shifted[1:3] if size > 1 else shifted[:2])
        assert shifted.tolist() == [float(r) for r in range(size) for _ in range(2)]
        source = torch.arange(2.0 * size)
        dist.reduce_scatter_tensor(source[:2], source)
        assert source[:2].tolist() == [2.0 * rank * size, (2.0 * rank + 1) * size]
        leaf = torch.ones(2, requires_grad=True)
        dist.broadcast(leaf, 0)
        assert leaf.requires_grad and leaf.is_leaf


@on_every_rank
def test_views_that_negate_or_conjugate_their_memory_are_read_and_written_as_what_they_say():
    me, size = hvd.rank(), hvd.size()
    with groups():
        negated = torch._neg_view(torch.tensor([1.0 + me])) if me > 0 else torch.tensor([-1.0])
        dist.all_reduce(negated)
        assert negated.tolist() == [-sum(range(1, size + 1))]
        conjugated = torch.tensor([complex(me, -1)]).conj()  # most functions of torch refuse these
        outputs = [torch.zeros(1, dtype=torch.complex64).conj() for _ in range(size)]
        dist.gather(conjugated, outputs if me == 1 else None, 1)
        if me == 1:
            assert [output.item() for output in outputs] == [complex(rank, 1) for rank in range(size)]


@on_every_rank
def test_shares_of_different_size_reach_their_places():
    with groups():
        size, rank = hvd.size(), hvd.rank()
        outputs = [torch.zeros(r + 1) for r in range(size)]
        dist.all_gather(outputs, torch.full((rank + 1,), float(rank)))
        assert [o.tolist() for o in outputs] == [[float(r)] * (r + 1) for r in range(size)]
        mine = torch.zeros(rank + 1)
        dist.reduce_scatter(mine, [torch.full((r + 1,), float(r)) for r in range(size)])
        assert mine.tolist() == [float(rank * size)] * (rank + 1)
        outputs = [torch.zeros(r + 1) for r in range(size)]
        dist.all_to_all(outputs, [torch.full((rank + 1,), 10.0 * rank + to) for to in range(size)])
        assert [o.tolist() for o in outputs] == [[10.0 * r + rank] * (r + 1) for r in range(size)]


@on_every_rank
def test_ranks_that_disagree_are_told_what_each_called():
    with groups():
        dist.barrier()
        is_first = hvd.rank() == 0
        mine = "all_reduce" if is_first else "broadcast"
        where = r"torch.distributed/\d+/group (\w+)/call 2"
        text = rf"Tensor {where}: .* This rank called {mine} \(call 2 of process group \1\)\."
        with pytest.raises(hvd.HorovodInternalError, match=text):
            dist.all_reduce(torch.ones(2)) if is_first else dist.broadcast(torch.ones(2), 0)


@on_every_rank
def test_ranks_that_disagree_about_sizes_all_fail_and_no_memory_is_overwritten():
    with groups():
        size, rank = hvd.size(), hvd.rank()
        extra = int(rank == 1)
        guard = torch.zeros(100)
        for attempt in (
            lambda: dist.all_reduce(torch.ones(2 + extra)),
            lambda: dist.broadcast(torch.ones(2 + extra), 0),
            lambda: dist.all_gather_into_tensor(guard[: size * (2 + extra)], torch.ones(2 + extra)),
            lambda: dist.reduce_scatter_tensor(guard[: 2 + extra], torch.ones(size * (2 + extra))),
            lambda: dist.all_to_all_single(guard[: size * (2 + extra)], torch.ones(size * (2 + extra))),
        ):
            with pytest.raises(hvd.HorovodInternalError):
                attempt()
            assert not guard.any()
        with pytest.raises(hvd.HorovodInternalError, match="make the sizes agree on all ranks"):
            dist.all_to_all([torch.zeros(1)] * size, [torch.ones(2)] * size)
        dist.barrier()


@on_every_rank
def test_methods_of_old_and_new_pytorch_do_the_same():
    with groups():
        size, world = hvd.size(), dist.group.WORLD
        for name in ("all_gather_single", "_allgather_base"):
            output = torch.zeros(size)
            getattr(world, name)(output, torch.tensor([float(hvd.rank())])).wait()
            assert output.tolist() == list(range(size))
        for name in ("reduce_scatter_single", "_reduce_scatter_base"):
            output = torch.zeros(1)
            getattr(world, name)(output, torch.arange(float(size)), dist.ReduceScatterOptions()).wait()
            assert output.item() == hvd.rank() * size
        for name in ("all_to_all_single", "alltoall_base"):
            output = torch.zeros(size)
            getattr(world, name)(output, torch.full((size,), float(hvd.rank())), [], []).wait()
            assert output.tolist() == list(range(size))
        for name in ("all_gather_single_coalesced", "allgather_into_tensor_coalesced"):
            outputs = [torch.zeros(size), torch.zeros(2 * size)]
            getattr(world, name)(outputs, [torch.ones(1), torch.ones(2)]).wait()
            assert all(output.eq(1).all() for output in outputs)
        for name in ("reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"):
            outputs = [torch.zeros(1), torch.zeros(2, dtype=torch.float64)]
            sources = [torch.ones(size), torch.ones(2 * size, dtype=torch.float64)]
            getattr(world, name)(outputs, sources).wait()
            assert all(output.eq(size).all() for output in outputs)
        # The forms with a tensor and a root, which C++ and older scripts use.
        world.broadcast(torch.ones(1), 0).wait()
        world.allreduce(torch.ones(1)).wait()
        world.allgather([torch.zeros(1) for _ in range(size)], torch.ones(1)).wait()
        world.barrier().wait()


@on_every_rank
def test_coalesced_operations_end_together():
    with groups():
        size = hvd.size()
        tensors = [torch.full((2,), float(hvd.rank())), torch.ones(3, dtype=torch.int64)]
        with dist._coalescing_manager(async_ops=True) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        manager.wait()
        assert tensors[0][0] == size * (size - 1) / 2 and tensors[1].tolist() == [size] * 3
        sent = [torch.full((2,), float(hvd.rank())) for _ in range(3)]
        with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
            for tensor in sent:
                dist.broadcast(tensor, 1, async_op=True)
        manager.wait()
        assert all(tensor.tolist() == [1.0, 1.0] for tensor in sent)


@on_every_rank
def test_all_gather_coalesced_fills_a_list_per_rank_whatever_the_number_of_tensors():
    def run(group, widths):
        given = [filled((2, width), torch.float32, index) for index, width in enumerate(widths)]
        taken = [[torch.zeros(2, width) for width in widths] for _ in range(hvd.size())]
        dist.all_gather_coalesced(taken, given, group)
        later = [[torch.zeros(2, width) for width in widths] for _ in range(hvd.size())]
        dist.all_gather_coalesced(later, given, group, async_op=True).wait()
        return [tensor for many in (taken, later) for of_rank in many for tensor in of_rank]

    with groups() as gloo:
        for count in range(1, hvd.size() + 2):
            for widths in ([3] * count, range(1, count + 1)):
                same(both(gloo, lambda group, given=widths: run(group, given)))
        with pytest.raises(ValueError, match="a list of 2 outputs for each rank"):
            outputs = [[torch.zeros(1)] * 2] * (hvd.size() + 1)
            dist.all_gather_coalesced(outputs, [torch.zeros(1)] * 2)


@on_every_rank
def test_objects_travel():
    with groups():
        size, rank = hvd.size(), hvd.rank()
        everyone = [None] * size
        dist.all_gather_object(everyone, {"rank": rank, "pad": "x" * rank})
        assert everyone == [{"rank": r, "pad": "x" * r} for r in range(size)]
        told = [rank, "own"]
        dist.broadcast_object_list(told, 1)
        assert told == [1, "own"]
        collected = [None] * size if rank == 0 else None
        dist.gather_object((rank,), collected, 0)
        assert collected is None or collected == [(r,) for r in range(size)]
        got = [None]
        dist.scatter_object_list(got, [f"for {r}" for r in range(size)] if rank == 1 else None, 1)
        assert got == [f"for {rank}"]
        if rank == 0:
            dist.send_object_list(["hello", 7], 1)
        if rank == 1:
            received = [None, None]
            dist.recv_object_list(received, 0)
            assert received == ["hello", 7]


@on_every_rank
def test_a_dropped_work_does_not_free_what_the_engine_uses():
    with groups():
        array = numpy.ones(1000, dtype=numpy.float32)
        alive = weakref.ref(array)
        if hvd.rank() == 0:  # the others come after the barrier: the operation stays open
            dist.all_reduce(torch.from_numpy(array), async_op=True)
            del array
            gc.collect()
            assert alive() is not None and alive()[0] == 1
        hvd.barrier()
        if hvd.rank() != 0:
            dist.all_reduce(torch.from_numpy(array))
            assert array[0] == hvd.size()
            del array
        for _ in range(3):
            dist.barrier()
        gc.collect()
        assert alive() is None, "kept for ever"
