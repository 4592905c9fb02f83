"""The collectives of rueda.torch on a GPU: values, where results are, order on streams, errors."""

from __future__ import annotations

import time

import torch
import world
from world import RANK, SIZE, device, mine, total

import rueda.torch as hvd

hvd.init(process_sets="dynamic")
n, me = SIZE, RANK
world.require_engine()


def fails_with(error: type, text: str, call, *arguments, **settings) -> None:
    try:
        call(*arguments, **settings)
    except error as caught:
        assert text in str(caught), caught
        return
    raise AssertionError(f"no {error.__name__} with {text!r}")


def check_reductions():
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        out = hvd.allreduce(mine(dtype=dtype), op=hvd.Sum)
        assert out.device == device and out.dtype == dtype and (out == total).all(), dtype
    x = mine()
    assert (hvd.allreduce(x) == total / n).all() and (x == me + 1).all()
    assert hvd.allreduce_(x, op=hvd.Sum) is x and (x == total).all()
    assert hvd.allreduce(mine(0, 3)).shape == (0, 3)
    assert (hvd.allreduce(mine(), op=hvd.Max, compression=hvd.Compression.fp16) == n).all()
    assert (hvd.allreduce(mine(), op=hvd.Min) == 1).all()
    product = hvd.allreduce(mine(), op=hvd.Product)
    assert (product == torch.arange(1.0, n + 1).prod().item()).all()
    scaled = hvd.allreduce(mine(), op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.25)
    assert (scaled == total / 2).all()
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        group = [mine(count, dtype=dtype) for count in (1, 7, 70_001)]
        outs = hvd.grouped_allreduce(group, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.25)
        assert all((out == total / 2).all() for out in outs), dtype


def check_groups():
    tensors = [mine(i) for i in range(1, 300)]
    outs = hvd.grouped_allreduce([*tensors, mine(3, dtype=torch.float64)], op=hvd.Sum)
    assert all((out == total).all() for out in outs) and outs[-1].dtype == torch.float64
    assert all((tensor == me + 1).all() for tensor in tensors)
    group = [mine(2), mine(3)]
    hvd.grouped_allreduce_(group, op=hvd.Sum)
    assert all((out == total).all() for out in group)


def check_adasum():
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        parallel, orthogonal = mine(1000, dtype=dtype), torch.zeros(n, device=device, dtype=dtype)
        orthogonal[me] = 2.0
        average, both = hvd.grouped_allreduce([parallel, orthogonal], op=hvd.Adasum)
        if n in (1, 2, 4):  # vectors of one direction are averaged in pairs
            assert (average == total / n).all(), (dtype, average)
        assert (both == 2).all(), (dtype, both)
    torch.manual_seed(me)
    alone = hvd.allreduce(torch.randn(300_001, device=device), op=hvd.Adasum)
    assert (hvd.allgather(alone[None]) == alone).all()  # the same bits on all ranks


