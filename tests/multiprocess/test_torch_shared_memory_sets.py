"""Operations of different process sets, in flight at once, whose tensors share memory.

The one whose ranks had all come first used to run first, although all its ranks had submitted it last.
"""

import contextlib
import random
import time

import numpy as np
import torch
from harness import on_every_rank

import rueda.torch as hvd


@contextlib.contextmanager
def process_sets(*members):
    """Sets of these ranks, which every rank makes, also where it is no member."""
    made = [hvd.add_process_set(list(ranks)) for ranks in members]
    try:
        yield made
    finally:
        for one in made:
            hvd.remove_process_set(one)


def few():
    """All ranks but the last one, and not the whole world."""
    return list(range(max(1, min(2, hvd.size() - 1))))


def filled(size=3000):
    return torch.full((size,), hvd.rank() + 1.0)


def total():
    return hvd.size() * (hvd.size() + 1) / 2


def wait(*handles):
    return [hvd.synchronize(handle) for handle in handles]


@on_every_rank
def test_a_set_that_is_ready_first_comes_behind_the_world_that_was_submitted_first():
    members, is_late = few(), hvd.rank() == hvd.size() - 1
    with process_sets(members) as (subset,):
        for i in range(30):
            t = filled()
            if is_late:  # the others have submitted everything by then
                hvd.allreduce(torch.ones(1), name="signal")
            handles = [hvd.allreduce_async_(t, name="world", op=hvd.Sum)]
            if hvd.rank() in members:
                handles.append(
                    hvd.allreduce_async_(t, name="set", op=hvd.Sum, postscale_factor=3.0, process_set=subset)
                )
            if not is_late:
                handles.append(hvd.allreduce_async(torch.ones(1), name="signal"))
            wait(*handles)
            expected = total() * (3 * len(members) if hvd.rank() in members else 1)
            assert torch.equal(t, torch.full_like(t, expected)), (i, t[0].item(), expected)


@on_every_rank
def test_groups_views_and_three_operations_keep_their_order():
    members, is_late = few(), hvd.rank() == hvd.size() - 1
    with process_sets(members) as (subset,):
        for i in range(30):
            t, u = filled(4000), filled(100)
            if is_late:
                hvd.allreduce(torch.ones(1), name="signal")
            handles = [hvd.grouped_allreduce_async_([u, t[1000:2000]], name="world", op=hvd.Sum)]
            if hvd.rank() in members:
                both = [t[:1500], t[1500:]]
                handles.append(
                    hvd.grouped_allreduce_async_(
                        both, name="set", op=hvd.Sum, postscale_factor=3.0, process_set=subset
                    )
                )
            handles.append(hvd.broadcast_async_(t, 0, name="last"))
            if not is_late:
                handles.append(hvd.allreduce_async(torch.ones(1), name="signal"))
            wait(*handles)
            ones = sum(rank + 1.0 for rank in members)
            expected = torch.full((4000,), 3 * ones)
            expected[1000:2000] = 3 * len(members) * total()
            assert torch.equal(t, expected) and torch.equal(u, torch.full_like(u, total())), i


@on_every_rank
def test_ranks_of_opposite_orders_do_not_wait_for_one_another():
    n = hvd.size()
    members = list(range(n))[:2] if n > 2 else [0]
    with process_sets(members) as (subset,):
        for i in range(30):
            t = filled()
            # Rank 0 has its result before it submits the other one; the others submit that first.
            if hvd.rank() == 0:
                hvd.allreduce_(t, name="set", op=hvd.Sum, process_set=subset)
                hvd.allreduce_(t, name="world", op=hvd.Sum)
            else:
                handles = [hvd.allreduce_async_(t, name="world", op=hvd.Sum)]
                if hvd.rank() in members:
                    handles.append(hvd.allreduce_async_(t, name="set", op=hvd.Sum, process_set=subset))
                wait(*handles)
            ones = sum(rank + 1.0 for rank in members)
            expected = ones * len(members) + total() - ones
            assert torch.equal(t, torch.full_like(t, expected)), (i, t[0].item(), expected)


@on_every_rank
def test_a_rank_may_send_one_tensor_to_several_which_take_it_in_an_order_of_their_own():
    n, me = hvd.size(), hvd.rank()
    if n == 2:
        return
    with process_sets([0, 1], [0, n - 1], [1, n - 1]) as (near, far, between):
        for i in range(10):
            t, go = filled(), torch.ones(1)
            if me == 0:  # it only reads, so neither waits for the other
                wait(*[hvd.broadcast_async_(t, 0, name="t", process_set=one) for one in (near, far)])
            if me == n - 1:
                hvd.broadcast_(t, 0, name="t", process_set=far)
                hvd.broadcast_(go, n - 1, name="go", process_set=between)
            if me == 1:
                hvd.broadcast_(go, n - 1, name="go", process_set=between)
                hvd.broadcast_(t, 0, name="t", process_set=near)
            expected = 1.0 if me in (0, 1, n - 1) else me + 1.0
            assert torch.equal(t, torch.full_like(t, expected)), i


