"""Gram matrices of one mode on a device, against float64 on the host."""

import numpy as np
import pytest
from dense_oracle import random_array

pytestmark = pytest.mark.gpu


@pytest.fixture
def gram(cupy):
    """Makes the plan of a shape, and a function of the four addresses that runs it."""
    from batchkron.backends.cuda.gram.plan import GramPlan
    from batchkron.backends.cuda.runtime.device import ready_stream

    def planned(shape, dtype):
        plan = GramPlan(shape, dtype, 0)
        sequence = plan.sequence()
        return plan, lambda *addresses: sequence(ready_stream(0), addresses, b"")

    return planned


SHAPES = [  # outer, rows, columns, inner
    (1, 1, 1, 1),
    (1, 1, 1, 100_000),
    (100_000, 3, 2, 1),
    (1000, 2, 2, 64),
    (20, 2, 2, 256),
    (70_000, 8, 8, 1),
    (3000, 7, 5, 3),
    (33, 8, 8, 512),
    (4096, 8, 8, 8),
    (5, 24, 20, 1000),
    (129, 52, 52, 52),
    (40, 28, 27, 44),
    (129, 64, 64, 64),
    (256, 32, 32, 32),
    (30, 40, 36, 300),
    (2, 64, 63, 4096),
    (7, 130, 65, 17),
    (500, 66, 66, 9),
    (1, 300, 5, 33),
    (1000, 128, 128, 1),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shape", SHAPES)
def test_sums(cupy, gram, rng, poisoned_on_device, dtype, shape):
    outer, rows, columns, inner = shape
    x = random_array(rng, (outer, rows, inner), dtype)
    y = random_array(rng, (outer, columns, inner), dtype)
    dtype = np.dtype(dtype)
    plan, run = gram(shape, dtype)
    first, second = cupy.asarray(x), cupy.asarray(y)
    results = []
    for _ in range(2):
        sums = poisoned_on_device((rows, columns), dtype)
        workspace = poisoned_on_device(plan.workspace // dtype.itemsize, dtype)
        run(first.data.ptr, second.data.ptr, sums.data.ptr, workspace.data.ptr)
        results.append(sums.get())
        assert not np.isnan(workspace.get()).any()
    np.testing.assert_array_equal(*results)
    wide = np.result_type(dtype, np.float64)
    left, right = (one.astype(wide).transpose(1, 0, 2).reshape(-1, outer * inner) for one in (x, y))
    expected, bound = left.conj() @ right.T, abs(left) @ abs(right).T
    rounding = 4 * np.finfo(dtype).eps * np.sqrt(outer * inner)
    assert np.all(abs(results[0] - expected) <= rounding * bound)


def test_captured(cupy, gram, rng, captured):
    shape, dtype = (300, 9, 8, 40), np.dtype("f4")
    x, y = (cupy.asarray(random_array(rng, (300, n, 40), dtype)) for n in (9, 8))
    plan, run = gram(shape, dtype)
    sums, workspace = cupy.empty((9, 8), dtype), cupy.empty(plan.workspace, "u1")
    stream = cupy.cuda.Stream(non_blocking=True)
    addresses = [one.data.ptr for one in (x, y, sums, workspace)]
    graph = captured(stream, lambda: run(*addresses))
    expected = sums.copy()
    x *= 2
    sums[...] = np.nan
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    assert (sums == 2 * expected).all()
