"""Gram matrices of one mode."""

import numpy as np

from batchkron.backends.cuda.gram.kernel import gram_arguments, total_arguments
from fake_cupy.memory import at


def multiply_gram(kernel, address):
    """What the kernel of Gram matrices does; the first block does all work."""
    given = at(address, (), gram_arguments())
    outer, rows, columns, inner = (
        int(given[name]) for name in ("outer", "rows", "columns", "inner")
    )
    x = at(given["x"], (outer, rows, inner), kernel.dtype)
    y = at(given["y"], (outer, columns, inner), kernel.dtype)
    sums = at(given["sums"], (int(given["blocks"]), rows, columns), kernel.dtype)
    sums[...] = 0
    sums[0] = np.einsum("lpr,lqr->pq", x.conj(), y)


def add_parts(kernel, address):
    """What the kernel that adds the parts of blocks does."""
    given = at(address, (), total_arguments())
    shape = int(given["blocks"]), int(given["count"])
    at(given["sums"], shape[1:], kernel.dtype)[...] = at(given["parts"], shape, kernel.dtype).sum(0)
