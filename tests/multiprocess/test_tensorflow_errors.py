"""Every refusal and every disagreement: the exception, the text, and that the engine works afterwards."""

import pytest
from tensorflow_support import MODES, hvd, np, on_ranks, outcomes, tf

errors = tf.errors


def raised(kind, function, *texts):
    with pytest.raises(kind) as caught:
        function()
    said = caught.value.message if isinstance(caught.value, errors.OpError) else str(caught.value)
    for text in texts:
        assert text in said, f"{text!r} is not in {said!r}"


def disagree(build, *texts):
    """Asserts a FailedPreconditionError on every rank in every mode, and a working engine afterwards."""
    for mode in MODES:
        raised(errors.FailedPreconditionError, lambda mode=mode: outcomes(mode, build), *texts)
        (total,) = outcomes(mode, lambda: hvd.allreduce(tf.ones([2]), op=hvd.Sum, name="afterwards"))
        assert total.tolist() == [hvd.size()] * 2


def odd():
    return hvd.rank() == hvd.size() - 1


@on_ranks
def test_mismatches_name_the_tensor_and_the_ranks():
    shape, kind = (3, 2) if odd() else (2, 2), tf.int32 if odd() else tf.float32
    disagree(
        lambda: hvd.allreduce(tf.ones(shape), name="weights"),
        "Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of shape",
        "Tensor weights: rank 0 has [2, 2], rank 1 has [3, 2].",
    )
    disagree(
        lambda: hvd.allgather(tf.ones([2], kind), name="labels"),
        "Mismatched data types: One rank had type",
        "labels",
        "rank 0",
        "rank 1",
    )
    disagree(
        lambda: hvd.grouped_allreduce([tf.ones([2]), tf.ones(shape)], name="group"),
        "Mismatched ALLREDUCE tensor shapes",
        "group_2of2",
    )
    disagree(
        lambda: hvd.broadcast(tf.ones([2]), 1 if odd() else 0, name="start"),
        "Mismatched BROADCAST root ranks",
        "start",
    )
    disagree(
        lambda: hvd.reducescatter(tf.ones([4]), op=hvd.Average if odd() else hvd.Sum, name="part"), "part"
    )


@on_ranks
def test_scalars_cannot_be_gathered_or_scattered():
    disagree(lambda: hvd.allgather(tf.ones([]), name="s"), "tried to ALLGATHER a rank-zero tensor")
    raised(
        errors.InvalidArgumentError, lambda: hvd.reducescatter(tf.ones([])), "does not support scalar inputs"
    )
    with tf.Graph().as_default():
        raised(
            ValueError,
            lambda: hvd.reducescatter(tf.ones([])),
            "HorovodReducescatter does not support scalar inputs.",
        )


@on_ranks
def test_what_one_rank_can_judge_is_refused_there_and_then():
    n = hvd.size()
    raised(errors.InvalidArgumentError, lambda: hvd.broadcast(tf.ones(2), n), "invalid root rank")
    raised(
        errors.AbortedError,
        lambda: hvd.reducescatter(tf.ones(2), op=hvd.Max),
        "only supports AVERAGE and SUM",
    )
    for splits, text in (
        ([1] * (n + 1), "Number of entries in splits does not equal number of workers"),
        ([9] * n, "Sum of splits entries is greater than the first dimension of tensor"),
        ([-1] * n, "must not be negative"),
        ([[1] * n], "alltoall expects a 1D splits tensor"),
        ([0.5] * n, "alltoall expects splits to contain 32-bit integer elements"),
    ):
        raised(errors.InvalidArgumentError, lambda s=splits: hvd.alltoall(tf.ones(n), splits=s), text)
    raised(
        errors.InvalidArgumentError,
        lambda: hvd.alltoall(tf.ones(n + 1)),
        "not an even multiple of the number",
    )
    raised(
        ValueError, lambda: hvd.allreduce(tf.ones(2), average=True, op=hvd.Sum), "The op parameter supersedes"
    )
    raised(ValueError, lambda: hvd.allreduce(tf.ones(2), op=17), "17")
    slices = tf.IndexedSlices(tf.ones([1]), [0], [1])
    for arguments, text in (
        ({"op": hvd.Adasum}, "The Adasum reduction does not currently support sparse tensors."),
        ({"op": hvd.Max}, "Only Sum and Average ops are supported with tf.IndexedSlices"),
        ({"prescale_factor": 2.0}, "Pre/postscale_factor are not supported with tf.IndexedSlices"),
    ):
        raised(NotImplementedError, lambda a=arguments: hvd.allreduce(slices, **a), text)
    with pytest.raises((TypeError, errors.InvalidArgumentError)):
        hvd.allreduce(tf.constant("text"))
    assert hvd.allreduce(tf.ones(2), op=hvd.Sum).numpy().tolist() == [n] * 2


