"""Every refusal and every disagreement: type, text, and that the engine works afterwards."""

import threading
import time
from functools import partial

import pytest
import torch
from harness import on_every_rank

import rueda.torch as hvd
from rueda import in_flight
from rueda.torch import functions


def raised(kind, function, *texts):
    """Asserts that function raises exactly this kind with all texts in its message."""
    with pytest.raises(kind) as caught:
        function()
    for text in texts:
        assert text in str(caught.value), f"{text!r} is not in {str(caught.value)!r}"
    return caught.value


def disagree(function, *texts):
    """Asserts a HorovodInternalError on every rank and a working engine afterwards."""
    error = raised(hvd.HorovodInternalError, function, *texts)
    assert isinstance(error.args[0], RuntimeError) and str(error.args[0]) == str(error)
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2


GROUPED = [
    hvd.grouped_allreduce,
    hvd.grouped_allreduce_,
    hvd.grouped_allgather,
    hvd.grouped_reducescatter,
    hvd.grouped_allreduce_async,
    hvd.grouped_allreduce_async_,
    hvd.grouped_allgather_async,
    hvd.grouped_reducescatter_async,
]


def odd():
    return hvd.rank() == hvd.size() - 1


@on_every_rank
def test_arguments_that_are_not_numbers():
    x = torch.ones(3)
    raised(TypeError, lambda: hvd.broadcast(x, "a", name="m"), "root_rank must be an int, not str")
    raised(TypeError, lambda: hvd.broadcast(x, 0.5, name="m"), "root_rank must be an int, not float")
    scaled = partial(hvd.allreduce, x, op=hvd.Sum, name="m")
    raised(TypeError, lambda: scaled(prescale_factor="x"), "prescale_factor must be a number, not str ('x')")
    raised(TypeError, lambda: scaled(postscale_factor=[]), "postscale_factor must be a number, not list ([])")
    for function in (hvd.allreduce, hvd.reducescatter):
        raised(ValueError, partial(function, x, compression="int8"), "compression must be one of")
    for function in (hvd.grouped_allreduce, hvd.grouped_reducescatter):
        raised(ValueError, partial(function, [x], compression=None), "compression must be one of")
    raised(TypeError, lambda: hvd.DistributedOptimizer(None), "torch.optim.Optimizer, not NoneType")
    assert hvd.allreduce(x, op=hvd.Sum, name="m").tolist() == [hvd.size()] * 3


@on_every_rank
def test_mismatched_data_types():
    x = torch.ones(3, dtype=torch.int32 if odd() else torch.float32)
    text = "Mismatched data types: One rank had type "
    disagree(lambda: hvd.allreduce(x, name="m"), text, "int32", "float32", ", but another rank had type ")
    for function in (
        lambda: hvd.allgather(x, name="m"),
        lambda: hvd.broadcast(x, 0, name="m"),
        lambda: hvd.alltoall(x, [0] * hvd.size(), name="m"),
        lambda: hvd.reducescatter(x, name="m"),
    ):
        disagree(function, text)


@on_every_rank
def test_mismatched_operations():
    # The keys of the front end begin with the operation: only a name made by hand can meet another one.
    from rueda import _core, operations

    what = _core.ALLGATHER if odd() else _core.ALLREDUCE
    x, y = torch.ones(2), torch.ones(2)
    call = operations.Call(what, _core.FLOAT32, (2,), x.data_ptr(), 0 if odd() else y.data_ptr())

    def collide():
        _, handle = operations.submit(
            [call], hvd.mpi_ops.global_process_set, lambda n, i: "collide", "Allreduce"
        )
        try:
            operations.wait(handle)
        finally:
            _core.release(handle)

    disagree(
        collide,
        "Mismatched operations: One rank did an ",
        "ALLREDUCE",
        "ALLGATHER",
        ", but another rank did an ",
    )


