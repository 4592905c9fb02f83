"""The gradient of every operation against what it should be, eagerly, in tf.function and in sessions."""

from tensorflow_support import every_mode, hvd, np, on_ranks, on_three_ranks, outcomes, tf


def gradient(function, x, weights):
    """d(sum(weights · function(x)))/dx, in whatever mode this is called."""
    if tf.executing_eagerly() or tf.inside_function():
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.add_n([tf.reduce_sum(w * y) for w, y in zip(weights, function(x))])
        return tape.gradient(loss, x)
    loss = tf.add_n([tf.reduce_sum(w * y) for w, y in zip(weights, function(x))])
    return tf.gradients(loss, x)[0]


def expect(function, x, weights, expected):
    for mode, (got,) in every_mode(lambda x: gradient(function, x, weights), x):
        assert np.allclose(got, expected), (mode, got, expected)


@on_ranks
def test_allreduce_reduces_gradients_with_the_same_op_and_factors():
    me, n = hvd.rank(), hvd.size()
    x, w = np.arange(3, dtype=np.float32), np.float32(me + 1)
    total = sum(range(1, n + 1))
    expect(lambda x: [hvd.allreduce(x, op=hvd.Sum)], x, [w], np.full(3, total))
    expect(lambda x: [hvd.allreduce(x)], x, [w], np.full(3, total / n))
    factors = {"prescale_factor": 2.0, "postscale_factor": 3.0}
    expect(lambda x: [hvd.allreduce(x, op=hvd.Sum, **factors)], x, [w], np.full(3, 6 * total))
    expect(lambda x: hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum), x, [w, w], np.full(3, 3 * total))


@on_three_ranks
def test_allgather_averages_gradients_and_cuts_out_own_rows():
    me, n = hvd.rank(), hvd.size()
    rows = [rank + 1 for rank in range(n)]
    x = np.ones((rows[me], 2), np.float32)
    weight = np.arange(sum(rows), dtype=np.float32)[:, np.newaxis]
    begin = sum(rows[:me])
    mine = np.repeat(weight[begin : begin + rows[me]], 2, axis=1)
    expect(lambda x: [hvd.allgather(x)], x, [weight], mine)  # the same on all ranks: the average is that
    expect(lambda x: [hvd.allgather(x)], x, [weight * (me + 1)], mine * 2)  # (1 + 2 + 3) / 3
    expect(lambda x: hvd.grouped_allgather([x, 3 * x]), x, [weight, weight], mine * 4)


@on_ranks
def test_broadcast_gives_the_root_the_average_and_others_nothing():
    me, n = hvd.rank(), hvd.size()
    expected = np.full(3, sum(range(1, n + 1)) / n if me == 1 else 0.0)
    expect(lambda x: [hvd.broadcast(x, 1)], np.ones(3, np.float32), [np.float32(me + 1)], expected)


@on_three_ranks
def test_alltoall_sends_gradients_back():
    me, n = hvd.rank(), hvd.size()
    splits = np.array([1, 0, 2], np.int32)
    x = np.ones((4, 2), np.float32)  # one row is not sent

    def function(x):
        received, _ = hvd.alltoall(x[:3], splits=splits)
        return [received]

    # Row i goes to the rank that weighs it by its own rank + 1.
    expected = np.array([1, 3, 3, 0], np.float32)[:, np.newaxis].repeat(2, axis=1)
    expect(function, x, [np.float32(me + 1)], expected)
    # The row after the splits is not sent either.
    expect(lambda x: [hvd.alltoall(x, splits=splits)[0]], x, [np.float32(me + 1)], expected)
    even = np.ones((n,), np.float32)
    expect(lambda x: [hvd.alltoall(x)], even, [np.float32(me + 1)], np.arange(1, n + 1))


