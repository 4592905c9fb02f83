"""Every TensorFlow operation against numpy: all types, eager execution, tf.function and sessions."""

from tensorflow_support import (
    FLOATS,
    INTEGERS,
    MODES,
    every_mode,
    hvd,
    np,
    on_every_transport,
    on_ranks,
    on_three_ranks,
    outcomes,
    tf,
)


def of_rank(rank, shape, dtype=np.float32):
    """What `rank` contributes; small whole numbers, exact in every type."""
    count = int(np.prod(shape))
    return (np.arange(count) % 5 + rank + 1).reshape(shape).astype(dtype)


def of_all(shape, dtype=np.float32):
    return [of_rank(rank, shape, dtype) for rank in range(hvd.size())]


def same(got, expected, *context):
    __tracebackhide__ = True
    assert got.dtype == np.asarray(expected).dtype, (got.dtype, *context)
    assert np.array_equal(got, expected), (got, expected, *context)


@on_every_transport
def test_allreduce_sums_every_type_and_shape_in_every_mode():
    for dtype in (*FLOATS, *INTEGERS):
        kind = dtype.as_numpy_dtype
        for shape in ((), (0,), (7,), (3, 0, 2), (2, 3)):
            expected = sum(of_all(shape, kind)).astype(kind)
            modes = MODES if dtype == tf.float32 else ("eager",)
            for mode in modes:
                mine = of_rank(hvd.rank(), shape, kind)
                (got,) = outcomes(mode, lambda x: hvd.allreduce(x, op=hvd.Sum), mine)
                same(got, expected, mode, dtype, shape)


@on_every_transport
def test_allreduce_averages_by_default_and_takes_factors():
    mine, everyone = of_rank(hvd.rank(), (5,)), of_all((5,))
    for mode, (mean, scaled, old) in every_mode(
        lambda x: [
            hvd.allreduce(x),
            hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0),
            hvd.allreduce(x, average=False),
        ],
        mine,
    ):
        same(mean, (sum(everyone) / hvd.size()).astype(np.float32), mode)
        same(scaled, 2 * sum(everyone), mode)
        same(old, sum(everyone), mode)


@on_three_ranks
def test_allreduce_min_max_product_and_uneven_worlds():
    mine, everyone = of_rank(hvd.rank(), (5,)), of_all((5,))
    ops = {hvd.Min: np.min, hvd.Max: np.max, hvd.Product: np.prod, hvd.Sum: np.sum}
    for mode, got in every_mode(lambda x: [hvd.allreduce(x, op=op) for op in ops], mine):
        for one, function in zip(got, ops.values()):
            same(one, function(everyone, axis=0), mode)


@on_ranks
def test_a_forwarded_input_is_not_overwritten_while_others_read_it():
    # The kernel reduces in the input's memory only where nobody else holds it.
    mine = of_rank(hvd.rank(), (1000,))
    for mode, (reduced, kept, doubled) in every_mode(
        lambda x: [hvd.allreduce(x * 1.0, op=hvd.Sum), x + 0.0, hvd.allreduce(x, op=hvd.Sum) * 0.0 + x], mine
    ):
        same(reduced, sum(of_all((1000,))), mode)
        same(kept, mine, mode)
        same(doubled, mine, mode)


@on_every_transport
def test_adasum_adds_orthogonal_and_averages_parallel_vectors():
    orthogonal = np.zeros(2, np.float32)
    orthogonal[hvd.rank()] = 3.0
    for mode, (added, averaged) in every_mode(
        lambda x, y: [hvd.allreduce(x, op=hvd.Adasum), hvd.allreduce(y, op=hvd.Adasum)],
        orthogonal,
        np.ones(4, np.float32),
    ):
        assert np.allclose(added, [3, 3]) and np.allclose(averaged, np.ones(4)), (mode, added, averaged)


