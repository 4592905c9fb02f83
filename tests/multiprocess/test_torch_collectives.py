"""What every torch collective returns, on 2, 3 and 4 ranks."""

import itertools
import math

import torch
from harness import on_every_rank

import rueda.torch as hvd

REDUCED = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
REDUCED += [torch.float16, torch.bfloat16, torch.float32, torch.float64]
MOVED = [*REDUCED, torch.bool]


def mine(*shape, dtype=torch.float32, rank=None):
    """Small whole numbers that differ between ranks and elements: exact in every type."""
    rank = hvd.rank() if rank is None else rank
    values = torch.arange(math.prod(shape)) % 5 + rank
    return values.reshape(shape).to(dtype)


def everyones(*shape, dtype=torch.float32):
    return [mine(*shape, dtype=dtype, rank=rank) for rank in range(hvd.size())]


def same_bits_everywhere(tensor):
    """Whether all ranks hold the same bits."""
    raw = hvd.allgather(tensor.detach().contiguous().view(torch.uint8).reshape(1, -1))
    return bool((raw == raw[0]).all())


@on_every_rank
def test_allreduce_sums_every_dtype_and_shape():
    for dtype, shape in itertools.product(REDUCED, [(), (1,), (17,), (3, 4), (2, 3, 5), (0,), (0, 3)]):
        out = hvd.allreduce(mine(*shape, dtype=dtype), op=hvd.Sum)
        expected = sum(t.double() for t in everyones(*shape, dtype=dtype))
        assert out.dtype == dtype and out.shape == shape
        assert torch.equal(out.double(), expected), (dtype, shape, out, expected)


@on_every_rank
def test_allreduce_averages_by_default():
    x = torch.full((5,), float(hvd.rank()))
    for out in (hvd.allreduce(x), hvd.allreduce(x, op=hvd.Average)):
        assert torch.allclose(out, torch.full((5,), (hvd.size() - 1) / 2))
    assert torch.equal(x, torch.full((5,), float(hvd.rank())))


@on_every_rank
def test_allreduce_min_max_and_product():
    n = hvd.size()
    x = torch.tensor([hvd.rank() + 1, -hvd.rank()], dtype=torch.float64)
    assert hvd.allreduce(x, op=hvd.Min).tolist() == [1, -(n - 1)]
    assert hvd.allreduce(x, op=hvd.Max).tolist() == [n, 0]
    assert hvd.allreduce(x, op=hvd.Product).tolist() == [math.factorial(n), 0]


@on_every_rank
def test_min_and_max_propagate_nan_of_any_rank():
    for owner, op in itertools.product(range(hvd.size()), (hvd.Min, hvd.Max)):
        x = torch.tensor([float("nan") if hvd.rank() == owner else 1.0, 2.0])
        out = hvd.allreduce(x, op=op)
        assert math.isnan(out[0]) and out[1] == 2.0


@on_every_rank
def test_allreduce_applies_factors_before_and_after():
    x = torch.full((4,), 2.0)
    n = hvd.size()
    out = hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
    assert torch.allclose(out, torch.full((4,), 3.0 * n))
    out = hvd.allreduce(x, prescale_factor=0.5, postscale_factor=3.0)
    assert torch.allclose(out, torch.full((4,), 3.0))


@on_every_rank
def test_integer_average_truncates_towards_zero():
    n = hvd.size()
    for value in (7, -7, 1, -1):
        x = torch.full((3,), value + hvd.rank(), dtype=torch.int32)
        total = n * value + n * (n - 1) // 2
        assert hvd.allreduce(x).tolist() == [int(total / n)] * 3


@on_every_rank
def test_integer_sum_wraps_and_large_int64_sum_is_exact():
    wrapped = hvd.allreduce(torch.full((2,), 2**31 - 1, dtype=torch.int32), op=hvd.Sum)
    expected = (hvd.size() * (2**31 - 1) + 2**31) % 2**32 - 2**31
    assert wrapped.tolist() == [expected] * 2
    big = 2**53 + 1
    assert hvd.allreduce(torch.tensor([big]), op=hvd.Sum).item() == hvd.size() * big


@on_every_rank
def test_float16_average_does_not_overflow_in_the_sum():
    out = hvd.allreduce(torch.full((3,), 40000.0, dtype=torch.float16))
    assert out.tolist() == [40000.0] * 3


@on_every_rank
def test_compression_restores_the_type():
    x = torch.full((7,), 1.5 + hvd.rank())
    for compression in (hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.bf16):
        out = hvd.allreduce(x, compression=compression)
        assert out.dtype == torch.float32
        assert torch.allclose(out, torch.full((7,), 1.5 + (hvd.size() - 1) / 2), rtol=1e-2)
    whole = hvd.allreduce(torch.tensor([3]), compression=hvd.Compression.fp16, op=hvd.Sum)
    assert whole.dtype == torch.int64 and whole.item() == 3 * hvd.size()


