"""Operations in flight at once whose tensors share memory: the result is that of one after the other.

They used to be fused into one transfer, whose members read and wrote the same memory side by side, and gave
ranks sums of sums, in part and at random.
"""

import numpy as np
import torch
from harness import on_every_rank

import rueda.numpy
import rueda.torch as hvd


def everywhere(tensor):
    """Whether all ranks hold the same bits."""
    rows = hvd.allgather(tensor.detach().reshape(1, -1))
    return all(torch.equal(row, rows[0]) for row in rows)


def filled(size=1000):
    return torch.full((size,), float(hvd.rank()))


@on_every_rank
def test_a_tensor_listed_twice_is_reduced_twice():
    n, total = hvd.size(), float(sum(range(hvd.size())))
    for size in (1, 1000, 40_000, 600_000):
        for i in range(5):
            t, u = filled(size), filled(size)
            hvd.grouped_allreduce_([t, t], name="average")
            assert torch.equal(t, torch.full_like(t, total / n)), (size, i)
            hvd.grouped_allreduce_([u, t, u], name="sum", op=hvd.Sum)
            assert torch.equal(u, torch.full_like(u, total * n)), (size, i)


@on_every_rank
def test_tied_weights_are_averaged_once_more_and_stay_equal():
    torch.manual_seed(hvd.rank())
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    net[2].weight = net[0].weight
    expected = {k: hvd.allreduce(v.clone(), name=k) for k, v in net.state_dict().items()}
    hvd.grouped_allreduce_(list(net.state_dict().values()), name="state")
    for key, value in net.state_dict().items():
        assert torch.allclose(value, expected[key], atol=1e-7) and everywhere(value)


@on_every_rank
def test_operations_of_one_tensor_run_in_the_order_in_which_they_were_submitted():
    n, total = hvd.size(), float(sum(range(hvd.size())))
    for i in range(30):
        t = filled(3000)
        handles = [hvd.allreduce_async_(t, name=f"again.{k}", op=hvd.Sum) for k in range(4)]
        for handle in handles:
            hvd.synchronize(handle)
        assert torch.equal(t, torch.full_like(t, total * n**3)), i
        t = filled(3000)
        handles = [
            hvd.allreduce_async_(t, name="sum", op=hvd.Sum),
            hvd.broadcast_async_(t, 1, name="root"),
            hvd.allgather_async(t, name="rows"),
            hvd.allreduce_async_(t, name="more", op=hvd.Sum),
        ]
        results = [hvd.synchronize(handle) for handle in handles]
        assert torch.equal(results[2], torch.full((3000 * n,), total)), i
        assert torch.equal(t, torch.full_like(t, total * n)), i


@on_every_rank
def test_a_tensor_beside_a_view_of_it():
    n, total = hvd.size(), float(sum(range(hvd.size())))
    for i in range(30):
        t = filled(4000)
        hvd.grouped_allreduce_([t, t[1000:2000], t[1999:2500]], name="views", op=hvd.Sum)
        expected = torch.full((4000,), total)
        expected[1000:2500] *= n
        expected[1999] *= n
        assert torch.equal(t, expected), i


@on_every_rank
def test_only_some_ranks_may_have_tensors_that_share_memory():
    total = float(sum(range(hvd.size())))
    for i in range(30):
        t = filled(3000)
        u = t if hvd.rank() == 1 else filled(3000)
        hvd.grouped_allreduce_([t, u], name="some", op=hvd.Sum)
        # Rank 1 gives the second reduction what the first one gave it.
        second = total - 1 + total
        assert torch.equal(u, torch.full_like(u, second)), (i, u[0], second)
        assert hvd.rank() == 1 or torch.equal(t, torch.full_like(t, total))


@on_every_rank
def test_an_input_that_is_only_read_may_be_shared():
    total = float(sum(range(hvd.size())))
    t = filled(3000)
    one, two = hvd.grouped_allreduce([t, t], op=hvd.Sum)
    assert torch.equal(one, two) and one[0] == total and t[0] == hvd.rank()


