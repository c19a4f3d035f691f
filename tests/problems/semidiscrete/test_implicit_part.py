"""What IMEX methods treat implicitly, and which methods have no limit on stable steps."""

import numpy as np
import pytest
from scipy.linalg import expm

from batchkron.problems import PDE, Axis, Dirichlet, Neumann, Separable, gallery
from batchkron.problems.semidiscrete.default_stepper import IMPLICIT_METHODS
from batchkron.problems.statement.terms import div, laplacian
from batchkron.problems.time import cos, exp
from batchkron.solvers import evolve, steppers

X = Axis("x", 0, 1)
MOVING = Dirichlet(Separable(t=cos(5.0)))
FALLING = Separable(x=lambda x: 1 - x)


def heated(level):
    """Diffusion with data cos 5t at one end."""
    ends = (MOVING, Dirichlet())
    return PDE([X], laplacian([X]), boundary=ends, initial=FALLING).discretize(level, degree=2)


def solution(problem, A, t):
    """u(t) of u' = A u + b cos 5t, with exp(t A)."""
    b = np.full(problem.unknowns, np.nan)
    problem.source(0.0, b)
    forced = np.linalg.solve(5j * np.eye(len(A)) - A, b)
    return (forced * np.exp(5j * t)).real + expm(t * A) @ (problem.initial - forced.real)


def source_of(function, problem, t):
    out = np.full(problem.unknowns, np.nan)
    function(t, out)
    return out


def flow():
    axes = x, y = [Axis("x", 0, 1), Axis("y", 0, 1)]
    own = {"boundary": (Dirichlet(), Neumann())}
    terms = [*laplacian(axes, 0.1), div(x, -1.0, **own), div(y, -1.0, **own)]
    return PDE(axes, terms, boundary=Dirichlet(), initial=1.0)


def test_the_implicit_part_is_the_diffusion():
    problem = flow().discretize(level=2, degree=1)
    axes = [Axis("x", 0, 1), Axis("y", 0, 1)]
    diffusion = PDE(axes, laplacian(axes, 0.1), boundary=Dirichlet(), initial=0.0).discretize(
        level=2, degree=1
    )
    found = problem.implicit_operator_at(0.0)
    np.testing.assert_allclose(found.to_dense(), diffusion.operator.to_dense(), atol=1e-11)
    assert problem.implicit_operator_at(1.0) is found
    assert diffusion.implicit_operator_at(0.0) is diffusion.operator


def test_without_diffusion_nothing_is_implicit():
    problem = gallery.make("continuity-2d", level=2, degree=1)
    assert not problem.implicit_operator_at(0.0).to_dense().any()


def test_an_imex_run_solves_the_diffusion_alone():
    problem = flow().discretize(level=3, degree=2)
    fine = evolve(problem, until=0.1, method="dormand-prince", rtol=1e-8)
    found = evolve(problem, until=0.1, method="ark3", rtol=1e-5, preconditioner="auto")
    assert np.linalg.norm(found.u - fine.u) < 1e-4 * np.linalg.norm(fine.u)


def test_implicit_methods_are_the_steppers_that_need_no_stable_step():
    implicit = {name for name in steppers.names() if steppers.get(name).implicit}
    assert set(IMPLICIT_METHODS) == implicit


@pytest.mark.parametrize("level", [3, 5, 7])
def test_boundary_data_of_the_diffusion_are_implicit(level):
    problem = heated(level)
    A = problem.operator.to_dense()
    rates, modes = np.linalg.eigh(A)
    exact = solution(problem, A, 1.0)

    def inverse(_, c):
        return modes / (1.0 - c * rates) @ modes.T

    def error(method, dt):
        run = evolve(problem, until=1.0, method=method, dt=dt, preconditioner=inverse)
        return np.linalg.norm(run.u - exact)

    for dt in (1 / 20, 1 / 40):
        for order in (2, 3):
            assert error(f"ark{order}", dt) < 1.5 * error(f"esdirk{order}", dt) < 1e-3