@on_every_rank
def test_in_place_allreduce_writes_leaf_parameters_and_returns_them():
    p = torch.nn.Parameter(torch.full((3, 2), float(hvd.rank())))
    out = hvd.allreduce_(p, op=hvd.Sum)
    assert out is p and p.requires_grad and p.grad_fn is None
    assert torch.equal(p.detach(), torch.full((3, 2), hvd.size() * (hvd.size() - 1) / 2))
    handle = hvd.allreduce_async_(p, op=hvd.Average, name="leaf")
    assert hvd.synchronize(handle) is p


@on_every_rank
def test_async_handles_poll_and_synchronize_once():
    handles = [hvd.allreduce_async(torch.full((4,), float(i)), op=hvd.Sum) for i in range(20)]
    assert all(isinstance(handle, int) and handle > 0 for handle in handles)
    for i, handle in enumerate(handles):
        assert torch.equal(hvd.synchronize(handle), torch.full((4,), float(i * hvd.size())))
        assert hvd.synchronize(handle) is None
        try:
            hvd.poll(handle)
        except ValueError as error:
            assert str(error) == f"Handle {handle} was not created or has been cleared."
        else:
            raise AssertionError("poll accepted a cleared handle")
    handle = hvd.barrier and hvd.allreduce_async(torch.ones(1), name="polled")
    while not hvd.poll(handle):
        pass  # bounded by the case's limit
    assert hvd.synchronize(handle).item() == 1


@on_every_rank
def test_ranks_may_submit_named_tensors_in_any_order():
    names = [f"order.{i}" for i in range(10)]
    order = names if hvd.rank() % 2 else list(reversed(names))
    handles = {
        name: hvd.allreduce_async(torch.tensor([float(name[-1])]), name=name, op=hvd.Sum) for name in order
    }
    for name in names:
        assert hvd.synchronize(handles[name]).item() == float(name[-1]) * hvd.size()


@on_every_rank
def test_a_dropped_handle_does_not_disturb_the_others():
    for i in range(20):
        hvd.allreduce_async(torch.full((1000,), float(i)), name=f"dropped.{i}")
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [hvd.size()] * 3


@on_every_rank
def test_results_have_the_same_bits_on_every_rank():
    torch.manual_seed(hvd.rank())
    for dtype, elements in itertools.product(
        (torch.float32, torch.float16, torch.bfloat16), (1, 1001, 300_003)
    ):
        assert same_bits_everywhere(hvd.allreduce(torch.randn(elements).to(dtype)))


@on_every_rank
def test_fused_tensors_equal_unfused_ones():
    torch.manual_seed(hvd.rank())
    inputs = [torch.randn(size) for size in (1, 7, 64, 1000, 4096, 10_001)]
    together = [hvd.allreduce_async(x, name=f"fused.{i}", op=hvd.Sum) for i, x in enumerate(inputs)]
    fused = [hvd.synchronize(handle) for handle in together]
    for i, x in enumerate(inputs):
        alone = hvd.allreduce(x, name=f"alone.{i}", op=hvd.Sum)
        assert torch.allclose(fused[i], alone, rtol=1e-5, atol=1e-6)


@on_every_rank
def test_grouped_allreduce_keeps_order_and_containers():
    tensors = [mine(3), mine(2, 2, dtype=torch.int64), mine(5, dtype=torch.float16)]
    expected = [sum(everyones(*t.shape, dtype=t.dtype)) for t in tensors]
    out = hvd.grouped_allreduce(tensors, op=hvd.Sum)
    assert isinstance(out, list) and all(torch.equal(a, b) for a, b in zip(out, expected))
    out = hvd.synchronize(hvd.grouped_allreduce_async(tuple(tensors), op=hvd.Sum, name="group"))
    assert isinstance(out, tuple) and all(torch.equal(a, b) for a, b in zip(out, expected))
    copies = [t.clone() for t in tensors]
    out = hvd.grouped_allreduce_(copies, op=hvd.Sum)
    assert isinstance(out, tuple) and all(
        a is b and torch.equal(a, c) for a, b, c in zip(out, copies, expected)
    )
    handle = hvd.grouped_allreduce_async_(copies, op=hvd.Average)
    assert all(a is b for a, b in zip(hvd.synchronize(handle), copies))
    half = hvd.grouped_allreduce([torch.ones(2), torch.ones(3)], compression=hvd.Compression.fp16, op=hvd.Sum)
    assert [t.tolist() for t in half] == [[hvd.size()] * 2, [hvd.size()] * 3] and half[
        0
    ].dtype == torch.float32


