"""A kernel waits for those launched before it: many in a row give the bits of one by one."""

import numpy as np
import pytest
from dense_oracle import random_array

import batchkron as bk
from batchkron.problems import PDE, Axis, div

pytestmark = pytest.mark.gpu

ROUNDS = 50


def product(*sizes):
    """A product of square factors of these sizes."""
    return lambda rng: bk.KroneckerProduct(
        [random_array(rng, (n, n), "float64") / np.sqrt(n) for n in sizes]
    )


def batch(rng):
    ids, inputs, outputs = rng.integers(0, 200, (3000, 3)), *rng.integers(0, 200, (2, 3000))
    pool = rng.standard_normal((200, 3, 3))
    counts = {"num_inputs": 200, "num_outputs": 200}
    return bk.BatchedKron(pool, ids, inputs, outputs, accumulation="owner", **counts)


def sweeps(rng):
    x, v = Axis("x", -1, 1), Axis("v", -1, 1)
    pde = PDE(
        [x, v],
        [div(x, -1.0, others={v: lambda s: 2 + s}), div(v, 1.0)],
        boundary="periodic",
        initial=0.0,
    )
    problem = pde.discretize(level=6, degree=2, grid="sparse")
    return bk.SparseGridOperator(problem.grid, [term.modes for term in problem.terms], n=3)


@pytest.mark.parametrize(
    ("make", "rows"),
    [
        (product(*[2] * 7), 20),
        (product(*[8] * 3), 4),
        (product(*[8] * 5), 40),
        (product(*[16] * 4), 64),
        (product(52, 50), 10),
        (product(129, 33), 100),
        (lambda rng: bk.KroneckerSum(rng.standard_normal((3, 9, 9))), 30),
        (batch, 1),
        (sweeps, 3),
    ],
    ids=["2^7", "8^3", "8^5", "16^4", "52x50", "129x33", "sum", "batch", "sweeps"],
)
def test_results_do_not_depend_on_what_runs_ahead(cupy, rng, captured, make, rows):
    """Two applies in a row, then kernels of CuPy that read and write their vectors."""
    op = make(rng).to("cuda")
    x = cupy.asarray(rng.standard_normal((rows, op.shape[1])))
    vectors = [cupy.empty_like(x) for _ in range(3)]

    def chain(after=lambda: None):
        a, b, c = vectors
        a[...] = x
        for _ in range(ROUNDS):
            op.apply_flat(a, b)
            after()
            op.apply_flat(b, c)
            after()
            cupy.divide(c, cupy.abs(c).max(), out=a)
            after()

    chain(after=cupy.cuda.Device().synchronize)
    expected = vectors[0].get()
    assert np.isfinite(expected).all()
    for _ in range(3):
        chain()
        np.testing.assert_array_equal(vectors[0].get(), expected)
    stream = cupy.cuda.Stream(non_blocking=True)
    graph = captured(stream, chain)
    for _ in range(3):
        for vector in vectors:
            vector.fill(np.nan)
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        np.testing.assert_array_equal(vectors[0].get(), expected)


def test_a_kernel_follows_copies_and_events_of_other_streams(cupy, rng):
    op = product(8, 8, 8)(rng).to("cuda")
    given = rng.standard_normal((ROUNDS, 4, 512))
    expected = [op.apply(cupy.asarray(one)).get() for one in given]
    first, second = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    slow = cupy.asarray(rng.standard_normal((2000, 2000)))
    sources = [cupy.asarray(one) for one in given]
    x = cupy.empty_like(sources[0])
    outs = [cupy.empty_like(x) for _ in given]
    cupy.cuda.Device().synchronize()
    for source, out in zip(sources, outs, strict=True):
        with first:
            slow @ slow
            x[...] = source
            op.apply(x, out=out)  # after a kernel
            out.fill(np.nan)
            made = first.record()
        with second:
            second.wait_event(made)
            op.apply(x, out=out)  # after an event
            first.wait_event(second.record())
    cupy.cuda.Device().synchronize()
    for out, one in zip(outs, expected, strict=True):
        np.testing.assert_array_equal(out.get(), one)
