"""What IMEX methods treat implicitly, and which methods need no explicit step."""

import numpy as np

from batchkron.problems import PDE, Axis, Dirichlet, Neumann, gallery
from batchkron.problems.default_stepper import IMPLICIT_METHODS
from batchkron.problems.terms import div, laplacian
from batchkron.solvers import evolve, steppers


def flow():
    axes = x, y = [Axis("x", 0, 1), Axis("y", 0, 1)]
    own = {"boundary": (Dirichlet(), Neumann())}
    terms = [*laplacian(axes, 0.1), div(x, -1.0, **own), div(y, -1.0, **own)]
    return PDE(axes, terms, boundary=Dirichlet(), initial=1.0)


def test_the_implicit_part_is_the_diffusion():
    problem = flow().discretize(level=2, degree=1)
    axes = [Axis("x", 0, 1), Axis("y", 0, 1)]
    diffusion = PDE(axes, laplacian(axes, 0.1), boundary=Dirichlet()).discretize(level=2, degree=1)
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
