"""The hook of gradients in C and the one in Python: they take the same gradients and compute the same."""

import contextlib
import importlib
import warnings

import pytest
import torch
from harness import assert_all_succeed, on_every_rank
from nursery import launch
from training import batches, loss_of, model, sgd
from worlds import in_two_worlds

import rueda.torch as hvd
from rueda.torch import gradient_hooks
from rueda.torch.compression import Compressor
from rueda.torch.reducer import Reducer

# Each of these files has tests that pass with the hook in C, which is there by default.
SUITES = ("test_torch_optimizer", "test_torch_stray_pass", "test_torch_cross_step", "test_torch_views")


@contextlib.contextmanager
def only_python():
    """Optimizers that are made meanwhile have the hook in Python."""
    gradient_hooks.why_not()
    kept = gradient_hooks._plugin, gradient_hooks._why
    gradient_hooks._plugin, gradient_hooks._why = None, "a test wants it so"
    try:
        yield
    finally:
        gradient_hooks._plugin, gradient_hooks._why = kept


@contextlib.contextmanager
def counted():
    """The gradients of optimizers made meanwhile which a hook leaves to the general way."""
    names = []
    original = Reducer._after_accumulation

    def count(self, parameter):
        names.append(self._gradients[parameter].name)
        original(self, parameter)

    Reducer._after_accumulation = count
    try:
        yield names
    finally:
        Reducer._after_accumulation = original


def both_hooks(body):
    """The results of body() with either hook, which must have equal bits."""
    in_c = body()
    with only_python():
        in_python = body()
    for one, other in zip(in_c, in_python):
        assert torch.equal(one, other), (one, other)
    return in_c


def trained_for_two_steps():
    """A model and its optimizer, whose gradients are prepared."""
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net), net.named_parameters())
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(net, batches(1, 1)[0][0]).backward()
        optimizer.step()
    return net, optimizer


def has_hook_in_c(parameter):
    (hook,) = parameter._post_accumulate_grad_hooks.values()
    return type(hook).__name__ == "builtin_function_or_method"


@on_every_rank
def test_the_hook_in_c_is_used_and_takes_every_usual_gradient():
    assert gradient_hooks.why_not() == ""
    with counted() as general:
        net = model()
        optimizer = hvd.DistributedOptimizer(sgd(net), net.named_parameters())
        assert all(has_hook_in_c(parameter) for parameter in net.parameters())
        for step, parts in enumerate(batches(4, hvd.size())):
            optimizer.zero_grad()
            loss_of(net, parts[hvd.rank()]).backward()
            assert len(general) == len(list(net.parameters())), step  # the first of each, which is prepared
            optimizer.step()


@on_every_rank
def test_steps_have_the_same_bits_with_either_hook():
    def train(**options):
        net = model()
        optimizer = hvd.DistributedOptimizer(sgd(net), net.named_parameters(), **options)
        passes = options.get("backward_passes_per_step", 1)
        for parts in batches(5, hvd.size()):
            optimizer.zero_grad()
            for _ in range(passes):
                loss_of(net, parts[hvd.rank()]).backward()
            optimizer.step()
        return [parameter.detach().clone() for parameter in net.parameters()]

    for options in (
        {},
        {"backward_passes_per_step": 3},
        {"groups": 2},
        {"op": hvd.Sum, "gradient_predivide_factor": 1.0},
        {"compression": hvd.Compression.fp16},
    ):
        both_hooks(lambda options=options: train(**options))


def convolutions():
    """A network whose weights of two and of three dimensions have the channels last."""
    torch.manual_seed(5)
    flat = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, bias=False), torch.nn.BatchNorm2d(8), torch.nn.Conv2d(8, 2, 1)
    )
    deep = torch.nn.Sequential(torch.nn.Conv3d(3, 4, 2), torch.nn.ReLU())
    net = torch.nn.ModuleList(
        [flat.to(memory_format=torch.channels_last), deep.to(memory_format=torch.channels_last_3d)]
    )
    assert sum(not parameter.is_contiguous() for parameter in net.parameters()) == 2
    return net