@on_every_transport
def test_grouped_allreduce_keeps_order_and_mixes_types_and_slices():
    n, me = hvd.size(), hvd.rank()

    def build(x, y):
        slices = tf.IndexedSlices(y[:1], [me], dense_shape=[n, 2])
        both = hvd.grouped_allreduce([x, slices, tf.cast(x, tf.float64), y], op=hvd.Sum, name="mixed")
        return [both[0], tf.convert_to_tensor(both[1]), both[2], both[3]]

    x, y = of_rank(me, (4,)), of_rank(me, (3, 2))
    for mode, got in every_mode(build, x, y):
        same(got[0], sum(of_all((4,))), mode)
        same(got[1], np.stack([one[0] for one in of_all((3, 2))]), mode)
        same(got[2], sum(of_all((4,))).astype(np.float64), mode)
        same(got[3], sum(of_all((3, 2))), mode)
    assert hvd.grouped_allreduce([]) == []


@on_every_transport
def test_indexed_slices_hold_all_ranks_entries():
    me, n = hvd.rank(), hvd.size()

    def build(values):
        slices = tf.IndexedSlices(values, tf.constant([0, me + 1]), dense_shape=[n + 1, 2])
        mean = hvd.allreduce(slices)
        total = hvd.allreduce(slices, op=hvd.Sum)
        assert isinstance(mean, tf.IndexedSlices)
        return [tf.convert_to_tensor(mean), tf.convert_to_tensor(total), mean.indices]

    for mode, (mean, total, indices) in every_mode(build, of_rank(me, (2, 2))):
        expected = np.zeros((n + 1, 2), np.float32)
        for rank, values in enumerate(of_all((2, 2))):
            expected[0] += values[0]
            expected[rank + 1] += values[1]
        same(total, expected, mode)
        same(mean, expected / n, mode)
        assert sorted(indices.tolist()) == sorted([0] * n + list(range(1, n + 1)))


@on_three_ranks
def test_the_average_of_whole_numbered_slices_is_divided_truly():
    me, n = hvd.rank(), hvd.size()
    for dtype in (tf.int32, tf.int64, tf.uint8):
        slices = tf.IndexedSlices(tf.constant([[1 + me]], dtype), [0], dense_shape=[1, 1])
        mean = tf.convert_to_tensor(hvd.allreduce(slices))
        assert mean.dtype.is_floating
        np.testing.assert_allclose(mean.numpy(), [[(n + 1) / 2]])


@on_three_ranks
def test_allgather_concatenates_uneven_rows_of_every_type():
    me = hvd.rank()
    for dtype in (*FLOATS, *INTEGERS, tf.bool):
        kind = dtype.as_numpy_dtype
        shapes = [(2 * rank, 3) for rank in range(hvd.size())]  # rank 0 has no rows
        expected = np.concatenate([of_rank(rank, shape, kind) for rank, shape in enumerate(shapes)])
        for mode in MODES if dtype == tf.float32 else ("eager",):
            (got,) = outcomes(mode, hvd.allgather, of_rank(me, shapes[me], kind))
            same(got, expected, mode, dtype)


@on_every_transport
def test_grouped_allgather_returns_a_list():
    me = hvd.rank()
    x, y = of_rank(me, (me + 1,)), of_rank(me, (2, me * 0 + 2))
    for mode, (first, second) in every_mode(lambda x, y: hvd.grouped_allgather([x, y]), x, y):
        same(first, np.concatenate([of_rank(rank, (rank + 1,)) for rank in range(hvd.size())]), mode)
        same(second, np.concatenate(of_all((2, 2))), mode)
    assert hvd.grouped_allgather([]) == []


@on_every_transport
def test_broadcast_from_every_root_and_type():
    for root in range(hvd.size()):
        for dtype in (*FLOATS, *INTEGERS, tf.bool):
            kind = dtype.as_numpy_dtype
            for mode in MODES if dtype == tf.float32 else ("eager",):
                for shape in ((), (2, 3)):
                    mine = of_rank(hvd.rank(), shape, kind)
                    (got,) = outcomes(mode, lambda x, root=root: hvd.broadcast(x, root), mine)
                    same(got, of_rank(root, shape, kind), mode, dtype)