@on_every_rank
def test_empty_groups_give_empty_containers():
    assert hvd.grouped_allreduce([]) == [] and hvd.grouped_reducescatter([]) == []
    assert hvd.grouped_allreduce_([]) == () and hvd.grouped_allgather([]) == ()


@on_every_rank
def test_groups_may_come_from_generators():
    n = hvd.size()
    for function in (
        hvd.grouped_allreduce,
        hvd.grouped_allreduce_,
        hvd.grouped_allgather,
        hvd.grouped_reducescatter,
        lambda given: hvd.synchronize(hvd.grouped_allreduce_async(given)),
        lambda given: hvd.synchronize(hvd.grouped_allreduce_async_(given)),
        lambda given: hvd.synchronize(hvd.grouped_allgather_async(given)),
        lambda given: hvd.synchronize(hvd.grouped_reducescatter_async(given)),
    ):
        outputs = function(torch.full((n,), float(i)) for i in range(3))
        assert [output.unique().tolist() for output in outputs] == [[0.0], [1.0], [2.0]]
    for function in (hvd.grouped_allreduce, hvd.grouped_allgather, hvd.grouped_reducescatter):
        assert not function(x for x in [])


@on_every_rank
def test_allgather_concatenates_uneven_rows_of_every_dtype():
    me, n = hvd.rank(), hvd.size()
    for dtype in MOVED:
        out = hvd.allgather(torch.full((me, 3), me % 2, dtype=dtype))
        expected = torch.cat([torch.full((r, 3), r % 2, dtype=dtype) for r in range(n)])
        assert out.dtype == dtype and torch.equal(out, expected)
    assert hvd.allgather(torch.empty(0, 3)).shape == (0, 3)
    assert hvd.allgather(torch.empty(2, 0)).shape == (2 * n, 0)


@on_every_rank
def test_large_allgather_lends_memory_that_outlives_its_handle():
    rows = 50_000
    out = hvd.allgather(torch.full((rows, 4), float(hvd.rank())))
    view = out[rows * (hvd.size() - 1) :]
    del out
    hvd.barrier()
    assert torch.equal(view, torch.full((rows, 4), float(hvd.size() - 1)))
    view += 1  # it is ordinary, writable memory


@on_every_rank
def test_grouped_allgather_returns_a_tuple():
    me, n = hvd.rank(), hvd.size()
    out = hvd.grouped_allgather([torch.full((me + 1,), me), torch.full((2, 2), float(me))], name="g")
    assert isinstance(out, tuple)
    assert out[0].tolist() == [r for r in range(n) for _ in range(r + 1)] and out[1].shape == (2 * n, 2)
    handle = hvd.grouped_allgather_async([torch.tensor([me])])
    assert hvd.synchronize(handle)[0].tolist() == list(range(n))
    assert hvd.synchronize(hvd.allgather_async(torch.tensor([me]))).tolist() == list(range(n))


@on_every_rank
def test_broadcast_from_every_root_and_dtype():
    for root, dtype, shape in itertools.product(range(hvd.size()), MOVED, [(), (5,), (0, 3)]):
        x = mine(*shape, dtype=dtype)
        kept = x.clone()
        out = hvd.broadcast(x, root)
        assert torch.equal(out, mine(*shape, dtype=dtype, rank=root)) and torch.equal(x, kept)
    p = torch.nn.Parameter(torch.full((2,), float(hvd.rank())))
    assert hvd.broadcast_(p, hvd.size() - 1) is p and p.tolist() == [hvd.size() - 1] * 2
    assert hvd.synchronize(hvd.broadcast_async(torch.tensor([hvd.rank()]), 0, name="b")).item() == 0
    assert hvd.synchronize(hvd.broadcast_async_(p, 0)) is p and p.tolist() == [float(hvd.size() - 1)] * 2


@on_every_rank
def test_alltoall_even_and_with_splits():
    me, n = hvd.rank(), hvd.size()
    out = hvd.alltoall(torch.arange(2 * n) + 100 * me)
    assert out.tolist() == [100 * r + 2 * me + i for r in range(n) for i in (0, 1)]
    for make in (list, tuple, lambda rows: torch.tensor(rows, dtype=torch.int32)):
        splits = make([r for r in range(n)])  # r rows to rank r; rank 0 gets none
        out, received = hvd.alltoall(torch.full((n * n, 2), float(me)), splits)
        assert received.dtype == torch.int32 and received.tolist() == [me] * n
        assert out.shape == (me * n, 2) and out[:, 0].tolist() == [
            float(r) for r in range(n) for _ in range(me)
        ]
    out, received = hvd.synchronize(hvd.alltoall_async(torch.arange(n)))
    assert out.tolist() == [me] * n and received.tolist() == [1] * n
    given = [1] * n if me == 0 else None  # given on one rank, omitted on another
    result = hvd.alltoall(torch.arange(n), given)
    assert (result[0] if given else result).tolist() == [me] * n
    assert hvd.alltoall(torch.empty(0, 3)).shape == (0, 3)


