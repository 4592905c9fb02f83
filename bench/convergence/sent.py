"""Bytes that a rank sends in a step of the convergence check, by method: counted, not measured.

    python bench/convergence/sent.py --task fashion --ranks 4

Each rank is a host. A sum sends 2 (n-1)/n times its bytes, an allgather n-1 times what a rank gives.
"""

from __future__ import annotations

import argparse
import math
from typing import Dict, List

from tasks import Transformer, fashion_mnist

from rueda.compression_choices import elements_sent, why_not_largest, why_not_low_rank

MIN_ENCODED, BLOCK = 1024, 256  # smaller tensors travel exactly; docs/wire_types.md
MIN_COMPRESSED = 4096
Shapes = List[List[int]]


def encoded(shapes: Shapes, block_bytes: int) -> float:
    sizes = [math.prod(shape) for shape in shapes]
    return sum(4 * n if n < MIN_ENCODED else block_bytes * math.ceil(n / BLOCK) for n in sizes)


def low_rank(shapes: Shapes, rank: int) -> float:
    def one(shape: List[int]) -> int:
        elements = math.prod(shape)
        if elements < MIN_COMPRESSED or why_not_low_rank(rank, shape):
            return elements
        return rank * (shape[0] + elements // shape[0])

    return 4 * sum(map(one, shapes))


def largest(shapes: Shapes, ratio: float, ranks: int) -> float:
    """As bytes of a sum that would send as much."""
    to_sum = ranks / 2  # (n-1) times k pairs of 8 bytes, over 2 (n-1)/n
    total = 0.0
    for shape in shapes:
        elements = math.prod(shape)
        if elements < MIN_COMPRESSED or why_not_largest(ratio, shape, ranks):
            total += 4 * elements
        else:
            total += 8 * elements_sent(ratio, elements) * to_sum
    return total


def sums(shapes: Shapes, ranks: int) -> Dict[str, float]:
    """Bytes of the sums of a step, by method."""
    exact = 4.0 * sum(map(math.prod, shapes))
    return {
        "plain": exact,
        "bf16, fp16": encoded(shapes, 512),
        "int8": encoded(shapes, 260),
        "powersgd, rank 4": low_rank(shapes, 4),
        "topk, 1 %": largest(shapes, 0.01, ranks),
        "topk, 0.1 %": largest(shapes, 0.001, ranks),
        "diloco, every 50": exact / 50,
        "post-local, every 50 in the second half": exact * (0.5 + 0.5 / 50),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="bytes that a rank sends in a step, by method")
    parser.add_argument("--task", choices=["fashion", "text"], default="fashion")
    parser.add_argument("--ranks", type=int, default=4)
    args = parser.parse_args()
    model = fashion_mnist.make_model() if args.task == "fashion" else Transformer()
    shapes = [list(parameter.shape) for parameter in model.parameters()]
    by_method = sums(shapes, args.ranks)
    print("| method | KB a step | of plain, % |\n|---|---|---|")
    for method, size in by_method.items():
        sent = 2 * (args.ranks - 1) / args.ranks * size
        print(f"| {method} | {sent / 1000:.1f} | {100 * size / by_method['plain']:.1f} |")


if __name__ == "__main__":
    main()
