"""The products of two that write the product of all factors.

Pure arithmetic on sizes, without any device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

RESULT_BYTES = 256  # results between begin at multiples, as memory of CuPy does


def balanced_split(sizes: Sequence[int]) -> int:
    """Return where to split factors of these sizes so that both parts' products are small."""
    return min(
        range(1, len(sizes)),
        key=lambda split: math.prod(sizes[:split]) + math.prod(sizes[split:]),
    )


@dataclass(frozen=True, slots=True)
class ExplicitStep:
    """A product of two matrices: factors, or results of earlier steps.

    ``left`` and ``right`` count the factors, then the results. The result (rows, columns) begins
    ``offset`` bytes after the workspace does, but for that of the last step.
    """

    left: int
    right: int
    rows: int
    columns: int
    offset: int


def explicit_steps(
    shapes: Sequence[tuple[int, int]], itemsize: int
) -> tuple[tuple[ExplicitStep, ...], int]:
    """Return the products of two that write that of all factors, and bytes of workspace.

    All but the last one are small: factors are split where both parts are.
    """
    steps: list[ExplicitStep] = []
    end = 0

    def product(first: int, last: int) -> tuple[int, tuple[int, int]]:
        """Append the steps for some factors; return the result's number and shape."""
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
