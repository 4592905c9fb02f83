"""Making ranks agree: parameters, optimizer state, objects, process sets, join."""

import collections
import os
import tempfile
import threading
import time

import pytest
import torch
from harness import on_every_rank

import rueda.torch as hvd


def model(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))


def all_equal(tensor):
    gathered = hvd.allgather(tensor.detach().reshape(1, -1).double())
    return bool((gathered == gathered[0]).all())


@on_every_rank
def test_broadcast_parameters_takes_any_iterable():
    for select in (
        lambda m: m.state_dict(),
        lambda m: dict(m.named_parameters()),
        lambda m: list(m.named_parameters()),
        lambda m: m.named_parameters(),
        lambda m: dict(enumerate(m.parameters())),  # keys may be numbers
        lambda m: list(m.parameters()),
        lambda m: m.parameters(),
        lambda m: collections.OrderedDict(m.state_dict()),
    ):
        mine = model(hvd.rank())
        hvd.broadcast_parameters(select(mine), root_rank=hvd.size() - 1)
        expected = model(hvd.size() - 1)
        assert all(torch.equal(a, b) for a, b in zip(mine.parameters(), expected.parameters()))


@on_every_rank
def test_broadcast_parameters_takes_tensors_of_any_layout():
    x = torch.full((2, 3, 4, 5), float(hvd.rank())).to(memory_format=torch.channels_last)
    hvd.broadcast_parameters([("x", x)], root_rank=1)
    assert (x == 1).all() and x.is_contiguous(memory_format=torch.channels_last)


@on_every_rank
def test_broadcast_parameters_refuses_what_holds_no_tensors():
    for params in (3, None, "abc"):
        with pytest.raises(ValueError, match="invalid params of type: "):
            hvd.broadcast_parameters(params, 0)
    for params in ({"a": 3}, [3], [("a", 3)], [()]):
        with pytest.raises(AttributeError, match="broadcast_parameters takes tensors, but params holds "):
            hvd.broadcast_parameters(params, 0)


class Shy:
    def __reduce__(self):
        raise ZeroDivisionError("not me")


@on_every_rank
def test_an_object_that_cannot_be_pickled_ends_the_wait_of_all():
    me = hvd.rank()
    for call in (hvd.broadcast_object, hvd.allgather_object):
        expected = ZeroDivisionError if me == 0 else hvd.HorovodInternalError
        with pytest.raises(expected, match="not me"):
            call(Shy() if me == 0 else 1)
    assert hvd.allgather_object(me) == list(range(hvd.size()))


@on_every_rank
def test_objects_travel_with_and_without_a_name():
    me, n = hvd.rank(), hvd.size()
    assert hvd.broadcast_object({"rank": me, "f": None}, root_rank=1) == {"rank": 1, "f": None}
    assert hvd.broadcast_object([1, 2] if me == 0 else None, name="named") == [1, 2]
    assert hvd.broadcast_object([3] if me == 0 else None) == [3]
    square = hvd.broadcast_object((lambda x: x * x) if me == 0 else None, name="lambda")
    assert square(3) == 9
    own = {"mine": me}
    out = hvd.broadcast_object(own, 0)
    assert (out is own) == (me == 0)
    assert hvd.allgather_object({"rank": me, "data": "x" * me}) == [
        {"rank": r, "data": "x" * r} for r in range(n)
    ]
    assert hvd.allgather_object(me, name="numbers") == list(range(n))


@on_every_rank
def test_optimizer_state_becomes_roots():
    classes = [
        (torch.optim.SGD, {}),
        (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
        (torch.optim.Adam, {"betas": (0.8, 0.9)}),
        (torch.optim.AdamW, {"weight_decay": 0.1}),
        (torch.optim.RMSprop, {"centered": True, "momentum": 0.1}),
        (torch.optim.Adagrad, {}),
        (torch.optim.Adadelta, {}),
    ]
    for (cls, options), wrap, root in [(c, w, r) for c in classes for w in (False, True) for r in (0, 1)]:
        net = model(0)
        before = [p.detach().clone() for p in net.parameters()]
        optimizer = cls(net.parameters(), lr=0.1 * (hvd.rank() + 1), **options)
        if wrap:
            optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters())
        hvd.broadcast_optimizer_state(optimizer, root_rank=root)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * (root + 1))
        for p, old in zip(net.parameters(), before):
            assert torch.equal(p, old), "state was made at the price of the weights"
            assert p.grad is None if cls is torch.optim.Adagrad else not p.grad.any()  # it is born with state
        if cls is torch.optim.Adam:
            assert all(float(optimizer.state[p]["step"]) == 1.0 for p in net.parameters())
            assert optimizer.param_groups[0]["betas"] == (0.8, 0.9)


