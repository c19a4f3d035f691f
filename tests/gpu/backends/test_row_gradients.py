"""All gradients of a product by one kernel on a device, against float64 on the host."""

import numpy as np
import pytest
from dense_oracle import random_array
from gradient_oracle import factor_gradient, vector_gradient

from batchkron.spec.kron import KronSpec

pytestmark = pytest.mark.gpu

PROBLEMS = [  # rows of x, and factors
    (1, [(1, 1)]),
    (3000, [(3, 4)]),
    (20, [(2, 2)] * 9),
    (4, [(8, 8)] * 3),
    (33, [(3, 3), (5, 5), (4, 4), (6, 6)]),
    (1024, [(3, 3)] * 7),
    (700, [(7, 2), (3, 8), (6, 5)]),
    (300, [(8, 8)] * 4),
    (270, [(4, 4)] * 6),
    (50, [(16, 9), (5, 13)]),
    (20_000, [(4, 4)] * 2),
]


@pytest.fixture
def gradients(cupy):
    """Makes the plan of a product, and a function of arrays that runs it."""
    from batchkron.backends.cuda.gram.gradients import GradientsPlan
    from batchkron.backends.cuda.runtime.device import ready_stream

    def planned(count, factors, needed, with_x, turned):
        rows, columns = zip(*(A.shape for A in factors), strict=True)
        strides = tuple(tuple(n // A.itemsize for n in A.strides) for A in factors)
        spec = KronSpec(rows, columns, count, 1, factors[0].dtype)
        plan = GradientsPlan(spec, strides, needed, with_x, turned, 0)
        ((sequence, _),) = plan.parts
        assert plan.kept == 0, "not by one kernel"

        def run(x, gradient, of_x, scratch, given, results):
            given, results = ([one.data.ptr for one in group] for group in (given, results))
            first = x.data.ptr, gradient.data.ptr, 0, scratch.data.ptr
            place = of_x.data.ptr if with_x else 0
            sequence(ready_stream(0), plan.addresses(*first, place, given, given, results), b"")

        return plan, run

    return planned


def reference(x, gradient, factors, k):
    """The gradient in factor k, and a bound of its rounding errors, in float64."""
    results = []
    for change in (np.asarray, np.abs):
        before, after, *given = (change(one.astype(np.float64)) for one in (x, gradient, *factors))
        before = before.reshape(-1, *(A.shape[0] for A in factors))
        after = after.reshape(-1, *(A.shape[1] for A in factors))
        results.append(factor_gradient(before, after, given, k))
    return results


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("which", ["all", "some", "factors"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_gradients(cupy, gradients, rng, poisoned_on_device, problem, which, dtype):
    count, shapes = problem
    factors = [random_array(rng, shape, dtype) for shape in shapes]
    if which == "some":
        factors = [np.asfortranarray(A) for A in factors]
    needed = tuple(which != "some" or k % 2 == len(shapes) // 2 % 2 for k in range(len(shapes)))
    with_x, turned = which != "factors", which == "some"
    rows, columns = (int(np.prod(side)) for side in zip(*shapes, strict=True))
    x = random_array(rng, (count, rows), dtype)
    gradient = random_array(rng, (count, columns), dtype)
    plan, run = gradients(count, factors, needed, with_x, turned)
    wanted = [k for k, one in enumerate(needed) if one]
    on_device = [cupy.asarray(A, order="K") for A in factors]
    runs = []
    for _ in range(2):
        of_x = poisoned_on_device(x.shape, dtype)
        scratch = poisoned_on_device(plan.scratch // np.dtype(dtype).itemsize, dtype)
        found = [
            poisoned_on_device(factors[k].shape[:: -1 if turned else 1], dtype) for k in wanted
        ]
        run(cupy.asarray(x), cupy.asarray(gradient), of_x, scratch, on_device, found)
        assert not np.isnan(scratch.get()).any()
        runs.append([of_x.get(), *(one.get() for one in found)])
    for first, second in zip(*runs, strict=True):
        np.testing.assert_array_equal(first, second)  # sums have a fixed order
    of_x, *found = runs[0]
    eps, steps = np.finfo(dtype).eps, sum(map(max, shapes))
    for k, one in zip(wanted, found, strict=True):
        expected, bound = reference(x, gradient, factors, k)
        error = abs((one.T if turned else one) - expected)
        assert np.all(error <= eps * (steps + 4 * np.sqrt(count * rows)) * bound)
    if with_x:
        wide = gradient.astype(np.float64).reshape(count, *(A.shape[1] for A in factors))
        expected = vector_gradient(wide, factors)
        bound = vector_gradient(abs(wide), [abs(A) for A in factors])
        error = abs(of_x - expected.reshape(x.shape))
        assert np.all(error <= eps * (steps + 2) * bound.reshape(x.shape))


def test_captured(cupy, gradients, rng, captured):
    factors = [random_array(rng, (4, 3), "float32") for _ in range(4)]
    x, G = (cupy.asarray(random_array(rng, (70, n**4), "float32")) for n in (4, 3))
    plan, run = gradients(70, factors, (True,) * 4, True, False)
    of_x, scratch = cupy.empty_like(x), cupy.empty(plan.scratch, "u1")
    given = [cupy.asarray(A) for A in factors]
    found = [cupy.empty_like(A) for A in given]
    stream = cupy.cuda.Stream(non_blocking=True)
    graph = captured(stream, lambda: run(x, G, of_x, scratch, given, found))
    expected = [one.copy() for one in (of_x, *found)]
    for one in (of_x, *found):
        one.fill(np.nan)
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    for one, other in zip((of_x, *found), expected, strict=True):
        cupy.testing.assert_array_equal(one, other)
