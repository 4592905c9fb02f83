"""Elastic training with PyTorch in real jobs that lose and gain ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import assert_all_succeed
from nursery import launch

PREPARE = """
import os, signal, sys, time
import torch
import rueda.torch as hvd
from rueda import _core
from elastic_support import FileMembership

SAMPLES, BATCH, EPOCHS = 22, 2, 2
x = (torch.arange(SAMPLES * 4.0) * 7 % 13).reshape(SAMPLES, 4) / 13
y = x.sum(1, keepdim=True) * 0.1

class Statistics(torch.nn.Module):  # a buffer that forward changes, as batch normalisation has
    def __init__(self):
        super().__init__()
        self.register_buffer("running", torch.zeros(3))

    def forward(self, given):
        self.running.mul_(0.5).add_(given.detach().mean(0), alpha=0.5)
        return given

def build(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), Statistics(), torch.nn.Linear(3, 1))

def step_of(net, optimizer, indices, weight):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(net(x[indices]), y[indices]) * weight
    loss.backward()
    optimizer.step()

def weights_of(net):
    return torch.cat([p.detach().flatten() for p in net.parameters()])

def check_equal(net, name):
    mine = weights_of(net)
    found = hvd.broadcast(mine, 0, name=name)
    assert torch.equal(found, mine), (found, mine)
"""

TRAIN = """
log = {}  # the samples of this rank by step; those of undone steps are overwritten
def train(state):
    while state.sampler.epoch < EPOCHS:
        for i, indices in enumerate(state.sampler):
            if (state.steps, members.uid) == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(net(x[indices]), y[indices]) * state.sampler.weight(i)
            loss.backward()
            optimizer.step()
            log[state.steps] = [k for k in indices if state.sampler.weight(i) > 0]
            before = state.sampler.cursor
            state.sampler.record_batch(i)
            state.used = state.used + state.sampler.order()[before:state.sampler.cursor]
            state.ends = [*state.ends, len(state.used)]
            state.steps += 1
            state.commit()
        state.sampler.set_epoch(state.sampler.epoch + 1)
    return state.steps

def start(**options):
    global net, optimizer, state
    hvd.init()
    net = build(seed=members.uid)
    plain = torch.optim.SGD(net.parameters(), lr=0.03125, momentum=0.5)
    optimizer = hvd.DistributedOptimizer(plain, net.named_parameters())
    sampler = hvd.elastic.LedgerSampler(x, BATCH)
    state = hvd.elastic.TorchState(net, optimizer, sampler=sampler, steps=0, used=[], ends=[0], **options)
    return state

def check_ledger(state):
    # Each sample of an epoch is in one step, and the ranks divide those of a step.
    assert len(state.used) == EPOCHS * SAMPLES
    for epoch in range(EPOCHS):
        assert sorted(state.used[epoch * SAMPLES:(epoch + 1) * SAMPLES]) == list(range(SAMPLES))
    logs = hvd.allgather_object(log)
    for step in range(state.steps):
        parts = [one[step] for one in logs if step in one]
        mine = [k for part in parts for k in part]
        whole = state.used[state.ends[step]:state.ends[step + 1]]
        assert len(set(mine)) == len(mine) and set(mine) <= set(whole), (step, parts, whole)
        if step >= members.views[0].commit + 1 if members.views else False:
            assert sorted(mine) == sorted(whole), (step, parts, whole)
"""


def test_states_sync_from_rank_0_and_come_back_from_commits() -> None:
    body = """