def test_chosen_steps_with_moving_boundary_data_are_as_long_as_those_of_esdirk3():
    problem = heated(5)
    steps = [
        evolve(problem, until=1.0, method=method, rtol=1e-4, preconditioner="auto").steps
        for method in ("ark3", "esdirk3")
    ]
    assert steps[0] <= 1.2 * steps[1]


def moving_flow(diffusion=1e-3):
    """Transport into the domain and slow diffusion, both with data cos 5t."""
    inflow = div(X, -1.0, boundary=(MOVING, Neumann()))
    terms = [inflow, *laplacian([X], diffusion)]
    return PDE([X], terms, boundary=(MOVING, Dirichlet()), initial=FALLING).discretize(3, 2)


def test_boundary_data_go_with_their_term():
    problem = moving_flow()
    diffusion = PDE(
        [X], laplacian([X], 1e-3), boundary=(MOVING, Dirichlet()), initial=0.0
    ).discretize(3, 2)
    found = source_of(problem.implicit_source, problem, 0.7)
    np.testing.assert_allclose(found, source_of(diffusion.source, diffusion, 0.7), atol=1e-13)
    assert np.linalg.norm(found) < 0.1 * np.linalg.norm(source_of(problem.source, problem, 0.7))


def test_manufactured_sources_go_with_their_terms():
    """Sources "from exact" are implicit where their term is, so the explicit part cancels."""
    exact = Separable(x=lambda x: np.sin(2 * x + 1), t=exp(-1.0))
    ends = (Dirichlet("from exact"), Dirichlet("from exact"))
    inflow = div(X, -1.0, boundary=(ends[0], Neumann()))
    own = {"boundary": ends, "exact": exact, "sources": "from exact"}
    problem = PDE([X], [inflow, *laplacian([X])], **own).discretize(4, 3)
    diffusion = PDE([X], laplacian([X]), **own).discretize(4, 3)
    found = source_of(problem.implicit_source, problem, 0.7)
    np.testing.assert_allclose(found, source_of(diffusion.source, diffusion, 0.7), atol=1e-10)
    u = problem.exact_coefficients(0.7)
    transport = problem.operator.to_dense() - problem.implicit_operator_at(0.7).to_dense()
    explicit = transport @ u + source_of(problem.source, problem, 0.7) - found
    assert np.linalg.norm(explicit) < 1e-3 * np.linalg.norm(u)


def test_given_sources_are_implicit():
    source = Separable(x=np.sin, t=cos(3.0))
    ends = (Dirichlet(), Neumann())
    problem = PDE([X], div(X, -1.0), boundary=ends, initial=0.0, sources=source).discretize(3, 1)
    found = source_of(problem.implicit_source, problem, 0.4)
    np.testing.assert_array_equal(found, source_of(problem.source, problem, 0.4))
    assert found.any()


@pytest.mark.parametrize(("method", "least"), [("ark2", 1.9), ("ark3", 2.9)])
def test_order_with_moving_inflow(method, least):
    problem = moving_flow()
    exact = solution(problem, problem.operator.to_dense(), 1.0)
    errors = [
        np.linalg.norm(evolve(problem, until=1.0, method=method, dt=dt).u - exact)
        for dt in (1 / 60, 1 / 120)
    ]
    assert np.log2(errors[0] / errors[1]) > least


def test_which_parts_are_all_of_a_problem():
    """Collisions alone are, at every state; beside transport they are not."""
    alone = gallery.make("relaxation-1x1v", 2, 1)
    part, out, expected = alone.implicit_part(), *np.full((2, alone.unknowns), np.nan)
    assert part.is_whole
    part.follow(0.0, alone.initial)
    alone.rhs(0.0, alone.initial, expected)
    part.source(0.0, out)
    out += part.operator @ alone.initial
    np.testing.assert_allclose(out, expected, atol=1e-12 * np.abs(expected).max())
    moving = gallery.make("collisional-landau-1x1v", 2, 1)
    assert not moving.implicit_part().is_whole
    assert moving.whole_part().is_whole
    assert not gallery.make("bgk-1x1v", 2, 1).implicit_part().is_whole
