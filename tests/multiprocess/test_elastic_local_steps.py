"""DiLoCo in an elastic job that loses a rank during an exchange."""

from __future__ import annotations

import pytest
from harness import assert_all_succeed
from nursery import launch
from test_elastic_torch import PREPARE

DILOCO = """
import copy
import rueda.torch.diloco as diloco
EVERY, STEPS, DIES_IN = 4, 14, 7  # the step after which ranks exchange for the second time
members = FileMembership([0, 1, 2]).use()

def make(net):
    plain = torch.optim.SGD(net.parameters(), lr=0.03125, momentum=0.5)
    return hvd.DiLoCo(plain, net.named_parameters(), every=EVERY, **options)

def step(net, optimizer, number):
    first = 5 * number + 3 * hvd.rank()
    step_of(net, optimizer, [(first + i) % SAMPLES for i in range(BATCH)], 1.0)

def die_when_the_first_change_is_on_its_way():
    start = diloco._start
    def killed(*arguments):
        start(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)
    diloco._start = killed

began, kept = [], {}
def train(state):
    began.append(state.steps)
    while state.steps < STEPS:
        if members.uid == victim and state.steps == DIES_IN:
            die_when_the_first_change_is_on_its_way()
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
other.load_state_dict(kept[6][0])
its.load_state_dict(kept[6][1])
assert not torch.equal(weights_of(other), weights_of(net))
for number in range(6, STEPS):
    step(other, its, number)
its.synchronize_parameters()
assert torch.equal(weights_of(other), weights_of(net))
hvd.barrier()
"""


@pytest.mark.parametrize("options", ["{}", "{'overlap': True, 'fragments': 2}"])
@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_killed_during_an_exchange_of_diloco_costs_only_the_steps_since_the_commit(
    victim: int, options: str
) -> None:
    body = f"victim, options = {victim}, {options}\n" + DILOCO
    finished = launch(3, PREPARE + body, {"RUEDA_TORCH_ARENA": "0"})
    assert finished[victim].status == -9
    del finished[victim]
    assert_all_succeed(finished)
