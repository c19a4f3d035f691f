"""The preconditioner that `evolve` chooses for implicit steps where none is named."""

from types import SimpleNamespace

import numpy as np
import pytest

import batchkron as bk
from batchkron.problems import PDE, Axis, div, gallery, grad
from batchkron.solvers import evolve, steppers
from batchkron.solvers.preconditioners import FibreInverse
from batchkron.solvers.steppers import default_preconditioner
from batchkron.solvers.steppers.default_preconditioner import DefaultPreconditioner


@pytest.fixture(scope="module")
def heat():
    return gallery.make("diffusion-2d", level=4)


def counted(result):
    return result.history[-2]["iterations"]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_it_is_taken_where_steps_are_stiff(dtype, rng):
    second = np.diag(np.full(7, -2.0)) + np.diag(np.ones(6), 1) + np.diag(np.ones(6), -1)
    A = bk.KroneckerSum([second.astype(dtype)] * 2)
    rate = np.abs(np.linalg.eigvalsh(A.to_dense())).max()
    found = DefaultPreconditioner(np.empty(49, dtype))
    assert found(A, 80.0 / rate) is None
    M = found(A, 150.0 / rate)
    x = rng.standard_normal(49).astype(dtype)
    np.testing.assert_allclose(M.matvec(x - 150.0 / rate * (A @ x)), x, atol=1000 * eps(dtype))
    assert found(A, 80.0 / rate) is None  # whatever it was asked for before


def test_inverses_along_fibres_are_taken_sooner():
    x, v = Axis("x", 0, 1), Axis("v", -1, 1)
    pde = PDE([x, v], div(v) @ grad(v), boundary="neumann", initial=0.0)
    A = pde.discretize(level=3, degree=1).operator
    found, x = DefaultPreconditioner(np.empty(A.shape[0])), np.cos(np.arange(A.shape[0]))
    for _ in range(50):
        x = A @ (x / np.linalg.norm(x))
    rate = np.linalg.norm(x)
    assert found(A, 15.0 / rate) is None
    assert isinstance(found(A, 30.0 / rate), FibreInverse)


def eps(dtype):
    return float(np.finfo(dtype).eps) * 10


def test_operators_without_terms_have_none():
    found = DefaultPreconditioner(np.empty(3))
    diagonal = bk.Diagonal([-1.0, -1e6, -1e3])  # has the method, and no terms
    assert found(diagonal, 1.0) is None
    assert found(np.diag([-1.0, -1e6, -1e3]), 1.0) is None
    assert found(bk.KroneckerSum([np.zeros((3, 3))]), 1.0) is None
    assert found(bk.KroneckerSum([np.full((3, 3), np.nan)]), 1.0) is None


def test_it_is_not_taken_where_it_does_not_help(monkeypatch, heat):
    tried = []

    class Poor:
        def __init__(self, *_, **__):
            pass

        def __call__(self, operator, scale):
            tried.append(scale)
            return SimpleNamespace(shape=operator.shape, dtype=operator.dtype, matvec=np.copy)

    monkeypatch.setattr(default_preconditioner, "NamedPreconditioner", Poor)
    found = DefaultPreconditioner(heat.initial)
    assert found(heat.operator, 1.0) is None
    assert found(heat.operator, 2.0) is None
    assert len(tried) == 1


@pytest.mark.parametrize("method", ["backward-euler", "crank-nicolson", "esdirk3", "ark3"])
def test_runs_take_it(heat, method):
    options = {"until": 0.02, "dt": 0.01, "method": method}
    own, none = evolve(heat, **options), evolve(heat, **options, preconditioner="none")
    named = evolve(heat, **options, preconditioner="auto")
    assert counted(own) == counted(named) < counted(none) / 3
    np.testing.assert_allclose(own.u, none.u, atol=1e-7 * np.abs(none.u).max())
    without = evolve(heat, **options, preconditioner=False)
    np.testing.assert_array_equal(without.u, none.u)


def test_collisions_take_it_in_imex_steps():
    problem = gallery.make("relaxation-1x1v", level=4)
    options = {"until": 0.01, "dt": 0.01, "method": "imex-euler", "solver": {"rtol": 1e-12}}
    own, none = evolve(problem, **options), evolve(problem, **options, preconditioner=False)
    assert counted(own) < counted(none) / 5
    np.testing.assert_allclose(own.u, none.u, atol=1e-7 * np.abs(none.u).max())


def test_solvers_for_definite_systems_and_other_methods_have_none(heat, monkeypatch):
    def refuse(*_):
        raise AssertionError("a preconditioner was chosen")

    monkeypatch.setattr(
        "batchkron.solvers.evolution.start.integration.DefaultPreconditioner", refuse
    )
    for method, solver in (
        ("backward-euler", "cg"),
        ("backward-euler", {"name": "minres"}),
        ("backward-euler", lambda A, b, M=None: (b.copy(), 0)),
        ("exponential-euler", None),
        ("ssp-rk3", None),
    ):
        evolve(heat, until=1e-5, dt=1e-5, method=method, solver=solver)
    with pytest.raises(AssertionError, match="chosen"):
        evolve(heat, until=1e-5, dt=1e-5, method="backward-euler", solver={"restart": 30})


def test_a_solve_that_fails_with_it_is_done_without(heat):
    def spoilt(A, c):
        return SimpleNamespace(
            shape=A.shape, dtype=A.dtype, matvec=lambda x: np.full_like(x, np.nan)
        )

    spoilt.is_optional = True
    cls = steppers.get("backward-euler")
    found, plain = (cls(heat, 1e-3, preconditioner=M) for M in (spoilt, None))
    u, v = heat.initial.copy(), heat.initial.copy()
    assert found.step(u, 0.0, 1e-3) is plain.step(v, 0.0, 1e-3) is None
    np.testing.assert_array_equal(u, v)
    assert found.last_solve.converged


def test_resumed_runs_with_adapted_steps_have_the_same_bits(heat, tmp_path):
    """From steps that are too short for a preconditioner to steps that have one."""
    used = set()
    options = {"method": "esdirk3", "rtol": 1e-3, "dt": 1e-5}
    path = tmp_path / "half.h5"

    class Spy(DefaultPreconditioner):
        def __call__(self, operator, scale):
            M = super().__call__(operator, scale)
            used.add(M is None)
            return M

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("batchkron.solvers.evolution.start.integration.DefaultPreconditioner", Spy)
        whole = evolve(heat, until=0.02, **options)
        for stop in (3, whole.steps - 2):
            evolve(
                heat, until=0.02, **options, checkpoint=path, callback=lambda s, n=stop: s.step == n
            )
            resumed = evolve(heat, until=0.02, method="esdirk3", rtol=1e-3, resume=path)
            np.testing.assert_array_equal(resumed.u, whole.u)
    assert used == {True, False}
