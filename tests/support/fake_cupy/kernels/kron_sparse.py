"""Kronecker-sparse matrices, copies of their values, and transposed vectors."""

import math
import re

import numpy as np

from batchkron.backends.cuda.kron_sparse.block_transposition import transpose_blocks_arguments
from batchkron.backends.cuda.kron_sparse.kernel import sparse_arguments, sum_dtype
from batchkron.backends.cuda.kron_sparse.stored import store_arguments, stored_shape
from batchkron.backends.cuda.kron_sparse.value_gradients import gradient_arguments
from fake_cupy.memory import at


def multiply_sparse(kernel, address):
    """What kernels of Kronecker-sparse matrices do; other products may have the same kernel."""
    shape = kernel.work
    kind = np.dtype(shape.dtype)
    given = at(address, (), sparse_arguments(shape.dtype))
    sizes = [int(given[name]) for name in ("outer", "a", "b", "c", "d", "inner")]
    outer, a, b, c, d, inner = sizes
    assert int(given["x"]) % (getattr(kernel.tile, "pack", 1) * kind.itemsize) == 0
    stored = stored_shape((a, b, c, d), kind.itemsize, kernel.family.stored)
    values = at(given["values"], stored, kind)
    if kernel.family.stored == "blocks":
        assert int(given["values"]) % 16 == 0
        assert not values[..., c:].any()
        values = values[..., :c].transpose(0, 2, 3, 1)
    x = at(given["x"], (outer, a, c, d, inner), kind)
    y = at(given["y"], (outer, a, b, d, inner), kind)
    wide = sum_dtype(shape.dtype)
    result = given["alpha"] * np.einsum("oiljr,iklj->oikjr", x.astype(wide), values.astype(wide))
    ending = re.search(r"Ending::k(\w+)", kernel.program.expression)
    if ending is None:
        y[...] = result + y if given["accumulate"] else result
        return
    assert not given["accumulate"]
    if given["bias"]:
        result = result + at(given["bias"], (a, b, d, 1), kind).astype(wide)
    if given["before"] and ending[1] != "Bias":
        at(given["before"], y.shape, kind)[...] = result
    if ending[1] == "Gelu":
        result = result * (1 + np.vectorize(math.erf)(result / 2**0.5)) / 2
    elif ending[1] == "GeluTanh":
        result = result * (1 + np.tanh((2 / np.pi) ** 0.5 * (result + 0.044715 * result**3))) / 2
    y[...] = result


def store_values(kernel, address):
    """What the kernel does that copies values of Kronecker-sparse matrices."""
    given, kind = at(address, (), store_arguments()), np.dtype(kernel.work)
    sizes, strides = given["sizes"].tolist(), given["strides"].tolist()
    stored = at(given["stored"], (*sizes[:3], int(given["row"])), kind)
    values = at(given["values"], sizes, kind, strides)
    spread, shift = int(given["spread"]), int(given["shift"])
    stored[...] = 0
    for p, r in np.ndindex(sizes[0], sizes[2]):
        columns = p * shift + r * (spread > 1) + spread * np.arange(sizes[3])
        stored[p, :, r, columns] = values[p, :, r].T


def transpose(one, address):
    """What the kernel of a transposition does; others of the same program have other blocks."""
    given = at(address, (), transpose_blocks_arguments())
    _, length, width, itemsize, to_long = one.work
    kind, blocks = np.dtype(f"u{itemsize}"), int(given["blocks"])
    sides = ("from", "to") if to_long else ("to", "from")
    for name, pack in zip(sides, one.variant, strict=True):
        assert int(given[name]) % (pack * itemsize) == 0
    shape = (length, width) if to_long else (width, length)
    source = at(given["from"], (blocks, *shape), kind)
    at(given["to"], (blocks, *shape[::-1]), kind)[...] = source.swapaxes(1, 2)


def sum_gradients(kernel, address):
    """What the kernel of gradients of values does; others of its program may have other sizes."""
    given, kind = at(address, (), gradient_arguments()), np.dtype(kernel.work.dtype)
    count, each, a, b, c, d = (int(given[name]) for name in ("count", "each", "a", "b", "c", "d"))
    first, last = ((), (count,)) if kernel.work.last else ((count,), ())
    x = at(given["x"], (*first, a, c, d, *last), kind)
    gradient = at(given["gradient"], (*first, a, b, d, *last), kind)
    if kernel.work.last:
        x, gradient = np.moveaxis(x, -1, 0), np.moveaxis(gradient, -1, 0)
    parts = at(given["parts"], (-(-count // each), a, b, c, d), kind)
    for n in range(len(parts)):
        own = slice(n * each, (n + 1) * each)
        parts[n] = np.einsum("nikj,nilj->iklj", gradient[own], x[own])
