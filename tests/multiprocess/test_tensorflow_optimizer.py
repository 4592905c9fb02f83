"""DistributedOptimizer for TensorFlow 1 optimizers, in sessions and eagerly."""

import pytest
from tensorflow_support import hvd, np, on_ranks, on_three_ranks, tf

v1 = tf.compat.v1


def batches(steps):
    """[steps, ranks * 4, 3] inputs and targets, the same on every rank."""
    random = np.random.RandomState(7)
    x = random.randn(steps, 4 * hvd.size(), 3).astype(np.float32)
    return x, (x.sum(-1, keepdims=True) + 1).astype(np.float32)


def train(wrap, is_alone, steps=6, make=None):
    """Weights after some steps of linear regression, and the losses; with the whole batch or this rank's
    part.
    """
    xs, ys = batches(steps)
    part = slice(None) if is_alone else slice(4 * hvd.rank(), 4 * hvd.rank() + 4)
    with tf.Graph().as_default():
        weights = v1.get_variable("w", initializer=np.zeros((3, 1), np.float32))
        bias = v1.get_variable("b", initializer=np.zeros((1,), np.float32))
        x, y = v1.placeholder(tf.float32, [None, 3]), v1.placeholder(tf.float32, [None, 1])
        loss = tf.reduce_mean((x @ weights + bias - y) ** 2)
        step = v1.train.get_or_create_global_step()
        optimizer = wrap((make or (lambda: v1.train.MomentumOptimizer(0.05, 0.9)))())
        operation = optimizer.minimize(loss, global_step=step)
        with v1.train.MonitoredTrainingSession() as session:
            feeds = [{x: one_x[part], y: one_y[part]} for one_x, one_y in zip(xs, ys)]
            losses = [session.run([loss, operation], feed)[0] for feed in feeds]
            return [*session.run([weights, bias]), int(session.run(step)), np.array(losses)]


@on_ranks
def test_weights_equal_those_of_one_process_with_the_whole_batch():
    for make in (
        lambda: v1.train.GradientDescentOptimizer(0.1),
        lambda: v1.train.AdagradOptimizer(0.1),
        lambda: v1.train.AdamOptimizer(0.1),
        lambda: v1.train.RMSPropOptimizer(0.1),
    ):
        alone = train(lambda optimizer: optimizer, is_alone=True, make=make)
        together = train(hvd.DistributedOptimizer, is_alone=False, make=make)
        together[3] = np.mean(hvd.allgather_object(together[3]), axis=0)
        np.testing.assert_allclose(together[3], alone[3], rtol=1e-4)  # the loss curve
        assert all(np.allclose(a, b, atol=1e-4) for a, b in zip(alone, together)), (alone, together)
    assert len(set(hvd.allgather_object(together[0].tobytes()))) == 1


@on_ranks
def test_the_loss_curve_of_a_tape_equals_that_of_one_process_with_the_whole_batch():
    def curve(part, wrap, mode):
        weights, bias = tf.Variable(tf.zeros([3, 1])), tf.Variable(tf.zeros([1]))

        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((x @ weights + bias - y) ** 2)
            gradients = wrap(tape).gradient(loss, [weights, bias])
            for variable, gradient in zip((weights, bias), gradients):
                variable.assign_sub(0.1 * gradient)
            return loss

        step = tf.function(step) if mode == "function" else step
        return [float(step(x[part], y[part])) for x, y in zip(*batches(8))]

    mine = slice(4 * hvd.rank(), 4 * hvd.rank() + 4)
    alone = curve(slice(None), lambda tape: tape, "eager")
    assert alone[-1] < 0.7 * alone[0]
    for mode in ("eager", "function"):
        together = np.mean(hvd.allgather_object(curve(mine, hvd.DistributedGradientTape, mode)), axis=0)
        np.testing.assert_allclose(together, alone, rtol=1e-5, err_msg=mode)


@on_ranks
def test_options_change_the_way_not_the_result():
    alone = train(lambda optimizer: optimizer, is_alone=True)
    for options in ({"groups": 1}, {"gradient_predivide_factor": 4.0}, {"compression": hvd.Compression.fp16}):
        together = train(lambda o, options=options: hvd.DistributedOptimizer(o, **options), is_alone=False)
        together[3] = np.mean(hvd.allgather_object(together[3]), axis=0)
        assert all(np.allclose(a, b, atol=2e-2) for a, b in zip(alone, together)), options


