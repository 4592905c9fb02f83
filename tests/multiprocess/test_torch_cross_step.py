"""cross_step=True: the same bits as a step that waits for everything, and whoever reads early waits."""

import copy
import ctypes
import gc
import io

import pytest
import torch
from harness import on_every_rank
from training import batches, loss_of, model, sgd

import rueda.torch as hvd
from rueda import _core
from rueda.torch import cross_step

pytestmark = pytest.mark.parametrize("world", [(2, "shm,tcp"), (3, "tcp")], indirect=True, scope="session")

OPTIMIZERS = {
    "sgd": lambda ps: torch.optim.SGD(ps, lr=0.1),
    "momentum": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "dampening": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, dampening=0.5, foreach=True),
    "adam": lambda ps: torch.optim.Adam(ps, lr=0.01, amsgrad=True),
    "adam foreach": lambda ps: torch.optim.Adam(ps, lr=0.01, foreach=True),
    "adam fused": lambda ps: torch.optim.Adam(ps, lr=0.01, fused=True),
    "adamw": lambda ps: torch.optim.AdamW(ps, lr=torch.tensor(0.01), weight_decay=0.1, foreach=False),
    "rmsprop": lambda ps: torch.optim.RMSprop(ps, lr=0.01, momentum=0.5),
    "adagrad": lambda ps: torch.optim.Adagrad(ps, lr=0.05),
}


def wrap(optimizer, net, crosses, **options):
    if crosses:
        options |= {"cross_step": True, "model": net}
    return hvd.DistributedOptimizer(optimizer, net.named_parameters(), **options)


def train(net, optimizer, steps=4, scheduler=None, zero=True, passes=1):
    for step, parts in enumerate(batches(steps * passes, hvd.size())):
        loss_of(net, parts[hvd.rank()]).backward()
        if (step + 1) % passes:
            continue
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        optimizer.zero_grad(set_to_none=zero)
    return optimizer


def values(net, optimizer=None):
    tensors = {f"model.{name}": tensor.clone() for name, tensor in net.state_dict().items()}
    if optimizer is not None:
        for index, state in optimizer.state_dict()["state"].items():
            for key, value in state.items():
                if isinstance(value, torch.Tensor):
                    tensors[f"{index}.{key}"] = value.clone()
    return tensors


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def outstanding(optimizer):
    return len(optimizer._crossing._flights)


@on_every_rank
def test_every_optimizer_gives_the_bits_of_a_step_that_waits():
    for name, make in OPTIMIZERS.items():
        results = []
        for crosses in (False, True):
            net = model()
            optimizer = wrap(make(net.parameters()), net, crosses)
            train(net, optimizer)
            assert not crosses or outstanding(optimizer) == 6, "the last step must have left its updates"
            results.append(values(net, optimizer))
        assert same(*results), name


@on_every_rank
def test_passes_groups_of_options_schedulers_and_both_ways_to_zero():
    def run(crosses, zero):
        net = model()
        groups = [{"params": net[0].parameters(), "lr": 0.2}, {"params": net[2:].parameters()}]
        optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
        optimizer = wrap(optimizer, net, crosses, backward_passes_per_step=2)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        train(net, optimizer, scheduler=scheduler, zero=zero, passes=2)
        assert not crosses or outstanding(optimizer) == 6, "reading the options must not wait"
        return values(net, optimizer)

    for zero in (True, False):
        assert same(run(False, zero), run(True, zero))


@on_every_rank
def test_a_learning_rate_in_a_tensor_is_that_of_the_step():
    def run(crosses):
        net = model()
        optimizer = wrap(torch.optim.Adam(net.parameters(), lr=torch.tensor(0.01)), net, crosses)
        for parts in batches(3, hvd.size()):
            loss_of(net, parts[hvd.rank()]).backward()
            optimizer.step()
            optimizer.param_groups[0]["lr"].mul_(0.1)
            optimizer.zero_grad()
        return values(net)

    assert same(run(False), run(True))


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


