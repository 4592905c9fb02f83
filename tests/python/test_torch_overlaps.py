"""Which tensors share memory, against the elements that they have in common."""

import random

import torch

from rueda.torch.overlaps import Use, check_apart, share_memory


def elements(tensor):
    """The bytes of a view of a base whose elements are their own places."""
    return {int(at) * 4 + byte for at in tensor.reshape(-1).tolist() for byte in range(4)}


def random_view(random, base):
    shape = [random.randint(1, 4) for _ in range(random.randint(1, 3))]
    strides = [random.randint(0, 12) for _ in shape]
    last = sum((size - 1) * stride for size, stride in zip(shape, strides))
    return base.as_strided(shape, strides, random.randint(0, base.numel() - 1 - last))


def test_shared_elements_are_never_missed():
    base, found = torch.arange(200, dtype=torch.float32), random.Random(1)
    missed = needless = 0
    for _ in range(20_000):
        one, other = random_view(found, base), random_view(found, base)
        is_shared = bool(elements(one) & elements(other))
        missed += is_shared and not share_memory(one, other)
        needless += share_memory(one, other) and not is_shared
    assert missed == 0
    assert needless < 20_000 * 0.25  # of views that hardly anybody makes


def test_usual_views_that_lie_between_one_another_are_apart():
    field = torch.zeros(6, 8, 10)
    apart = [
        (field.reshape(-1)[::2], field.reshape(-1)[1::2]),
        (field[:, :, 0], field[:, :, 9]),
        (field[:, 0], field[:, 7]),
        (field[:, :, :4], field[:, :, 4:]),
        (field[:, 1:3, 2:4], field[:, 3:5, 2:4]),
        (field[2], field[3]),
        (field[:, :, 0], torch.zeros(6, 8)),
        (field[:, :0], field),
    ]
    for one, other in apart:
        assert not share_memory(one, other) and not share_memory(other, one)
    together = [(field[:, :, 0], field[3]), (field[:, 2], field[:, :, 5])]
    for one, other in together:
        assert share_memory(one, other) and share_memory(other, one)
    assert share_memory(torch.zeros(1).expand(5), field) is False
    assert share_memory(field[0, 0, :1].expand(5), field)


def test_reading_side_by_side_is_no_conflict():
    t = torch.zeros(10)
    reads, writes = Use([t]), Use([], [t])
    assert not reads.conflicts_with(reads)
    assert reads.conflicts_with(writes) and writes.conflicts_with(reads) and writes.conflicts_with(writes)
    check_apart("word", [Use([t], [t]), Use([t], [t])])  # the engine sees both
    check_apart("word", [Use([t], [], True), Use([t], [], True)])
