"""Arithmetic of small matrices that gives the same bits on every machine.

A product or a sum by a library depends on the processor, on the number of threads and on the device, so ranks
that compute it from equal inputs may get different bits. Here every rounding is that of one elementwise
operation on two numbers, which IEEE 754 defines, and sums have one order. A product and a sum are always two
operations, so no compiler makes a fused one of them.
"""

from __future__ import annotations

import torch

# A column that loses all but this part of its squared length to those before it is a combination of them.
DEPENDENT = 1e-24


def sum_of_rows(rows: torch.Tensor) -> torch.Tensor:
    """[rows, columns] -> [columns]: adds the second half to the first until one row is left."""
    count = rows.shape[0]
    width = 1 << max(0, count - 1).bit_length()
    total = rows.new_zeros((width, rows.shape[1]))
    total[:count] = rows
    while width > 1:
        width //= 2
        total = total[:width] + total[width:]
    return total[0]


def orthonormal(columns: torch.Tensor) -> torch.Tensor:
    """[rows, rank]: an orthonormal basis of what the columns span, in float64, by modified Gram-Schmidt.

    A column that depends on those before it becomes zero. What is not finite stays so.
    """
    rest = columns.to(torch.float64, copy=True)
    limits = sum_of_rows(rest * rest) * DEPENDENT
    for index in range(rest.shape[1]):
        column = rest[:, index]
        length = sum_of_rows((column * column)[:, None])[0]
        factor = torch.where(length > limits[index], 1.0 / torch.sqrt(length), torch.zeros_like(length))
        column = column * factor
        rest[:, index] = column
        if index + 1 < rest.shape[1]:
            others = rest[:, index + 1 :]
            shares = sum_of_rows(column[:, None] * others)
            rest[:, index + 1 :] = others - column[:, None] * shares
    return rest


def product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """[rows, rank] and [columns, rank] -> [rows, columns]: left times the transpose of right."""
    total = left[:, :1] * right[:, 0]
    part = torch.empty_like(total)
    for index in range(1, left.shape[1]):
        torch.mul(left[:, index : index + 1], right[:, index], out=part)
        total += part
    return total