@on_ranks
def test_broadcast_in_place_writes_variables():
    me, root = hvd.rank(), hvd.size() - 1
    variables = [tf.Variable(of_rank(me, (3,))), tf.Variable(of_rank(me, (2, 2)))]
    returned = hvd.broadcast_(variables, root)
    for variable, value, shape in zip(variables, returned, ((3,), (2, 2))):
        same(variable.numpy(), of_rank(root, shape))
        same(value.numpy(), of_rank(root, shape))
    with tf.Graph().as_default():
        variable = tf.compat.v1.get_variable("v", initializer=of_rank(me, (3,)), use_resource=True)
        (value,) = hvd.broadcast_([variable], root)
        with tf.compat.v1.Session() as session:
            session.run(variable.initializer)
            same(session.run(value), of_rank(root, (3,)))
            same(session.run(variable), of_rank(root, (3,)))
    with tf.Graph().as_default():
        old = tf.compat.v1.get_variable("old", [2], use_resource=False)
        new = tf.compat.v1.get_variable("new", [2], use_resource=True)
        try:
            hvd.broadcast_([old, new], 0)
            raise AssertionError("mixed kinds were accepted")
        except ValueError as error:
            assert "All variables passed to broadcast_() should be of the same kind" in str(error)


@on_three_ranks
def test_reducescatter_slices_rows_first_ranks_longer():
    me, n = hvd.rank(), hvd.size()
    for rows in (7, 2):  # 3 + 2 + 2; 1 + 1 + 0
        counts = [rows // n + (rank < rows % n) for rank in range(n)]
        begin = sum(counts[:me])
        total = sum(of_all((rows, 2)))
        for mode, (summed, mean, *grouped) in every_mode(
            lambda x: [
                hvd.reducescatter(x, op=hvd.Sum),
                hvd.reducescatter(x, prescale_factor=3.0),
                *hvd.grouped_reducescatter([x, tf.cast(x, tf.float64)], op=hvd.Sum),
            ],
            of_rank(me, (rows, 2)),
        ):
            expected = total[begin : begin + counts[me]]
            same(summed, expected, mode)
            assert np.allclose(mean, expected * 3 / n), mode
            same(grouped[0], expected, mode)
            same(grouped[1], expected.astype(np.float64), mode)


@on_three_ranks
def test_alltoall_even_and_with_splits():
    me, n = hvd.rank(), hvd.size()
    splits = [[(sender + receiver) % 3 for receiver in range(n)] for sender in range(n)]
    rows = [sum(one) for one in splits]
    for dtype in (tf.float32, tf.int64, tf.bool, tf.bfloat16):
        kind = dtype.as_numpy_dtype
        sent = [of_rank(rank, (rows[rank] + 1, 2), kind) for rank in range(n)]  # the last row stays
        pieces = [np.split(sent[rank][: rows[rank]], np.cumsum(splits[rank])[:-1]) for rank in range(n)]
        expected = np.concatenate([pieces[sender][me] for sender in range(n)])
        for mode in MODES if dtype == tf.float32 else ("eager",):
            got, received = outcomes(
                mode, lambda x, s: hvd.alltoall(x, splits=s), sent[me], np.array(splits[me])
            )
            same(got, expected, mode, dtype)
            assert (
                received.tolist() == [splits[sender][me] for sender in range(n)]
                and received.dtype == np.int32
            )
        even = of_rank(me, (2 * n,), kind)
        (got,) = outcomes("eager", hvd.alltoall, even)
        same(got, np.concatenate([of_rank(r, (2 * n,), kind)[2 * me : 2 * me + 2] for r in range(n)]))


@on_ranks
def test_compression_restores_the_type():
    mine = of_rank(hvd.rank(), (6,))
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        for mode, (one, group, scattered, whole) in every_mode(
            lambda x, compression=compression: [
                hvd.allreduce(x, op=hvd.Sum, compression=compression),
                hvd.grouped_allreduce([x], op=hvd.Sum, compression=compression)[0],
                hvd.reducescatter(x, op=hvd.Sum, compression=compression),
                hvd.allreduce(tf.cast(x, tf.int32), op=hvd.Sum, compression=compression),
            ],
            mine,
        ):
            total = sum(of_all((6,)))
            same(one, total, mode)
            same(group, total, mode)
            same(scattered, np.split(total, 2)[hvd.rank()], mode)
            same(whole, total.astype(np.int32), mode)


@on_ranks
def test_compression_rounds_on_the_wire():
    value = np.full(3, 1 + 2**-10, np.float32)  # 11 bits: float16 holds it, bfloat16 does not
    kept = hvd.allreduce(tf.constant(value), compression=hvd.Compression.fp16)
    rounded = hvd.allreduce(tf.constant(value), op=hvd.Max, compression=hvd.Compression.bf16)  # a cast
    exact = hvd.allreduce(tf.constant(value), compression=hvd.Compression.bf16)  # a wire type, on one host
    assert exact.numpy().tolist() == value.tolist()
    assert kept.numpy().tolist() == value.tolist() and rounded.numpy().tolist() == [1.0] * 3


@on_ranks
def test_numbers_are_read_when_the_operation_runs():
    for mode, got in every_mode(
        lambda: [
            hvd.rank_op(),
            hvd.size_op(),
            hvd.local_rank_op(),
            hvd.local_size_op(),
            hvd.process_set_included_op(),
            hvd.process_set_included_op(77),
        ]
    ):
        expected = [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), 1, -3]
        assert [int(one) for one in got] == expected and all(one.dtype == np.int32 for one in got), mode
    try:
        hvd.size_op(77)
        raise AssertionError("an unknown set has no size")
    except tf.errors.InvalidArgumentError as error:
        assert "Process set 77 does not exist" in error.message