@on_every_rank
def test_two_optimizers_of_the_same_parameters_leave_ranks_equal():
    torch.manual_seed(0)
    net = torch.nn.Sequential(*[torch.nn.Linear(50, 50) for _ in range(6)])
    one, other = (torch.optim.SGD(net.parameters(), lr=1e-3) for _ in range(2))
    first = hvd.DistributedOptimizer(one, net.named_parameters(prefix="first"))
    second = hvd.DistributedOptimizer(other, net.named_parameters(prefix="second"))
    for i in range(30):
        net.zero_grad()
        net(torch.full((1, 50), float(hvd.rank()))).mean().backward()
        second.synchronize()
        first.synchronize()
        assert torch.allclose(net[5].bias.grad, torch.full((50,), 1 / 50)), i
        with first.skip_synchronize(), second.skip_synchronize():
            first.step(), second.step()
        for parameter in net.parameters():
            assert everywhere(parameter.grad) and everywhere(parameter), i


@on_every_rank
def test_plans_and_tensors_that_share_memory_now_and_then():
    n, total = hvd.size(), float(sum(range(hvd.size())))
    for i in range(60):
        tensors = [filled(2000) for _ in range(6)]
        if i % 20 == 19:
            tensors[3] = tensors[1]
        handles = [hvd.allreduce_async_(t, name=f"grad.{k}", op=hvd.Sum) for k, t in enumerate(tensors)]
        for handle in handles:
            hvd.synchronize(handle)
        for k, t in enumerate(tensors):
            twice = i % 20 == 19 and k in (1, 3)
            assert torch.equal(t, torch.full_like(t, total * n if twice else total)), (i, k)


@on_every_rank
def test_arrays_of_numpy():
    n, total = hvd.size(), float(sum(range(hvd.size())))
    for i in range(20):
        a = np.full(3000, float(hvd.rank()), np.float32)
        torch_view = torch.from_numpy(a)
        handle = hvd.allreduce_async_(torch_view, name="torch", op=hvd.Sum)
        result = rueda.numpy.allreduce_async(a, name="numpy", op=hvd.Sum)
        hvd.synchronize(handle)
        assert np.array_equal(rueda.numpy.synchronize(result), np.full(3000, total * n, np.float32)), i


@on_every_rank
def test_a_plan_that_is_left_keeps_the_order():
    """What left it was negotiated at once, and what it shared memory with only when the plan was over."""
    n, total = hvd.size(), float(sum(range(hvd.size())))
    for i in range(200):
        a, b = filled(1000), filled(1000)
        handles = [hvd.allreduce_async_(a, name="planned.0", op=hvd.Sum)]
        if i % 10 == 9:
            handles.append(hvd.broadcast_async_(a, n - 1, name="root"))
            handles.append(hvd.allgather_async(a, name="rows"))
        handles.append(hvd.allreduce_async_(b, name="planned.1", op=hvd.Sum))
        results = [hvd.synchronize(handle) for handle in handles]
        assert torch.equal(a, torch.full_like(a, total)) and torch.equal(b, torch.full_like(b, total)), i
        assert len(results) == 2 or torch.equal(results[2], torch.full((1000 * n,), total)), i


@on_every_rank
def test_a_plan_that_is_left_keeps_the_order_where_only_one_rank_shares_memory():
    """The others negotiated at once what followed, and only later what the plan gave back to them."""
    total = float(sum(range(hvd.size())))
    for i in range(200):
        a, b, is_special = filled(1000), filled(1000), i % 10 == 9
        handles = [hvd.allreduce_async_(a, name="planned.0", op=hvd.Sum)]
        if is_special:
            c = a if hvd.rank() == 0 else filled(1000)
            handles.append(hvd.allreduce_async_(c, name="other", op=hvd.Sum))
        handles.append(hvd.allreduce_async_(b, name="planned.1", op=hvd.Sum))
        for handle in handles:
            hvd.synchronize(handle)
        # Rank 0 gives the second reduction what the first one gave it.
        assert not is_special or torch.equal(c, torch.full_like(c, 2 * total)), (i, c[0].item())
        assert (is_special and hvd.rank() == 0) or torch.equal(a, torch.full_like(a, total)), (i, a[0].item())