def loss_of_convolutions(net, step):
    generator = torch.Generator().manual_seed(100 * step + hvd.rank())
    images = torch.randn(2, 3, 6, 6, generator=generator).to(memory_format=torch.channels_last)
    volumes = torch.randn(2, 3, 4, 4, 4, generator=generator)
    return net[0](images).pow(2).mean() + net[1](volumes).mean()


class Flattened(Compressor):
    """One of a user, which sends another shape."""

    @staticmethod
    def compress(tensor):
        return tensor.flatten(), tensor.shape

    @staticmethod
    def decompress(tensor, ctx):
        return tensor.reshape(ctx)


@on_every_rank
def test_weights_with_the_channels_last_are_reduced_where_they_lie():
    def train(**options):
        net = convolutions()
        more = {"model": net} if "cross_step" in options else {}
        optimizer = hvd.DistributedOptimizer(sgd(net), net.named_parameters(), **options, **more)
        reduced = []
        for step in range(4):
            optimizer.zero_grad()
            with counted() as general:
                loss_of_convolutions(net, step).backward()
            assert not (options == {} and step and general), general
            optimizer.step()
            if not more:  # else steps are made later, and gradients are taken away
                reduced += [parameter.grad.clone() for parameter in net.parameters()]
        if "cross_step" in options:
            optimizer.finish()
        return [*reduced, *(parameter.detach().clone() for parameter in net.parameters())]

    usual = both_hooks(train)
    net = convolutions()
    for step in range(4):
        net.zero_grad()
        loss_of_convolutions(net, step).backward()
        grads = [parameter.grad for parameter in net.parameters()]
        averages = [hvd.allreduce(grad.contiguous()) for grad in grads]
        for place, average in enumerate(averages):
            found = usual[step * len(grads) + place]
            assert found.stride() == grads[place].stride()
            torch.testing.assert_close(found, average)
        for parameter, average in zip(net.parameters(), averages):
            parameter.grad.copy_(average)
        if step == 0:
            optimizer = sgd(net)
        optimizer.step()
    for options in ({"groups": 2}, {"op": hvd.Sum}):
        both_hooks(lambda options=options: train(**options))
    crossing = both_hooks(lambda: train(cross_step=True))
    for one, other in zip(crossing, usual[-len(crossing) :]):
        torch.testing.assert_close(one, other)
    for one, other in zip(both_hooks(lambda: train(compression=Flattened)), usual):
        torch.testing.assert_close(one, other)
    halved = both_hooks(lambda: train(compression=hvd.Compression.bf16))
    for one, other in zip(halved, usual):
        torch.testing.assert_close(one, other, rtol=5e-2, atol=1e-2)


def test_ranks_with_the_channels_elsewhere_are_told_so():
    """A square kernel of as many channels has the same shape in both orders."""
    program = """
import pytest
import torch
import rueda.torch as hvd

hvd.init()
layer = torch.nn.Conv2d(3, 3, 3)
if hvd.rank() == 1:
    layer = layer.to(memory_format=torch.channels_last)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(layer.parameters(), lr=0.1), layer.named_parameters())
layer(torch.ones(1, 3, 5, 5)).sum().backward()
with pytest.raises(hvd.HorovodInternalError, match="shape"):
    optimizer.step()
"""
    assert_all_succeed(launch(2, program))


