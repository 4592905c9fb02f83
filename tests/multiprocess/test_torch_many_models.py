"""Several models in one job: every process set trains its own."""

import os
import re

import pytest
import torch
from harness import ROOT, on_every_rank
from launch_support import run_script

import rueda.torch as hvd

DATA = "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"


@pytest.mark.parametrize("world", [(4, "shm,tcp"), (3, "tcp")], indirect=True, scope="session")
@on_every_rank
def test_process_sets_train_models_of_their_own_side_by_side():
    me, n = hvd.rank(), hvd.size()
    teams = [hvd.add_process_set(range(0, n, 2)), hvd.add_process_set(range(1, n, 2))]
    team = teams[me % 2]
    root, factor = team.ranks[-1], 1.0 + me % 2
    model = torch.nn.Linear(3, 1)
    with torch.no_grad():
        model.weight.fill_(me)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * (me + 1))
    hvd.broadcast_parameters(model.state_dict(), root, team)
    hvd.broadcast_optimizer_state(optimizer, root, process_set=team)
    assert model.weight.tolist() == [[float(root)] * 3]
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * (root + 1))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters(), process_set=team
    )
    for _ in range(team.ranks[0] + 2):  # sets may take different numbers of steps
        optimizer.zero_grad()
        (model.weight.sum() * (factor + team.rank())).backward()
        optimizer.step()
    change = (team.ranks[0] + 2) * (factor + (team.size() - 1) / 2)
    assert torch.allclose(model.weight, torch.full((1, 3), root - change))
    weights = hvd.allgather_object(model.weight.tolist(), "weights", team)
    assert weights == [model.weight.tolist()] * team.size()
    for process_set in teams:
        hvd.remove_process_set(process_set)


@pytest.mark.skipif(
    not os.path.exists(DATA), reason="Debian's package dataset-fashion-mnist is not installed"
)
def test_the_example_reports_every_trial_once(tmp_path):
    script = ROOT / "examples" / "pytorch" / "many_models.py"
    arguments = ["--sets", "2", "--widths", "8", "16", "--rates", "0.1", "0.01", "--steps", "20"]
    said = run_script(3, tmp_path, script, *arguments)
    rows = re.findall(r"\b(8|16) +(0\.1|0\.01) +(0|1,2) ", said)
    trials = sorted((width, rate) for width, rate, _ in rows)
    assert trials == [("16", "0.01"), ("16", "0.1"), ("8", "0.01"), ("8", "0.1")], said
    assert sorted(team for *_, team in rows) == ["0", "0", "1,2", "1,2"], said
