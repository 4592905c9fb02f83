"""PowerSGD and top-k: their arithmetic against one process, equal bits, their state, and what they reach."""

import random

import numpy
import pytest
import torch
from compressing import (
    SHAPES,
    ModelOfTopK,
    backward,
    equal_everywhere,
    gradients_of,
    kept,
    optimizer_of,
    parameters,
    reduce,
    step_of_powersgd,
)
from harness import on_every_rank
from worlds import in_two_worlds

import rueda.torch as hvd

pytestmark = [in_two_worlds, pytest.mark.thorough("2-ranks")]

COMPRESSORS = {
    "powersgd": lambda **options: hvd.PowerSGD(rank=2, **{"min_elements": 0, **options}),
    "topk": lambda **options: hvd.TopK(ratio=0.1, **{"min_elements": 0, **options}),
}


def programs(seed, steps):
    """Gradients of every rank in every step: some unused on some ranks, some not finite."""
    choices = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        of_ranks = []
        for _ in range(hvd.size()):
            names = [name for name in SHAPES if choices.random() < 0.9]
            of_ranks.append(gradients_of(generator, names, 10.0 ** choices.randint(-3, 2)))
        if choices.random() < 0.1:
            broken = of_ranks[choices.randrange(len(of_ranks))]
            for gradient in list(broken.values())[:2]:
                gradient.view(-1)[choices.randrange(gradient.numel())] = choices.choice(
                    [float("inf"), float("-inf"), float("nan")]
                )
        yield of_ranks


def of_all_ranks(step, name):
    return [one.get(name, torch.zeros(SHAPES[name])) for one in step]


@on_every_rank
def test_steps_of_topk_have_the_bits_of_a_single_process():
    for op, divisor in ((hvd.Average, hvd.size()), (hvd.Sum, 1)):
        for seed in range(3):
            made = parameters()
            optimizer = optimizer_of(made, COMPRESSORS["topk"](), op=op)
            model = ModelOfTopK(0.1, hvd.size(), divisor)
            for number, step in enumerate(programs(seed, 60)):
                reduced = reduce(made, optimizer, step[hvd.rank()])
                for name in ("matrix", "kernel", "square"):
                    expected = model.reduce(name, of_all_ranks(step, name))
                    same = torch.equal(reduced[name].nan_to_num(7.0), expected.nan_to_num(7.0))
                    assert same, f"seed {seed}, step {number}, {name}"
                    if name in model.residuals:
                        mine = torch.from_numpy(model.residuals[name][hvd.rank()])
                        assert torch.equal(kept(optimizer, name, "residual").view(-1), mine)


def inputs_of_powersgd(optimizer, name, step):
    """The matrices of all ranks with their residuals, and Q, as they are before this step."""
    shape = SHAPES[name]
    residual, q = kept(optimizer, name, "residual"), kept(optimizer, name, "q")
    if q is None:
        return None
    residuals = hvd.allgather(residual.reshape(1, -1).contiguous())
    matrices = [
        (gradient.reshape(1, -1) + one).double().numpy().reshape(shape[0], -1)
        for gradient, one in zip(of_all_ranks(step, name), residuals)
    ]
    return matrices, q.double().numpy()


@on_every_rank
def test_each_step_of_powersgd_equals_one_in_a_single_process():
    for seed in range(2):
        made = parameters()
        optimizer = optimizer_of(made, COMPRESSORS["powersgd"]())
        compared = 0
        for number, step in enumerate(programs(seed, 100)):
            before = {name: inputs_of_powersgd(optimizer, name, step) for name in ("matrix", "kernel")}
            reduced = reduce(made, optimizer, step[hvd.rank()])
            for name, inputs in before.items():
                where = f"seed {seed}, step {number}, {name}"
                assert equal_everywhere(reduced[name]), where
                if inputs is None:
                    continue
                matrices, q = inputs
                mine = kept(optimizer, name, "residual").numpy().reshape(matrices[0].shape)
                if not all(numpy.isfinite(matrix).all() for matrix in matrices):
                    assert not torch.isfinite(reduced[name]).all(), where
                    assert numpy.isfinite(mine).all(), where
                    assert numpy.array_equal(q, kept(optimizer, name, "q").double().numpy()), where
                    continue
                result, unsent, _ = step_of_powersgd(matrices, q)
                tolerance = 1e-4 * max(numpy.abs(matrix).max() for matrix in matrices)
                got = reduced[name].numpy().reshape(result.shape)
                assert numpy.allclose(got, result, rtol=0, atol=tolerance), where
                assert numpy.allclose(mine, unsent[hvd.rank()], rtol=0, atol=tolerance), where
                compared += 1
        assert compared > 100


