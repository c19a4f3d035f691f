"""Diagonal products."""

import numpy as np

from batchkron.backends.cuda.diagonal.kernel import diagonal_arguments
from fake_cupy.memory import at


def multiply_diagonal(kernel, address):
    """What the kernel of diagonal products does."""
    given = at(address, (), diagonal_arguments(kernel.dtype))
    count, inner = int(given["count"]), int(given["inner"])
    x, y = (at(given[name], (count,), kernel.dtype) for name in "xy")
    d = at(given["d"], (int(given["period"]),), kernel.dtype)
    result = given["alpha"] * d[np.arange(count) // inner % len(d)] * x
    y[...] = y + result if given["accumulate"] else result
