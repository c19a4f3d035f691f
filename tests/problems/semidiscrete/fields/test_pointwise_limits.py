"""What pointwise terms are not possible with: each is refused by name, with what to do instead.

And grids that follow the solution, with which they are.
"""

import warnings

import numpy as np
import pytest

from batchkron.problems import (
    PDE,
    Axis,
    Electric,
    Moment,
    Separable,
    SparseGrid,
    div,
    grad,
    make,
    pointwise,
    save_problem,
)
from batchkron.solvers import Adapt, EvolveStatus, evolve

TURN = 2 * np.pi
X, Y = Axis("x", 0, TURN), Axis("y", 0, TURN)
FLUX = pointwise(lambda f: f**2 / 2, speed=1.0)


BURGERS = -1 * div(X) @ FLUX


def problem_of(terms=BURGERS, level=3, degree=1, grid="sparse", **more):
    more = {"boundary": "periodic", "initial": "sin(x + y)", **more}
    return PDE([X, Y], terms, **more).discretize(level, degree, grid)


def not_closed():
    cells = SparseGrid.sparse([3, 3]).cells
    return SparseGrid.custom(cells[cells.sum(axis=1) != 1], [3, 3])


def of_two_coordinates():
    v = Axis("v", -1, 1)
    ends = {X: "periodic", Y: "periodic", v: "neumann"}
    return PDE([X, Y, v], pointwise("f * n", n=Moment(v)), boundary=ends, initial=0.0)


REFUSED = {
    "a div without a speed": (
        lambda: problem_of(div(X) @ pointwise("f**2")),
        r"give pointwise\(\.\.\., speed=\).*or speed_of=",
    ),
    "a limiter on a sparse grid": (
        lambda: PDE([X, Y], -1 * div(X) @ FLUX, boundary="periodic", initial=1.0).discretize(
            3, 1, limiter="positive"
        ),
        "a sparse grid has no cell means; use grid='full', Mixed",
    ),
    "a degree above 5": (
        lambda: problem_of(degree=6, initial=Separable(x=np.sin)),
        "there are sets for the degrees 0, 1, 2, 3, 4, 5; got degree 6",
    ),
    "exponential methods": (
        lambda: evolve(problem_of(), until=0.1, dt=0.01, method="exponential-trapezoidal"),
        "exponential methods need an operator, which pointwise.*linear=True",
    ),
    "an operator for cg": (lambda: problem_of().operator, "cg, gmres and exponential methods need"),
    "complex functions": (
        lambda: problem_of(pointwise(lambda f: 1j * f)).rhs(0.0, problem_of().initial),
        "expected real numbers. A complex function is two real components",
    ),
    "complex initial states": (
        lambda: problem_of(initial=lambda x, y: np.exp(1j * x)),
        "A complex function is two real components",
    ),
    "second derivatives of functions that fall": (
        lambda: problem_of(div(X) @ grad(X) @ pointwise("f**2")).rhs(0.0, problem_of().initial),
        r"falls with f at x = .*expected a function that grows",
    ),
    "callables in files": (
        lambda: save_problem("never-written.h5", problem_of()),
        "is the Python function .*; give it as the text of a formula",
    ),
    "grids that are not closed downward": (
        lambda: problem_of(grid=not_closed(), level=None, initial=Separable(x=np.sin)),
        r"lacks an ancestor of one of its cells; grid\.closed\(\) has all of them",
    ),
    "fields of several coordinates": (of_two_coordinates, "is a function of x, y"),
    "ranks": (lambda: problem_of().time_parts(), "cannot be spread over ranks yet; run it on one"),
    "limiters on ranks": (
        lambda: limited().time_parts(),
        "a limiter, which cannot be spread over ranks yet",
    ),
    "sources from exact": (
        lambda: PDE([X, Y], pointwise("f**2"), boundary="periodic", exact=1.0,
                    sources="from exact"),
        "which has no part of .*; give the sources as functions",
    ),
    "frozen problems": (
        lambda: problem_of().frozen(problem_of().initial),
        "cannot be frozen; explicit, IMEX and implicit methods take it",
    ),
}  # fmt: skip