@on_every_rank
def test_what_was_sent_and_the_residuals_are_all_that_was_computed():
    for make in COMPRESSORS.values():
        made = parameters()
        optimizer = optimizer_of(made, make())
        sent = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in SHAPES.items()}
        computed = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in SHAPES.items()}
        generator = torch.Generator().manual_seed(5)
        for _ in range(100):
            step = [gradients_of(generator, SHAPES) for _ in range(hvd.size())]
            reduced = reduce(made, optimizer, step[hvd.rank()])
            for name in SHAPES:
                assert equal_everywhere(reduced[name])
                sent[name] += reduced[name]
                computed[name] += sum(of_all_ranks(step, name)) / hvd.size()
        for name in SHAPES:
            residual = kept(optimizer, name, "residual")
            left = 0 if residual is None else hvd.allreduce(residual.double().contiguous())
            assert torch.allclose(sent[name] + left, computed[name], atol=1e-3), name


@on_every_rank
def test_state_is_saved_with_the_optimizer_and_continues_to_the_bit():
    for make in COMPRESSORS.values():
        steps = list(programs(3, 30))
        made, other = parameters(), parameters()
        optimizer = optimizer_of(made, make(start_after=2))
        for step in steps[:15]:
            reduce(made, optimizer, step[hvd.rank()])
        saved = optimizer.state_dict()
        continued = optimizer_of(other, make(start_after=2))
        continued.load_state_dict(saved)
        for step in steps[15:]:
            one = reduce(made, optimizer, step[hvd.rank()])
            two = reduce(other, continued, step[hvd.rank()])
            assert all(torch.equal(one[name].nan_to_num(7.0), two[name].nan_to_num(7.0)) for name in SHAPES)
        del saved["compression"]
        continued.load_state_dict(saved)
        assert kept(continued, "matrix", "residual") is None
        torch.optim.SGD(other.values(), lr=1.0).load_state_dict(optimizer.state_dict())


@on_every_rank
def test_a_checkpoint_of_rank_0_continues_on_all_ranks():
    for make in COMPRESSORS.values():
        made = parameters()
        optimizer = optimizer_of(made, make(start_after=3))
        for step in list(programs(4, 10)):
            reduce(made, optimizer, step[hvd.rank()])
        saved = hvd.broadcast_object(optimizer.state_dict(), 0)
        other = parameters()
        continued = optimizer_of(other, make(start_after=3))
        if hvd.rank() == 0:
            continued.load_state_dict(saved)
        hvd.broadcast_optimizer_state(continued, 0)
        assert kept(continued, "matrix", "steps") == 10  # not 0: exact sums would have other names
        assert (kept(continued, "matrix", "residual") is not None) == (hvd.rank() == 0)
        reduced = reduce(other, continued, gradients_of(torch.Generator().manual_seed(hvd.rank()), SHAPES))
        assert all(equal_everywhere(one) for one in reduced.values())

        everywhere = optimizer_of(parameters(), make(start_after=3))
        everywhere.load_state_dict(saved)
        assert (kept(everywhere, "matrix", "residual") is not None) == (hvd.rank() == 0)


