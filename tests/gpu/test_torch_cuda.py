"""The torch front end with tensors on a GPU. Ranks share the GPU if there is only one."""

import pytest
import torch
from harness import assert_all_succeed, launch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")

PREPARE = """
import torch
import rueda.torch as hvd
hvd.init(process_sets="dynamic")
n, me = hvd.size(), hvd.rank()
device = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
torch.cuda.set_device(device)
"""


def run(body):
    assert_all_succeed(launch(2, PREPARE + body, limit_s=120))


def test_collectives_return_results_on_the_device_of_their_inputs():
    run("""
x = torch.full((2 * n, 3), float(me), device=device)
total = float(n * (n - 1) // 2)
out = hvd.allreduce(x, op=hvd.Sum)
assert out.device == device and (out == total).all() and (x == me).all()
assert (hvd.allreduce_(x.clone(), op=hvd.Sum) == total).all()
assert all((t == total).all() for t in hvd.grouped_allreduce([x, x.double()], op=hvd.Sum))
assert hvd.allgather(x).shape == (2 * n * n, 3) and hvd.allgather(x).device == device
assert (hvd.broadcast(x, n - 1) == n - 1).all()
out, received = hvd.alltoall(x, torch.full((n,), 2, dtype=torch.int32, device=device))
assert out.device == device and received.device == device and received.tolist() == [2] * n
assert (hvd.reducescatter(x, op=hvd.Sum) == total).all()
""")


def test_an_allreduce_waits_for_the_work_queued_before_it():
    run("""
x = torch.zeros(1 << 20, device=device)
for _ in range(200):
    x += 1
assert (hvd.allreduce(x) == 200).all()
""")


def test_tensors_of_one_group_must_share_a_device():
    run("""
import pytest
with pytest.raises(hvd.HorovodInternalError, match="Tensors in list must be on same device."):
    hvd.grouped_allreduce([torch.ones(2), torch.ones(2, device=device)])
""")


def test_ranks_that_disagree_about_the_device_are_told():
    run("""
import pytest
x = torch.ones(2, device=device if me else "cpu")
with pytest.raises(hvd.HorovodInternalError, match="CPU/GPU device selection"):
    hvd.allreduce(x, name="where")
""")


def test_distributed_optimizer_keeps_models_equal():
    run("""
torch.manual_seed(me)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), hvd.SyncBatchNorm(8), torch.nn.Linear(8, 1)).to(device)
hvd.broadcast_parameters(net.state_dict(), 0)
optimizer = hvd.DistributedOptimizer(torch.optim.Adam(net.parameters()), net.named_parameters())
hvd.broadcast_optimizer_state(optimizer, 0)
for _ in range(3):
    optimizer.zero_grad()
    net(torch.randn(5, 4, device=device)).sum().backward()
    optimizer.step()
flat = torch.cat([p.detach().reshape(-1) for p in net.parameters()]).reshape(1, -1)
everyones = hvd.allgather(flat)
assert (everyones == everyones[0]).all()
""")
