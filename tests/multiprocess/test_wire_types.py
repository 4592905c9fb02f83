"""Wire types between hosts, from Python: equal bits everywhere, feedback, settings, and what is refused."""

import pytest
from harness import assert_all_succeed
from nursery import launch

HOSTS = """
import json, os
rank, hosts = int(os.environ["RUEDA_RANK"]), os.environ["PLACEMENT"]
os.environ["RUEDA_HOSTNAME"] = f"h{hosts[rank]}"
os.environ["RUEDA_LOCAL_RANK"] = str(hosts[:rank].count(hosts[rank]))
os.environ["RUEDA_LOCAL_SIZE"] = str(hosts.count(hosts[rank]))
import torch
import rueda.torch as hvd
from rueda import _core
from rueda.errors import HorovodInternalError

def described():
    return json.loads(_core.describe())

def equal_everywhere(value):
    everyones = hvd.allgather(value.flatten()[None])
    return all(torch.equal(one, everyones[0]) for one in everyones)

def refusal(call):
    try:
        call()
    except (ValueError, HorovodInternalError) as error:
        return str(error)
    raise AssertionError("this was not refused")
"""

SUMS = """
hvd.init()
generator = torch.Generator().manual_seed(7)
def values(count):
    everyones = torch.randn(hvd.size(), count, generator=generator)
    return everyones[rank].clone(), everyones

sizes = [1024, 1025, 4000, 300_000]
for step in range(3):
    for op, divisor in ((hvd.Sum, 1), (hvd.Average, hvd.size())):
        for compression, share in ((hvd.Compression.int8, 0.05), (hvd.Compression.bf16, 0.02)):
            kind = compression.__name__
            pairs = [values(size) for size in sizes]
            single = [hvd.allreduce(mine, op=op, name=f"{kind}.{op}.{i}", compression=compression)
                      for i, (mine, _) in enumerate(pairs)]
            group = hvd.grouped_allreduce([mine for mine, _ in pairs], op=op, name=f"{kind}.{op}.group",
                                          compression=compression)
            for reduced in (single, group):
                for one, (_, everyones) in zip(reduced, pairs):
                    wanted = everyones.sum(0) / divisor
                    assert equal_everywhere(one)
                    assert (one - wanted).abs().max() <= share * 4 * hvd.size() ** 0.5 / divisor
                    assert not torch.equal(one, wanted)
assert described()["wire"]["residual_bytes"] > 0
small = torch.full((1000,), 1 / 3)  # too small to be encoded
assert torch.equal(hvd.allreduce(small, op=hvd.Sum, name="small", compression=hvd.Compression.int8),
                   hvd.allreduce(small, op=hvd.Sum, name="plain"))
"""

FEEDBACK = """
hvd.init()
mine = torch.full((2048,), 0.3)
mine[0] = 100.0  # makes quanta that are larger than all other elements
total = torch.zeros(2048)
for step in range(60):
    total += hvd.allreduce(mine, op=hvd.Average, name="grad", compression=hvd.Compression.int8)
assert (total - 60 * mine).abs().max() < 2.5, (total - 60 * mine).abs().max()
hvd.rescale_residuals(0.5)
hvd.allreduce(mine, name="grad", compression=hvd.Compression.int8)
mine[5] = float("nan")
seen = hvd.allreduce(mine, name="grad", compression=hvd.Compression.int8)
assert seen[:256].isnan().all() and not seen[256:].isnan().any()
mine[5] = 0.3
assert not hvd.allreduce(mine, name="grad", compression=hvd.Compression.int8).isnan().any()
"""