@on_every_rank
def test_gradients_that_change_from_step_to_step_are_noticed():
    """Type, shape, memory order and sign bit of `.grad` may differ from what was prepared."""

    def train():
        torch.manual_seed(3)
        parameter = torch.nn.Parameter(torch.randn(4, 6))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=0.1), [("p", parameter)])
        x = torch.randn(4, 6) + hvd.rank()
        found = []

        def step(prepare):
            optimizer.zero_grad()
            prepare()
            (parameter * x).sum().backward()
            optimizer.step()
            found.append(parameter.grad.clone())

        def give(grad):
            parameter.grad = grad

        keep = lambda: None  # noqa: E731
        negative = lambda: give(torch.complex(x, x).conj().imag)  # noqa: E731
        transposed = lambda: give(torch.zeros(6, 4).t())  # noqa: E731
        strided = lambda: give(torch.zeros(4, 12)[:, ::2])  # noqa: E731
        for prepare in (keep, keep, negative, keep, transposed, keep, strided, keep, keep):
            step(prepare)
        parameter.data = torch.randn(5, 6)
        x = torch.randn(5, 6) + hvd.rank()
        for _ in range(3):
            step(lambda: give(None))
        parameter.data = parameter.data.double()
        x = x.double()
        for _ in range(3):
            step(lambda: give(None))
        return found

    found = both_hooks(train)
    assert [grad.dtype for grad in found[-4:]] == [torch.float32] + [torch.float64] * 3


@on_every_rank
def test_sparse_frozen_and_missing_gradients_take_the_general_way():
    def train():
        torch.manual_seed(5)
        table = torch.nn.Embedding(7, 3, sparse=True)
        rest = torch.nn.Linear(3, 2)
        rest.bias.requires_grad_(False)
        unused = torch.nn.Parameter(torch.ones(3))
        named = [("table", table.weight), ("w", rest.weight), ("b", rest.bias), ("unused", unused)]
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p for _, p in named], lr=0.1), named)
        for step in range(5):
            rest.bias.requires_grad_(step >= 2)
            optimizer.zero_grad()
            loss = rest(table(torch.tensor([hvd.rank(), step]))).sum()
            if step == 3:
                loss = loss + (unused * (hvd.rank() + 1)).sum()
            loss.backward()
            optimizer.step()
        return [parameter.detach().clone() for _, parameter in named]

    both_hooks(train)


@on_every_rank
def test_a_gradient_of_a_subclass_of_tensor_is_not_read_by_its_address():
    class Odd(torch.Tensor):
        pass

    with counted() as general:
        parameter = torch.nn.Parameter(torch.ones(3))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=0.1), [("p", parameter)])
        for _ in range(3):
            parameter.grad = torch.zeros(3).as_subclass(Odd)
            (parameter * (1 + hvd.rank())).sum().backward()
            optimizer.synchronize()
            assert parameter.grad.tolist() == [(hvd.size() + 1) / 2] * 3
            optimizer.zero_grad()
    assert len(general) == 3


@on_every_rank
def test_an_error_in_the_general_way_comes_out_of_backward():
    net, optimizer = trained_for_two_steps()
    loss_of(net, batches(1, 1)[0][0]).backward()
    with pytest.raises(AssertionError, match="Increase backward_passes_per_step"):
        loss_of(net, batches(1, 1)[0][0]).backward()
    optimizer.zero_grad()


@on_every_rank
def test_the_hook_keeps_neither_gradients_nor_the_optimizer_alive():
    import gc
    import weakref

    net, optimizer = trained_for_two_steps()
    grads = [weakref.ref(parameter.grad) for parameter in net.parameters()]
    reducer = weakref.ref(optimizer._reducer)
    optimizer.zero_grad(set_to_none=True)
    assert not any(grad() is not None for grad in grads)
    del optimizer
    gc.collect()
    assert reducer() is None
    loss_of(net, batches(1, 1)[0][0]).backward()  # nobody reduces it
    assert not any(parameter._post_accumulate_grad_hooks for parameter in net.parameters())


