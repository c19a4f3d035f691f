"""Preconditioned solves take few iterations, whatever the coefficients and the level."""

import numpy as np
import pytest

import batchkron as bk
from batchkron.problems import PDE, Axis, Dirichlet, Neumann, gallery
from batchkron.problems.statement.terms import div, grad, laplacian, mass
from batchkron.solvers import cg, gmres, preconditioners
from batchkron.solvers.preconditioners import CombinationPreconditioner


def variable():
    axes = x, y = [Axis("x", 0, 1), Axis("y", 0, 1)]

    def growing(s):
        return 1 + 10 * s**2

    terms = [
        div(x) @ grad(x) @ mass(y, growing),
        mass(x, growing) @ div(y) @ mass(y, growing) @ grad(y),
    ]
    return PDE(axes, terms, boundary=Dirichlet(), initial=0.0)


def anisotropic():
    axes = x, y = [Axis("x", 0, 1), Axis("y", 0, 1)]
    return PDE(axes, [1e4 * div(x) @ grad(x), div(y) @ grad(y)], boundary=Dirichlet(), initial=0.0)


def mixed_flow():
    axes = x, y = [Axis("x", 0, 1), Axis("y", 0, 1)]
    own = {"boundary": (Dirichlet(), Neumann())}
    terms = [*laplacian(axes, 0.01), div(x, -1.0, **own), div(y, -0.5, **own)]
    return PDE(axes, terms, boundary=Dirichlet(), initial=0.0)


@pytest.mark.parametrize("build", [variable, anisotropic, mixed_flow])
def test_few_iterations_whatever_the_coefficients(rng, build):
    for level in (4, 6):
        problem = build().discretize(level=level, degree=2)
        b = rng.standard_normal(problem.unknowns)
        B = bk.Identity(problem.unknowns) - 0.005 * problem.operator
        M = preconditioners.make("auto", problem.operator, 0.005)
        result = gmres(B, b, M=M, rtol=1e-6)
        assert result.converged
        assert result.iterations <= 15


def test_implicit_diffusion_takes_at_most_15_iterations_and_cg_works_as_well():
    for level in (4, 6, 8):
        problem = gallery.make("diffusion-2d", level=level)
        b = np.random.default_rng(level).standard_normal(problem.unknowns)
        B = bk.Identity(problem.unknowns) - 0.005 * problem.operator
        M = CombinationPreconditioner(problem.operator, 0.005)
        for solve in (gmres, cg):
            result = solve(B, b, M=M, rtol=1e-6)
            assert result.converged
            assert result.iterations <= 15


def test_iterations_hardly_depend_on_the_level(rng):
    counts = []
    for level in range(4, 9):
        problem = gallery.make("diffusion-2d", level=level)
        b = rng.standard_normal(problem.unknowns)
        B = bk.Identity(problem.unknowns) - 0.005 * problem.operator
        M = preconditioners.make("auto", problem.operator, 0.005)
        for solve in (gmres, cg):
            result = solve(B, b, M=M, rtol=1e-6)
            assert result.converged
            counts.append(result.iterations)
    assert max(counts) <= 9
    assert max(counts) - min(counts) <= 4