@on_ranks
def test_names_and_groups_that_are_none_are_refused_in_one_sentence():
    for name, why in (("x\0y", "NUL"), ("x\ud800y", "cannot encode")):
        for reduce in (hvd.allreduce, tf.function(hvd.allreduce)):
            with pytest.raises(ValueError, match=f"The name .*{why}.*; leave it out."):
                reduce(tf.ones([2]), name=name)
    raised(TypeError, lambda: hvd.broadcast_object(1, name=5), "The name has to be a string, not int")
    for values in ("x", None, tf.Variable(1.0)):
        for inplace in (False, True):
            with pytest.raises(TypeError, match="broadcast_variables takes a list of variables"):
                hvd.broadcast_variables(values, 0, inplace=inplace)
    for grouped in (hvd.grouped_allreduce, hvd.grouped_allgather, hvd.grouped_reducescatter):
        raised(TypeError, lambda f=grouped: f(tf.ones([2, 2])), "takes a list of tensors, not EagerTensor")
        outputs = grouped(tf.fill([hvd.size()], i) for i in range(2))
        assert [output.numpy()[0] for output in outputs] == [0, 1]


@on_ranks
def test_a_name_in_flight_twice_is_refused():
    from rueda import _core, operations

    data = np.ones(2, np.float32)
    call = operations.Call(_core.ALLREDUCE, _core.FLOAT32, (2,), data.ctypes.data, data.ctypes.data)
    if hvd.rank() == 0:
        _, handle = operations.submit(
            [call], hvd.global_process_set, lambda number, index: "same", "Allreduce"
        )
        raised(
            errors.InvalidArgumentError,
            lambda: hvd.allreduce(tf.ones([2]), name="same"),
            "same",
            "with the same name as another tensor that is currently being processed",
        )
    hvd.barrier()  # the other rank comes only now
    if hvd.rank() == 0:
        operations.wait(handle)
        _core.release(handle)
        assert data.tolist() == [2.0, 2.0]
    else:
        assert hvd.allreduce(tf.ones([2]), op=hvd.Sum, name="same").numpy().tolist() == [2.0, 2.0]


@on_ranks
def test_xla_is_refused_in_one_sentence():
    @tf.function(jit_compile=True)
    def compiled(x):
        return hvd.allreduce(x) + 1

    raised(
        NotImplementedError,
        lambda: compiled(tf.ones([2])),
        "HorovodAllreduce cannot be compiled by XLA: call it outside of functions with jit_compile=True",
    )

    @tf.function(jit_compile=True)
    def around(x):
        return tf.cond(tf.reduce_sum(x) > 0, lambda: hvd.broadcast(x, 0), lambda: x)

    raised(NotImplementedError, lambda: around(tf.ones([2])), "HorovodBroadcast cannot be compiled by XLA")

    @tf.function(jit_compile=True)
    def inner(x):
        return x * 2

    outside = tf.function(lambda x: hvd.allreduce(inner(x), op=hvd.Sum))
    assert outside(tf.ones([2])).numpy().tolist() == [2.0 * hvd.size()] * 2


@on_ranks
def test_a_failing_neighbour_leaves_the_engine_usable():
    @tf.function
    def step(x):
        reduced = hvd.allreduce(x, name="in_flight")
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_sum(x) < 0, ["boom"])]):
            return tf.identity(reduced)

    for _ in range(3):
        with pytest.raises(errors.InvalidArgumentError):
            step(tf.ones([1000]))
    assert np.allclose(hvd.allreduce(tf.ones([3])).numpy(), 1)


@on_ranks
def test_variables_of_another_type_meet_and_are_refused_on_every_rank():
    variables = [tf.Variable(tf.ones([2])), tf.Variable(tf.ones([2], tf.float64 if odd() else tf.float32))]
    for inplace in (False, True):
        with pytest.raises(errors.FailedPreconditionError):
            hvd.broadcast_variables(variables, 0, inplace=inplace)
    assert hvd.broadcast_object("together" if hvd.rank() == 0 else None) == "together"


@on_ranks
def test_gradients_that_ranks_disagree_about_are_named_in_eager_execution():
    table = tf.Variable(tf.ones([4, 3 if odd() else 2]))
    for loss, text in (
        (tf.reduce_sum, "Allreduce_0"),
        (lambda x: tf.reduce_sum(tf.gather(x, [0])), "Allreduce_slices_0"),
    ):
        with tf.GradientTape() as tape:
            value = loss(table)
        with pytest.raises(errors.FailedPreconditionError, match=f"DistributedGradientTape_{text}"):
            hvd.DistributedGradientTape(tape).gradient(value, [table])


@on_ranks
def test_tapes_are_wrapped_once_and_nothing_else_is():
    with tf.GradientTape() as tape:
        pass
    tape = hvd.DistributedGradientTape(tape)
    raised(ValueError, lambda: hvd.DistributedGradientTape(tape), "already")
    raised(TypeError, lambda: hvd.DistributedGradientTape(None), "takes a tf.GradientTape, not NoneType")