@on_every_rank
def test_existing_optimizer_state_of_root_wins_over_any_other():
    net = model(0)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    steps = 3 if hvd.rank() == 0 else hvd.rank() - 1  # rank 1 has none
    torch.manual_seed(hvd.rank())
    for _ in range(steps):
        net(torch.randn(4, 3)).sum().backward()
        optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for p in net.parameters():
        state = optimizer.state[p]
        assert float(state["step"]) == 3.0 and state["exp_avg"].any()
        assert all_equal(state["exp_avg"]) and all_equal(state["exp_avg_sq"])


@on_every_rank
def test_sparse_optimizers_get_sparse_zero_gradients():
    embedding = torch.nn.Embedding(5, 2, sparse=True)
    hvd.broadcast_optimizer_state(torch.optim.SparseAdam(list(embedding.parameters())), 0)
    assert embedding.weight.grad.is_sparse
    embedding.weight.grad = None
    hvd.broadcast_optimizer_state(torch.optim.SGD(embedding.parameters(), lr=0.1), 0, model=embedding)
    assert embedding.weight.grad.is_sparse


@on_every_rank
def test_lbfgs_state_is_refused():
    optimizer = torch.optim.LBFGS(model(0).parameters())
    with pytest.raises(ValueError, match=r"cannot broadcast torch\.optim\.LBFGS state"):
        hvd.broadcast_optimizer_state(optimizer, 0)
    with pytest.raises(TypeError, match=r"optimizer must be a torch\.optim\.Optimizer, not str"):
        hvd.broadcast_optimizer_state("x", 0)
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module or None, not int"):
        hvd.broadcast_optimizer_state(torch.optim.SGD(model(0).parameters(), lr=0.1), 0, model=5)


# ---- join ----


@on_every_rank
def test_join_lets_uneven_ranks_finish_and_names_the_last():
    me, n = hvd.rank(), hvd.size()
    for step in range(me + 1):
        active = n - step  # ranks step … n-1 still work
        out = hvd.allreduce(torch.ones(4), name=f"uneven.{step}")
        assert torch.allclose(out, torch.full((4,), active / n))
    assert hvd.join() == n - 1
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == n


@on_every_rank
def test_unnamed_operations_agree_again_after_join():
    me, n = hvd.rank(), hvd.size()
    for _ in range(2 * me):
        hvd.allreduce(torch.ones(3))
    assert hvd.join(device=-1) == n - 1
    for _ in range(3):
        assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [n, n]
    hvd.join()
    assert hvd.allgather(torch.tensor([me])).tolist() == list(range(n))


@on_every_rank
def test_joined_ranks_do_not_spoil_min_max_and_product():
    me, n = hvd.rank(), hvd.size()
    if me == 0:
        last = hvd.join()
    else:
        low = hvd.allreduce(torch.tensor([5.0 + me]), op=hvd.Min, name="low")
        high = hvd.allreduce(torch.tensor([-5.0 - me]), op=hvd.Max, name="high")
        product = hvd.allreduce(torch.tensor([2.0]), op=hvd.Product, name="product")
        assert (low.item(), high.item(), product.item()) == (6.0, -6.0, 2.0 ** (n - 1))
        last = hvd.join()
    assert last in range(1, n)