@on_every_rank
def test_mismatched_shapes():
    x = torch.ones(2, 4) if odd() else torch.ones(2, 3)
    for word, function in (
        ("ALLREDUCE", lambda: hvd.allreduce(x, name="s")),
        ("BROADCAST", lambda: hvd.broadcast(x, 0, name="s")),
        ("REDUCESCATTER", lambda: hvd.reducescatter(x, name="s")),
    ):
        text = f"Mismatched {word} tensor shapes: One rank sent a tensor of shape "
        disagree(function, text, "[2, 3]", "[2, 4]", ", but another rank sent a tensor of shape ")
    for word, function in (
        ("ALLGATHER", lambda: hvd.allgather(x, name="s")),
        ("ALLTOALL", lambda: hvd.alltoall(x, [0] * hvd.size(), name="s")),
    ):
        text = f"Mismatched {word} tensor shapes: One rank sent a tensor with dimension 1 equal to "
        disagree(function, text)
    y = torch.ones(2, 3, 1) if odd() else torch.ones(2, 3)
    text = "Mismatched ALLGATHER tensor shapes: One rank sent a tensor of rank "
    disagree(lambda: hvd.allgather(y, name="s"), text)


@on_every_rank
def test_mismatched_factors_and_operations():
    pre = 2.0 if odd() else 1.0
    text = "Mismatched prescale and/or postscale factors: One rank sent factors ("
    disagree(lambda: hvd.allreduce(torch.ones(2), name="f", op=hvd.Sum, prescale_factor=pre), text)
    op = hvd.Max if odd() else hvd.Min
    text = "Mismatched reduction operation: One rank sent reduction op "
    disagree(lambda: hvd.allreduce(torch.ones(2), name="f", op=op), text)


@on_every_rank
def test_mismatched_roots():
    root = 1 if odd() else 0
    text = "Mismatched BROADCAST root ranks: One rank specified root rank "
    disagree(lambda: hvd.broadcast(torch.ones(2), root, name="r"), text)


@on_every_rank
def test_scalars_where_rows_are_needed():
    scalar = torch.tensor(1.0)
    text = "Process-set rank zero tried to {} a rank-zero tensor."
    disagree(lambda: hvd.synchronize(hvd.allgather_async(scalar, name="z")), text.format("ALLGATHER"))
    disagree(lambda: hvd.synchronize(hvd.alltoall_async(scalar, name="z")), text.format("ALLTOALL"))
    raised(IndexError, lambda: hvd.allgather(scalar, name="z"))
    raised(ValueError, lambda: hvd.reducescatter(scalar), "Reducescatter does not support scalar inputs")
    assert hvd.allreduce(scalar, op=hvd.Sum).item() == hvd.size()


@on_every_rank
def test_group_with_a_mismatched_member_fails_as_a_whole():
    tensors = [torch.ones(2), torch.ones(3 + odd())]
    disagree(lambda: hvd.grouped_allreduce(tensors, name="g"), "Mismatched ALLREDUCE tensor shapes")
    assert len(hvd.grouped_allreduce([torch.ones(2), torch.ones(3)], name="g")) == 2  # the names are free


@on_every_rank
def test_groups_of_different_length_are_detected():
    disagree(lambda: hvd.grouped_allreduce([torch.ones(2)] * (2 + odd()), name="length"))


@on_every_rank
def test_mismatched_devices():
    from rueda import _core, operations

    x = torch.ones(2)
    device = 0 if odd() else -1
    call = operations.Call(_core.ALLREDUCE, _core.FLOAT32, (2,), x.data_ptr(), x.data_ptr(), device=device)

    def go():
        _, handle = operations.submit(
            [call], hvd.mpi_ops.global_process_set, lambda n, i: "device", "Allreduce"
        )
        try:
            operations.wait(handle)
        finally:
            _core.release(handle)

    text = "Mismatched ALLREDUCE CPU/GPU device selection: One rank specified device "
    disagree(go, text, "CPU", "GPU", ", but another rank specified device ")


@on_every_rank
def test_unsupported_types_and_layouts_are_refused_at_the_call():
    complex_tensor = torch.ones(2, dtype=torch.complex64)
    sparse = torch.eye(3).to_sparse()
    strided = torch.ones(4, 4)[:, ::2]
    operations = [
        lambda x: hvd.allreduce(x),
        lambda x: hvd.allreduce_(x),
        lambda x: hvd.allgather(x),
        lambda x: hvd.broadcast(x, 0),
        lambda x: hvd.broadcast_(x, 0),
        lambda x: hvd.alltoall(x),
        lambda x: hvd.reducescatter(x),
        lambda x: hvd.grouped_allreduce([torch.ones(2), x]),
        lambda x: hvd.grouped_allgather([torch.ones(2), x]),
        lambda x: hvd.grouped_reducescatter([torch.ones(2), x]),
    ]
    for operation in operations:
        raised(ValueError, partial(operation, complex_tensor), " is not supported.", "Tensor type ")
        text = "Tensor type torch.sparse.FloatTensor is not supported."
        raised(ValueError, partial(operation, sparse), text)
        raised(ValueError, partial(operation, strided), "Tensor is required to be contiguous.")
    raised(AttributeError, lambda: hvd.allreduce(3), "A collective takes a torch.Tensor, not int.")
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()  # no refused call took a number


