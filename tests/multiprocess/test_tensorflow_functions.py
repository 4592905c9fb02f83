"""Variables, objects, the broadcast hook and tapes."""

import shutil
import tempfile
from pathlib import Path

import pytest
from tensorflow_support import hvd, np, on_ranks, on_three_ranks, tf


@on_three_ranks
def test_variables_become_roots_eagerly_and_in_graphs():
    me, root = hvd.rank(), 1
    for inplace in (False, True):
        variables = [tf.Variable([1.0 * me] * 3), tf.Variable([[me]]), tf.Variable(2.0 * me)]
        hvd.broadcast_variables(variables, root, inplace=inplace)
        assert [one.numpy().tolist() for one in variables] == [[1.0] * 3, [[1]], 2.0]
    dense = tf.keras.layers.Dense(2, kernel_initializer=tf.keras.initializers.Constant(me))
    dense.build((None, 2))
    hvd.broadcast_variables(dense.variables, root)
    assert np.all(dense.kernel.numpy() == 1)
    for resource in (True, False):
        with tf.Graph().as_default():
            made = [
                tf.compat.v1.get_variable(name, initializer=np.full(2, me, np.float32), use_resource=resource)
                for name in ("a", "b")
            ]
            operation = hvd.broadcast_global_variables(root)
            with tf.compat.v1.Session() as session:
                session.run(tf.compat.v1.global_variables_initializer())
                session.run(operation)
                assert all(one.tolist() == [1.0, 1.0] for one in session.run(made)), resource
    with pytest.raises(RuntimeError, match=r"hvd.broadcast_global_variables\(\) does not support eager"):
        hvd.broadcast_global_variables(0)
    variable = tf.Variable(float(me))
    tf.function(lambda: hvd.broadcast_variables([variable], root))()
    assert variable.numpy() == 1.0


@on_ranks
def test_the_hook_broadcasts_after_the_session_is_made():
    hook = hvd.BroadcastGlobalVariablesHook(1)
    for _ in range(2):  # a hook serves several graphs
        with tf.Graph().as_default():
            variable = tf.compat.v1.get_variable("v", initializer=np.full(2, hvd.rank(), np.float32))
            with tf.compat.v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
                assert session.run(variable).tolist() == [1.0, 1.0]


@on_three_ranks
def test_objects_travel_eagerly_and_through_sessions():
    me, n = hvd.rank(), hvd.size()
    mine = {"rank": me, "list": [None] * me}
    expected = [{"rank": rank, "list": [None] * rank} for rank in range(n)]
    assert hvd.broadcast_object(mine, 2) == expected[2]
    assert hvd.broadcast_object(mine if me == 1 else None, 1, name="named") == expected[1]
    assert hvd.allgather_object(mine) == expected
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        assert hvd.broadcast_object(mine, 1, session=session) == expected[1]
        assert hvd.allgather_object(mine, session=session) == expected
        send = hvd.broadcast_object_fn(0, session=session)
        for value in ("once", "twice" * 50):
            assert send(value if me == 0 else None) == value
        count = len(tf.compat.v1.get_default_graph().get_operations())
        assert send(mine) == expected[0]
        assert len(tf.compat.v1.get_default_graph().get_operations()) == count  # nothing is built again
    pair = hvd.add_process_set([0, 2])
    if pair.included():
        assert hvd.allgather_object(me, process_set=pair) == [0, 2]
        assert hvd.broadcast_object(me, 2, process_set=pair) == 2
    hvd.remove_process_set(pair)


@on_ranks
def test_topology_and_timeline():
    assert hvd.cross_rank() == 0 and hvd.cross_size() == 1 and hvd.is_homogeneous()
    assert hvd.rank() == hvd.local_rank() and hvd.local_size() == hvd.size()
    folder = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None, name="folder")
    hvd.start_timeline(f"{folder}/timeline.json")
    hvd.allreduce(tf.ones([2]), name="seen_in_the_timeline")
    hvd.stop_timeline()
    hvd.barrier()
    if hvd.rank() == 0:
        assert "seen_in_the_timeline" in Path(f"{folder}/timeline.json").read_text()
        shutil.rmtree(folder)


# ---- tapes ----


def losses(variables, me):
    return tf.add_n([tf.reduce_sum((i + 1.0 + me) * variable) for i, variable in enumerate(variables)])


def tape_gradients(variables, mode, make=None, targets=None, **options):
    def step():
        with tf.GradientTape() as tape:
            loss = losses(variables, hvd.rank())
        tape = (make or hvd.DistributedGradientTape)(tape, **options)
        return tape.gradient(loss, targets if targets is not None else variables)

    got = tf.function(step)() if mode == "function" else step()
    return [one if one is None else np.asarray(tf.convert_to_tensor(one)) for one in got]