@on_ranks
def test_several_passes_are_summed_before_one_step():
    make = lambda: v1.train.GradientDescentOptimizer(0.1)  # noqa: E731
    for average in (True, False):
        passes = {"backward_passes_per_step": 3, "average_aggregated_gradients": average}
        together = train(lambda o, p=passes: hvd.DistributedOptimizer(o, **p), is_alone=False, make=make)
        xs, ys = batches(6)
        weights, bias = np.zeros((3, 1)), np.zeros(1)
        for begin in (0, 3):
            slopes = [2 * (x @ weights + bias - y) / len(x) for x, y in zip(xs, ys)]
            parts = range(begin, begin + 3)
            scale = 0.1 / (3 if average else 1)
            change = sum(xs[i].T @ slopes[i] for i in parts), sum(slopes[i].sum(0) for i in parts)
            weights, bias = weights - scale * change[0], bias - scale * change[1]
        assert np.allclose(together[0], weights, atol=1e-4) and np.allclose(together[1], bias, atol=1e-4)
        assert together[2] == 6  # the global step counts every pass


@on_ranks
def test_the_wrapper_forwards_and_names_itself():
    with tf.Graph().as_default():
        variable, own = v1.get_variable("v", [2]), v1.get_variable("own", [])
        inner = v1.train.AdagradOptimizer(0.1)
        optimizer = hvd.DistributedOptimizer(inner)
        optimizer.register_local_var(own)
        assert optimizer.get_name() == "DistributedAdagradOptimizer"
        pairs = optimizer.compute_gradients(tf.reduce_sum(variable) + own * (hvd.rank() + 1.0))
        operation = optimizer.apply_gradients(pairs)
        assert [one for _, one in pairs] == [variable, own]
        assert optimizer.get_slot_names() == ["accumulator"] == inner.get_slot_names()
        assert optimizer.get_slot(variable, "accumulator") is inner.get_slot(variable, "accumulator")
        assert optimizer.variables() == inner.variables()
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            reduced, local = session.run([gradient for gradient, _ in pairs])
            session.run(operation)
        assert reduced.tolist() == [1.0, 1.0] and local == (hvd.rank() + 1) / hvd.size()


@on_ranks
def test_eager_execution_with_an_old_optimizer():
    variable = tf.Variable([1.0, 2.0])
    optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.5))
    optimizer.minimize(lambda: tf.reduce_sum(variable * (hvd.rank() + 1.0)))
    assert np.allclose(variable.numpy(), np.array([1.0, 2.0]) - 0.5 * (hvd.size() + 1) / 2)


@on_ranks
def test_slices_are_gathered_densified_or_refused():
    def run(**options):
        with tf.Graph().as_default():
            table = v1.get_variable("t", initializer=np.ones((3, 1), np.float32))
            loss = tf.reduce_sum(tf.gather(table, [hvd.rank()])) * 2
            operation = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), **options).minimize(
                loss
            )
            with v1.train.MonitoredTrainingSession() as session:
                session.run([operation] * 1)
                return session.run(table)[:, 0].tolist()

    assert run() == [0.0, 0.0, 1.0] == run(sparse_as_dense=True)
    with pytest.raises(
        ValueError, match="IndexedSlices are not supported when `backward_passes_per_step` > 1"
    ):
        run(backward_passes_per_step=2)
    run(backward_passes_per_step=2, sparse_as_dense=True)


@on_ranks
def test_adasum_combines_changes_of_weights():
    for eager in (True, False):
        mine = np.zeros(2, np.float32)
        mine[hvd.rank()] = hvd.rank() + 1.0  # orthogonal: the changes add up

        def loss(variable, mine=mine):
            return tf.reduce_sum(variable * mine)

        options = {"op": hvd.Adasum, "backward_passes_per_step": 2}
        optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), **options)
        assert optimizer.get_name() == "DistributedDeltaGradientDescentOptimizer"
        seen = []
        if eager:
            variable = tf.Variable([10.0, 10.0])
            for _ in range(4):
                optimizer.minimize(lambda variable=variable: loss(variable))
                seen.append(variable.numpy().tolist())
        else:
            with tf.Graph().as_default():
                variable = v1.get_variable("v", initializer=np.full(2, 10.0, np.float32))
                operation = optimizer.minimize(loss(variable))
                with v1.train.MonitoredTrainingSession() as session:
                    for _ in range(4):
                        session.run(operation)
                        seen.append(session.run(variable).tolist())
        local = [10.0 - one for one in mine.tolist()]
        assert seen[0] == local and seen[1] == [8.0, 6.0] and seen[3] == [6.0, 2.0], (eager, seen)