hvd.init()
net = build(seed=hvd.rank())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1 * (hvd.rank() + 1), momentum=0.9)
other = {"extra": hvd.rank()}
state = hvd.elastic.TorchState(model=net, optimizer=optimizer, batch=20 + hvd.rank(), other=other)
state.sync()
check_equal(net, "after sync")
assert state.batch == 20 and state.other == {"extra": 0} and optimizer.param_groups[0]["lr"] == 0.1
before = weights_of(net)
step_of(net, optimizer, [0, 1, 2], 1.0)
state.batch = 21
assert not torch.equal(weights_of(net), before)
state.restore()
assert torch.equal(weights_of(net), before) and state.batch == 20
step_of(net, optimizer, [0, 1, 2], 1.0)
state.batch = 21
state.commit()
after, momentum = weights_of(net), optimizer.state[net[0].weight]["momentum_buffer"].clone()
step_of(net, optimizer, [3, 4], 1.0)
state.restore()
assert torch.equal(weights_of(net), after) and state.batch == 21
assert torch.equal(optimizer.state[net[0].weight]["momentum_buffer"], momentum)
net2 = build(seed=7)
state.model = net2
assert state.model is net2
step_of(net2, torch.optim.SGD(net2.parameters(), lr=1.0), [0, 1], 1.0)
state.restore()
assert torch.equal(weights_of(net2), weights_of(build(seed=7)))
hvd.barrier()
"""
    assert_all_succeed(launch(2, PREPARE + body))


def test_horovods_sampler_divides_what_is_left_and_goes_back_to_commits() -> None:
    body = """