@on_every_rank
def test_average_and_op_exclude_each_other():
    x = torch.ones(2)
    both = "The op parameter supersedes average. Please provide only one of them."
    raised(ValueError, lambda: hvd.allreduce(x, average=True, op=hvd.Sum), both)
    raised(ValueError, lambda: hvd.grouped_allreduce([x], average=True, op=hvd.Sum), both)
    for average, expected in ((True, 1), (False, hvd.size())):
        with pytest.warns(DeprecationWarning, match="Parameter `average` has been replaced with `op`"):
            assert hvd.allreduce(x, average=average).tolist() == [expected] * 2
    with pytest.warns(DeprecationWarning):
        hvd.synchronize(hvd.allreduce_async_(x, True))


@on_every_rank
def test_unknown_reduction_operations():
    raised(
        hvd.HorovodInternalError,
        lambda: hvd.allreduce(torch.ones(1), op=17),
        "Reduction op type not supported.",
    )
    text = "Reducescatter currently only supports AVERAGE and SUM."
    raised(hvd.HorovodInternalError, lambda: hvd.reducescatter(torch.ones(4), op=hvd.Max), text)
    raised(hvd.HorovodInternalError, lambda: hvd.grouped_reducescatter([torch.ones(4)], op=hvd.Adasum), text)


@on_every_rank
def test_what_is_no_process_set_and_what_is_no_name():
    for process_set in ([0, 1], None):
        text = "Allreduce: process_set must be a ProcessSet, such as one that add_process_set returned, not "
        raised(TypeError, lambda: hvd.allreduce(torch.ones(2), process_set=process_set), text)  # noqa: B023
    raised(TypeError, lambda: hvd.remove_process_set("x"), "remove_process_set takes a ProcessSet, ")
    for name in (5, ["x"], object()):
        text = f"The name has to be a string, not {type(name).__name__}"
        for function in (hvd.allreduce, hvd.allreduce_, hvd.allgather, hvd.reducescatter, hvd.alltoall):
            raised(TypeError, partial(function, torch.ones(2 * hvd.size()), name=name), text)
        raised(TypeError, partial(hvd.broadcast_object, 1, name=name), text)
    raised(ValueError, lambda: hvd.allreduce(torch.ones(2), name="x\0y"), "holds a NUL character")
    error = raised(
        ValueError, lambda: hvd.allreduce(torch.ones(2), name="x\ud800y"), "cannot encode; leave it out."
    )
    assert type(error) is ValueError
    assert hvd.allreduce(torch.ones(2), name="file\udcff", op=hvd.Sum).tolist() == [hvd.size()] * 2
    assert torch.isnan(hvd.allreduce(torch.ones(2), name="nan", prescale_factor=float("nan"))).all()


@on_every_rank
def test_bad_roots():
    for root in (-1, hvd.size(), 1000, 2**32, 2**40):
        text = f"broadcast received invalid root rank {root} for provided process set"
        raised(ValueError, partial(hvd.broadcast, torch.ones(1), root), text)
    raised(
        ValueError, lambda: hvd.broadcast_object({}, root_rank=99), "broadcast received invalid root rank 99"
    )


@on_every_rank
def test_bad_splits():
    n = hvd.size()
    x = torch.ones(2 * n)

    def refuse(splits, text, tensor=x):
        raised(ValueError, lambda: hvd.alltoall(tensor, splits), text)

    refuse(torch.ones(n, 1, dtype=torch.int32), "alltoall expects a 1D splits tensor")
    wrong_type = "alltoall expects splits to contain 32-bit integer elements."
    refuse(torch.ones(n), wrong_type)
    refuse(torch.ones(n, dtype=torch.int64), wrong_type)
    refuse([1.5] * n, wrong_type)
    refuse([3] * n, "Sum of splits entries is greater than the first dimension of tensor.")
    refuse([1] * (n + 1), "Number of entries in splits does not equal number of workers.")
    for splits in (5, "x" * n, [[1], [2, 3]], {"a": 1}, object()):
        refuse(splits, "alltoall: splits must be a list with one whole number for each rank, but got ")
    refuse([], "Number of entries in splits does not equal number of workers.")
    refuse([-1] + [1] * (n - 1), "without negative elements")
    refuse([2**32 + 1] + [0] * (n - 1), "splits of at most 2147483647 rows, but got [4294967297, ")
    uneven = (
        "splits not provided, but first dimension of tensor is not an even multiple of the number of workers."
    )
    refuse(None, uneven, torch.ones(2 * n + 1))


