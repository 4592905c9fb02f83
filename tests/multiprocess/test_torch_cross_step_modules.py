"""cross_step=True: whoever reads a parameter early waits for its update, and for no other."""

import copy
import io

import pytest
import torch
from crossing import outstanding, same, train, values, wrap
from harness import on_every_rank
from training import model, sgd

import rueda.torch as hvd

pytestmark = pytest.mark.parametrize("world", [(2, "shm,tcp"), (3, "tcp")], indirect=True, scope="session")


@on_every_rank
def test_a_module_waits_for_its_own_parameters_only():
    net = model()
    optimizer = wrap(sgd(net), net, True)
    train(net, optimizer, steps=1)
    old = [p.detach().clone() for p in net.parameters()]
    net[0](torch.zeros(1, 6))
    assert outstanding(optimizer) == 4
    changed = [not torch.equal(p, before) for p, before in zip(net.parameters(), old)]
    assert changed == [True, True, False, False, False, False]
    optimizer.finish()
    assert outstanding(optimizer) == 0
    assert not any(torch.equal(p, before) for p, before in zip(net.parameters(), old))


@on_every_rank
def test_gradients_are_taken_and_the_next_ones_are_kept_apart():
    net = model()
    optimizer = wrap(sgd(net), net, True)
    train(net, optimizer, steps=1)
    assert all(p.grad is None for p in net.parameters())
    net.zero_grad(set_to_none=False)  # not the optimizer's
    assert outstanding(optimizer) == 6


@on_every_rank
def test_state_dicts_evaluation_and_copies_after_finish_see_the_update():
    expected = model()
    train(expected, wrap(sgd(expected), expected, False), steps=2)
    x = torch.ones(3, 6)

    def made():
        net = model()
        return net, train(net, wrap(sgd(net), net, True), steps=2)

    net, optimizer = made()
    assert same(values(net), values(expected))
    net, optimizer = made()
    with torch.inference_mode():
        assert torch.equal(net.eval()(x), expected(x))
    net.train()
    train(net, optimizer, steps=1)  # state that was made in inference mode can be updated
    net, optimizer = made()
    part = {name: tensor.clone() for name, tensor in net[2].state_dict().items()}
    assert all(torch.equal(tensor, expected[2].state_dict()[name]) for name, tensor in part.items())
    net, optimizer = made()
    assert optimizer.state_dict()["state"][0]["momentum_buffer"] is not None
    assert outstanding(optimizer) == 0
    net, optimizer = made()
    optimizer.finish()
    twin = copy.deepcopy(net)
    saved = io.BytesIO()
    torch.save(net, saved)
    saved.seek(0)
    loaded = torch.load(saved, weights_only=False)
    assert torch.equal(twin(x), expected(x)) and torch.equal(loaded(x), expected(x))
    net, optimizer = made()
    hvd.broadcast_parameters(net.named_parameters(), 0)
    assert outstanding(optimizer) == 0 and same(values(net), values(expected))


class Branching(torch.nn.Module):
    """Calls its layer in training, and reads its parameters in evaluation."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.layers = model()

    def forward(self, x):
        if self.training and torch.is_grad_enabled():
            return self.layers(x)
        return self.layers[1:](torch.nn.functional.linear(x, self.layers[0].weight, self.layers[0].bias))


@on_every_rank
def test_evaluation_waits_for_parameters_that_only_training_waited_for_by_their_module():
    def run(crosses, how):
        net = Branching()
        optimizer = wrap(sgd(net), net, crosses)
        train(net, optimizer, steps=2)
        if how == "eval":
            return net.eval()(torch.ones(3, 6))
        with torch.no_grad():
            return net(torch.ones(3, 6))

    for how in ("eval", "no_grad"):
        assert torch.equal(run(False, how), run(True, how)), how


@on_every_rank
def test_loading_a_model_is_not_overwritten_by_an_outstanding_update():
    net = model()
    fresh = values(model(seed=7))
    optimizer = wrap(sgd(net), net, True)
    train(net, optimizer, steps=1)
    net.load_state_dict({name.removeprefix("model."): tensor for name, tensor in fresh.items()})
    optimizer.finish()
    assert same(values(net), fresh)


class Attention(torch.nn.Module):
    """Uses parameters without calling the modules that hold them, shares one, and has one that is unused."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.into = torch.nn.Linear(6, 8)
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.out = torch.nn.Linear(8, 8)
        self.tied = torch.nn.Linear(8, 8)
        self.tied.weight = self.out.weight
        self.unused = torch.nn.Linear(3, 3)
        self.frozen = torch.nn.Linear(8, 8).requires_grad_(False)

    def forward(self, x):
        x = self.into(x).unsqueeze(0)
        x = self.attention(x, x, x, need_weights=False)[0].squeeze(0)
        return self.frozen(self.tied(self.out(x).tanh()))[:, :1]


@on_every_rank
def test_functional_shared_unused_and_frozen_parameters():
    def run(crosses):
        net = Attention()
        trained = [p for p in net.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=0.01)
        optimizer = wrap(optimizer, net, crosses)
        train(net, optimizer)
        return values(net, optimizer)

    assert same(run(False), run(True))


@on_every_rank
def test_a_parameter_that_nobody_waited_for_is_named():
    net = model()
    optimizer = wrap(sgd(net), net, True)
    train(net, optimizer, steps=1)
    x = torch.ones(2, 6)
    hidden = torch.nn.functional.linear(x, net[0].weight, net[0].bias)
    with pytest.raises(RuntimeError, match=r"Parameter 0\.(weight|bias) got a gradient before its update"):
        net[1:](hidden).sum().backward()
    optimizer.load_state_dict(optimizer.state_dict())  # forgets the pass
    net.zero_grad()
    train(net, optimizer, steps=1)
    optimizer.finish()