import pytest
hvd.init()
n, rank = hvd.size(), hvd.rank()
data = list(range(15))
sampler = hvd.elastic.ElasticSampler(data, shuffle=True, seed=4)
state = hvd.elastic.TorchState(sampler=sampler)
state.sync()
assert (sampler.epoch, sampler.processed_num, len(sampler)) == (0, 0, 8)
first = hvd.allgather_object(list(sampler))
order = [first[i % n][i // n] for i in range(16)]
assert sorted(order[:15]) == data and order[15] == order[0], "padded from its own start"
loader = torch.utils.data.DataLoader(data, batch_size=2, sampler=sampler)
for index, batch in enumerate(loader):
    if index == 3:
        break
    assert batch.tolist() == first[rank][2 * index:2 * index + 2]
    sampler.record_batch(index, 2)
    assert sampler.processed_num == 2 * n * (index + 1)
state.commit()
sampler.record_batch(3, 2)
assert sampler.processed_num == 16
state.restore()
assert sampler.processed_num == 12 and len(sampler) == 2
left = hvd.allgather_object(list(sampler))
assert [left[i % n][i // n] for i in range(4)] == order[12:15] + order[12:13]
sampler.processed_num += rank  # ranks agree on that of rank 0
state.commit()
state.sync()
assert sampler.processed_num == 12
sampler.set_epoch(1)
assert (sampler.processed_num, len(sampler)) == (0, 8)
assert hvd.allgather_object(list(sampler)) != first
assert list(hvd.elastic.ElasticSampler(data, shuffle=False)) == [*range(rank, 15, n), *([0] * rank)]
assert state.sampler is sampler
from rueda.torch.elastic.state import StateHandler, get_handler_registry, set_handler_registry
class OfList(StateHandler):
    def __init__(self, value): super().__init__(value); self.save()
    def save(self): self.saved = list(self.value)
    def restore(self): self.value[:] = self.saved
    def sync(self): self.value[:] = hvd.broadcast_object(self.value); self.save()
registry = get_handler_registry()
set_handler_registry([(list, OfList), *registry])
mine = hvd.elastic.TorchState(numbers=[rank])
mine.sync()
mine.numbers.append(5)
mine.restore()
assert mine.numbers == [0]
set_handler_registry(registry)
with pytest.raises(NotImplementedError, match="^StateHandler must define save"):
    StateHandler(3).save()
hvd.barrier()
"""
    assert_all_succeed(launch(2, PREPARE + body))


def test_a_job_that_is_not_elastic_calls_the_function_once_on_synced_state() -> None:
    body = """
hvd.init()
net = build(seed=hvd.rank())
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
state = hvd.elastic.TorchState(net, optimizer, batch=0)
calls = []
@hvd.elastic.run
def train(state, extra):
    calls.append(extra)
    for state.batch in range(state.batch, 3):
        step_of(net, optimizer, [hvd.rank(), 5], 1.0)
        state.commit()
    return state.batch
assert train(state, extra=4) == 2 and calls == [4]
check_equal(net, "at the end")
hvd.barrier()
"""
    assert_all_succeed(launch(2, PREPARE + body))


@pytest.mark.parametrize("options", ["", "copy_parameters=False"])
@pytest.mark.parametrize("victim", [0, 2])
def test_survivors_of_a_lost_rank_go_on_from_the_last_commit(victim: int, options: str) -> None:
    body = f"""
members = FileMembership([0, 1, 2]).use()
die_at = (2, {victim})
state = start({options})
resets = []
state.register_reset_callbacks([lambda: resets.append((hvd.rank(), hvd.size()))])
steps = hvd.elastic.run(train)(state)
assert hvd.size() == 2 and resets == [(hvd.rank(), 2)], resets
(view,) = members.views
assert view.size == 2 and view.commit in (2, 3) and len(view.lost) == 1
check_equal(net, "at the end")
check_ledger(state)
if {bool(options)}:
    assert state._watch is not None, "no copy was needed"
hvd.barrier()
"""
    finished = launch(3, PREPARE + TRAIN + body, {"RUEDA_TORCH_ARENA": "0"})
    assert finished[victim].status == -9
    del finished[victim]
    assert_all_succeed(finished)


@pytest.mark.parametrize("options", ["", "copy_parameters=False"])
def test_a_joiner_gets_the_state_and_its_share_of_the_samples(options: str) -> None:
    body = f"""
members = FileMembership([0, 1]).use()
members.plan = {{1: (3, ())}}
die_at = None
state = start({options})
resets = []
state.register_reset_callbacks([lambda: resets.append((hvd.rank(), hvd.size()))])
if members.uid == 2:
    assert hvd.is_initialized() and hvd.rank() != 0
    try:
        hvd.allreduce(torch.ones(1))
    except hvd.HorovodInternalError as error:
        assert "not a member yet" in str(error)
steps = hvd.elastic.run(train)(state)
assert hvd.size() == 3 and hvd.rank() == members.uid
(view,) = members.views
assert view.commit == 3 and view.holders == (0, 1) and view.joined == (2,)
assert resets == [(hvd.rank(), 3)], "what the joiner computed from its provisional size is wrong"
check_equal(net, "at the end")
check_ledger(state)
assert len(set(hvd.allgather_object((state.steps, state.sampler.epoch)))) == 1
hvd.barrier()
"""
    finished = launch(3, PREPARE + TRAIN + body, {"RUEDA_TORCH_ARENA": "0"})
    assert_all_succeed(finished)


def test_a_process_whose_host_goes_leaves_at_a_commit_with_a_sentence() -> None:
    body = """
members = FileMembership([0, 1]).use()
members.plan = {1: (3, (1,))}
die_at = None
state = start()
hvd.elastic.run(train)(state)
assert hvd.size() == 1 and members.uid == 0
assert members.views[0].needs_no_sync
check_ledger(state)
"""
    stays, leaves = launch(2, PREPARE + TRAIN + body)
    assert stays.status == 0, stays.output
    assert leaves.status == 75 and "leaves the job at commit 3" in leaves.output, leaves.output


def test_commits_go_over_to_copies_where_the_program_needs_them() -> None:
    body = """
members = FileMembership([0, 1]).use()
hvd.init()
net = build()
plain = torch.optim.SGD(net.parameters(), lr=0.03125, momentum=0.5)
optimizer = hvd.DistributedOptimizer(plain, net.named_parameters())
def fresh():
    return hvd.elastic.TorchState(net, optimizer, batch=0, copy_parameters=False)
for what in ("two steps", "an operation"):
    state = fresh()
    state.sync()
    step_of(net, optimizer, [0, 1, 2], 1.0)
    assert state._held == -1, "the parameters are newer than the commit"
    state.commit()
    assert state._watch is not None and state._held == 1 - 1 + state._commit
    step_of(net, optimizer, [0, 1, 2], 1.0)
    if what == "two steps":
        step_of(net, optimizer, [0, 1, 2], 1.0)
    else:
        hvd.allreduce(torch.ones(1), name="loss")
    state.commit()
    assert state._watch is None, what
    before = weights_of(net)
    step_of(net, optimizer, [0, 1, 2], 1.0)
    state.restore()
    assert torch.equal(weights_of(net), before)
hvd.barrier()
"""
    finished = launch(2, PREPARE + body)
    assert_all_succeed(finished)
    assert "there were 2 steps between two commits" in finished[0].output
    assert "an operation was started after the step between two commits" in finished[0].output


def test_other_optimizers_need_copies_and_cross_step_is_committed_with_all_updates_made() -> None:
    body = """
import pytest
hvd.init()
net = build()
plain = torch.optim.SGD(net.parameters(), lr=0.03125)
crossing = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.03125), net.named_parameters(),
                                    cross_step=True, model=net)
for optimizer, why in ((plain, "not a SGD that is none"), (crossing, "not one with cross_step=True")):
    with pytest.raises(ValueError, match=why):
        hvd.elastic.TorchState(net, optimizer, copy_parameters=False)
state = hvd.elastic.TorchState(net, crossing, batch=0)
state.sync()
step_of(net, crossing, [0, 1, 2], 1.0)
state.commit()  # makes the updates that step() left outstanding
kept = {name: one.clone() for name, one in net.state_dict().items()}
saved = state._handlers["model"].kept()
assert all(torch.equal(kept[name], saved[name]) for name in kept)
step_of(net, crossing, [0, 1, 2], 1.0)
state.restore()
assert all(torch.equal(kept[name], one) for name, one in net.state_dict().items())
hvd.barrier()
"""
    assert_all_succeed(launch(2, PREPARE + body))


def test_a_rank_killed_with_half_of_the_parameters_updated_leaves_the_commit(tmp_path: Path) -> None:
    body = f"""
import pathlib
members = FileMembership([0, 1, 2]).use()
hvd.init()
torch.manual_seed(0)

class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)
        self.is_a_first = True
        self.on_b_gradient = self.after_a = lambda *_: None

    def forward(self, given):
        # Backward reaches first what was called last.
        if self.is_a_first:
            a = self.a(given)
            self.after_a()
            b = self.b(given)
        else:
            b = self.b(given)
            b.register_hook(self.on_b_gradient)
            a = self.a(given)
        return a + b

net = Branches()
crossing = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.03125, momentum=0.5),
                                    net.named_parameters(), cross_step=True, model=net)