def limited():
    pde = PDE([X, Y], div(X, -1.0), boundary="periodic", initial=1.0)
    return pde.discretize(2, 1, "full", limiter="positive")


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what):
    call, text = REFUSED[what]
    with pytest.raises((TypeError, ValueError, ArithmeticError), match=text):
        call()


def electric():
    v = Axis("v", -1, 1)
    force = div(v, -1, others={(X, Y): Electric([X, Y], Moment(v)).x})
    ends = {X: "periodic", Y: "periodic", v: "no-flux"}
    pde = PDE([X, Y, v], force, boundary=ends, initial=1.0)
    return pde.discretize(1, 1)


def driven():
    pde = PDE([X], div(X, -1.0), boundary="periodic", initial=0.0, sources=lambda x, t: x * t)
    return pde.discretize(2, 1)


ON_RANKS = {
    "pointwise terms": (lambda: problem_of(), "pointwise terms, .*; run it on one rank"),
    "electric fields": (electric, "an electric field of several positions, .*; run it on one"),
    "limiters": (lambda: limited(), "a limiter, .*; run it on one rank, or leave out limiter="),
    "fields": (lambda: of_a_field(), r"has fields, .*problem\.frozen\(u\) is the linear problem"),
    "sources": (driven, "sources that are functions of all axes and the time, .*Separable"),
}


def of_a_field():
    v = Axis("v", -1, 1)
    force = div(v, others={X: Moment(v)})
    pde = PDE([X, v], force, boundary={X: "periodic", v: "neumann"}, initial=1.0)
    return pde.discretize(2, 1)


@pytest.mark.parametrize("what", ON_RANKS)
def test_ranks_refuse_a_problem_by_name(what):
    """Each rank, before an operator is assembled."""
    from batchkron.distributed import distribute, simulate

    make, text = ON_RANKS[what]

    def run(communicator):
        problem = make()
        with pytest.raises(TypeError, match=text):
            distribute(problem, communicator)
        return "_groups" in vars(problem.system)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a moment that carries itself
        assert simulate(2, run) == [False, False]


def test_grids_follow_the_solution():
    """The error is about the tolerance, on grids that are closed downward."""
    for tol in (1e-3, 1e-4):
        problem = make("burgers-1d", 4, 2)
        result = evolve(problem, adapt=Adapt(tol, max_level=7))
        assert result.status is EvolveStatus.COMPLETED
        assert result.problem.grid.is_downward_closed
        assert result.problem.l2_error(result.u, result.t) < 2 * tol
        assert result.problem.unknowns < make("burgers-1d", 6, 2).unknowns


def test_grids_follow_a_pulse_in_two_axes():
    x, y = Axis("x", -4, 4), Axis("y", -4, 4)
    flux = pointwise("f**2 / 2", speed_of="f")
    terms = [-1 * div(axis) @ flux for axis in (x, y)]
    pde = PDE([x, y], [*terms, pointwise("-0.1 * f**2")], boundary="periodic",
              initial=lambda x, y: np.exp(-2 * (x * x + y * y)))  # fmt: skip
    fine = pde.discretize(5, 2, "full")
    places = np.random.default_rng(0).uniform(-2, 2, (500, 2))
    known = fine.evaluate(evolve(fine, until=0.2).u, places)
    off = []
    for tol in (1e-2, 1e-3):
        result = evolve(pde.discretize(3, 2), until=0.2, adapt=Adapt(tol, max_level=5))
        assert result.status is EvolveStatus.COMPLETED
        assert result.problem.unknowns < 0.7 * fine.unknowns
        off.append(np.abs(result.problem.evaluate(result.u, places) - known).max())
    assert off[1] < 0.3 * off[0] < 0.03
