"""Gram matrices of one mode."""

import numpy as np
from gradient_oracle import factor_gradient, vector_gradient

from fake_cupy.memory import at


def multiply_gram(kernel, address):
    """What the families of Gram matrices do."""
    of_family = {"tiles": _by_tiles, "registers": _by_registers, "rows": _rows_at_once}
    of_family[kernel.family.name](kernel, at(address, (), kernel.arguments.dtype))


def _by_tiles(kernel, given):
    shape = tuple(int(given[name]) for name in ("outer", "rows", "columns", "inner"))
    _sum_up(given, shape, int(given["blocks"]), kernel.work[-1])


def _by_registers(kernel, given):
    """The program knows rows and columns alone."""
    _, rows, columns, _, dtype = kernel.work
    outer, rest = divmod(int(given["pairs"]), int(given["inner"]))
    assert rest == 0
    threads = int(given["l_step"]) * int(given["inner"]) + int(given["r_step"])  # of all blocks
    shape = outer, rows, columns, int(given["inner"])
    _sum_up(given, shape, threads // kernel.launch.threads, dtype)


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
    given = at(address, (), kernel.arguments.dtype)
    shape = int(given["blocks"]), int(given["count"])
    sums = at(given["parts"], shape, kernel.work[0]).sum(0)
    begins = [0, *given["ends"]]
    for result, begin, end in zip(given["sums"], begins, given["ends"], strict=False):
        at(result, (end - begin,), kernel.work[0])[...] = sums[begin:end]


def _rows_at_once(kernel, given):
    """All gradients of a product."""
    product, _, wanted, with_x, turned = kernel.work
    dtype = product.dtype
    assert int(given["rows"]) == product.outer
    factors = []
    for place, rows, columns, along, across in zip(
        given["factors"], product.inputs, product.outputs, given["along"], given["across"],
        strict=True,
    ):  # fmt: skip
        size = (rows - 1) * int(along) + (columns - 1) * int(across) + 1
        memory = at(place, (size,), dtype)
        strides = int(along) * dtype.itemsize, int(across) * dtype.itemsize
        factors.append(np.lib.stride_tricks.as_strided(memory, (rows, columns), strides))
    x = at(given["x"], (product.outer, *product.inputs), dtype)
    gradient = at(given["gradient"], (product.outer, *product.outputs), dtype)
    sizes = zip(product.inputs, product.outputs, wanted, strict=True)
    counts = [rows * columns for rows, columns, needed in sizes if needed]
    parts = at(given["parts"], (kernel.launch.blocks, sum(counts)), dtype)
    parts[...] = 0
    begin = 0
    for k, needed in enumerate(wanted):
        if needed:
            sums = factor_gradient(x, gradient, factors, k)
            end = begin + sums.size
            parts[0, begin:end] = (sums.T if turned else sums).reshape(-1)
            begin = end
    if with_x:
        at(given["of_x"], x.shape, dtype)[...] = vector_gradient(gradient, factors)