TRAINING = """
hvd.init()
def train(compression, steps=60):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(40, 120), torch.nn.Tanh(), torch.nn.Linear(120, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters(), compression=compression)
    data = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        optimizer.zero_grad()
        x = torch.randn(32, 40, generator=data)
        loss = torch.nn.functional.cross_entropy(net(x), x[:, :10].argmax(1))
        loss.backward()
        optimizer.step()
    result = torch.cat([value.detach().flatten() for value in net.parameters()])
    return result, hvd.allreduce(loss.detach(), name="loss")

exact, loss = train(hvd.Compression.none)
for compression in (hvd.Compression.int8, hvd.Compression.bf16):
    before = described()["counters"]["planned_batches"]
    weights, reached = train(compression)
    assert equal_everywhere(weights)
    is_one_host = len(set(hosts)) == 1
    assert torch.equal(weights, exact) == is_one_host
    assert abs(reached - loss) < 0.02
    if compression is hvd.Compression.int8:  # plans that end soon are learned anew more slowly
        assert described()["counters"]["planned_batches"] > before
"""

REFUSED = """
hvd.init()
int8 = hvd.Compression.int8
whole, one = torch.ones(2000, dtype=torch.int32), torch.ones(2000)
assert "Tensor allreduce.a asks for the wire type int8, but wire types are for float32, but it is int32; " \\
    "leave it out" in refusal(lambda: hvd.allreduce(whole, name="a", compression=int8, op=hvd.Sum))
assert "are for Sum and Average, but it asks for Min" in refusal(
    lambda: hvd.allreduce(one, name="a", compression=int8, op=hvd.Min))
assert "do not go with Adasum" in refusal(
    lambda: hvd.allreduce(one, name="a", compression=int8, op=hvd.Adasum))
assert "Compression.int8 is for Sum and Average of allreduce" in refusal(
    lambda: hvd.reducescatter(one, name="a", compression=int8))
assert "factor must be positive and finite" in refusal(lambda: hvd.rescale_residuals(-1))
assert "all factors since init together" in refusal(lambda: hvd.rescale_residuals(1e-60))
hvd.rescale_residuals(1e-40)
assert "lie between 1e-50 and 1e50" in refusal(lambda: hvd.rescale_residuals(1e-20))
hvd.rescale_residuals(1e40)
chosen = int8 if rank == 0 else hvd.Compression.none
assert "Mismatched wire types: One rank sends int8, but another rank sends float32. Tensor allreduce.b: " \\
    "rank 0 has int8" in (why := refusal(lambda: hvd.allreduce(one, name="b", compression=chosen)))
assert why.endswith("Give all ranks the same compression and the same RUEDA_WIRE."), why
assert float(hvd.allreduce(one, name="b", compression=int8)[0]) == 1.0
"""

BITWISE = """
hvd.init()
assert "rounds sums where hosts meet, but RUEDA_DETERMINISM=bitwise asks" in refusal(
    lambda: hvd.allreduce(torch.ones(2000), name="a", compression=hvd.Compression.int8))
"""

SETTING = """
hvd.init()
assert described()["wire"]["default"] == "int8"
mine = torch.randn(5000, generator=torch.Generator().manual_seed(rank))
reduced = hvd.allreduce(mine, op=hvd.Sum, name="unchanged")
assert equal_everywhere(reduced)
hvd.allreduce(mine, op=hvd.Sum, name="unchanged")
assert described()["last_algorithm"] == "encoded_int8"
everyones = hvd.allgather(mine[None])
assert not torch.equal(reduced, everyones.sum(0))
for other in (mine.double(), mine.to(torch.int32)):  # not what wire types are for
    assert torch.equal(hvd.allreduce(other, op=hvd.Max, name="max"), hvd.allgather(other[None]).amax(0))
"""

JOIN = """
hvd.init()
mine = torch.full((3000,), 1 / 3)
if rank == 0:
    hvd.allreduce(mine, op=hvd.Sum, name="a", compression=hvd.Compression.int8)
    exact = hvd.allreduce(mine, op=hvd.Sum, name="a", compression=hvd.Compression.int8)
    assert torch.equal(exact, mine), "with a rank that has joined, sums are exact"
else:
    hvd.allreduce(mine, op=hvd.Sum, name="a", compression=hvd.Compression.int8)
assert hvd.join() in range(hvd.size())
"""