def check_movements():
    rows = torch.repeat_interleave(torch.arange(1.0, n + 1), torch.arange(1, n + 1)).to(device)
    out = hvd.allgather(mine(me + 1, 2))
    assert out.device == device and (out == rows[:, None]).all()
    first, second = hvd.grouped_allgather([mine(2), mine(me, 3)])
    assert first.shape == (2 * n,) and second.shape == (n * (n - 1) // 2, 3)
    assert (hvd.broadcast(mine(), n - 1) == n).all() and (hvd.broadcast_(mine(), 0) == 1).all()
    out = hvd.reducescatter(mine(2 * n + 1, 2), op=hvd.Sum)
    assert out.shape == (2 + (me == 0), 2) and (out == total).all()
    out, received = hvd.alltoall(mine(n * (n + 1) // 2), splits=list(range(1, n + 1)))
    assert received.tolist() == [me + 1] * n and out.device == device
    assert (out == torch.arange(1.0, n + 1).repeat_interleave(me + 1).to(device)).all()


def check_views_and_gradients():
    z = torch._neg_view(mine())  # as z.conj().imag is: a view of the negatives of what memory holds
    assert (hvd.allreduce(z, op=hvd.Sum) == -total).all()
    y = torch.ones(3, device=device, requires_grad=True)
    hvd.allreduce(y * (me + 1), op=hvd.Sum).sum().backward()
    assert (y.grad == n * (me + 1)).all()
    rows = torch.ones(2, 3, device=device, requires_grad=True)
    (hvd.allgather(rows) * 2).sum().backward()
    assert (rows.grad == 2).all()


def check_sparse():
    indices = torch.tensor([[me, me + 1]])
    values = torch.tensor([1.0, 2.0])
    sparse = torch.sparse_coo_tensor(indices, values, (n + 1,), check_invariants=True).to(device)
    summed = hvd.sparse_allreduce_async(sparse, "sparse", hvd.Sum)().to_dense()
    assert summed.sum().item() == 3 * n


def check_objects_and_sets():
    assert hvd.broadcast_object({"a": me}, n - 1) == {"a": n - 1}
    assert hvd.allgather_object(me) == list(range(n))
    if n > 1:
        first = hvd.add_process_set([0])
        if me == 0:
            assert (hvd.allreduce(mine(), op=hvd.Sum, process_set=first) == 1).all()
        hvd.barrier()


def check_only_streams_wait():
    world.waits_of_host.clear()
    started = [hvd.allreduce_async_(mine(), name=f"late.{i}", op=hvd.Sum) for i in range(4)]
    started.append(hvd.grouped_allreduce_async([mine(), mine()], name="group", op=hvd.Sum))
    outs = [hvd.synchronize(handle) for handle in started]
    gathered = hvd.synchronize(hvd.allgather_async(mine(2)))
    assert not world.waits_of_host
    assert all((out == total).all() for out in [*outs[:4], *outs[4]]) and gathered.shape == (2 * n,)


def check_work_queued_before_comes_first():
    x = torch.zeros(1 << 20, device=device)
    for _ in range(200):
        x += 1
    assert (hvd.allreduce(x) == 200).all()


def check_side_streams():
    if world.IS_STAND_IN:
        return
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    for step in range(20):
        with torch.cuda.stream(side):
            x = torch.full((1 << 18,), float(me + 1 + step), device=device)
            handle = hvd.allreduce_async(x, name=f"side.{step}", op=hvd.Sum)
            del x  # the engine still reads it
            torch.full((1 << 18,), -1.0, device=device)  # may get the same memory
        out = hvd.synchronize(handle)  # on another stream than it was started on
        assert (out == total + n * step).all(), step
    x = mine()
    handle = hvd.allreduce_async_(x, name="polled", op=hvd.Sum)
    while not hvd.poll(handle):
        pass
    assert (hvd.synchronize(handle) == total).all()


def check_capture_is_refused():
    if world.IS_STAND_IN:
        return
    x = mine()
    graph = torch.cuda.CUDAGraph()
    text = ""
    try:
        with torch.cuda.graph(graph):
            hvd.allreduce_(x, name="captured", op=hvd.Sum)
    except Exception as error:  # torch adds one of its own when the capture ends
        text = f"{error} {error.__context__}"
    assert "captur" in text, text
    torch.cuda.synchronize()
    assert (hvd.allreduce(mine(), op=hvd.Sum) == total).all()


def check_a_graph_captured_meanwhile_is_not_lost():
    if world.IS_STAND_IN:
        return  # tests/conformance/runtime_nccl_test.cc does this without a GPU
    x, y, side = mine(1 << 20), mine(4), torch.cuda.Stream()
    torch.cuda.synchronize()
    torch.cuda._sleep(50_000_000)  # some 30 ms, in which the engine asks again and again what is ready
    handle = hvd.allreduce_async_(x, name="meanwhile", op=hvd.Sum)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(side):
        graph.capture_begin()  # in the global mode
        y.add_(1)
        time.sleep(0.1)
        graph.capture_end()
        graph.replay()
    assert (hvd.synchronize(handle) == total).all()
    torch.cuda.synchronize()
    assert (y == me + 2).all()


def check_errors_name_the_tensor():
    if n == 1:
        return
    fails_with(hvd.HorovodInternalError, "bad", hvd.allreduce, mine(2 + me), name="bad")
    if not world.IS_STAND_IN:
        other = mine() if me else torch.ones(5)
        fails_with(hvd.HorovodInternalError, "CPU/GPU device selection", hvd.allreduce, other, name="where")
        mixed = [torch.ones(2), mine()]
        fails_with(hvd.HorovodInternalError, "must be on same device", hvd.grouped_allreduce, mixed)
    assert (hvd.allreduce(mine(), op=hvd.Sum) == total).all()


def check_a_second_init():
    hvd.shutdown()
    hvd.init()
    assert (hvd.allreduce(mine(), op=hvd.Sum) == total).all()


# The sanitizer looks at rueda's kernels, with several ranks at those that combine; the rest takes minutes.
WITH_KERNELS = ("check_reductions", "check_groups", "check_adasum")
is_short = world.IS_CHECKED and SIZE > 1
world.run_checks({name: globals()[name] for name in WITH_KERNELS} if is_short else dict(globals()))