@on_every_rank
def test_a_plan_that_is_left_for_another_set_keeps_the_order():
    members, is_late = few(), hvd.rank() == hvd.size() - 1
    with process_sets(members) as (subset,):
        for i in range(200):
            a, b = filled(1000), filled(1000)
            is_special = i % 10 == 9
            if is_special and is_late:
                hvd.allreduce(torch.ones(1), name="signal")
            handles = [hvd.allreduce_async_(a, name="planned.0", op=hvd.Sum)]
            if is_special and hvd.rank() in members:
                handles.append(hvd.allreduce_async_(a, name="set", op=hvd.Sum, process_set=subset))
            if is_special and not is_late:
                handles.append(hvd.allreduce_async(torch.ones(1), name="signal"))
            handles.append(hvd.allreduce_async_(b, name="planned.1", op=hvd.Sum))
            wait(*handles)
            expected = total() * (len(members) if is_special and hvd.rank() in members else 1)
            assert torch.equal(a, torch.full_like(a, expected)), (i, a[0].item(), expected)
            assert torch.equal(b, torch.full_like(b, total())), i


@on_every_rank
def test_a_plan_that_is_left_for_another_set_keeps_the_order_where_only_one_rank_shares_memory():
    members, is_late = few(), hvd.rank() == hvd.size() - 1
    with process_sets(members) as (subset,):
        for i in range(100):
            a, b, is_special = filled(1000), filled(1000), i % 10 == 9
            if is_special and is_late:
                hvd.allreduce(torch.ones(1), name="signal")
            handles = [hvd.allreduce_async_(a, name="planned.0", op=hvd.Sum)]
            if is_special and hvd.rank() in members:
                c = a if hvd.rank() == 0 else filled(1000)
                handles.append(hvd.allreduce_async_(c, name="set", op=hvd.Sum, process_set=subset))
            if is_special and not is_late:
                handles.append(hvd.allreduce_async(torch.ones(1), name="signal"))
            handles.append(hvd.allreduce_async_(b, name="planned.1", op=hvd.Sum))
            wait(*handles)
            if is_special and hvd.rank() in members:
                expected = total() + sum(rank + 1.0 for rank in members) - 1
                assert torch.equal(c, torch.full_like(c, expected)), (i, c[0].item(), expected)
            if not (is_special and hvd.rank() == 0):
                assert torch.equal(a, torch.full_like(a, total())), (i, a[0].item())


def run_serially(program, sets, values):
    """What the program makes of values[rank][tensor], one operation after the other."""
    for kind, members, tensor, cut, root in program:
        ranks = sets[members]
        parts = [values[rank][tensor][cut] for rank in ranks]
        result = sum(parts) if kind == "sum" else values[root][tensor][cut].copy()
        for part in parts:
            part[...] = result


@on_every_rank
def test_random_programs_over_several_sets_give_what_one_operation_after_the_other_gives():
    n = hvd.size()
    seed = hvd.broadcast_object(random.randrange(1 << 30))
    same, own = random.Random(seed), random.Random(seed + 1 + hvd.rank())
    print("seed", seed)
    lists = [list(range(n)), few(), [0, n - 1] if n > 2 else [1]]
    with process_sets(*lists[1:]) as made:
        sets = [hvd.global_process_set, *made]
        for i in range(20):
            program = []
            for _ in range(12):
                members, begin = same.randrange(3), same.choice((0, 0, 100, 900))
                cut = slice(begin, same.choice((1000, begin + 50)))
                kind = same.choice(("sum", "sum", "root"))
                program.append((kind, members, same.randrange(2), cut, same.choice(lists[members])))
            values = [[np.arange(1000) * (rank + 2) + k for k in range(2)] for rank in range(n)]
            tensors = [torch.from_numpy(array.copy()) for array in values[hvd.rank()]]
            handles = []
            for k, (kind, members, tensor, cut, root) in enumerate(program):
                if own.random() < 0.3:
                    time.sleep(own.random() * 0.003)  # so that ranks come in any order
                if hvd.rank() not in lists[members]:
                    continue
                part, where = tensors[tensor][cut], {"name": f"op.{k}", "process_set": sets[members]}
                if kind == "sum":
                    handles.append(hvd.allreduce_async_(part, op=hvd.Sum, **where))
                else:
                    handles.append(hvd.broadcast_async_(part, root, **where))
            wait(*handles)
            run_serially(program, lists, values)
            for tensor, expected in zip(tensors, values[hvd.rank()]):
                assert np.array_equal(tensor.numpy(), expected), (seed, i)
