"""Sums of vectors with numbers of a table, as the steps of time steppers take them."""

import numpy as np

from batchkron.backends.cuda.step_sums.kernel import step_sum_arguments
from fake_cupy.memory import at


def sum_of_step(kernel, address):
    """What the kernel of csrc/cuda/step_sum.cuh does."""
    vectors = kernel.numbers[1]
    given = at(address, (), step_sum_arguments(vectors))
    count, width, first, columns = (
        int(given[name]) for name in ("count", "width", "first", "columns")
    )
    step = at(given["step"], (), np.int64)
    row = at(given["rows"] + 8 * (int(step) * width + first), (vectors,), np.float64)
    x = [at(place, (count,), kernel.dtype) for place in given["x"]]
    assert not int(at(given["ended"], (), np.uint32))
    total = sum(number * vector for number, vector in zip(row.astype(kernel.dtype), x, strict=True))
    if given["y"]:
        at(given["y"], (count,), kernel.dtype)[...] = total
    if given["result"] >= 0:
        place = given["results"] + 8 * (int(step) * columns + int(given["result"]))
        at(place, (), np.float64)[...] = np.sum(total.astype(np.float64) ** 2)
    if given["ends"]:
        step[...] += 1