@on_every_rank
def test_alltoall_moves_every_dtype():
    n = hvd.size()
    for dtype in MOVED:
        out = hvd.alltoall(torch.full((n,), hvd.rank() % 2, dtype=dtype))
        assert out.dtype == dtype and out.tolist() == [r % 2 for r in range(n)]


@on_every_rank
def test_reducescatter_slices_rows_first_ranks_longer():
    me, n = hvd.rank(), hvd.size()
    for rows in (n, 2 * n + 1, n - 1, 1):
        x = torch.arange(rows * 2.0).reshape(rows, 2) + me
        total = sum(torch.arange(rows * 2.0).reshape(rows, 2) + r for r in range(n))
        counts = [rows // n + (r < rows % n) for r in range(n)]
        expected = total[sum(counts[:me]) : sum(counts[: me + 1])]
        assert torch.equal(hvd.reducescatter(x, op=hvd.Sum), expected)
        assert torch.allclose(hvd.reducescatter(x), expected / n)
    assert hvd.reducescatter(torch.empty(0, 3)).shape == (0, 3)
    assert hvd.reducescatter(torch.empty(n + 1, 0)).shape == ((2 if me == 0 else 1), 0)
    scaled = hvd.reducescatter(torch.ones(n), op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.25)
    assert scaled.tolist() == [n * 0.5]


@on_every_rank
def test_reducescatter_of_every_dtype_and_compressed():
    n = hvd.size()
    for dtype in REDUCED:
        out = hvd.reducescatter(torch.ones(n, 2, dtype=dtype), op=hvd.Sum)
        assert out.dtype == dtype and out.tolist() == [[n, n]]
    assert hvd.reducescatter(torch.ones(n), compression=hvd.Compression.fp16).dtype == torch.float32


@on_every_rank
def test_grouped_reducescatter_containers():
    n = hvd.size()
    out = hvd.grouped_reducescatter([torch.ones(n), torch.ones(2 * n, dtype=torch.int64)], op=hvd.Sum)
    assert isinstance(out, list) and out[0].tolist() == [n] and out[1].tolist() == [n, n]
    out = hvd.synchronize(hvd.grouped_reducescatter_async([torch.ones(n)], name="grs"))
    assert isinstance(out, tuple) and out[0].tolist() == [1]
    assert hvd.synchronize(hvd.reducescatter_async(torch.ones(n), op=hvd.Sum)).tolist() == [n]


@on_every_rank
def test_sparse_allreduce_holds_all_entries():
    me, n = hvd.rank(), hvd.size()
    sparse = torch.sparse_coo_tensor([[0, me + 1]], torch.tensor([[1.0, 1.0], [2.0, 2.0]]), (n + 1, 2))
    for op, divisor in ((hvd.Sum, 1), (hvd.Average, n)):
        out = hvd.sparse_allreduce_async(sparse, name=f"sparse.{op}", op=op)()
        assert out.is_sparse and not out.is_coalesced() and out._nnz() == 2 * n
        dense = torch.full((n + 1, 2), 2.0 / divisor)
        dense[0] = n / divisor
        assert torch.allclose(out.to_dense(), dense)


@on_every_rank
def test_adasum_adds_orthogonal_and_averages_parallel_vectors():
    n = hvd.size()
    if n & (n - 1):
        return  # the closed form below holds for powers of two
    unit = torch.zeros(n)
    unit[hvd.rank()] = 1.0
    assert torch.allclose(hvd.allreduce(unit, op=hvd.Adasum), torch.ones(n))
    same = torch.full((4,), 3.0)
    assert torch.allclose(hvd.allreduce(same, op=hvd.Adasum), same)


@on_every_rank
def test_barrier_holds_everyone_back():
    import time

    if hvd.rank() == 0:
        time.sleep(0.2)  # what the others must be seen to wait for
        released = time.time()
    hvd.barrier()
    left = time.time()
    if hvd.rank() != 0:
        released = 0.0
    assert left >= hvd.broadcast_object(released, 0, name="released") - 0.001


@on_every_rank
def test_many_tensors_in_flight_from_several_threads():
    import threading

    failures = []

    def work(thread):
        for i in range(30):
            out = hvd.allreduce(torch.full((10,), float(i)), name=f"t{thread}.{i}", op=hvd.Sum)
            if not torch.equal(out, torch.full((10,), float(i * hvd.size()))):
                failures.append((thread, i))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    assert not failures and not any(thread.is_alive() for thread in threads)
    # Each thread counted operations in its own order: bring unnamed operations back in step.
    hvd.join()