@on_every_rank
def test_collectives_other_than_allreduce_fail_cleanly_while_a_rank_has_joined():
    if hvd.rank() != 0:
        for text, function in (
            (
                "Allgather is not supported with Join at this time.",
                lambda: hvd.allgather(torch.ones(1), name="j"),
            ),
            (
                "Broadcast is not supported with Join at this time.",
                lambda: hvd.broadcast(torch.ones(1), 1, name="j"),
            ),
            (
                "Alltoall is not supported with Join at this time.",
                lambda: hvd.alltoall(torch.ones(hvd.size()), name="j"),
            ),
            (
                "Reducescatter is not supported with Join at this time.",
                lambda: hvd.reducescatter(torch.ones(4), name="j"),
            ),
        ):
            with pytest.raises(hvd.HorovodInternalError, match=text):
                function()
    hvd.join()
    assert hvd.allgather(torch.ones(1), name="j").shape == (hvd.size(),)


# ---- process sets ----


@on_every_rank
def test_process_sets_can_be_added_used_and_removed():
    me, n = hvd.rank(), hvd.size()
    evens = hvd.add_process_set(range(0, n, 2))
    odds = hvd.add_process_set(hvd.ProcessSet([r for r in range(n) if r % 2]))
    mine = odds if me % 2 else evens
    assert (evens.process_set_id, odds.process_set_id) == (1, 2)
    assert str(evens) == f"ProcessSet(process_set_id=1, ranks={list(range(0, n, 2))}, mpi_comm=None)"
    assert mine.included() and mine.rank() == me // 2 and mine.size() == len(mine.ranks)
    assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks() == {
        0: list(range(n)),
        1: evens.ranks,
        2: odds.ranks,
    }
    _use(mine)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == n  # numbering survived unequal sets
    for process_set in (odds, evens):
        assert hvd.remove_process_set(process_set) and process_set.process_set_id is None
        assert process_set.size() is None and process_set.rank() is None
        assert not hvd.remove_process_set(process_set)
    again = hvd.add_process_set([0])
    assert again.process_set_id == 1
    assert hvd.remove_process_set(again)


@on_every_rank
def test_a_set_that_takes_over_an_id_names_its_operations_from_one_again():
    """Numbers of unnamed operations are kept per set id: members of the old set went on from theirs, others
    began.
    """
    first = hvd.add_process_set([0])
    if first.included():
        hvd.allreduce(torch.ones(1), process_set=first)
    assert hvd.remove_process_set(first)
    second = hvd.add_process_set([0, 1]) if hvd.size() > 2 else hvd.add_process_set([1])
    assert second.process_set_id is not None
    if second.included():
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=second).item() == second.size()
    assert hvd.remove_process_set(second)


def _use(mine):
    me, size = hvd.rank(), mine.size()
    x = torch.full((size, 2), float(me))
    total = float(sum(mine.ranks))
    root = mine.ranks[-1]
    assert torch.equal(hvd.allreduce(x, op=hvd.Sum, process_set=mine), torch.full((size, 2), total))
    assert torch.equal(hvd.grouped_allreduce([x], process_set=mine)[0], torch.full((size, 2), total / size))
    assert hvd.allgather(x[:1], process_set=mine)[:, 0].tolist() == [float(r) for r in mine.ranks]
    assert hvd.broadcast(x, root, process_set=mine)[0, 0].item() == root
    assert hvd.alltoall(x, process_set=mine)[:, 0].tolist() == [float(r) for r in mine.ranks]
    assert hvd.reducescatter(x, op=hvd.Sum, process_set=mine).tolist() == [[total, total]]
    assert hvd.broadcast_object({"me": me}, root, process_set=mine) == {"me": root}
    hvd.barrier(process_set=mine)


@on_every_rank
def test_one_name_may_be_in_flight_in_two_sets():
    n = hvd.size()
    others = hvd.add_process_set(range(1, n))
    if others.included():
        inner = hvd.allreduce_async(torch.ones(2), name="shared", op=hvd.Sum, process_set=others)
    outer = hvd.allreduce_async(torch.ones(2), name="shared", op=hvd.Sum)
    assert hvd.synchronize(outer).tolist() == [n, n]
    if others.included():
        assert hvd.synchronize(inner).tolist() == [n - 1, n - 1]
    assert hvd.remove_process_set(others)


