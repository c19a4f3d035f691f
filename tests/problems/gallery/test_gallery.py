"""The gallery: operators, errors and orders of its problems."""

import copy
import pickle
import re

import numpy as np
import pytest
from problem_oracle import (
    dense_div,
    dense_end_penalty,
    dense_grad,
    dense_sum,
    gauss2,
    orders,
    rk3,
)

from batchkron.problems import PDE, Axis, Separable, SparseGrid, div, gallery, make, time

SPEEDS = {
    "continuity-1d": [1],
    "continuity-2d": [1, 1],
    "continuity-3d": [1, 1, 1],
    "continuity-6d": [1, 1, 3, 4, 3, 2],
}


def number(value):
    return lambda points: value * np.ones_like(points)


def along(k, matrix, dimensions):
    return [matrix if axis == k else None for axis in range(dimensions)]


def dense_operator(problem):
    """The operator that the gallery's table states, assembled independently and dense."""
    d, degree = len(problem.axes), problem.degree
    terms = []
    for k, (axis, level) in enumerate(zip(problem.axes, problem.grid.levels, strict=True)):
        if problem.name in SPEEDS:
            matrix = dense_div(axis, level, degree, number(-SPEEDS[problem.name][k]))
        elif problem.name == "advection-1d":
            matrix = dense_div(axis, level, degree, number(-2.0), edges=("dirichlet", "neumann"))
        elif problem.name.endswith("-neumann"):
            outer = dense_div(axis, level, degree, number(1.0), "upwind", ("dirichlet",) * 2)
            inner = dense_grad(axis, level, degree, number(1.0), "downwind", ("neumann",) * 2)
            matrix = outer @ inner
        else:
            outer = dense_div(axis, level, degree, number(1.0), "upwind", ("neumann",) * 2)
            inner = dense_grad(axis, level, degree, number(1.0), "downwind", ("dirichlet",) * 2)
            matrix = outer @ inner + dense_end_penalty(axis, level, degree)
        terms.append(along(k, matrix, d))
    return dense_sum(terms, problem.grid, degree)


SMALL = [
    ("continuity-1d", 4, 0, "full"),
    ("continuity-1d", 3, 3, "full"),
    ("continuity-2d", 3, 2, "sparse"),
    ("continuity-2d", 2, 1, "full"),
    ("continuity-3d", 2, 1, "sparse"),
    ("continuity-3d", 1, 2, "full"),
    ("advection-1d", 4, 2, "sparse"),
    ("diffusion-1d", 3, 2, "full"),
    ("diffusion-2d", 3, 1, "sparse"),
    ("diffusion-2d", 2, 2, "full"),
    ("diffusion-3d", 2, 1, "sparse"),
    ("diffusion-1d-neumann", 3, 2, "full"),
    ("diffusion-2d-neumann", 3, 1, "sparse"),
    ("diffusion-3d-neumann", 2, 1, "sparse"),
]


@pytest.mark.parametrize(("name", "level", "degree", "grid"), SMALL)
def test_every_operator_is_the_dense_kronecker_sum(name, level, degree, grid):
    problem = make(name, level, degree, grid)
    expected = dense_operator(problem)
    error = np.abs(problem.operator.to_dense() - expected).max()
    assert error < 1e-13 * np.abs(expected).max() * 2**level
    assert problem.validate().ok


@pytest.mark.parametrize(
    ("name", "level", "degree", "grid"), [case for case in SMALL if case[0] in SPEEDS]
)
def test_periodic_advection_does_not_grow(name, level, degree, grid):
    A = make(name, level, degree, grid).operator.to_dense()
    assert np.linalg.eigvals(A).real.max() <= 1e-10 * np.linalg.norm(A, 2)


@pytest.mark.parametrize("name", ["advection-1d", "diffusion-1d", "diffusion-2d"])
def test_operators_with_walls_decay(name):
    A = make(name, 3, 2).operator.to_dense()
    assert np.linalg.eigvals(A).real.max() < 0.0


def test_known_error_of_continuity_2d():
    """2304 unknowns, t = 0.1, error of time steps negligible: ASGarD has the same error."""
    problem = make("continuity-2d", 6, 2)
    assert problem.unknowns == 2304
    u = rk3(problem, 0.1, 100)
    assert problem.l2_error(u, 0.1) == pytest.approx(6.707e-4, rel=0.01)