@on_ranks
def test_static_shapes_keep_what_is_known():
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [4, 5])
        unknown = tf.compat.v1.placeholder(tf.float32, None)
        assert hvd.allreduce(x).shape == [4, 5] and hvd.broadcast(x, 0).shape == [4, 5]
        assert hvd.allreduce(unknown).shape.rank is None
        output, received = hvd.alltoall(x, splits=[2, 2])
        for gathered in (hvd.allgather(x), hvd.reducescatter(x), output, *hvd.grouped_allgather([x, x])):
            assert gathered.shape.as_list() == [None, 5]
        assert received.shape.as_list() == [None] and hvd.join().shape.as_list() == []
        assert hvd.allgather(unknown).shape.rank is None


@on_every_transport
def test_join_lets_uneven_ranks_finish_and_names_the_last():
    for mode in MODES:
        steps = 2 if hvd.rank() == 0 else 5
        for step in range(steps):
            (got,) = outcomes(
                mode, lambda x, step=step: hvd.allreduce(x, op=hvd.Sum, name=f"join_{step}"), np.ones(3)
            )
            assert got.tolist() == [2.0 if step < 2 else 1.0] * 3, (mode, step)
        (last,) = outcomes(mode, hvd.join)
        assert int(last) == 1, mode


@on_ranks
def test_barrier_holds_everyone_back():
    import time

    for mode in ("eager", "function", "session"):
        released = 0.0
        if hvd.rank() == 0:
            time.sleep(0.2)  # what the others must be seen to wait for
            released = time.time()

        def build():
            barrier = hvd.barrier()
            with tf.control_dependencies([barrier] if barrier is not None else []):
                return tf.constant(1)

        outcomes(mode, build)
        left = time.time()
        assert left >= hvd.broadcast_object(released, 0) - 0.001, mode


@on_three_ranks
def test_process_sets_run_collectives_among_members_only():
    pair = hvd.add_process_set([0, 2])
    if pair.included():
        mine, members = of_rank(hvd.rank(), (4,)), [of_rank(rank, (4,)) for rank in (0, 2)]
        for mode, (mean, gathered, sent, size) in every_mode(
            lambda x: [
                hvd.allreduce(x, process_set=pair),
                hvd.allgather(x, process_set=pair),
                hvd.broadcast(x, 2, process_set=pair),
                hvd.size_op(pair.process_set_id),
            ],
            mine,
        ):
            same(mean, sum(members) / 2, mode)
            same(gathered, np.concatenate(members), mode)
            same(sent, members[1], mode)
            assert size == 2
        slices = hvd.allreduce(tf.IndexedSlices(tf.ones([1]), [0], [1]), process_set=pair)
        assert tf.convert_to_tensor(slices).numpy() == 1.0
    else:
        try:
            hvd.allreduce(tf.ones(2), process_set=pair)
            raise AssertionError("a rank outside the set took part")
        except tf.errors.InvalidArgumentError as error:
            assert "Rank 1 is not a member of the provided process set" in error.message
    assert hvd.remove_process_set(pair)
    try:
        hvd.allreduce(tf.ones(2), process_set=pair)
        raise AssertionError("a removed set was accepted")
    except ValueError as error:
        assert "Process set provided does not exist" in str(error)