@on_every_rank
def test_a_name_in_flight_is_refused_and_free_afterwards():
    if hvd.rank() == 0:
        first = hvd.allreduce_async(torch.ones(2), name="twice", op=hvd.Sum)
        text = "with the same name as another tensor that is currently being processed"
        raised(ValueError, lambda: hvd.allreduce_async(torch.ones(2), name="twice", op=hvd.Sum), text)
    hvd.barrier()
    if hvd.rank() != 0:
        first = hvd.allreduce_async(torch.ones(2), name="twice", op=hvd.Sum)
    assert hvd.synchronize(first).tolist() == [hvd.size()] * 2
    assert hvd.allreduce(torch.ones(2), name="twice", op=hvd.Sum).tolist() == [hvd.size()] * 2


@on_every_rank
def test_a_failed_handle_polls_true_and_raises_once():
    handle = hvd.allreduce_async(torch.ones(2 + odd()), name="once")
    waited = threading.Event()
    while not hvd.poll(handle):
        waited.wait(0.01)
    raised(hvd.HorovodInternalError, lambda: hvd.synchronize(handle), "Mismatched ALLREDUCE tensor shapes")
    assert hvd.synchronize(handle) is None
    raised(ValueError, lambda: hvd.poll(handle), f"Handle {handle} was not created or has been cleared.")


@on_every_rank
def test_an_empty_group_cannot_be_started():
    for start in GROUPED[4:]:
        raised(ValueError, partial(start, []), "at least one tensor")


@on_every_rank
def test_a_single_tensor_is_no_group():
    text = "A grouped operation takes a list of tensors, not Tensor; put a single tensor into a list."
    for function in GROUPED:
        raised(TypeError, partial(function, torch.ones(2, 2)), text)
        raised(TypeError, partial(function, 3), "takes a list of tensors, not int")


@on_every_rank
def test_mpi_threads_and_communicators_are_refused():
    raised(ValueError, hvd.mpi_threads_supported, "MPI is not enabled")
    raised(ValueError, lambda: hvd.ProcessSet(3), "MPI")
    text = "ProcessSet should be initialized with a list of process ranks or an mpi4py Comm object"
    raised(ValueError, lambda: hvd.ProcessSet(["a"]), text)
    raised(ValueError, lambda: hvd.ProcessSet("ab"), text)


@on_every_rank
def test_names_are_free_again_after_a_broadcast_that_failed():
    send = functions.broadcast_async_

    def late(*arguments):
        time.sleep(0.3 if hvd.rank() == 0 else 0.0)
        return send(*arguments)

    second = torch.full((2,), float(hvd.rank()))
    functions.broadcast_async_ = late
    try:
        with pytest.raises(hvd.HorovodInternalError, match=r"rank 0 has \[2\], rank 1 has \[3\]"):
            hvd.broadcast_parameters([("a", torch.zeros(2 + hvd.rank())), ("b", second)], root_rank=1)
        hvd.broadcast_parameters([("a", torch.zeros(2)), ("b", second)], root_rank=1)
    finally:
        functions.broadcast_async_ = send
    assert (second == 1).all()


@on_every_rank
def test_a_broadcast_that_failed_does_not_wait_for_what_nobody_else_sends():
    params = [("first", torch.zeros(2 + hvd.rank())), ("of rank 0 only", torch.zeros(2))]
    patience, in_flight.LINGER_S = in_flight.LINGER_S, 0.2
    try:
        with pytest.raises(hvd.HorovodInternalError, match=r"rank 0 has \[2\], rank 1 has \[3\]"):
            hvd.broadcast_parameters(params if hvd.rank() == 0 else params[:1], root_rank=0)
    finally:
        in_flight.LINGER_S = patience
    if hvd.rank() != 0:  # what rank 0 has left open
        hvd.broadcast_(params[1][1], 0, "of rank 0 only")
    hvd.barrier()