@on_ranks
def test_the_tape_averages_in_every_configuration():
    n = hvd.size()
    variables = [tf.Variable([1.0, 2.0]), tf.Variable(3.0), tf.Variable([[4.0]])]
    mean = sum(range(n)) / n
    for mode in ("eager", "function"):
        for options, factor in (
            ({}, 1),
            ({"op": hvd.Sum}, n),
            ({"gradient_predivide_factor": 2.0}, 1),
            ({"groups": 2}, 1),
            ({"groups": [[variables[2], variables[0]]]}, 1),
            ({"compression": hvd.Compression.fp16}, 1),
            ({"compression": hvd.Compression.bf16, "groups": 1}, 1),
        ):
            got = tape_gradients(variables, mode, **options)
            for i, one in enumerate(got):
                assert np.allclose(one, factor * (i + 1 + mean)), (mode, options, i, one)


@on_ranks
def test_the_tape_keeps_none_structures_and_its_class():
    used, unused = tf.Variable(1.0), tf.Variable(1.0)
    with tf.GradientTape(persistent=True) as tape:
        loss = used * (hvd.rank() + 1.0)
    wrapped = hvd.DistributedGradientTape(tape)
    assert isinstance(wrapped, tf.GradientTape) and type(wrapped).__name__ == "GradientTape"
    mean = (hvd.size() + 1) / 2
    got, nothing = wrapped.gradient(loss, [used, unused])
    assert got.numpy() == mean and nothing is None
    assert wrapped.gradient(loss, used).numpy() == mean
    assert wrapped.gradient(loss, {"a": [used]}, use_generic_names=True)["a"][0].numpy() == mean
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = used * (hvd.rank() + 1.0)
    assert tape.gradient(loss, [used])[0].numpy() == mean


@on_ranks
def test_the_tape_gathers_or_densifies_slices():
    table = tf.Variable(tf.ones([4, 2]))

    def step(sparse_as_dense):
        with tf.GradientTape() as tape:
            rows = tf.gather(table, [0, hvd.rank() + 1])
            loss = tf.reduce_sum(rows) * 2
        tape = hvd.DistributedGradientTape(tape, sparse_as_dense=sparse_as_dense)
        (gradient,) = tape.gradient(loss, [table])
        assert isinstance(gradient, tf.IndexedSlices) != sparse_as_dense
        return tf.convert_to_tensor(gradient)

    for wrap in (lambda f: f, tf.function):
        for sparse_as_dense in (False, True):
            got = wrap(step)(sparse_as_dense).numpy()
            assert got[:, 0].tolist() == [2.0, 1.0, 1.0, 0.0], got


@on_ranks
def test_local_layers_keep_their_own_gradients():
    me, n = hvd.rank(), hvd.size()
    shared, local = tf.keras.layers.Dense(1, use_bias=False), tf.keras.layers.Dense(1, use_bias=False)
    shared.build((None, 1))
    local.build((None, 1))
    for scale in (True, False):
        with tf.GradientTape(persistent=True) as tape:
            loss = (me + 1.0) * (shared.kernel[0, 0] + local.kernel[0, 0])
        options = {"local_layers": [local], "scale_local_gradients": scale}
        tape = hvd.PartialDistributedGradientTape(tape, **options)
        together, alone = tape.gradient(loss, [shared.kernel.value, local.kernel.value])
        assert together.numpy() == (n + 1) / 2 and alone.numpy() == (me + 1) / (n if scale else 1)
        sources = [shared.kernel.value, local.kernel.value]
        kept, reduced = tape.get_local_and_global_gradients(loss, sources)
        assert [g.numpy().item() for _, g in kept] == [alone.numpy().item()] and len(reduced) == 1
    with pytest.raises(ValueError, match=r"All local layers must be of tf.keras.layers.Layer type."):
        hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=[3])
    later = tf.keras.layers.Dense(1, name="later")
    with pytest.raises(ValueError, match="GradientTape: layer later is not built: build the model"):
        hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=later)


@on_three_ranks
def test_ranks_outside_the_set_keep_their_gradients():
    pair = hvd.add_process_set([0, 2])
    variables = [tf.Variable(1.0)]
    (got,) = tape_gradients(variables, "eager", process_set=pair, op=hvd.Sum)
    assert got == {0: 1 + 3, 1: 2, 2: 1 + 3}[hvd.rank()]
    hvd.remove_process_set(pair)


@on_ranks
def test_arguments_of_tapes_are_checked():
    variable = tf.Variable(1.0)
    for options, text in (
        ({"groups": 0}, "groups should be a non-negative integer or a list of list of tf.Variable."),
        ({"groups": "ab"}, "groups should be a non-negative integer or a list of list of tf.Variable."),
        ({"groups": [variable]}, "groups should be a non-negative integer or a list of list of tf.Variable."),
        ({"groups": [[1]]}, "groups must consist of tf.Variable."),
        ({"groups": [[variable], [variable]]}, "can only appear once in groups"),
        ({"gradient_predivide_factor": 0}, "must be a finite number other than 0"),
        ({"op": hvd.Sum, "gradient_predivide_factor": 2.0}, "not supported with op != Average"),
    ):
        with pytest.raises(ValueError, match=text):
            hvd.DistributedGradientTape(tf.GradientTape(), **options)