ONE_BUCKET = """
hvd.init()
group = [torch.full((count,), 1 / 3) for count in (3, 5000)]

def calls(compression):
    before = described()["counters"]["batches"]
    hvd.grouped_allreduce(group, name=compression.__name__, compression=compression)
    return described()["counters"]["batches"] - before

assert calls(hvd.Compression.none) == 1
assert calls(hvd.Compression.int8) == len(set(hosts))
"""


def run(script, placement, **settings):
    environment = {"PLACEMENT": placement, **settings}
    assert_all_succeed(launch(len(placement), HOSTS + script, environment=environment))


@pytest.mark.parametrize("placement", ["01", "012", "0123", "0011", "0001"])
def test_sums_are_near_and_have_equal_bits_on_all_ranks(placement):
    run(SUMS, placement)


def test_what_encoding_loses_comes_with_the_next_steps():
    run(FEEDBACK, "011")


@pytest.mark.parametrize("placement", ["01", "0011", "00"])
def test_training_reaches_the_same_loss_with_learned_plans(placement):
    run(TRAINING, placement)


@pytest.mark.parametrize("placement", ["00", "01"])
def test_small_tensors_are_a_call_of_their_own_only_between_hosts(placement):
    run(ONE_BUCKET, placement)


def test_what_cannot_be_encoded_is_refused_in_a_sentence():
    run(REFUSED, "01")


def test_bitwise_sums_are_not_encoded():
    run(BITWISE, "01", RUEDA_DETERMINISM="bitwise")


def test_a_setting_encodes_the_sums_of_programs_that_are_not_changed():
    run(SETTING, "01", RUEDA_WIRE="int8")


def test_bitwise_and_the_setting_end_init():
    script = HOSTS + "assert 'unset one of them' in refusal(hvd.init)"
    assert_all_succeed(
        launch(
            2,
            script,
            environment={"PLACEMENT": "01", "RUEDA_WIRE": "bf16", "RUEDA_DETERMINISM": "bitwise"},
        )
    )


def test_a_rank_that_has_joined_makes_sums_exact():
    run(JOIN, "01")


MADE = """
hvd.init()
def wrap(net, wrapper=hvd.DistributedOptimizer, **options):
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    return wrapper(sgd, net.named_parameters(), compression=hvd.Compression.int8, **options)

double = torch.nn.Linear(40, 40).double()
for wrapper, options in ((hvd.DistributedOptimizer, {}), (hvd.DiLoCo, {"every": 2})):
    said = refusal(lambda: wrap(double, wrapper, **options))
    assert "encodes gradients of float32 in host memory, but that of weight is float64" in said, said
for op, name in ((hvd.Min, "Min"), (hvd.Adasum, "Adasum")):
    said = refusal(lambda: wrap(torch.nn.Linear(40, 40), op=op))
    assert f"int8: op is '{name}', but it must be one of Average, Sum" in said, said
"""

TRAIN = """
def make_net():
    return torch.nn.Sequential(torch.nn.Linear(40, 60), torch.nn.Tanh(), torch.nn.Linear(60, 30))

def train(net, optimizer, steps):
    for step in steps:
        x = torch.randn(32, 40, generator=torch.Generator().manual_seed(100 * step + rank))
        optimizer.zero_grad()
        (net(x) - x[:, :30]).square().mean().backward()
        optimizer.step()
    return torch.cat([one.detach().flatten() for one in net.parameters()]).clone()
"""