state = hvd.elastic.TorchState(net, crossing, steps=0)
marks, kept, seen = pathlib.Path({str(tmp_path)!r}), [], []

def await_marks_and_die(gradient):  # the sum for a is complete, the one for b never begins
    deadline = time.monotonic() + 60
    while len(list(marks.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)

def mark_half():
    half = [not torch.equal(now, was) for now, was in zip(net.parameters(), kept[-1])]
    seen.append(half)
    (marks / str(members.uid)).touch()

@hvd.elastic.run
def train(state):
    if members.views:
        assert all(torch.equal(now, was) for now, was in zip(net.parameters(), kept[-1])), "not the commit"
        assert state.steps == 4
    while state.steps < 8:
        is_fatal = state.steps == 4 and not members.views
        net.is_a_first, net.after_a, net.on_b_gradient = not is_fatal, lambda: None, lambda *_: None
        if is_fatal and members.uid == 1:
            net.on_b_gradient = await_marks_and_die
        step_of(net, crossing, [state.steps, 5], 1.0)
        state.steps += 1
        if is_fatal:  # the next forward makes the updates one by one
            net.is_a_first, net.after_a = True, mark_half
            step_of(net, crossing, [0, 1], 1.0)
        if state.steps % 2 == 0:
            state.commit()
            kept.append([one.detach().clone() for one in net.parameters()])

train(state)
crossing.finish()
assert seen == [[True, True, False, False]], seen
(view,) = members.views
assert view.size == 2 and view.holders == (0, 1)
check_equal(net, "at the end")
hvd.barrier()
"""
    finished = launch(3, PREPARE + body, {"RUEDA_TORCH_ARENA": "0"})
    assert finished[1].status == -9, finished[1].output
    del finished[1]
    assert_all_succeed(finished)


def test_commits_of_parameters_on_a_gpu_wait_until_all_ranks_have_computed_them() -> None:
    body = """
hvd.init()
net = build()
state = hvd.elastic.TorchState(net, torch.optim.SGD(net.parameters(), lr=0.1))
order = []
from rueda import operations
torch.cuda.synchronize = lambda: order.append("synchronize")
barrier = operations.barrier
operations.barrier = lambda one: (order.append("barrier"), barrier(one))
for handler in state._handlers.values():
    save = handler.save
    handler.save = lambda save=save: (order.append("copy"), save())
state._is_on_gpu = lambda: True
state.commit()
assert order == ["synchronize", "barrier", "copy", "copy"], order
operations.barrier = lambda one: (_ for _ in ()).throw(hvd.HorovodInternalError("lost"))
order.clear()
try:
    state.commit()
except hvd.HorovodInternalError:
    pass
assert order == ["synchronize"], "garbage does not replace the copy"
barrier(hvd.global_process_set)
"""
    assert_all_succeed(launch(2, PREPARE + body))


def test_process_sets_are_made_again_and_others_are_said_to_end() -> None:
    body = """
members = FileMembership([0, 1, 2]).use()
hvd.init(process_sets="dynamic")
own = hvd.add_process_set([0, 1])
sets = hvd.elastic.process_sets(lambda rank, size: [[0], range(1, size)])
state = hvd.elastic.ObjectState(hvd.broadcast_object, hvd.rank, step=0)
sizes = []
def train(state):
    while state.step < 6:
        if (state.step, members.uid) == (3, 2):
            os.kill(os.getpid(), signal.SIGKILL)
        mine = sets[0] if hvd.rank() == 0 else sets[1]
        total = hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=mine, name="in set")
        sizes.append(int(total))
        hvd.barrier()
        state.step += 1
        state.commit()