@on_every_rank
def test_clipping_makes_a_whole_step():
    def run(crosses):
        net = model()
        optimizer = wrap(sgd(net), net, crosses)
        for parts in batches(3, hvd.size()):
            loss_of(net, parts[hvd.rank()]).backward()
            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.01)
            with optimizer.skip_synchronize():
                optimizer.step()
            optimizer.zero_grad()
        assert not crosses or outstanding(optimizer) == 0
        return values(net, optimizer)

    assert same(run(False), run(True))


@on_every_rank
def test_an_exception_between_steps_leaves_the_updates_for_the_next_forward():
    def run(crosses):
        net = model()
        optimizer = wrap(sgd(net), net, crosses)
        train(net, optimizer, steps=1)
        with pytest.raises(RuntimeError, match="shapes"):
            net(torch.ones(1, 5))
        train(net, optimizer, steps=1)
        return values(net, optimizer)

    assert same(run(False), run(True))


@on_every_rank
def test_an_exception_in_backward_leaves_what_a_step_that_waits_leaves():
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise ArithmeticError("a gradient that fails")

    def run(crosses):
        net = model()
        optimizer = wrap(sgd(net), net, crosses)
        train(net, optimizer, steps=2)
        with pytest.raises(ArithmeticError, match="that fails"):
            Fails.apply(net(torch.ones(4, 6))).sum().backward()  # before any gradient is there
        optimizer.zero_grad()
        train(net, optimizer, steps=2)
        return values(net, optimizer)

    assert same(run(False), run(True))


@on_every_rank
def test_two_optimizers_of_one_model_and_one_that_is_dropped():
    def run(crosses):
        net = model()
        names = dict(net.named_parameters())
        options = {"cross_step": True, "model": net} if crosses else {}
        halves = [
            hvd.DistributedOptimizer(
                make(part.parameters()),
                [(n, p) for n, p in names.items() if any(p is q for q in part.parameters())],
                **options,
            )
            for make, part in ((OPTIMIZERS["momentum"], net[:2]), (OPTIMIZERS["adam"], net[2:]))
        ]
        for parts in batches(3, hvd.size()):
            loss_of(net, parts[hvd.rank()]).backward()
            for half in halves:
                half.step()
                half.zero_grad()
        del half, halves
        gc.collect()
        loss_of(net, parts[hvd.rank()])  # makes the updates although their optimizers are gone
        return values(net)

    assert same(run(False), run(True))
    gc.collect()
    assert not cross_step._outstanding


@on_every_rank
def test_names_are_free_although_a_model_was_dropped_with_its_updates_outstanding():
    for _ in range(20):
        net = model()
        optimizer = wrap(sgd(net), net, True)
        train(net, optimizer, steps=1)
        del net, optimizer
        gc.collect()


@on_every_rank
def test_compression_sparse_gradients_and_long_ones_in_parts():
    def run(crosses, **options):
        torch.manual_seed(3)
        net = torch.nn.Sequential(torch.nn.Embedding(5, 8, sparse=True), torch.nn.Linear(8, 3))
        optimizer = wrap(torch.optim.SGD(net.parameters(), lr=0.1), net, crosses, **options)
        for step in range(3):
            net(torch.tensor([0, 1 + hvd.rank() % 4, step])).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return values(net)

    with pytest.MonkeyPatch.context() as patch:
        for part_bytes in (cross_step.PART_BYTES, 64):
            patch.setattr("rueda.torch.optimizer.PART_BYTES", part_bytes)
            for options in ({}, {"compression": hvd.Compression.bf16}, {"sparse_as_dense": True}):
                assert same(run(False, **options), run(True, **options)), options


@on_every_rank
def test_compiled_models():
    def run(crosses):
        net = model()
        compiled = torch.compile(net, backend="eager")
        optimizer = hvd.DistributedOptimizer(
            sgd(net), net.named_parameters(), **({"cross_step": True, "model": compiled} if crosses else {})
        )
        train(compiled, optimizer, steps=3)
        return values(net)

    assert same(run(False), run(True))
    net = model()
    net[0].compile(backend="eager")
    with pytest.raises(ValueError, match=r"torch\.compile\(module\)"):
        wrap(sgd(net), net, True)


