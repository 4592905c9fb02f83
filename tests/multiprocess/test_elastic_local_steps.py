"""DiLoCo and DelayedOptimizer in an elastic job that loses a rank while something is on its way."""

from __future__ import annotations

from typing import Any, Dict

import pytest
from harness import assert_all_succeed
from nursery import launch
from test_elastic_torch import PREPARE

PROGRAM = """
import copy
import rueda.torch.delayed as delayed
import rueda.torch.diloco as diloco
EVERY, STEPS, DIES_IN = 4, 14, 7  # the step after which ranks exchange for the second time
members = FileMembership([0, 1, 2]).use()

def make(net):
    plain = torch.optim.SGD(net.parameters(), lr=0.03125, momentum=0.5)
    if wrapper == "DelayedOptimizer":
        return hvd.DelayedOptimizer(plain, net.named_parameters(), **options)
    return hvd.DiLoCo(plain, net.named_parameters(), every=EVERY, **options)

def step(net, optimizer, number):
    first = 5 * number + 3 * hvd.rank()
    step_of(net, optimizer, [(first + i) % SAMPLES for i in range(BATCH)], 1.0)

def die_when_the_first_is_on_its_way():
    def deadly(start):
        def killed(*arguments):
            start(*arguments)
            os.kill(os.getpid(), signal.SIGKILL)
        return killed
    diloco._start = deadly(diloco._start)
    delayed._UnderWay.hold = deadly(delayed._UnderWay.hold)

began, kept = [], {}
def train(state):
    began.append(state.steps)
    while state.steps < STEPS:
        if members.uid == victim and state.steps == DIES_IN:
            die_when_the_first_is_on_its_way()
        step(net, optimizer, state.steps)
        state.steps += 1
        if state.steps % 3 == 0:
            kept[state.steps] = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
            state.commit()  # may save, and then hear of the loss
    optimizer.synchronize_parameters()

hvd.init()
net = build(seed=members.uid)
optimizer = make(net)
state = hvd.elastic.TorchState(net, optimizer, steps=0)
hvd.elastic.run(train)(state)
assert hvd.size() == 2 and began == [0, 6], began
check_equal(net, "at the end")

# The same as if two ranks had gone on from that commit without a loss.
other = build()
its = make(other)
everyones = hvd.allgather_object(kept.get(6))  # one that had not come so far has taken the other's
mine = everyones[hvd.rank()] or everyones[1 - hvd.rank()]
other.load_state_dict(mine[0])
its.load_state_dict(mine[1])
assert not torch.equal(weights_of(other), weights_of(net))
for number in range(6, STEPS):
    step(other, its, number)
its.synchronize_parameters()
assert torch.equal(weights_of(other), weights_of(net))
hvd.barrier()
"""


@pytest.mark.parametrize(
    ("wrapper", "options"),
    [
        ("DiLoCo", {}),
        ("DiLoCo", {"overlap": True, "fragments": 2}),
        ("DelayedOptimizer", {}),
        ("DelayedOptimizer", {"warmup_steps": 4}),
    ],
)
@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_killed_while_others_need_what_it_sends_costs_only_the_steps_since_the_commit(
    victim: int, wrapper: str, options: Dict[str, Any]
) -> None:
    body = f"victim, wrapper, options = {victim}, {wrapper!r}, {options!r}\n" + PROGRAM
    finished = launch(3, PREPARE + body, {"RUEDA_TORCH_ARENA": "0"})
    assert finished[victim].status == -9
    del finished[victim]
    assert_all_succeed(finished)
