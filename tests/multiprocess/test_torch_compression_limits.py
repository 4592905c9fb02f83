"""PowerSGD and top-k beside all else that an optimizer does, and what they refuse."""

import warnings

import pytest
import torch
from compressing import (
    SHAPES,
    backward,
    equal_everywhere,
    gradients_of,
    kept,
    optimizer_of,
    parameters,
    reduce,
)
from harness import on_every_rank
from worlds import in_two_worlds

import rueda.torch as hvd
from rueda.compression import Exchange, StatefulCompressor

pytestmark = in_two_worlds


def powersgd(**options):
    return hvd.PowerSGD(rank=2, **{"min_elements": 0, **options})


def topk(**options):
    return hvd.TopK(ratio=0.1, **{"min_elements": 0, **options})


def gradients(seed, names=SHAPES, scale=1.0):
    return gradients_of(torch.Generator().manual_seed(seed), names, scale)


def refused(kind, text, function, *arguments, **options):
    with pytest.raises(kind) as caught:
        function(*arguments, **options)
    assert text in str(caught.value), str(caught.value)


@on_every_rank
def test_arguments_that_do_not_fit_are_refused_in_a_sentence():
    refused(ValueError, "ratio is 0, but it must be greater than 0", hvd.TopK, ratio=0)
    refused(ValueError, "ratio is 1.5, but it must be greater than 0 and at most 1", hvd.TopK, ratio=1.5)
    refused(TypeError, "ratio must be a number", hvd.TopK, ratio="1%")
    refused(ValueError, "rank is 0, but it must be a whole number of at least 1", hvd.PowerSGD, rank=0)
    refused(ValueError, "rank is 2.5", hvd.PowerSGD, rank=2.5)
    refused(ValueError, "start_after is -1", hvd.PowerSGD, start_after=-1)
    refused(TypeError, "grad_scaler must be a torch.amp.GradScaler, not int", hvd.TopK, grad_scaler=3)
    made = parameters()
    for op, name in ((hvd.Min, "Min"), (hvd.Max, "Max"), (hvd.Product, "Product"), (hvd.Adasum, "Adasum")):
        text = f"compression=PowerSGD(rank=2): op is '{name}', but it must be one of Average, Sum."
        refused(ValueError, text, optimizer_of, made, powersgd(), op=op)
    refused(TypeError, "not the class; write TopK(...)", optimizer_of, made, hvd.TopK)
    net = torch.nn.Linear(2, 2)
    crossing = {"cross_step": True, "model": net}
    named = dict(net.named_parameters())
    refused(ValueError, "use it with cross_step=False", optimizer_of, named, topk(), **crossing)
    text = "only the DistributedOptimizer of PyTorch, JAX and Keras has a place"
    refused(ValueError, text, hvd.allreduce, torch.ones(3), compression=topk())
    sgd = torch.optim.SGD(net.parameters(), lr=1.0)
    refused(ValueError, text, hvd.ShardedOptimizer, sgd, net.named_parameters(), compression=powersgd())
    shared = powersgd()
    first = optimizer_of(made, shared)
    refused(ValueError, "belongs to another optimizer", optimizer_of, parameters(), shared)
    del first
    whole = powersgd().reduce("steps", torch.ones(4, 4, dtype=torch.int64), None)
    refused(ValueError, "steps is of type torch.int64, but only floating-point", next, whole)


@on_every_rank
def test_what_does_not_pay_travels_as_it_is_and_is_said_once():
    for make, word in ((lambda: hvd.PowerSGD(rank=9, min_elements=30), "choose a smaller rank"),):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            made = parameters()
            optimizer = optimizer_of(made, make())
            for seed in range(3):
                reduced = reduce(made, optimizer, gradients(seed))  # equal on all ranks
        for name, one in gradients(2).items():
            assert torch.allclose(reduced[name], one, atol=1e-6), name
        texts = [str(one.message) for one in seen if "PowerSGD" in str(one.message)]
        assert len(texts) == (1 if hvd.rank() == 0 else 0)
        assert all(word in text and "travels as it is" in text for text in texts)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        made = parameters()
        optimizer = optimizer_of(made, hvd.TopK(ratio=0.5, min_elements=100))
        reduced = reduce(made, optimizer, gradients(1))
    assert all(torch.allclose(reduced[name], one, atol=1e-6) for name, one in gradients(1).items())
    assert sum("would gather" in str(one.message) for one in seen) == (1 if hvd.rank() == 0 else 0)