@on_three_ranks
def test_reducescatter_gathers_scaled_gradients():
    me, n = hvd.rank(), hvd.size()
    x, w = np.ones((4, 2), np.float32), np.float32(me + 1)
    rows = np.array([1, 1, 2, 3], np.float32)[:, np.newaxis].repeat(2, axis=1)  # 2 + 1 + 1 rows
    expect(lambda x: [hvd.reducescatter(x, op=hvd.Sum)], x, [w], rows * n)
    expect(lambda x: [hvd.reducescatter(x, prescale_factor=0.5)], x, [w], rows * 0.5)
    expect(lambda x: hvd.grouped_reducescatter([x, x], op=hvd.Sum), x, [w, w], rows * n * 2)


@on_three_ranks
def test_gradients_stay_within_the_process_set():
    pair = hvd.add_process_set([1, 2])
    if pair.included():
        me = hvd.rank()
        x = np.ones((me, 1), np.float32)
        weight = np.arange(3, dtype=np.float32)[:, np.newaxis]
        expect(
            lambda x: [hvd.allgather(x, process_set=pair)], x, [weight], weight[:1] if me == 1 else weight[1:]
        )
        w = np.float32(me)
        expect(lambda x: [hvd.allreduce(x[:1], process_set=pair)], x[:1], [w], [[1.5]])
    hvd.remove_process_set(pair)


@on_ranks
def test_gradients_of_groups_may_come_as_another_float_type():
    n = hvd.size()
    for collect in (hvd.grouped_allgather, hvd.grouped_reducescatter):
        inputs = [tf.Variable(tf.ones([n, 2], tf.float64)) for _ in range(2)]
        with tf.GradientTape() as tape:
            outputs = collect(inputs)
        zeros = tf.zeros(outputs[1].shape, tf.float32)
        first, second = tape.gradient(outputs, inputs, output_gradients=[tf.ones_like(outputs[0]), zeros])
        assert first.dtype == second.dtype == tf.float64
        assert np.all(first.numpy() == 1) and not np.any(second.numpy())


@on_ranks
def test_second_order_gradients():
    def twice(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = tf.reduce_sum(hvd.allreduce(x, op=hvd.Sum) ** 2)
            first = inner.gradient(y, x)
        return outer.gradient(first, x)

    x = np.ones(2, np.float32)
    for mode in ("eager", "function"):
        (got,) = outcomes(mode, twice, x)
        assert np.allclose(got, 2 * hvd.size() ** 2), (mode, got)


@on_ranks
def test_sync_batch_norm_equals_batch_norm_over_the_whole_batch():
    me, n = hvd.rank(), hvd.size()
    whole = np.random.RandomState(0).randn(4 * n, 3).astype(np.float32) * 3 + 5
    mine = whole[4 * me : 4 * me + 4]
    layer, plain = hvd.SyncBatchNormalization(), tf.keras.layers.BatchNormalization()
    weight = np.arange(4 * n * 3, dtype=np.float32).reshape(4 * n, 3)

    def run(layer, x, weight):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
            loss = tf.reduce_sum(weight * y)
        return y, tape.gradient(loss, x)

    expected, slope = run(plain, tf.constant(whole), weight)
    for function in (run, tf.function(run)):
        layer = hvd.SyncBatchNormalization()
        layer.build(mine.shape)
        got, own_slope = function(layer, tf.constant(mine), weight[4 * me : 4 * me + 4])
        assert np.allclose(got, expected[4 * me : 4 * me + 4], atol=1e-4)
        assert np.allclose(own_slope, slope[4 * me : 4 * me + 4], rtol=1e-3, atol=1e-2)
        assert np.allclose(layer.moving_mean, plain.moving_mean, atol=1e-4)
        assert np.allclose(layer.moving_variance, plain.moving_variance, atol=1e-4)
    evaluated = layer(mine, training=False)
    assert np.allclose(evaluated, plain(mine, training=False), atol=1e-4)
    assert layer.name.startswith("sync_batch_normalization")
    for fused in (True, None):
        try:
            hvd.SyncBatchNormalization(fused=fused)
            raise AssertionError("fused was accepted")
        except ValueError as error:
            assert "does not support fused=True" in str(error)
