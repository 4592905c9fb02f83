"""What every collective of rueda.numpy returns."""

import itertools

import numpy as np
import pytest
from harness import on_every_rank

import rueda.numpy as hvd

pytestmark = pytest.mark.parametrize("world", [(2, "shm,tcp"), (3, "tcp")], indirect=True, scope="session")

REDUCED = ["uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64"]
SHAPES = [(), (1,), (17,), (3, 4), (0,), (0, 3)]


def mine(shape, dtype="float32", rank=None):
    """Small whole numbers that differ between ranks and elements: exact in every type."""
    rank = hvd.rank() if rank is None else rank
    return (np.arange(np.prod(shape, dtype=int)) % 5 + rank).reshape(shape).astype(dtype)


def everyones(shape, dtype="float32"):
    return [mine(shape, dtype, rank) for rank in range(hvd.size())]


@on_every_rank
def test_allreduce_sums_every_dtype_and_shape():
    for dtype, shape in itertools.product(REDUCED, SHAPES):
        out = hvd.allreduce(mine(shape, dtype), op=hvd.Sum)
        assert out.dtype == dtype and out.shape == shape
        assert np.array_equal(out, sum(everyones(shape, dtype))), (dtype, shape)


@on_every_rank
def test_other_operations_factors_and_groups():
    n = hvd.size()
    x = np.array([hvd.rank() + 1.0, -hvd.rank()])
    assert hvd.allreduce(x, op=hvd.Min).tolist() == [1, 1 - n]
    assert hvd.allreduce(x, op=hvd.Max).tolist() == [n, 0]
    assert hvd.allreduce(2.0, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0) == 3.0 * n
    assert hvd.allreduce([hvd.rank()] * 2 + [0.0]).tolist() == [(n - 1) / 2] * 2 + [0]
    group = hvd.grouped_allreduce([mine((2, 3), "int32"), mine((4,), "float64")], op=hvd.Sum)
    assert np.array_equal(group[0], sum(everyones((2, 3), "int32"))) and group[0].dtype == np.int32
    assert np.array_equal(group[1], sum(everyones((4,), "float64")))
    assert hvd.grouped_allreduce([]) == []


@on_every_rank
def test_inputs_are_left_alone_and_may_be_strided():
    x = mine((6, 4))
    before = x.copy()
    out = hvd.allreduce(x[::2, ::-1], op=hvd.Sum)
    assert np.array_equal(out, sum(everyones((6, 4)))[::2, ::-1]) and np.array_equal(x, before)


@on_every_rank
def test_gathers_of_unequal_rows_and_broadcasts():
    rank, n = hvd.rank(), hvd.size()
    for dtype in [*REDUCED, "bool"]:
        out = hvd.allgather(mine((rank, 2), dtype))
        assert np.array_equal(out, np.concatenate([mine((r, 2), dtype, r) for r in range(n)]))
        assert np.array_equal(hvd.broadcast(mine((3,), dtype), n - 1), mine((3,), dtype, n - 1))
    a, b = hvd.grouped_allgather([mine((1,)), mine((2, 2))])
    assert np.array_equal(a, np.concatenate(everyones((1,)))) and b.shape == (2 * n, 2)


@on_every_rank
def test_reducescatter_and_alltoall():
    rank, n = hvd.rank(), hvd.size()
    out = hvd.reducescatter(mine((n * 2 + 1, 3)), op=hvd.Sum)
    rows = [3] + [2] * (n - 1)
    first = sum(rows[:rank])
    assert np.array_equal(out, sum(everyones((n * 2 + 1, 3)))[first : first + rows[rank]])
    assert [o.shape for o in hvd.grouped_reducescatter([np.ones(n), np.ones((n, 2))])] == [(1,), (1, 2)]
    assert np.array_equal(hvd.alltoall(np.full(n, rank)), np.arange(n))
    output, received = hvd.alltoall(np.full(rank * n, rank), splits=[rank] * n)
    assert received.tolist() == list(range(n)) and received.dtype == np.int32
    assert np.array_equal(output, np.repeat(np.arange(n), np.arange(n)))


@on_every_rank
def test_handles_objects_and_process_sets():
    handles = [hvd.allreduce_async(mine((5,)), f"h{i}", hvd.Sum) for i in range(20)]
    for handle in reversed(handles):
        assert np.array_equal(hvd.synchronize(handle), sum(everyones((5,))))
    with pytest.raises(ValueError, match="was not created or has been cleared"):
        hvd.synchronize(handles[0])
    assert hvd.allgather_object({"rank": hvd.rank()}) == [{"rank": r} for r in range(hvd.size())]
    assert hvd.broadcast_object([hvd.rank()] * 3, 1) == [1, 1, 1]
    assert hvd.broadcast_object({"by": 1} if hvd.rank() == 1 else None, 1) == {"by": 1}
    assert hvd.allgather_object(None if hvd.rank() else "zero") == ["zero"] + [None] * (hvd.size() - 1)
    last = hvd.add_process_set([hvd.size() - 1])
    if last.included():
        assert hvd.allreduce(7.0, op=hvd.Sum, process_set=last) == 7.0
    assert hvd.remove_process_set(last)


@on_every_rank
def test_what_cannot_be_sent_is_refused_in_one_sentence():
    with pytest.raises(ValueError, match="type complex128 cannot be sent"):
        hvd.allreduce(np.ones(2, complex))
    masked = np.ma.array([1.0, 2.0], mask=[True, False])
    for operation in (hvd.allreduce, hvd.allgather, lambda array: hvd.grouped_allreduce([np.ones(2), array])):
        with pytest.raises(ValueError, match="Masked arrays cannot be sent"):
            operation(masked)
    for given, text in (
        ({"name": 5}, r"The name has to be a string, not int \(5\)"),
        ({"prescale_factor": "x"}, r"^prescale_factor must be a number, not str \('x'\)"),
        ({"postscale_factor": None}, "^postscale_factor must be a number, not NoneType"),
    ):
        with pytest.raises(TypeError, match=text):
            hvd.allreduce(np.ones(1), **given)
    with pytest.raises(TypeError, match=r"root_rank must be an int, not str \('a'\)"):
        hvd.broadcast(np.ones(1), "a")
    with pytest.raises(TypeError, match="The timeline's path has to be a string, not int"):
        hvd.start_timeline(5)
    with pytest.raises(ValueError, match="op is 'Max', but it must be one of Average, Sum"):
        hvd.reducescatter(np.ones(4), op=hvd.Max)
    for rows in (2**31, 2**32 + 1):
        with pytest.raises(ValueError, match=f"splits of at most 2147483647 rows, but got .{rows}, 0"):
            hvd.alltoall(np.ones(2), [rows] + [0] * (hvd.size() - 1))
    for grouped in (hvd.grouped_allreduce, hvd.grouped_allgather, hvd.grouped_reducescatter):
        with pytest.raises(TypeError, match="takes a list of arrays, not ndarray"):
            grouped(np.ones((2, 2)))
    with pytest.raises(hvd.HorovodInternalError, match="rank 1 has"):
        hvd.allreduce(np.ones(2 + hvd.rank()), "unequal")
