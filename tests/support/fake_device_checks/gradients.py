"""Gradients of Kron-Matmuls by a plan for their layouts."""

import cupy
import numpy as np
from dense_oracle import DTYPES, random_array, sizes

from batchkron.backends.cuda.gram.gradients import gradients_plan
from batchkron.spec.kron import KronSpec
from fake_device_checks.common import close

SHAPES = [[(3, 4)], [(2, 3), (4, 2)], [(5, 5)] * 3, [(2, 1), (1, 3), (3, 2), (2, 2)]]
LARGE = [(3, 2), (2, 65), (70, 3), (2, 2)]  # by kernels, but for two in the middle


def dense(factors):
    product = np.ones((1, 1))
    for factor in factors:
        product = np.kron(product, factor)
    return product


def derivative(x, gradient, factors, k):
    """By definition: the gradient of Re⟨x (A_1 ⊗ … ⊗ A_d), G⟩ in A_k, entry by entry."""
    found = np.empty_like(factors[k])
    for at in np.ndindex(found.shape):
        unit = np.zeros_like(found)
        unit[at] = 1
        product = dense([*factors[:k], unit, *factors[k + 1 :]])
        found[at] = np.einsum("opi,pq,oqi->", x.conj(), product.conj(), gradient)
    return found


def run(plan, x, gradient, factors, needed, with_x, turned):
    """The gradients of x and of the factors that a plan finds, with poisoned results."""
    dtype = x.dtype
    memory = cupy.asarray(np.full((plan.kept + plan.scratch) // dtype.itemsize, np.nan, dtype))
    of_x = cupy.asarray(np.full(x.shape, np.nan, dtype))
    shapes = [factor.shape[::-1] if turned else factor.shape for factor in factors]
    found = {
        k: cupy.asarray(np.full(shape, np.nan, dtype))
        for k, shape in enumerate(shapes) if needed[k]
    }  # fmt: skip
    conjugates = [cupy.asarray(factor.get().conj()) for factor in factors]
    given, groups = (x, gradient, memory), (factors, conjugates, found.values())
    ends = [one.data.ptr for one in given]
    lists = [[one.data.ptr for one in group] for group in groups]
    ends.append(ends[-1] + plan.kept)
    addresses = plan.addresses(*ends, of_x.data.ptr if with_x else 0, *lists)
    for sequence, contraction in plan.parts:
        if sequence is not None:
            sequence(0, addresses, b"")
        if contraction is not None:
            mode, *places, (outer, rows, columns, inner) = contraction
            before, after = (
                given[place.number].get().reshape(-1)[place.offset // dtype.itemsize :]
                for place in places
            )
            left = before[: outer * rows * inner].reshape(outer, rows, inner)
            right = after[: outer * columns * inner].reshape(outer, columns, inner)
            found[mode].host[...] = np.einsum("lpr,lqr->pq", left.conj(), right)
    return of_x, found


def problem(rng, shapes, outer, inner, dtype):
    rows, columns = sizes(shapes)
    factors = [random_array(rng, shape, dtype) for shape in shapes]
    x = random_array(rng, (outer, rows, inner), dtype)
    gradient = random_array(rng, (outer, columns, inner), dtype)
    spec = KronSpec(*zip(*shapes, strict=True), outer, inner, np.dtype(dtype))
    layout = spec, tuple((shape[1], 1) for shape in shapes)
    return layout, factors, x, gradient


def check(rng, shapes, outer, inner, dtype, needed, with_x, turned):
    layout, factors, x, gradient = problem(rng, shapes, outer, inner, dtype)
    plan = gradients_plan(*layout, needed, with_x, turned, 0)
    given = [cupy.asarray(one) for one in (x, gradient)]
    of_x, found = run(
        plan, *given, [cupy.asarray(factor) for factor in factors], needed, with_x, turned
    )
    if with_x:
        close(of_x, np.einsum("oqi,pq->opi", gradient, dense(factors).conj()).astype(dtype))
    for k, one in found.items():
        expected = derivative(x, gradient, factors, k)
        close(one, expected.conj().T if turned else expected)


def kron_gradients():
    """All dtypes and forms, each factor alone and all of them, with that of x and without."""
    rng = np.random.default_rng(1)
    for dtype in DTYPES:
        for shapes in SHAPES:
            modes = len(shapes)
            alone = [tuple(j == k for j in range(modes)) for k in range(modes)]
            for number, needed in enumerate([(True,) * modes, *alone]):
                for with_x in (False, True):
                    turned = (number + with_x) % 2 == 1
                    outer, inner = (3, 1) if number % 2 else (2, 4)
                    check(rng, shapes, outer, inner, dtype, needed, with_x, turned)
    for turned in (False, True):
        check(rng, LARGE, 1, 2, "complex128", (True, False, True, True), True, turned)


def known_layouts():
    """A layout is planned once; other strides, sizes and wishes are not mixed up."""
    rng, plans = np.random.default_rng(2), []
    layout, factors, x, gradient = problem(rng, [(3, 3), (3, 3)], 3, 1, "float64")
    across = layout[0], ((1, 3), (3, 1))
    turned_first = [np.asfortranarray(factors[0]), factors[1]]
    wishes = [((True, True), True), ((True, False), True), ((True, True), False)]
    for _ in range(2):
        for which, host in ((layout, factors), (across, turned_first)):
            for needed, with_x in wishes:
                plan = gradients_plan(*which, needed, with_x, False, 0)
                plans.append(plan)
                arrays = [cupy.asarray(one) for one in host]
                given = [cupy.asarray(one) for one in (x, gradient)]
                _, found = run(plan, *given, arrays, needed, with_x, False)
                for k, one in found.items():
                    close(one, derivative(x, gradient, factors, k))
    assert plans[:6] == plans[6:]
    assert len(set(plans)) == 6