def test_known_projection_errors_of_continuity_6d():
    problem = make("continuity-6d", 3, 2)
    assert problem.unknowns == 100_602
    best = problem.exact_coefficients(0.1)
    assert problem.relative_error(best, 0.1) == pytest.approx(1.37e-1, rel=5e-3)
    coarse = make("continuity-6d", 2, 1)
    assert np.abs(coarse.exact_coefficients(0.1)).max() < 1e-13


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_orders_on_full_grids(degree):
    errors = []
    for level in (4, 5):
        problem = make("continuity-1d", level, degree)
        steps = int(np.ceil(0.5 / problem.stepper.dt)) * (3 if degree == 3 else 1)
        errors.append(problem.l2_error(rk3(problem, 0.5, steps), 0.5))
    assert orders(errors)[0] == pytest.approx(degree + 1, abs=0.15)


@pytest.mark.parametrize("degree", [1, 2])
def test_orders_on_full_grids_in_two_dimensions(degree):
    axes = [Axis("x", 0.0, 1.0), Axis("y", 0.0, 1.0)]
    exact = Separable(
        x=lambda s: np.cos(2 * np.pi * s), y=lambda s: np.sin(2 * np.pi * s), t=time.cos(1.0)
    )
    pde = PDE(
        axes,
        [div(axis, -1.0) for axis in axes],
        boundary="periodic",
        exact=exact,
        sources="from exact",
    )
    errors = []
    for level in (3, 4, 5):
        problem = pde.discretize(level, degree, "full")
        steps = int(np.ceil(0.3 / problem.stepper.dt))
        errors.append(problem.l2_error(rk3(problem, 0.3, steps), 0.3))
    assert orders(errors)[-1] == pytest.approx(degree + 1, abs=0.15)


@pytest.mark.parametrize("degree", [1, 2])
def test_orders_on_sparse_grids(degree):
    errors = []
    for level in (6, 7, 8):
        problem = make("continuity-2d", level, degree)
        steps = int(np.ceil(0.1 / problem.stepper.dt))
        errors.append(problem.l2_error(rk3(problem, 0.1, steps), 0.1))
    assert orders(errors).min() > degree + 0.5


@pytest.mark.parametrize(
    ("name", "levels", "degree", "grid"),
    [
        ("diffusion-1d", (3, 4), 1, "full"),
        ("diffusion-1d", (3, 4), 2, "full"),
        ("diffusion-2d", (2, 3), 1, "full"),
        ("diffusion-1d-neumann", (3, 4), 1, "full"),
        ("diffusion-1d-neumann", (3, 4), 2, "full"),
        ("diffusion-2d-neumann", (2, 3), 1, "full"),
    ],
)
def test_diffusion_converges(name, levels, degree, grid):
    errors = []
    for level in levels:
        problem = make(name, level, degree, grid)
        errors.append(problem.l2_error(gauss2(problem, 0.1, 40), 0.1))
    assert orders(errors)[0] > degree + 0.75


@pytest.mark.parametrize("name", ["diffusion-3d", "diffusion-3d-neumann"])
def test_diffusion_in_three_dimensions_is_near_its_projection(name):
    problem = make(name, 3, 2)
    u = gauss2(problem, 0.05, 10)
    best = problem.relative_error(problem.exact_coefficients(0.05), 0.05)
    assert problem.relative_error(u, 0.05) < 2.5 * best < 5e-3


def test_data_of_diffusion_is_not_zero():
    """Otherwise the errors above would not test boundary values and slopes."""
    for name in gallery.names():
        if name.startswith("diffusion"):
            problem = make(name, 2, 1)
            source = np.full(problem.unknowns, np.nan)
            problem.source(0.0, source)
            assert np.abs(source).max() > 1.0


def test_advection_stays_steady():
    problem = make("advection-1d")
    start = problem.l2_error(problem.initial, 0.0)
    u = rk3(problem, 1.0, int(np.ceil(1.0 / problem.stepper.dt)))
    assert problem.l2_error(u, 1.0) < 3 * start < 1e-4
    moved = rk3(make("advection-1d", 4), 3.0, 400)
    later = rk3(make("advection-1d", 4), 6.0, 800)
    assert np.linalg.norm(later - moved) < 1e-7


