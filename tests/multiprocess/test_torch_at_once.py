"""allreduce that is waited for at once: what it shares with the asynchronous one, and what it remembers."""

import threading

import torch
from harness import on_every_rank

import rueda.torch as hvd


@on_every_rank
def test_operations_waited_for_at_once_or_later_are_numbered_alike():
    one = torch.ones(3)
    for turn in range(6):
        if (hvd.rank() + turn) % 2:
            got = hvd.allreduce(one, op=hvd.Sum)
        else:
            got = hvd.synchronize(hvd.allreduce_async(one, op=hvd.Sum))
        assert got.tolist() == [hvd.size()] * 3


@on_every_rank
def test_one_name_may_come_back_as_another_operation():
    """After an uneven turn through types, shapes, ops and factors, each result is its own."""
    n = hvd.size()
    for _ in range(2):
        for dtype in (torch.float32, torch.float64, torch.int32):
            for shape in ((2,), (3, 2), ()):
                for op, factor, expected in (
                    (hvd.Sum, 1.0, n * (n + 1) // 2),
                    (hvd.Max, 1.0, n),
                    (hvd.Sum, 2.0, n * (n + 1)),
                ):
                    mine = torch.full(shape, hvd.rank() + 1, dtype=dtype)
                    got = hvd.allreduce(mine, op=op, name="same", prescale_factor=factor)
                    assert got.dtype == dtype and got.shape == mine.shape
                    assert torch.equal(got, torch.full(shape, expected, dtype=dtype))
                    assert torch.equal(mine, torch.full(shape, hvd.rank() + 1, dtype=dtype))
                    assert hvd.allreduce_(mine, op=op, name="same", prescale_factor=factor) is mine
                    assert torch.equal(mine, got)


@on_every_rank
def test_threads_may_reduce_alike_tensors_at_once():
    failed = []

    def work(name: str, number: float) -> None:
        for turn in range(100):
            got = hvd.allreduce(torch.full((5,), number + turn), op=hvd.Sum, name=name)
            if got.tolist() != [(number + turn) * hvd.size()] * 5:
                failed.append((name, turn, got))

    threads = [threading.Thread(target=work, args=(f"thread {i}", float(i))) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed[0]


@on_every_rank
def test_a_result_has_a_graph_only_where_autograd_watches():
    x = torch.ones(3, requires_grad=True)
    assert hvd.allreduce(x, name="watched").requires_grad
    assert not hvd.allreduce(x.detach(), name="watched").requires_grad
    with torch.no_grad():
        got = hvd.allreduce(x, name="watched")
    assert not got.requires_grad and type(got) is torch.Tensor and got.tolist() == [1.0] * 3
