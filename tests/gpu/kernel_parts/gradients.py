"""Gram matrices, and all gradients of a product."""

import cupy
import numpy as np
from gradient_oracle import factor_gradient, vector_gradient
from kernel_parts.values import check, random_array

from batchkron.backends.cuda.gram.gradients import GradientsPlan
from batchkron.backends.cuda.gram.plan import GramPlan
from batchkron.backends.cuda.runtime import device
from batchkron.spec.kron import KronSpec


def gram(rng, dtype, small):
    """Gram matrices of small, middle and large modes, with one pair (l, r) and with many."""
    for outer, rows, columns, inner in (
        (1, 1, 1, 1), (70, 3, 2, 1), (9, 8, 8, 40), (3, 12, 20, 300), (5, 70, 9, 11),
        (1, 64, 130, 65),
    ):  # fmt: skip
        x, y = (random_array(rng, (outer, n, inner), dtype) for n in (rows, columns))
        plan = GramPlan((outer, rows, columns, inner), np.dtype(dtype), 0)
        device_x, device_y = cupy.asarray(x), cupy.asarray(y)
        sums, workspace = cupy.empty((rows, columns), dtype), cupy.empty(plan.workspace, "u1")
        addresses = tuple(one.data.ptr for one in (device_x, device_y, sums, workspace))
        plan.sequence()(device.ready_stream(0), addresses, b"")
        check(sums, np.einsum("lpr,lqr->pq", x.conj(), y), (outer, rows, columns, inner))


def gradients(rng, dtype, small):
    """All gradients of products of few rows and of many, by one kernel."""
    uneven = [(3, 2), (5, 16), (2, 3), (4, 4)]
    for count, shapes in (1, [(3, 4)]), (70, [(2, 2)] * 9), (300, [(8, 8)] * 3), (9, uneven):
        factors = [random_array(rng, shape, dtype) for shape in shapes]
        rows, columns = zip(*shapes, strict=True)
        strides = tuple((n, 1) for n in columns)
        spec = KronSpec(rows, columns, count, 1, np.dtype(dtype))
        plan = GradientsPlan(spec, strides, (True,) * len(shapes), True, False, 0)
        x, G = (random_array(rng, (count, *sides), dtype) for sides in (rows, columns))
        given = [cupy.asarray(one) for one in (x, G, *factors)]
        of_x, *found = (cupy.empty_like(one) for one in (given[0], *given[2:]))
        scratch = cupy.empty(plan.scratch, "u1")
        places = (*(one.data.ptr for one in given[:2]), 0, scratch.data.ptr, of_x.data.ptr)
        lists = [[one.data.ptr for one in group] for group in (given[2:], given[2:], found)]
        ((sequence, _),) = plan.parts
        sequence(device.ready_stream(0), plan.addresses(*places, *lists), b"")
        for k in range(len(shapes)):
            check(found[k], factor_gradient(x, G, factors, k), (count, shapes, k))
        check(of_x, vector_gradient(G, factors), (count, shapes))