@on_every_rank
def test_a_checkpoint_of_another_compressor_or_model_is_refused_and_changes_nothing():
    made = parameters()
    optimizer = optimizer_of(made, hvd.PowerSGD(rank=2, min_elements=0))
    for step in programs(6, 3):
        reduce(made, optimizer, step[hvd.rank()])
    saved = optimizer.state_dict()
    for other, word in ((hvd.TopK(ratio=0.1), "TopK"), (hvd.PowerSGD(rank=3), "PowerSGD(rank=3)")):
        with pytest.raises(ValueError, match="delete the key 'compression'") as caught:
            optimizer_of(parameters(), other).load_state_dict(saved)
        assert "PowerSGD(rank=2)" in str(caught.value) and word in str(caught.value)
    larger = parameters({**SHAPES, "matrix": (12, 11)})
    fresh = optimizer_of(larger, hvd.PowerSGD(rank=2))
    with pytest.raises(ValueError, match=r"shape \[12, 10\] for parameter matrix.* \[12, 11\] now"):
        fresh.load_state_dict(saved)
    assert fresh.state_dict()["compression"]["tensors"] == {}
    with pytest.raises(ValueError, match=r"PowerSGD\(rank=2\), but this optimizer uses none; use"):
        optimizer_of(parameters(), hvd.Compression.none).load_state_dict(saved)
    for damaged in (5, {**saved["compression"], "tensors": None}):
        state = {**saved, "compression": damaged}
        with pytest.raises(ValueError, match=r"key 'compression' holds .*; load the checkpoint as it was"):
            optimizer_of(parameters(), hvd.PowerSGD(rank=2)).load_state_dict(state)


def steps_to_learn(compression, steps):
    """The error after so many steps of a regression in which features matter differently on each rank."""
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.zeros(20, 30))
    sgd = torch.optim.SGD([weight], lr=0.05)
    optimizer = hvd.DistributedOptimizer(sgd, [("weight", weight)], compression=compression)
    target = torch.randn(20, 30)
    spread = torch.logspace(0, -1.5, 30)
    draws = torch.Generator().manual_seed(1 + hvd.rank())
    for _ in range(steps):
        optimizer.zero_grad()
        x = torch.randn(16, 30, generator=draws) * spread.roll(hvd.rank())
        ((x @ (weight - target).t()) ** 2).mean(dim=0).sum().backward()
        optimizer.step()
    assert equal_everywhere(weight)
    return float((weight - target).square().mean())


@on_every_rank
def test_feedback_reaches_what_top_k_alone_does_not():
    plain = steps_to_learn(hvd.Compression.none, 400)
    options = {"min_elements": 0}
    fed = steps_to_learn(hvd.TopK(ratio=0.02, **options), 400)
    starved = steps_to_learn(hvd.TopK(ratio=0.02, error_feedback=False, **options), 400)
    low_rank = steps_to_learn(hvd.PowerSGD(rank=2, **options), 400)
    assert fed < plain + 0.1 and low_rank < plain + 0.1, f"{plain} {fed} {low_rank}"
    assert starved > fed + 0.1, f"{starved} {fed}"


@on_every_rank
def test_passes_are_summed_before_they_are_compressed():
    for make in COMPRESSORS.values():
        made, other = parameters(), parameters()
        twice = optimizer_of(made, make(), backward_passes_per_step=2)
        once = optimizer_of(other, make())
        generator = torch.Generator().manual_seed(8 + hvd.rank())
        for _ in range(5):
            first, second = gradients_of(generator, SHAPES), gradients_of(generator, SHAPES)
            twice.zero_grad()
            backward(made, first)
            two = reduce_rest(made, twice, second)
            one = reduce(other, once, {name: first[name] + second[name] for name in SHAPES})
            assert all(torch.equal(one[name], two[name]) for name in SHAPES)


def reduce_rest(made, optimizer, gradients):
    backward(made, gradients)
    optimizer.step()
    return {name: one.grad.clone() for name, one in made.items()}


@on_every_rank
def test_ranks_that_draw_other_numbers_first_have_equal_bits():
    """As processors do on which torch.randn rounds otherwise."""
    made = parameters()
    compression = COMPRESSORS["powersgd"]()
    optimizer = optimizer_of(made, compression)
    draws = torch.Generator().manual_seed(hvd.rank())
    compression._first = {"matrix": torch.randn(10, 2, generator=draws)}
    for _ in range(5):
        reduced = reduce(made, optimizer, gradients_of(draws, ["matrix"]))
        assert equal_everywhere(reduced["matrix"])