@on_every_rank
def test_a_scaler_sees_what_is_not_finite_and_the_residual_does_not():
    for make in (powersgd, topk):
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)
        made = parameters()
        optimizer = optimizer_of(made, make(grad_scaler=scaler))
        for step in range(12):
            optimizer.zero_grad()
            mine = gradients(100 * hvd.rank() + step)
            if step % 4 == 3 and hvd.rank() == hvd.size() - 1:
                mine["matrix"][1, 2] = float("inf")
            before = {name: one.detach().clone() for name, one in made.items()}
            scale, residual = scaler.get_scale(), kept(optimizer, "square", "residual")
            loss = sum((made[name] * gradient).sum() for name, gradient in mine.items())
            scaler.scale(loss).backward()
            optimizer.synchronize()
            scaler.unscale_(optimizer)
            with optimizer.skip_synchronize():
                scaler.step(optimizer)
            scaler.update()
            is_skipped = all(torch.equal(before[name], one) for name, one in made.items())
            assert is_skipped == (step % 4 == 3), step
            assert (scaler.get_scale() < scale) == is_skipped
            for name in made:
                left = kept(optimizer, name, "residual")
                assert left is None or torch.isfinite(left).all()
            if residual is not None:
                assert not torch.equal(kept(optimizer, "square", "residual"), residual)
        assert all(equal_everywhere(one) for one in made.values())


class Scale:
    def __init__(self):
        self.value = 1.0

    def get_scale(self):
        return self.value


@on_every_rank
def test_the_residual_follows_the_scale_of_the_loss():
    for make in (powersgd, topk):
        steady, changing = parameters(), parameters()
        scale = Scale()
        one = optimizer_of(steady, make())
        two = optimizer_of(changing, make(grad_scaler=scale))
        for step in range(20):
            scale.value = 2.0 ** (step % 5)
            mine = gradients(7 * hvd.rank() + step)
            plain = reduce(steady, one, mine)
            scaled = reduce(changing, two, {name: scale.value * g for name, g in mine.items()})
            for name in SHAPES:
                unscaled = scaled[name] / scale.value
                assert torch.allclose(unscaled, plain[name], atol=1e-4), f"{step} {name}"


@on_every_rank
def test_16_bit_gradients_keep_a_residual_of_32_bits():
    for make in (powersgd, topk):
        weight = torch.nn.Parameter(torch.zeros(12, 10, dtype=torch.float16))
        optimizer = optimizer_of({"weight": weight}, make())
        for step in range(5):
            gradient = gradients(step + 50 * hvd.rank(), ["matrix"])["matrix"].half()
            reduced = reduce({"weight": weight}, optimizer, {"weight": gradient})["weight"]
            assert reduced.dtype == torch.float16 and equal_everywhere(reduced)
        assert kept(optimizer, "weight", "residual").dtype == torch.float32
        another = torch.nn.Parameter(torch.zeros(12, 10, dtype=torch.float16))
        summing = optimizer_of({"another": another}, make(), op=hvd.Sum)
        huge = torch.full((12, 10), 60000.0, dtype=torch.float16)
        reduced = reduce({"another": another}, summing, {"another": huge})["another"]
        assert not torch.isfinite(reduced).all()
        assert (kept(summing, "another", "residual") == 0).all()


@on_every_rank
def test_groups_layouts_and_predivision_change_no_bit_of_top_k():
    results = []
    for options in ({}, {"groups": 2}, {"gradient_predivide_factor": 2.0}):
        made = parameters()
        optimizer = optimizer_of(made, topk(), **options)
        for step in range(4):
            reduced = reduce(made, optimizer, gradients(step + 30 * hvd.rank()))
        results.append(reduced)
    for other in results[1:]:
        assert all(torch.equal(results[0][name], other[name]) for name in SHAPES if name != "vector")
    made = {name: torch.nn.Parameter(torch.zeros(shape)) for name, shape in SHAPES.items()}
    optimizer = optimizer_of(made, topk())  # row by row, not channels last
    for step in range(4):
        reduced = reduce(made, optimizer, gradients(step + 30 * hvd.rank()))
    assert all(torch.equal(results[0][name], reduced[name]) for name in SHAPES)
    assert results[0]["kernel"].is_contiguous(memory_format=torch.channels_last)


@on_every_rank
def test_sparse_gradients_and_layers_unfrozen_later_are_reduced():
    for make, is_dense in ((powersgd, False), (topk, True)):
        torch.manual_seed(0)
        table = torch.nn.Embedding(20, 6, sparse=True)
        head = torch.nn.Linear(6, 6)
        head.requires_grad_(False)
        both = torch.nn.ModuleDict({"table": table, "head": head})
        sgd = torch.optim.SGD(both.parameters(), lr=0.1)
        named = list(both.named_parameters())
        options = {"compression": make(), "sparse_as_dense": is_dense}
        optimizer = hvd.DistributedOptimizer(sgd, named, **options)
        for step in range(6):
            if step == 3:
                head.requires_grad_(True)
            optimizer.zero_grad()
            rows = torch.tensor([hvd.rank(), step, 19])
            head(table(rows)).square().sum().backward()
            optimizer.step()
        assert all(equal_everywhere(one) for _, one in named)
        assert (kept(optimizer, "head.weight", "residual") is not None) and head.weight.grad is not None


