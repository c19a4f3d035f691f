"""Gram matrices of one mode."""

import numpy as np

from batchkron.backends.cuda.gram.registers import small_arguments
from batchkron.backends.cuda.gram.tiles import gram_arguments
from batchkron.backends.cuda.gram.total import total_arguments
from fake_cupy.memory import at


def multiply_gram(kernel, address):
    """What the kernel by tiles does."""
    given = at(address, (), gram_arguments())
    shape = tuple(int(given[name]) for name in ("outer", "rows", "columns", "inner"))
    _sum_up(given, shape, int(given["blocks"]), kernel.dtype)


def multiply_small(kernel, address):
    """What the kernel of small modes does; its program knows rows and columns alone."""
    given = at(address, (), small_arguments())
    _, rows, columns, _ = kernel.shape
    outer, rest = divmod(int(given["pairs"]), int(given["inner"]))
    assert rest == 0
    threads = int(given["l_step"]) * int(given["inner"]) + int(given["r_step"])  # of all blocks
    shape = outer, rows, columns, int(given["inner"])
    _sum_up(given, shape, threads // kernel.threads, kernel.dtype)


def _sum_up(given, shape, blocks, dtype):
    """Write the sums; the first block does all work."""
    outer, rows, columns, inner = shape
    x = at(given["x"], (outer, rows, inner), dtype)
    y = at(given["y"], (outer, columns, inner), dtype)
    sums = at(given["sums"], (blocks, rows, columns), dtype)
    sums[...] = 0
    sums[0] = np.einsum("lpr,lqr->pq", x.conj(), y)


def add_parts(kernel, address):
    """What the kernel that adds the parts of blocks does."""
    given = at(address, (), total_arguments())
    shape = int(given["blocks"]), int(given["count"])
    at(given["sums"], shape[1:], kernel.dtype)[...] = at(given["parts"], shape, kernel.dtype).sum(0)
