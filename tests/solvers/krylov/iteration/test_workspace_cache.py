"""The workspaces that functions like `cg` keep from one call to the next, on the CPU."""

import weakref

import numpy as np
import pytest

from batchkron.operators import Diagonal
from batchkron.solvers import (
    bicgstab,
    cg,
    fgmres,
    free_workspaces,
    gmres,
    minres,
)

METHODS = [cg, minres, bicgstab, gmres, fgmres]


@pytest.mark.parametrize("method", METHODS)
def test_later_calls_are_as_the_first(kept, rng, method):
    d, systems = np.linspace(1.0, 9.0, 40), rng.standard_normal((3, 40))
    M = Diagonal(1 / np.sqrt(d))

    def solve_all():
        for b in systems:
            yield method(Diagonal(d), b, rtol=1e-9)
            yield method(Diagonal(d), b, x0=b, rtol=1e-9, maxiter=4)
            yield method(Diagonal(d), b, rtol=1e-9, M=M)

    first = []
    for result in solve_all():
        first.append((result, result.x.copy(), result.residual_norms.copy()))
        free_workspaces()
    assert not kept
    for result, (before, x, norms) in zip(solve_all(), first, strict=True):
        for each in (result, before):  # those of earlier calls have not changed
            np.testing.assert_array_equal(each.x, x)
            np.testing.assert_array_equal(each.residual_norms, norms)
        assert (result.status, result.iterations) == (before.status, before.iterations)
    assert len(kept) == 2


def test_what_is_kept(kept, rng):
    for size in range(30, 50):
        cg(Diagonal(np.arange(1.0, size + 1)), rng.standard_normal(size))
    assert len(kept) == 8
    free_workspaces()
    large = 40_000
    assert cg(Diagonal(np.ones(large)), rng.standard_normal(large)).converged
    assert cg(Diagonal(np.ones(5)), np.ones(5), callback=lambda x: None).converged
    assert not kept


def test_nothing_of_the_caller_is_held(kept):
    A, b = Diagonal([1.0, 2.0]), np.ones(2)
    x = cg(A, b).x
    references = [weakref.ref(each) for each in (A, b, x)]
    del A, b, x
    assert [reference() for reference in references] == [None] * 3


def test_calls_within_calls(kept):
    d = np.linspace(1.0, 4.0, 20)

    class Nested:
        shape, dtype = (20, 20), np.dtype(float)

        def matvec(self, x):
            return cg(Diagonal(1 / d), x, rtol=1e-12).x

    np.testing.assert_allclose(cg(Nested(), d, rtol=1e-10).x, np.ones(20), rtol=1e-8)


def test_a_solve_that_fails_keeps_nothing(kept):
    class Broken:
        shape, dtype = (3, 3), np.dtype(float)

        def matvec(self, x):
            raise RuntimeError("no product today")

    with pytest.raises(RuntimeError, match="no product today"):
        cg(Broken(), np.ones(3))
    assert not kept