@on_every_rank
def test_ranks_that_used_other_parameters_do_not_wait_in_a_circle():
    """Reading param_groups before synchronize() awaits only what backward has started."""
    for make in (powersgd, topk):
        made = parameters()
        optimizer = optimizer_of(made, make())
        for step in range(2):
            optimizer.zero_grad()
            names = ["square", "kernel"] if hvd.rank() == 0 else ["kernel"]
            backward(made, gradients(step, names))
            if hvd.rank() != 0:
                assert optimizer.param_groups[0]["params"][1].grad is not None
            optimizer.synchronize()
            with optimizer.skip_synchronize():
                optimizer.step()
        assert all(equal_everywhere(one) for one in made.values())


@on_every_rank
def test_ranks_that_ask_for_other_ranks_of_p_and_q_are_told_so():
    made = parameters()
    optimizer = optimizer_of(made, hvd.PowerSGD(rank=2 + hvd.rank() % 2, min_elements=0))
    backward(made, gradients(1, ["matrix"]))
    with pytest.raises(hvd.HorovodInternalError) as caught:
        optimizer.synchronize()
    assert "ismatched" in str(caught.value) and "gradient matrix is compressed by" in str(caught.value)
    assert kept(optimizer, "matrix", "q") is None
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2


@on_every_rank
def test_ranks_that_ask_for_other_compressors_are_all_told_so_and_go_on_when_they_ask_alike():
    made = parameters()
    asked = [topk(), hvd.Compression.none, powersgd()][hvd.rank() % 3]
    optimizer = optimizer_of(made, asked)
    backward(made, gradients(1, ["matrix"]))
    with pytest.raises(hvd.HorovodInternalError) as caught:
        optimizer.synchronize()
    assert "ismatched" in str(caught.value)
    if hvd.rank() == 0:
        assert "gradient matrix is compressed by TopK" in str(caught.value)
    made = parameters()
    alike = optimizer_of(made, topk())
    for step in range(3):
        reduced = reduce(made, alike, gradients(step, ["matrix"]))["matrix"]
        assert equal_everywhere(reduced)
        assert torch.count_nonzero(reduced) == 12, "of 120 elements, which all ranks choose alike"
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2


@on_every_rank
def test_a_rank_that_changes_its_compressor_is_told_so_too():
    """What top-k gathers never ends then, as the other ranks do not start it."""
    made = parameters()
    optimizer = optimizer_of(made, topk())
    for step in range(2):
        reduce(made, optimizer, gradients(step, ["matrix"]))
    if hvd.rank() != 0:
        made = parameters()
        optimizer = optimizer_of(made, hvd.Compression.none)
    backward(made, gradients(2, ["matrix"]))
    with pytest.raises(hvd.HorovodInternalError, match="ismatched"):
        optimizer.synchronize()
    hvd.shutdown()  # ends what is gathered
    hvd.init()
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2


class Halves(StatefulCompressor):
    """A compressor of a user: every other call sends half of the tensor and keeps the rest."""

    def __init__(self):
        self.rest = {}

    def reduce(self, name, tensor, team):
        whole = tensor + self.rest.get(name, 0)
        [half] = yield Exchange([("half", whole / 2)])
        self.rest[name] = whole / 2
        return half

    def state_dict(self):
        return {"rest": self.rest}

    def load_state_dict(self, state):
        self.rest = dict(state.get("rest", {}))


@on_every_rank
def test_users_write_their_own():
    made = parameters()
    optimizer = optimizer_of(made, Halves())
    for expected in (0.5, 0.75):
        reduced = reduce(made, optimizer, {"matrix": torch.ones(12, 10)})
        assert (reduced["matrix"] == expected).all()
    other = optimizer_of(parameters(), Halves())
    other.load_state_dict(optimizer.state_dict())
    assert (other._compressor.rest["matrix"] == 0.75).all()


@on_every_rank
def test_process_sets_train_apart():
    """Each rank in a set of its own size; sets are added by all ranks."""
    evens = hvd.add_process_set(list(range(0, hvd.size(), 2)))
    try:
        if evens.included():
            for make in (powersgd, topk):
                made = parameters()
                optimizer = optimizer_of(made, make(), process_set=evens)
                for step in range(3):
                    reduced = reduce(made, optimizer, gradients(step + hvd.rank()))
                rows = hvd.allgather(reduced["matrix"].reshape(1, -1), process_set=evens)
                assert len(rows) == evens.size() and all(torch.equal(row, rows[0]) for row in rows)
    finally:
        hvd.remove_process_set(evens)