@on_every_rank
def test_strangers_and_unregistered_sets_are_refused():
    me = hvd.rank()
    others = hvd.add_process_set([0])
    x = torch.ones(2)
    operations = {
        "Allreduce": lambda s: hvd.allreduce(x, process_set=s),
        "Allgather": lambda s: hvd.allgather(x, process_set=s),
        "Alltoall": lambda s: hvd.alltoall(x, [1, 1], process_set=s),
        "Barrier": lambda s: hvd.barrier(process_set=s),
    }
    if me != 0:
        for word, operation in operations.items():
            with pytest.raises(
                ValueError, match=f"{word}: Rank {me} is not a member of the provided process set."
            ):
                operation(others)
        with pytest.raises(
            ValueError, match="broadcast received invalid root rank 0 for provided process set"
        ):
            hvd.broadcast(x, 0, process_set=others)
        with pytest.raises(ValueError, match="Invalid process set id for this rank: 1"):
            hvd.reducescatter(x, process_set=others)
        with pytest.raises(ValueError, match="Process is not part of provided process set"):
            others.rank()
        assert others.included() is False
    unknown = hvd.ProcessSet([0])
    stale = hvd.ProcessSet([0])
    stale.process_set_id = 77
    for process_set in (unknown, stale):
        for word, operation in operations.items():
            text = f"{word}: Process set provided does not exist, or has not been registered."
            with pytest.raises(ValueError, match=text):
                operation(process_set)
        with pytest.raises(ValueError, match="Invalid process set id for this rank: "):
            hvd.reducescatter(x, process_set=process_set)
        with pytest.raises(ValueError, match="Broadcast: Process set provided does not exist"):
            hvd.broadcast(x, 0, process_set=process_set)
    with pytest.raises(ValueError, match="Process set does not exist or has not been registered"):
        stale.size()
    assert unknown.size() is None and unknown.rank() is None
    assert not hvd.remove_process_set(hvd.mpi_ops.global_process_set) and not hvd.remove_process_set(unknown)
    assert hvd.remove_process_set(others)


@on_every_rank
def test_bad_process_sets_raise_on_every_rank():
    n = hvd.size()
    duplicate = "Attempted to add a duplicate process set: "
    first = hvd.add_process_set([0])
    for ranks, text in (
        ([0], duplicate),
        (range(n), duplicate),
        ([n], "invalid rank"),
        ([0, 2**32], f"invalid rank: 4294967296 .*the world has ranks 0 to {n - 1}."),
        ([1, 1], "duplicate rank"),
    ):
        with pytest.raises(ValueError, match=text):
            hvd.add_process_set(ranks)
    with pytest.raises(ValueError, match="mismatching"):
        hvd.add_process_set([0, 1] if hvd.rank() == 0 else [1])
    with pytest.raises(ValueError, match="mismatching" if hvd.rank() == 0 else "invalid rank: 4294967297 "):
        hvd.add_process_set([1] if hvd.rank() == 0 else [2**32 + 1])
    assert hvd.remove_process_set(first)
    empty = hvd.add_process_set([])
    assert empty.size() == 0 and hvd.remove_process_set(empty)


@on_every_rank
def test_a_second_join_while_joined_is_refused():
    path = hvd.broadcast_object(tempfile.mktemp(prefix="rueda-join-"), name="signal")
    if hvd.rank() != 0:
        deadline = time.monotonic() + 90
        while not os.path.exists(path) and time.monotonic() < deadline:
            time.sleep(0.01)
        hvd.join()
        return
    refused = []

    def join():
        try:
            hvd.join()
        except ValueError as error:
            refused.append(str(error))
            open(path, "w").close()

    threads = [threading.Thread(target=join) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    os.unlink(path)
    assert len(refused) == 1
    assert "with the same name as another tensor that is currently being processed" in refused[0]


@on_every_rank
def test_a_barrier_while_a_rank_has_joined_ends():
    if hvd.rank() != 0:
        try:
            hvd.barrier()
        except hvd.HorovodInternalError as error:
            assert "Join" in str(error)
    hvd.join()
    hvd.barrier()