KNOWN = [name for name in gallery.names() if gallery.get(name).is_known]
LINEAR = [name for name in KNOWN if not name.startswith("relaxation")]


@pytest.mark.parametrize("name", [name for name in LINEAR if name != "continuity-6d"])
def test_default_steps_are_stable_and_accurate(name):
    """With default steps the error stays below four times that of the projection."""
    entry = gallery.get(name)
    explicit = entry.method == "ssp-rk3"
    problem = entry.make(4 if explicit else 2)
    assert problem.name == name
    assert problem.stepper.until == entry.until
    assert problem.stepper.method == entry.method
    assert name in entry.describe()
    until = 0.3 if explicit else 0.02
    steps = int(np.ceil(until / problem.stepper.dt))
    u = (rk3 if explicit else gauss2)(problem, until, steps)
    best = problem.l2_error(problem.exact_coefficients(until), until)
    assert best < problem.l2_error(u, until) < 4 * best


def test_default_step_of_continuity_is_the_rule():
    problem = make("continuity-2d", 6, 2)
    rate = 1 / (2 / 64) + 1 / (4 / 64)
    assert problem.stepper.dt == pytest.approx(0.5 / (5 * rate))


def test_settings_can_be_given():
    problem = make("diffusion-1d", 3, 1, until=0.3, method="ssp-rk3")
    assert (problem.stepper.method, problem.stepper.until) == ("ssp-rk3", 0.3)
    fastest = np.linalg.eigvals(problem.operator.to_dense()).real.min()
    assert -fastest * problem.stepper.dt < 2.5
    assert make("diffusion-1d", 3, 1, dt=0.125).stepper.dt == 0.125
    grid = SparseGrid.full([2, 3])
    assert make("diffusion-2d", degree=1, grid=grid).unknowns == 128
    assert make("continuity-2d", [2, 3], 1, "full").grid.num_cells == 32


def test_unknown_names_are_met_with_close_ones():
    with pytest.raises(ValueError, match="Did you mean 'continuity-2d'"):
        gallery.get("Continuity_2D")
    with pytest.raises(ValueError, match="the gallery has no 'zzz'; it has continuity-1d"):
        make("zzz")


@pytest.mark.parametrize("name", gallery.names())
def test_problems_can_be_copied_and_pickled(name):
    problem = make(name, 2, 1)
    for other in (copy.deepcopy(problem), pickle.loads(pickle.dumps(problem))):
        np.testing.assert_array_equal(other.initial, problem.initial)
        exact = [one.exact_coefficients(0.1) for one in (problem, other)]
        assert (exact[0] is None) == (exact[1] is None)
        if exact[0] is not None:
            np.testing.assert_array_equal(*exact)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        *((entry.name, {"k": value}) for value in (0.0, -0.5, 1e300, 5e-324)
          for entry in map(gallery.get, gallery.names()) if "k" in entry.parameters),
        ("two-stream-linear", {"drift": 10.5}),
        ("runaway", {"delta": 1e200}),
        ("runaway", {"delta": -0.3}),
        ("runaway", {"charge": -5.0}),
        ("runaway", {"radiation": -1.0}),
    ],
)  # fmt: skip
def test_parameters_out_of_their_range_are_refused(name, parameters):
    ((key, value),) = parameters.items()
    text = re.escape(f"'{key}' of {name} is {value:g}; expected")
    with pytest.raises(ValueError, match=text):
        make(name, 2, 1, **parameters)


def test_a_pde_needs_its_initial_state():
    x = Axis("x", -1.0, 1.0)
    for more in ({}, {"sources": 1.0}, {"initial": None}):
        with pytest.raises(
            ValueError, match=r"initial is left out, .* initial=0\.0 where f is zero"
        ):
            PDE([x], div(x), boundary="periodic", **more)
    zero = PDE([x], div(x), boundary="periodic", initial=0.0, sources=1.0).discretize(2, 1)
    assert not zero.initial.any()
    known = PDE([x], div(x), boundary="periodic", exact=Separable(x=np.cos)).discretize(2, 1)
    assert known.initial.any()