RESUMED = """
hvd.init()
import time
from rueda.elastic.state import ObjectState

def start(seed=0):
    torch.manual_seed(0)
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    return net, hvd.DistributedOptimizer(optimizer, net.named_parameters(), compression=hvd.Compression.int8)

wanted = train(*start(), range(10))
net, optimizer = start()
hvd.shutdown()
hvd.init()  # without residuals, as a new process
net, optimizer = start()
train(net, optimizer, range(5))
saved = {"net": net.state_dict(), "optimizer": optimizer.state_dict()}
torch.save(saved, f"{os.environ['FOLDER']}/{rank}.pt")
assert len(saved["optimizer"]["residuals"]) > 4000
state = ObjectState(hvd.broadcast_object, hvd.rank, step=5)
state.save()
after = train(net, optimizer, range(5, 10))
assert torch.equal(after, wanted)

# A rollback within the epoch, and a new epoch, with and without what was saved.
for is_new, has_residuals in ((False, True), (True, True), (True, False)):
    if is_new:
        hvd.shutdown()
        hvd.init()
    net, optimizer = start()
    saved = torch.load(f"{os.environ['FOLDER']}/{rank}.pt")
    if not has_residuals:
        del saved["optimizer"]["residuals"]
    net.load_state_dict(saved["net"])
    optimizer.load_state_dict(saved["optimizer"])
    if not is_new:
        state.restore()  # of the whole rank: the same moment
    assert torch.equal(train(net, optimizer, range(5, 10)), wanted) == has_residuals

# The state of another rank is another placement: dropped, and said.
other = torch.load(f"{os.environ['FOLDER']}/{(rank + 1) % hvd.size()}.pt")["optimizer"]
optimizer.load_state_dict(other)
assert len(optimizer.state_dict()["residuals"]) < 1000
if rank == 0:  # the others come when it has been refused
    pending = hvd.allreduce_async(torch.ones(5000), name="pending")
    assert "operations are in flight" in refusal(optimizer.state_dict)
    open(f"{os.environ['FOLDER']}/refused", "w").close()
else:
    while not os.path.exists(f"{os.environ['FOLDER']}/refused"):
        time.sleep(0.01)
    pending = hvd.allreduce_async(torch.ones(5000), name="pending")
hvd.synchronize(pending)
damaged = {**optimizer.state_dict(), "residuals": torch.zeros(9, dtype=torch.uint8)}
assert "not what was saved of residuals" in refusal(lambda: optimizer.load_state_dict(damaged))
damaged["residuals"] = 5
assert "key 'residuals' holds 5, but" in refusal(lambda: optimizer.load_state_dict(damaged))

# An optimizer whose gradients travel exactly takes the rest, and says what it drops.
import warnings
exact = torch.optim.SGD(net.parameters(), lr=0.5)
exact = hvd.DistributedOptimizer(exact, net.named_parameters())
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    exact.load_state_dict(other)
    exact.load_state_dict(exact.state_dict())
assert ["they travel as they are now, so it is dropped" in str(one.message) for one in said] == [True], said
assert exact.param_groups[0]["lr"] == 0.1
"""


DILOCO_RESUMED = """
import copy
def start(**options):
    torch.manual_seed(0)
    net = make_net()
    sgd = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    return net, hvd.DiLoCo(sgd, net.named_parameters(), **options)

for compression in (hvd.Compression.int8, hvd.Compression.bf16):
    overlapping = {"every": 4, "fragments": 2, "overlap": True}
    for more in ({"every": 3}, overlapping, {"every": 3, "warmup_steps": 2}):
        hvd.init()
        net, optimizer = start(compression=compression, **more)
        train(net, optimizer, range(7))
        saved = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
        wanted = train(net, optimizer, range(7, 12))
        for has_residuals in (True, False):
            hvd.barrier()
            hvd.shutdown()
            hvd.init()  # without residuals, as a new process
            net, optimizer = start(compression=compression, **more)
            net.load_state_dict(saved[0])
            state = dict(saved[1])
            assert len(state["residuals"]) > 1000
            if not has_residuals:
                del state["residuals"]
            optimizer.load_state_dict(state)
            assert torch.equal(train(net, optimizer, range(7, 12)), wanted) == has_residuals, more
        hvd.barrier()
        hvd.shutdown()
"""


def test_diloco_that_was_interrupted_goes_on_to_the_bit():
    run(TRAIN + DILOCO_RESUMED, "01")


def test_what_cannot_be_encoded_is_refused_when_the_optimizer_is_made():
    run(MADE, "01")


@pytest.mark.parametrize("placement", ["01", "0011"])
def test_a_run_that_was_interrupted_goes_on_to_the_bit(placement, tmp_path):
    run(TRAIN + RESUMED, placement, FOLDER=str(tmp_path))
