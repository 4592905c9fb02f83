"""A reduce-scatter adds in the order of an allreduce on any hosts, so ShardedOptimizer keeps its bits."""

import pytest
from harness import assert_all_succeed
from nursery import launch

TRAINING = """
import os
rank, hosts = int(os.environ["RUEDA_RANK"]), os.environ["PLACEMENT"]
os.environ["RUEDA_HOSTNAME"] = f"h{hosts[rank]}"
os.environ["RUEDA_LOCAL_RANK"] = str(hosts[:rank].count(hosts[rank]))
os.environ["RUEDA_LOCAL_SIZE"] = str(hosts.count(hosts[rank]))
import torch
import rueda.torch as hvd

hvd.init()

def train(wrap, make):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(37, 901), torch.nn.Tanh(), torch.nn.Linear(901, 523))
    optimizer = wrap(make(net.parameters()), net)
    torch.manual_seed(rank)
    for _ in range(4):
        optimizer.zero_grad()
        net(torch.randn(8, 37)).square().mean().backward()
        optimizer.step()
    optimizer.zero_grad()
    return torch.cat([value.flatten() for value in net.state_dict().values()])

for make in (lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9), torch.optim.Adam):
    expected = train(lambda o, net: hvd.DistributedOptimizer(o, net.named_parameters()), make)
    is_same = torch.equal(train(lambda o, net: hvd.ShardedOptimizer(o, model=net), make), expected)
    everyones = hvd.allgather(expected[None])
    assert bool((everyones == everyones[0]).all())
    assert is_same == (os.environ.get("RUEDA_ALGORITHM") != "ring"), "ring adds in other orders"
"""


@pytest.mark.parametrize(
    "placement, settings",
    [
        ("0011", {}),
        ("0001", {}),
        ("0123", {}),
        ("0011", {"RUEDA_DETERMINISM": "bitwise"}),
        ("0123", {"RUEDA_ALGORITHM": "ring"}),
    ],
    ids=["2x2", "3+1", "4x1", "bitwise", "ring"],
)
def test_hosts_do_not_matter_and_ring_does(placement, settings):
    finished = launch(4, TRAINING, environment={"PLACEMENT": placement, **settings})
    assert_all_succeed(finished)