hvd.elastic.run(train)(state)
assert hvd.size() == 2 and state.step == 6 and len(sets) == 2
assert sizes[-1] == 1 and (members.uid == 0 or sizes[0] == 2), sizes
try:
    hvd.allreduce(torch.ones(1), process_set=own)
except ValueError as error:
    assert "registered since the last init()" in str(error), error
hvd.barrier()
"""
    finished = launch(3, PREPARE + body)
    assert_all_succeed(finished[:2])
    assert "The process sets of the ranks [[0, 1]] ended with the last view" in finished[0].output


def test_the_default_group_of_torch_distributed_follows_the_view() -> None:
    body = """
import torch.distributed as dist
members = FileMembership([0, 1, 2]).use()
hvd.init()
dist.init_process_group("rueda")
net = build()
state = hvd.elastic.TorchState(net, torch.optim.SGD(net.parameters(), lr=0.03125), step=0)
def train(state):
    ddp = torch.nn.parallel.DistributedDataParallel(net)
    while state.step < 6:
        if (state.step, members.uid) == (3, 2):
            os.kill(os.getpid(), signal.SIGKILL)
        step_of(ddp, state.optimizer, [state.step, dist.get_rank() + 7], 1.0)
        state.step += 1
        state.commit()
    return dist.get_world_size()
assert hvd.elastic.run(train)(state) == 2 == hvd.size()
check_equal(net, "at the end")
hvd.barrier()
"""
    finished = launch(3, PREPARE + body)
    assert_all_succeed(finished[:2])
