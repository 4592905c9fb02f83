"""Arithmetic with a fixed order: right, and the same bits however the work is laid out."""

import pytest
import torch

from rueda.torch.fixed_order import orthonormal, product, sum_of_rows


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)


def sum_by_hand(numbers):
    """The sum in the order that is promised, one addition of two Python floats at a time."""
    width = 1
    while width < len(numbers):
        width *= 2
    numbers = numbers + [0.0] * (width - len(numbers))
    while width > 1:
        width //= 2
        numbers = [numbers[i] + numbers[width + i] for i in range(width)]
    return numbers[0]


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 64, 1000])
def test_sums_have_one_order(rows):
    numbers = drawn(rows, 3).double() / 3  # so that sums must be rounded
    expected = [sum_by_hand(column.tolist()) for column in numbers.t()]
    assert sum_of_rows(numbers).tolist() == expected
    assert sum_of_rows(numbers.t().contiguous().t()).tolist() == expected


@pytest.mark.parametrize("rank", [1, 2, 4, 9])
def test_a_basis_is_orthonormal_and_spans_the_columns(rank):
    columns = drawn(50, rank, seed=rank)
    basis = orthonormal(columns)
    assert torch.allclose(basis.t() @ basis, torch.eye(rank, dtype=torch.float64), atol=1e-12)
    assert torch.allclose(basis @ (basis.t() @ columns.double()), columns.double(), atol=1e-6)


def test_a_basis_has_the_same_bits_with_any_number_of_threads_and_any_layout():
    columns = drawn(70000, 4)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(orthonormal(columns))
            results.append(orthonormal(columns.t().contiguous().t()))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(results[0], other) for other in results[1:])


def test_dependent_columns_become_zero_and_tiny_ones_do_not():
    one, two = drawn(20, 1), drawn(20, 1, seed=1)
    basis = orthonormal(torch.cat([one, torch.zeros(20, 1), 2 * one, two * 1e-30], dim=1))
    assert (basis[:, 1] == 0).all() and (basis[:, 2] == 0).all()
    assert torch.allclose(basis.square().sum(dim=0)[[0, 3]], torch.ones(2, dtype=torch.float64))


def test_what_is_not_finite_stays_so():
    for value in (float("inf"), float("nan")):
        columns = drawn(20, 3)
        columns[4, 1] = value
        p = orthonormal(columns)
        assert not torch.isfinite(product(p, p)).all()


def test_a_product_is_the_sum_of_its_ranks_in_order():
    left, right = drawn(200, 9), drawn(300, 9, seed=1)
    expected = left[:, :1] * right[:, 0]
    for index in range(1, 9):
        expected = expected + left[:, index : index + 1] * right[:, index]
    assert torch.equal(product(left, right), expected)
    assert torch.allclose(product(left, right), left @ right.t(), atol=1e-5)