@on_ranks
def test_arguments_of_optimizers_are_checked():
    sgd = v1.train.GradientDescentOptimizer(0.1)
    wrapped = hvd.DistributedOptimizer(sgd)
    pair = hvd.add_process_set([0])
    for kind, optimizer, options, text in (
        (ValueError, wrapped, {}, "DistributedOptimizer already"),
        (ValueError, object(), {}, "pass a tf.compat.v1.train.Optimizer or a Keras optimizer"),
        (ValueError, sgd, {"backward_passes_per_step": 0}, "backward_passes_per_step must be > 0"),
        (
            ValueError,
            sgd,
            {"backward_passes_per_step": 2},
            "not yet supported for _LegacyOptimizer with eager",
        ),
        (ValueError, sgd, {"op": "x"}, "op is 'x', but it must be one of Average, Sum"),
        (ValueError, sgd, {"gradient_predivide_factor": 0}, "must be a finite number other than 0, not 0"),
        (ValueError, sgd, {"op": hvd.Sum, "gradient_predivide_factor": 2.0}, "with op != Average"),
        (
            ValueError,
            sgd,
            {"op": hvd.Adasum, "average_aggregated_gradients": True},
            "Adasum does not support",
        ),
        (
            NotImplementedError,
            sgd,
            {"op": hvd.Adasum, "process_set": pair},
            "Adasum does not support process",
        ),
        (ValueError, tf.keras.optimizers.SGD(), {"op": hvd.Adasum}, "op == Adasum is not supported yet"),
    ):
        with pytest.raises(kind, match=text):
            hvd.DistributedOptimizer(optimizer, **options)
    hvd.remove_process_set(pair)
    with pytest.raises(ValueError, match="All local layers"):
        hvd.PartialDistributedOptimizer(sgd, local_layers=[1])
    local = tf.keras.layers.Dense(1, name="local")
    with pytest.raises(ValueError, match="layer local is not built: build the model"):
        hvd.PartialDistributedOptimizer(sgd, local_layers=local)
    local.build((None, 1))
    partial = hvd.PartialDistributedOptimizer(sgd, local_layers=local)
    assert partial.get_name() == "DistributedGradientDescentOptimizer"


@on_three_ranks
def test_a_set_that_is_not_registered_is_refused_not_trained_apart():
    pair = hvd.ProcessSet([0, 1])
    weight = tf.Variable([1.0, 2.0])

    def refused(call):
        with pytest.raises(
            ValueError, match="Process set provided does not exist, or has not been registered"
        ):
            call()

    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(weight * (hvd.rank() + 1.0))
    tape = hvd.DistributedGradientTape(tape, process_set=pair)
    refused(lambda: tape.gradient(loss, [weight]))
    with tf.Graph().as_default():
        weight = v1.get_variable("w", initializer=np.zeros(2, np.float32))
        optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.1), process_set=pair)
        refused(lambda: optimizer.minimize(tf.reduce_sum(weight)))
    hvd.add_process_set(pair)
    hvd.remove_process_set(pair)
    weight = tf.Variable(1.0)
    with tf.GradientTape() as tape:
        loss = 2.0 * weight
    tape = hvd.DistributedGradientTape(tape, process_set=pair)
    refused(lambda: tape.gradient(loss, weight))


@on_ranks
def test_gradients_have_the_structure_of_their_sources():
    a, b = tf.Variable(1.0), tf.Variable([2.0, 3.0])

    def structure_of(sources):
        with tf.GradientTape() as tape:
            loss = a * tf.reduce_sum(b)
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, sources)
        tf.nest.assert_same_structure(sources, gradients)
        return [float(tf.reduce_sum(one)) for one in tf.nest.flatten(gradients)]

    for sources in ([a, b], (a, b), [[a], [b]], {"x": a, "y": [b]}):
        assert structure_of(sources) == [5.0, 2.0]
    assert structure_of(a) == [5.0]


@on_ranks
def test_gradients_that_come_in_a_later_step_are_reduced_too():
    from rueda.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager

    a, b = tf.Variable(0.0), tf.Variable(0.0)

    def reduce(gradients, variables):
        return [hvd.allreduce(gradient, op=hvd.Sum, name=f"late.{i}") for i, gradient in enumerate(gradients)]

    helper = LocalGradientAggregationHelperEager(2, reduce)
    mine = tf.constant(hvd.rank() + 1.0)
    everybody = sum(range(1, hvd.size() + 1))
    helper.compute_gradients([mine, None], [a, b])
    first = helper.compute_gradients([mine, None], [a, b])
    assert float(first[0]) == 2 * everybody and first[1] is None
    helper.compute_gradients([mine, mine], [a, b])
    second = helper.compute_gradients([mine, None], [a, b])  # b's of the pass before is not lost
    assert [float(one) for one in second] == [2 * everybody, everybody]


@on_ranks
def test_wrong_arguments_are_one_sentence():
    for given, error, text in (
        ({"process_set": 5}, TypeError, "process_set must be a ProcessSet, .*not int"),
        ({"name": 5}, TypeError, r"The name has to be a string, not int \(5\)"),
        ({"compression": "fp16"}, ValueError, "one of Compression.none, .fp16, .bf16.*unlike 'fp16'"),
    ):
        with pytest.raises(error, match=text):
            hvd.allreduce(tf.ones(2), **given)
