"""Tensors on a GPU in a job whose engine takes no memory of GPUs are copied, and one warning says so."""

import fake_gpu
from harness import assert_all_succeed, launch

pytestmark = fake_gpu.needed

SCRIPT = """
import warnings

import torch
import torch_stand_in

torch_stand_in.install()
import rueda.torch as hvd
from rueda import device

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    hvd.init()
    n, me = hvd.size(), hvd.rank()
    assert not device.is_taken() and "needs a driver for CUDA" in device.support().why, device.support()
    for step in range(3):
        x = torch.full((5,), me + 1.0)
        assert (hvd.allreduce(x, op=hvd.Sum) == n * (n + 1) / 2).all()
        assert hvd.allgather(x).shape == (5 * n,) and (hvd.broadcast(x, 1) == 2).all()
        net = torch.nn.Linear(3, 2)
        hvd.broadcast_parameters(net.state_dict(), 0)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters())
        net(torch.full((1, 3), float(me))).sum().backward()
        optimizer.step()
        weights = hvd.allgather(net.weight.detach().reshape(1, -1))
        assert (weights[0] == weights[1]).all()
said = [str(one.message) for one in caught if "through host memory" in str(one.message)]
assert len(said) == (me == 0), said
assert all("needs a driver for CUDA" in one and one.startswith("CUDA tensors are copied") for one in said)
"""


def test_results_are_the_same_and_the_first_rank_of_the_host_says_why():
    assert_all_succeed(
        launch(
            2,
            SCRIPT,
            {**fake_gpu.found_by_name(UNIFIED=1, VERSION=10020), "RUEDA_GPU_OPERATIONS": ""},
            limit_s=100,
        )
    )