@in_two_worlds  # of a step, the hook is the part that each rank has by itself
@on_every_rank
@pytest.mark.timeout(600)
def test_all_that_holds_for_optimizers_holds_with_the_hook_in_python():
    with only_python(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for suite in SUITES:
            module = importlib.import_module(suite)
            bodies = [one.body for one in vars(module).values() if hasattr(one, "body")]
            assert bodies, suite
            for body in bodies:
                body()


START = """
import pathlib, sys, torch
import rueda.torch as hvd
from rueda.torch import arena, gradient_hooks
hvd.init()
"""

STEP = """
net = torch.nn.Linear(3, 2)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
for _ in range(3):
    optimizer.zero_grad()
    net(torch.ones(1, 3) * (hvd.rank() + 1)).sum().backward()
    optimizer.step()
assert net.weight.grad[0].tolist() == [1.5] * 3, net.weight.grad
hook = next(iter(net.weight._post_accumulate_grad_hooks.values()))
assert type(hook).__name__ == "function", hook
"""


def test_a_library_that_cannot_be_loaded_is_one_sentence_and_the_hook_in_python_does_its_work():
    body = START + 'arena.plugin_path = lambda: pathlib.Path("/nowhere/librueda_torch.so")\n' + STEP + STEP
    ranks = launch(2, body)
    assert_all_succeed(ranks)
    for rank in ranks:
        assert rank.output.count("The hook of gradients in C cannot be used (/nowhere/librueda_torch.so") == 1


def test_an_older_torch_and_a_setting_choose_the_hook_in_python_without_a_word():
    old = "import torch\ndel torch.Tensor.__dlpack_c_exchange_api__\n" + START + STEP
    assert_all_succeed(ranks := launch(2, old + "assert gradient_hooks.why_not() == gradient_hooks.OLD\n"))
    off = START + STEP + "assert gradient_hooks.why_not() == gradient_hooks.OFF\n"
    assert_all_succeed(more := launch(2, off, environment={"RUEDA_TORCH_C_HOOK": "0"}))
    assert not any("hook of gradients" in rank.output for rank in (*ranks, *more))


def test_ctrl_c_while_step_waits_loses_nothing(tmp_path):
    """Rank 1 comes late; rank 0 is interrupted in step(), and its next step() finds everything as it was."""
    body = (
        START
        + f"flag = pathlib.Path({str(tmp_path / 'interrupted')!r})"
        + """
import os, signal, threading, time
net = torch.nn.Linear(3, 2)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
def backward():
    optimizer.zero_grad()
    net(torch.ones(1, 3) * (hvd.rank() + 1)).sum().backward()
for _ in range(3):
    backward()
    optimizer.step()
before = net.weight.detach().clone()
if hvd.rank() == 0:
    backward()
    try:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        optimizer.step()
        raise SystemExit("step() was not interrupted")
    except KeyboardInterrupt:
        flag.touch()
    assert torch.equal(net.weight, before)
else:
    while not flag.exists():
        time.sleep(0.02)
    backward()
optimizer.step()
assert torch.allclose(net.weight, before - 0.1 * 1.5), (net.weight, before)
"""
    )
    assert_all_succeed(launch(2, body))


def test_ctrl_c_between_the_hooks_and_step_loses_nothing():
    """Rank 0 is interrupted after the hook of the last layer, or after all; its next step() sends what
    backward did not compute as zeros, and awaits what was started.
    """
    body = (
        START
        + """
import signal
first, last = torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 1, bias=False)
net = torch.nn.Sequential(first, last)
with torch.no_grad():
    first.weight.copy_(torch.eye(2))
    last.weight.fill_(1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.0), net.named_parameters())
def backward(interrupts=False):
    optimizer.zero_grad()
    hidden = first(torch.ones(1, 2))
    if interrupts:
        hidden.register_hook(lambda _: signal.raise_signal(signal.SIGINT))
    last(hidden).sum().backward()
def step():
    optimizer.step()
    return first.weight.grad.flatten().tolist(), last.weight.grad.flatten().tolist()
ones = [1.0] * 4, [1.0] * 2
for _ in range(30):  # as long as a plan needs to be learned
    backward()
    assert step() == ones
for within_backward in (True, False, True, False):
    try:
        backward(interrupts=within_backward and hvd.rank() == 0)
        if hvd.rank() == 0:
            signal.raise_signal(signal.SIGINT)
            raise SystemExit("it was not interrupted")
    except KeyboardInterrupt:
        assert (first.weight.grad is None) == within_backward
    assert step() == (([0.5] * 4, [1.0] * 2) if within_backward else ones)
    backward()
    assert step() == ones
"""
    )
    assert_all_succeed(launch(2, body))
