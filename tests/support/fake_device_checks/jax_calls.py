"""What XLA's calls launch, on the device of fake_cupy."""

import functools

import cupy
import numpy as np
from dense_oracle import DTYPES, random_array

from batchkron.backends.cuda.interface import device
from batchkron.jax.device_calls import planned
from fake_device_checks.common import close, on_device


def called(name, operands, shapes, transpose=False, wanted="", plans=""):
    """Plan a call and launch it as the compiled core does; its results, before poisoned."""
    given = on_device(list(operands))
    described = [(one.dtype.name, one.shape) for one in operands]
    device.driver_context = lambda: (1, 2, 3)
    sequence, workspace, systems, sources, context = planned(
        name, transpose, wanted, 0, described, plans
    )
    assert context == (1, 2, 3)
    dtype = operands[0].dtype
    out = [cupy.asarray(np.full(shape, np.nan, dtype)) for shape in shapes]
    memory = cupy.asarray(np.full(workspace // dtype.itemsize, np.nan, dtype))
    firsts = {-1: memory.data.ptr, -2: 0}
    firsts |= {k: one.data.ptr for k, one in enumerate(given)}
    firsts |= {-3 - n: one.data.ptr for n, one in enumerate(out)}
    for system in range(systems):
        addresses = [firsts[k] + system * step + offset for k, step, offset in sources]
        sequence(0, tuple(addresses), b"")
    return out


def kron_matmul():
    """Systems with factors of their own and shared ones, vectors along either axis, two passes."""
    rng = np.random.default_rng(1)
    large = [(1, 1, 2, [(16, 16)] * 4)]
    for dtype in DTYPES:
        small = [(systems, 5, inner, [(2, 3), (4, 2)]) for systems in (1, 3) for inner in (1, 2)]
        for systems, outer, inner, sizes in small + large * (dtype == "float64"):
            for transpose in (False, True):
                shapes = [size[::-1] if transpose else size for size in sizes]
                factors = [random_array(rng, (systems, *shape), dtype) for shape in shapes]
                factors[-1] = factors[-1][:1]
                rows, columns = (int(np.prod(side)) for side in zip(*sizes, strict=True))
                x = random_array(rng, (systems, outer, rows, inner), dtype)
                expected = np.empty((systems, outer, columns, inner), dtype)
                for s in range(systems):
                    own = [factor[s % len(factor)] for factor in factors]
                    y = x[s]
                    for k, A in enumerate(own):
                        A = A.T if transpose else A
                        before = int(np.prod([size[1] for size in sizes[:k]]))
                        y = y.reshape(outer * before, len(A), -1)
                        y = np.einsum("lpr,pq->lqr", y, A)
                    expected[s] = y.reshape(expected.shape[1:])
                (y,) = called("kron_matmul", [x, *factors], [expected.shape], transpose)
                close(y, expected)


def mode_gram():
    """One system and several."""
    rng = np.random.default_rng(2)
    for dtype in ("float32", "float64"):
        for systems, outer, rows, columns, inner in ((1, 3, 4, 2, 5), (3, 1, 1, 3, 2)):
            x = random_array(rng, (systems, outer, rows, inner), dtype)
            y = random_array(rng, (systems, outer, columns, inner), dtype)
            expected = np.einsum("slpr,slqr->spq", x, y)
            (sums,) = called("mode_gram", [x, y], [expected.shape])
            close(sums, expected)


def kron_gradients():
    """Of x and of factors, of some of them, for factors stored either way."""
    rng = np.random.default_rng(3)
    for dtype in ("float32", "float64"):
        for shapes, wanted in (
            ([(3, 4)], "1"),
            ([(3, 4)], "0 1"),
            ([(2, 3), (4, 2)], "0 1 2"),
            ([(2, 3), (4, 2), (3, 3)], "0 2"),
            ([(2, 3), (4, 2), (3, 3)], "1 3"),
            ([(2, 3), (1, 2), (3, 1)], "3"),
        ):
            for outer, inner, transpose in ((5, 1, False), (2, 3, False), (2, 3, True)):
                factors = [random_array(rng, shape, dtype) for shape in shapes]
                rows, columns = (int(np.prod(side)) for side in zip(*shapes, strict=True))
                x = random_array(rng, (1, outer, rows, inner), dtype)
                cotangent = random_array(rng, (1, outer, columns, inner), dtype)
                dense = functools.reduce(np.kron, factors)
                expected = [np.einsum("soqi,pq->sopi", cotangent, dense)]
                moments = np.einsum("sopi,soqi->pq", x, cotangent)
                for k in range(len(factors)):
                    of_entries = np.empty_like(factors[k])
                    for at in np.ndindex(of_entries.shape):
                        unit = np.zeros_like(of_entries)
                        unit[at] = 1
                        others = [*factors[:k], unit, *factors[k + 1 :]]
                        of_entries[at] = np.vdot(functools.reduce(np.kron, others), moments)
                    expected.append(of_entries[None])
                if transpose:
                    expected[1:] = [one.swapaxes(1, 2) for one in expected[1:]]
                    factors = [factor.T.copy() for factor in factors]
                chosen = [expected[int(k)] for k in wanted.split()]
                given = [x, cotangent, *(factor[None] for factor in factors)]
                found = called(
                    "kron_gradients", given, [one.shape for one in chosen], transpose, wanted
                )
                for one, other in zip(found, chosen, strict=True):
                    close(one, other)
