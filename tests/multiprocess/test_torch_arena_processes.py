"""The arena and the life of processes: forks, data loaders, exit, shutdown, no room, no plugin."""

import harness
from harness import assert_all_succeed
from nursery import launch

PREPARE = """
import os, pathlib, signal
import torch
import rueda.torch as hvd
from rueda import _core
from rueda.torch import arena

def step(net, optimizer, seed=0):
    torch.manual_seed(seed + hvd.rank())
    optimizer.zero_grad()
    net(torch.randn(4, 64)).square().mean().backward()
    is_placed = all(_core.is_shared_buffer(p.grad.data_ptr()) for p in net.parameters())
    optimizer.step()
    return is_placed

def make(width=256):
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.Tanh(), torch.nn.Linear(width, 64))
    return net, hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())

def in_child(body):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            os._exit(0 if body() else 1)
        finally:
            os._exit(2)
    return pid

def succeeded(pid):
    return os.waitpid(pid, 0)[1] == 0
"""


ON = {"RUEDA_TORCH_ARENA": "1"}


def run(body, **environment):
    assert_all_succeed(launch(2, PREPARE + body, environment={**ON, **environment}))


def test_a_forked_child_has_gradients_of_its_own():
    run("""
hvd.init()
net, optimizer = make()
assert step(net, optimizer)
weight = net[0].weight
before = weight.grad.clone()
reading, writing = os.pipe()

def late_look():
    os.close(writing)
    os.read(reading, 1)  # until the parent has written
    return torch.equal(weight.grad, before)

def change():
    weight.grad.fill_(7.0)
    weight.grad = None  # freed in the child
    placed = arena.state().placed
    leaf = torch.ones_like(weight, requires_grad=True)
    (leaf * 2).sum().backward()  # allocated in the child
    return not _core.is_shared_buffer(leaf.grad.data_ptr()) and arena.state().placed == placed

looks = in_child(late_look)
os.close(reading)
assert succeeded(in_child(change))
assert torch.equal(weight.grad, before)  # the child's writing is not seen here
weight.grad.fill_(9.0)
os.close(writing)
assert succeeded(looks)
assert step(net, optimizer, 5)
hvd.barrier()
""")


def test_workers_of_a_data_loader_read_a_tensor_of_the_arena():
    run("""
from torch.utils.data import DataLoader, TensorDataset
hvd.init()
net, optimizer = make()
assert step(net, optimizer)
data = net[0].weight.grad  # 256 rows
expected = data.clone()
loader = DataLoader(TensorDataset(data), batch_size=64, num_workers=2)
batches = iter(loader)
first = next(batches)[0]
data.zero_()
assert torch.equal(torch.cat([first, *(one for (one,) in batches)]), expected)
for number in range(3):
    assert step(net, optimizer, number)
hvd.barrier()
""")


def test_tensors_outlive_the_engine_and_the_interpreter():
    body = """
early = torch.randn(1000)
hvd.init()
for round in range(3):
    net, optimizer = make()
    for number in range(3):
        assert step(net, optimizer, number)
    gradients = [p.grad for p in net.parameters()]
    sums = [float(g.sum()) for g in gradients]
    hvd.shutdown()
    assert [float(g.sum()) for g in gradients] == sums
    gradients[0].add_(1)
    del gradients[1]
    early = early + 1
    hvd.init()
hvd.barrier()
keep = [p.grad for p in net.parameters()]  # alive at exit
"""
    assert_all_succeed(harness.launch(2, PREPARE + body, environment=ON))


def test_an_arena_without_room_leaves_gradients_in_private_memory():
    run(
        """
hvd.init()
results = []
for setting in ("1", "0"):
    os.environ["RUEDA_TORCH_ARENA"] = setting
    net, optimizer = make(4096)  # two gradients of 1 MiB
    for number in range(3):
        assert not step(net, optimizer, number)
    results.append([p.detach().clone() for p in net.parameters()])
assert all(torch.equal(a, b) for a, b in zip(*results))
os.environ["RUEDA_TORCH_ARENA"] = "1"
assert arena.state().is_on and arena.state().refused > 0
hvd.barrier()
""",
        RUEDA_ARENA_BYTES="524288",
    )


def test_without_the_plugin_training_goes_on_and_the_log_says_why():
    body = """
arena.plugin_path = lambda: pathlib.Path("/nowhere/librueda_torch.so")
hvd.init()
net, optimizer = make()
assert not step(net, optimizer)
assert not arena.state().is_on and "/nowhere/librueda_torch.so" in arena.state().why
hvd.barrier()
"""
    environment = {**ON, "RUEDA_LOG_LEVEL": "info"}
    finished = launch(2, PREPARE + body, environment=environment)
    assert_all_succeed(finished)
    assert all("Gradients are allocated by torch's own allocator" in one.output for one in finished)


def test_an_unknown_torch_is_refused_before_anything_of_it_is_called():
    run("""
hvd.init()
install = arena.Plugin(arena.plugin_path()).install
libc = next(line.split()[-1] for line in open("/proc/self/maps") if "/libc.so" in line).encode()
assert b"no functions that set" in install(libc, libc)
assert b"are not where torch has them" in install(b"/nowhere/libc10.so", libc)
assert arena.install() == "" and arena.try_out() == ""
hvd.barrier()
""")


def test_a_rank_alone_keeps_torchs_allocator():
    alone = {
        name: ""
        for name in ("RUEDA_RANK", "RUEDA_SIZE", "RUEDA_LOCAL_RANK", "RUEDA_LOCAL_SIZE", "RUEDA_STORE")
    }
    body = """
hvd.init()
net, optimizer = make()
assert not step(net, optimizer)
assert arena.state().why == arena.ALONE
"""
    assert_all_succeed(launch(1, PREPARE + body, environment={**alone, **ON}))