class CountsInGroups(torch.optim.SGD):
    """Keeps a number for all parameters where it cannot be seen for each."""

    def step(self, closure=None):
        for group in self.param_groups:
            group["count"] = group.get("count", 0) + 1
        return super().step(closure)


@on_every_rank
def test_what_cannot_cross_is_refused_in_a_sentence():
    net = model()
    named = list(net.named_parameters())
    refused = [
        (sgd(net), {"cross_step": True}, "needs model="),
        (sgd(net), {"model": net}, "leave it out"),
        (sgd(net), {"cross_step": True, "model": model()}, "model holds none of the optimizer's parameters"),
        (sgd(net), {"cross_step": True, "model": net, "op": hvd.Adasum}, "op=Adasum needs all gradients"),
        (sgd(net), {"cross_step": True, "model": net, "groups": 2}, "groups are reduced as a whole"),
        (
            torch.optim.LBFGS(net.parameters()),
            {"cross_step": True, "model": net},
            "LBFGS needs all gradients",
        ),
    ]
    for optimizer, options, text in refused:
        with pytest.raises(ValueError, match=text):
            hvd.DistributedOptimizer(optimizer, named, **options)
    optimizer = wrap(sgd(net), net, True)
    with pytest.raises(ValueError, match="takes no closure"):
        optimizer.step(lambda: 0)
    counting = wrap(CountsInGroups(net.parameters(), lr=0.1), net, True)
    del optimizer
    gc.collect()
    train(net, counting, steps=1)
    with pytest.raises(RuntimeError, match=r"CountsInGroups changes its parameter groups \(count\)"):
        counting.finish()


@on_every_rank
def test_the_front_goes_first():
    net = model()
    optimizer = wrap(sgd(net), net, True)
    train(net, optimizer, steps=2)
    slots = {slot.name: slot.priority for slot in optimizer._reducer._slots.values()}
    assert slots["0.weight"] == slots["0.bias"] > slots["2.weight"] > slots["4.weight"]
    assert slots["0.weight"] < 0
    optimizer.finish()


LATER_FIELDS = ("priority", "ready", "memory")


class OlderRequest(ctypes.Structure):
    """rueda_request as programs know it that were built before it had a priority."""

    _fields_ = [field for field in _core.Request._fields_ if field[0] not in LATER_FIELDS]


@on_every_rank
def test_programs_built_against_the_shorter_request_go_on_working():
    assert ctypes.sizeof(OlderRequest) == _core.Request.priority.offset
    tensors = [torch.full((4,), float(index)) for index in range(2)]
    shape = (ctypes.c_int64 * 1)(4)
    requests = (OlderRequest * 2)()
    for index, (request, tensor) in enumerate(zip(requests, tensors)):
        request.struct_size = ctypes.sizeof(OlderRequest)
        request.what, request.dtype, request.op = _core.ALLREDUCE, _core.FLOAT32, _core.SUM
        request.name = f"older.{index}".encode()
        request.prescale = request.postscale = 1.0
        request.ndim, request.device, request.shape = 1, -1, shape
        request.input = request.output = tensor.data_ptr()
    handle = ctypes.c_int64(0)
    assert _core.submit(ctypes.byref(requests), 2, ctypes.byref(handle)) == _core.OK, _core.last_error()
    assert _core.wait(handle.value, 30.0) == _core.OK
    _core.release(handle.value)
    assert torch.equal(tensors[1], torch.full((4,), float(hvd.size())))
    requests[1].struct_size = 8
    assert _core.submit(ctypes.byref(requests), 2, ctypes.byref(handle)) == _core.INVALID_ARGUMENT
    assert "differ in struct_size" in _core.last_error()
