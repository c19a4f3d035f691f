"""The same call gives the same bits every time, whatever else the device does."""

from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from dense_oracle import random_array
from plans import preferred

import batchkron as bk
from batchkron.problems import SparseGrid
from batchkron.problems.discretization.matrices.mode_operator import connected

pytestmark = pytest.mark.gpu

REPEATS = 100


def product(cupy, rng, shapes, rows, dtype):
    """A product by an operator; small factors are constants of its kernels."""
    op = bk.KroneckerProduct([random_array(rng, shape, dtype) for shape in shapes]).to("cuda")
    x = cupy.asarray(random_array(rng, (rows, op.shape[1]), dtype))
    return partial(op.apply, x), (rows, op.shape[0])


def function(cupy, rng, shapes, rows, dtype):
    """A product by a function, with factors in memory and several columns."""
    factors = [cupy.asarray(random_array(rng, shape, dtype)) for shape in shapes]
    outputs, inputs = np.prod(shapes, axis=0)
    x = cupy.asarray(random_array(rng, (int(inputs), rows), dtype))
    return partial(bk.gekmm, factors, x), (int(outputs), rows)


def batch(cupy, rng, shapes, lists, dtype, columns=None):
    """A batch list of (products, inputs, outputs)."""
    products, num_inputs, num_outputs = lists
    pools = [random_array(rng, (40, *shape), dtype) for shape in shapes]
    ids = rng.integers(0, 40, (products, len(shapes)))
    inputs, outputs = rng.integers(0, num_inputs, products), rng.integers(0, num_outputs, products)
    counts = {"num_inputs": num_inputs, "num_outputs": num_outputs}
    op = bk.BatchedKron(pools, ids, inputs, outputs, accumulation="owner", **counts).to("cuda")
    if columns is not None:
        x = random_array(rng, (op.shape[1], columns), dtype)
        return partial(op.matmat, cupy.asarray(x)), (op.shape[0], columns)
    x = random_array(rng, (num_inputs, op.shape[1] // num_inputs), dtype)
    return partial(op.apply, cupy.asarray(x)), (num_outputs, op.shape[0] // num_outputs)


def gemms(cupy, rng, dtype):
    """Small multiplies whose results are added, 50 each."""
    a, b = (cupy.asarray(random_array(rng, (30, 8, 8), dtype)) for _ in range(2))
    ids = {"a_ids": rng.integers(0, 30, 1000), "b_ids": rng.integers(0, 30, 1000)}

    def call(out=None):
        result = bk.batched_gemm(a, b, c_ids=np.arange(1000) % 20, **ids)
        if out is not None:
            out[...] = result
        return result

    return call, (20, 8, 8)


def sweeps(cupy, rng, sizes, corner, dtype, columns=None):
    """A term in all modes of an adaptive grid, and terms in one."""
    level = 5
    grid = SparseGrid.custom([corner], [level] * len(sizes)).closed()
    rows, joined = np.nonzero(connected(level, "volume"))
    modes = [
        SimpleNamespace(
            rows=rows, columns=joined, blocks=random_array(rng, (len(rows), n, n), dtype)
        )
        for n in sizes
    ]
    alone = [
        [one if k == mode else None for k in range(len(sizes))] for mode, one in enumerate(modes)
    ]
    op = bk.SparseGridOperator(grid, [modes, *alone], sizes).to("cuda")
    shape = op.shape[1] if columns is None else (op.shape[1], columns)
    call = op.matvec if columns is None else op.matmat
    return partial(call, cupy.asarray(random_array(rng, shape, dtype))), shape


CASES = {
    "constants 8^4": partial(product, shapes=[(8, 8)] * 4, rows=64),
    "registers 8^5, two passes": partial(function, shapes=[(8, 8)] * 5, rows=3),
    "registers 3 × 5, 4 × 2, 7 × 7": partial(function, shapes=[(3, 5), (4, 2), (7, 7)], rows=37),
    "fibres 32^3": partial(product, shapes=[(32, 32)] * 3, rows=40),
    "fibres 64^2": partial(product, shapes=[(64, 64)] * 2, rows=300),
    "fibres 20 × 24, 33 × 17": partial(function, shapes=[(20, 24), (33, 17)], rows=65),
    "fibres 128^2": partial(product, shapes=[(128, 128)] * 2, rows=40),
    "slices 8^5": partial(product, shapes=[(8, 8)] * 5, rows=150),
    "modes in one buffer 2 × 20000": partial(function, shapes=[(2, 20_000)], rows=5),
    "list, an output a group": partial(batch, shapes=[(3, 3)] * 3, lists=(20_000, 500, 3000)),
    "list, many groups an output": partial(batch, shapes=[(3, 3)] * 2, lists=(20_000, 500, 4)),
    "list, warps that share a product": partial(batch, shapes=[(4, 4)] * 5, lists=(3000, 40, 50)),
    "list, a thread a product": partial(batch, shapes=[(2, 2)] * 2, lists=(20_000, 500, 3000)),
    "list of rectangular factors": partial(
        batch, shapes=[(2, 5), (6, 3), (4, 4)], lists=(5000, 60, 70)
    ),
    "list of large factors": partial(batch, shapes=[(12, 10), (9, 14)], lists=(2000, 30, 40)),
    "list, several vectors": partial(batch, shapes=[(3, 3)] * 3, lists=(5000, 60, 70), columns=8),
    "sweeps, parts of a warp": partial(sweeps, sizes=(3, 3), corner=(29, 22)),
    "sweeps, several warps": partial(sweeps, sizes=(4, 4, 4), corner=(6, 9, 5)),
    "sweeps, staged": partial(sweeps, sizes=(3,) * 6, corner=(1, 0, 1, 2, 0, 1)),
    "sweeps, several vectors": partial(sweeps, sizes=(3, 2, 4), corner=(6, 9, 5), columns=5),
    "batched_gemm": gemms,
}


KRON_FAMILIES = {
    "constants": "registers",
    "registers": "registers",
    "fibres": "fibres",
    "slices": "slices",
    "modes": "general",
}


@pytest.fixture(params=CASES)
def case(request, cupy):
    """A call; Kron-Matmuls go to the kernel family that the name begins with."""
    family = KRON_FAMILIES.get(request.param.split()[0])
    with nullcontext() if family is None else preferred(family):
        yield request.param


@pytest.mark.parametrize("given", ["float32", "float64", "complex64"])
def test_the_same_bits_a_hundred_times(cupy, poisoned_on_device, rng, case, given):
    """Outputs are poisoned; another stream keeps the device busy, differently for each call."""
    call, shape = CASES[case](cupy, rng, dtype=np.dtype(given))
    other, other_shape = product(cupy, rng, [(7, 7)] * 3, 400, np.dtype("float32"))
    other_out = cupy.empty(other_shape, "float32")
    first = call().view(np.uint8)
    different = cupy.zeros((), np.int64)
    out = poisoned_on_device(shape, given)
    beside = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    for repeat in range(REPEATS):
        out.fill(np.nan)
        with beside:
            for _ in range(repeat % 4):
                other(out=other_out)
        call(out=out)
        different += cupy.count_nonzero(out.view(np.uint8) != first)
    assert int(different) == 0
    assert bool(cupy.isfinite(out).all())
