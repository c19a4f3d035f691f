"""The order in which the product of all factors is made of products of two matrices.

Pure arithmetic on sizes, no device needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

RESULT_BYTES = 256  # alignment of intermediate results in bytes, the same as CuPy's of arrays


def balanced_split(sizes: Sequence[int]) -> int:
    """Return the index at which to split factors so that the products of both parts are small."""
    return min(
        range(1, len(sizes)), key=lambda split: math.prod(sizes[:split]) + math.prod(sizes[split:])
    )


@dataclass(frozen=True, slots=True)
class ExplicitStep:
    """A product of two matrices, each a factor or the result of an earlier step.

    ``left`` and ``right`` are indices into the list of factors followed by the steps' results. The
    result (rows, columns) begins ``offset`` bytes into the workspace; the last step writes to the
    output instead.
    """

    left: int
    right: int
    rows: int
    columns: int
    offset: int


def explicit_steps(
    shapes: Sequence[tuple[int, int]], itemsize: int
) -> tuple[tuple[ExplicitStep, ...], int]:
    """Return the products of two matrices that make the product of all, and bytes of workspace.

    Factors are split so that both parts are small; only the last product is as large as the result.
    """
    steps: list[ExplicitStep] = []
    end = 0

    def product(first: int, last: int) -> tuple[int, tuple[int, int]]:
        """Append the steps for factors first to last; return the result's index and shape."""
        nonlocal end
        if last - first == 1:
            return first, shapes[first]
        split = first + balanced_split([rows * columns for rows, columns in shapes[first:last]])
        left, (a_rows, a_columns) = product(first, split)
        right, (b_rows, b_columns) = product(split, last)
        rows, columns = a_rows * b_rows, a_columns * b_columns
        steps.append(ExplicitStep(left, right, rows, columns, end))
        if last - first < len(shapes):
            end += -(-rows * columns * itemsize // RESULT_BYTES) * RESULT_BYTES
        return len(shapes) + len(steps) - 1, (rows, columns)

    product(0, len(shapes))
    return tuple(steps), end
