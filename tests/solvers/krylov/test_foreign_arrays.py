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


OBJECTS = {
    "Cg": lambda m: solvers.Cg(product(m))(m(B), rtol=1e-10),
    "of a matrix": lambda m: solvers.Cg(m(A))(m(B), rtol=1e-10),
    "Minres": lambda m: solvers.Minres(m(A))(m(B), rtol=1e-10),
    "Bicgstab": lambda m: solvers.Bicgstab(m(A))(m(B), rtol=1e-10),
    "Gmres": lambda m: solvers.Gmres(m(A), restart=3)(m(B), rtol=1e-10),
    "Fgmres": lambda m: solvers.Fgmres(m(A))(m(B), m(np.sin(B)), rtol=1e-10),
    "of a size": lambda m: solvers.Cg(N).solve(m(A), m(B), m(np.sin(B)), rtol=1e-10),
    "like": lambda m: solvers.Cg(N, like=m(B)).solve(product(m), m(B), rtol=1e-10),
    "a preconditioner": lambda m: solvers.Cg(m(A), M=m(np.diag(1 / np.diag(A))))(m(B), "Mb"),
    "columns": lambda m: solvers.Cg(m(A), batched="columns")(m(np.outer(B, [1.0, 2.0]))),
    "leading": lambda m: solvers.Gmres(m(A), batched="leading")(m(np.outer([1.0, 2.0], B))),
    "another precision": lambda m: solvers.Cg(m(A), np.float32)(m(B)),
    "not converged": lambda m: solvers.Cg(m(A))(m(B), rtol=1e-14, maxiter=1),
}
CALLS |= {f"object {name}": call for name, call in OBJECTS.items()}


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


def test_native_right_hand_sides_name_both_kinds(convert):
    name = type(convert(B)).__name__
    for solve in (
        lambda: solvers.cg(convert(A), B),
        lambda: solvers.cg(convert(A), B.tolist()),
        lambda: solvers.Cg(convert(A))(B),
        lambda: solvers.Cg(N).solve(convert(A), B),
        lambda: solvers.block_cg(convert(A), B[:, None]),
    ):
        with pytest.raises(TypeError, match=f"A is a .*{name}, but b is a NumPy array"):
            solve()
    with pytest.raises(TypeError, match=f"M is a .*{name}, but b is a NumPy array"):
        solvers.minres(A, B, M=convert(A))
    with pytest.raises(TypeError, match=f"x0 is a .*{name}, but b is a NumPy array"):
        solvers.Gmres(A)(B, convert(B))
    with pytest.raises(TypeError, match=f"out is a .*{name}, but b is a NumPy array"):
        solvers.Cg(N).solve(A, B, out=convert(B))


def test_mixed_calls_of_objects_name_both_kinds(convert):
    with pytest.raises(TypeError, match="A is a NumPy array, but b is a "):
        solvers.Cg(A)(convert(B))
    with pytest.raises(TypeError, match="but x0 is a NumPy array"):
        solvers.Cg(convert(A))(convert(B), B)
    with pytest.raises(TypeError, match="but out is a NumPy array"):
        solvers.Cg(N).solve(product(convert), convert(B), out=np.full(N, np.nan))
    with pytest.raises(TypeError, match=r"b is a .*, but M is a NumPy array"):
        solvers.Minres(product(convert), M=np.eye(N))(convert(B))


def test_an_object_solves_again_and_again(convert):
    """Of both kinds in turn, with callbacks that see iterates of NumPy."""
    solver, expected = solvers.Cg(product(np.array)), solvers.cg(product(np.array), B).x
    for make in (convert, np.array, convert):
        seen = []
        found = solver(make(B), callback=lambda x, seen=seen: seen.append(x.copy()))
        assert type(found.x) is type(make(B))
        assert np.array_equal(np.from_dlpack(found.x), expected)
        assert len(seen) == found.iterations


def test_out_is_the_callers_own(convert):
    out, solver = convert(np.full(N, np.nan)), solvers.Cg(N)
    seen = np.from_dlpack(out)
    if not seen.flags.writeable:  # an array of JAX
        with pytest.raises(ValueError, match="out is read-only"):
            solver.solve(product(convert), convert(B), out=out)
        return
    assert solver.solve(product(convert), convert(B), out=out).x is out
    assert np.array_equal(seen, solvers.cg(product(np.array), B).x)


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
