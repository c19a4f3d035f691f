"""Right-hand sides of other libraries: solutions of their kind, with the bits of NumPy's."""

import numpy as np
import pytest
from foreign_arrays import MAKERS

import batchkron as bk
from batchkron import solvers

N = 6
A = np.diag(np.arange(2.0, 2.0 + N)) + 0.5 * np.eye(N, k=1) + 0.5 * np.eye(N, k=-1)
B = np.cos(np.arange(N))


@pytest.fixture(params=MAKERS)
def convert(request):
    """Makes arrays of a kind of NumPy's."""
    return MAKERS[request.param]


def product(make):
    return bk.KroneckerProduct([make(A[:2, :2]), make(A[:3, :3])])


# what is called with a function that makes arrays of the kind
CALLS = {
    "cg": lambda m: solvers.cg(product(m), m(B), rtol=1e-10),
    "of a matrix": lambda m: solvers.cg(m(A), m(B), rtol=1e-10),
    "minres": lambda m: solvers.minres(m(A), m(B), rtol=1e-10),
    "bicgstab": lambda m: solvers.bicgstab(m(A), m(B), rtol=1e-10),
    "gmres": lambda m: solvers.gmres(m(A), m(B), rtol=1e-10, restart=3),
    "fgmres": lambda m: solvers.fgmres(m(A), m(B), rtol=1e-10),
    "a guess": lambda m: solvers.cg(m(A), m(B), m(np.sin(B)), rtol=1e-10),
    "a preconditioner": lambda m: solvers.cg(m(A), m(B), "Mb", M=m(np.diag(1 / np.diag(A)))),
    "columns": lambda m: solvers.cg(product(m), m(np.outer(B, [1.0, 2.0])), batched="columns"),
    "leading": lambda m: solvers.gmres(product(m), m(np.outer([1.0, 2.0], B)), batched="leading"),
    "not converged": lambda m: solvers.cg(m(A), m(B), rtol=1e-14, maxiter=1),
    "block_cg": lambda m: solvers.block_cg(m(A), m(np.stack([B, B**2], axis=1))),
    "block_gmres": lambda m: solvers.block_gmres(m(A), m(np.stack([B, B**2], axis=1)), restart=2),
}


@pytest.mark.parametrize("name", CALLS)
def test_solutions_are_of_the_kind_and_have_numpys_bits(convert, name):
    found, expected = CALLS[name](convert), CALLS[name](np.array)
    assert type(found.x) is type(convert(B))
    assert np.array_equal(np.from_dlpack(found.x), expected.x)
    assert found.status is expected.status
    assert np.array_equal(found.residual_norms, expected.residual_norms, equal_nan=True)
    assert np.array_equal(found.iterations, expected.iterations)


def test_callbacks_see_iterates(convert):
    seen = []
    result = solvers.cg(convert(A), convert(B), callback=lambda x: seen.append(x.copy()))
    assert len(seen) == result.iterations
    assert np.array_equal(seen[-1], np.from_dlpack(result.x))


def test_mixed_systems_name_both_kinds(convert):
    with pytest.raises(TypeError, match="A is a NumPy array, but b is a "):
        solvers.cg(A, convert(B))
    with pytest.raises(TypeError, match="but x0 is a NumPy array"):
        solvers.gmres(product(convert), convert(B), B)


def test_gradients_are_not_lost_in_silence():
    b = pytest.importorskip("torch").ones(N, requires_grad=True)
    with pytest.raises(TypeError, match=r"b is a .* that requires a gradient"):
        solvers.minres(product(np.array), b)


def test_probe_vectors(convert):
    signs = np.where(np.random.default_rng(1).random((3, N)) < 0.5, -1.0, 1.0)
    op = product(np.array)
    assert solvers.logdet_slq(op, probes=convert(signs)) == solvers.logdet_slq(op, probes=signs)


def test_numpys_calls_do_not_look_for_other_kinds(monkeypatch):
    def fail(*operands):
        raise AssertionError("looked for other kinds")

    monkeypatch.setattr("batchkron.solvers.krylov.iteration.workspace_cache.any_foreign", fail)
    assert solvers.cg(A, B).converged
