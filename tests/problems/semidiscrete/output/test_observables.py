"""Moments, integrals, marginals and slices against tensor quadrature of the evaluated state."""

from itertools import product

import numpy as np
import pytest
from problem_oracle import points_and_weights

from batchkron.problems import PDE, Axis, Inflow, Mixed, Moment, SparseGrid, div
from batchkron.problems.statement.fields import Uniform
from batchkron.solvers import Quantity, evolve

X, Y = Axis("x", -1.0, 2.0), Axis("y", 0.0, 0.5)
V, W = Axis("v", -3.0, 2.0), Axis("w", -1.0, 4.0)


def problem_on(axes, level, degree, grid="sparse", volume=None):
    terms = div(axes[0], -1.0)
    return PDE(axes, terms, boundary=Inflow(), initial=1.0, volume=volume).discretize(
        level, degree, grid
    )


def gaps(grid):
    """The grid without some of its cells."""
    keep = np.arange(grid.num_cells) % 3 != 1
    return SparseGrid.custom(grid.cells[keep], grid.levels)


def by_quadrature(problem, u, powers, points, volume=None):
    """∫ Π v^k f dV at points (m, kept axes), by Gauss points in every finest cell.

    Exact for degree 7: at most 2 of f, 3 of the powers, 2 of dV. Returned are the integrals
    and the sum of the sizes of their summands, of which the rounding error is a small share.
    """
    rules = []
    for axis, level in zip(problem.axes, problem.grid.levels, strict=True):
        if axis in powers:
            nodes, weights = points_and_weights(axis, level, 4)
            element = (volume or {}).get(axis, np.ones_like)
            rules.append((nodes, weights * nodes ** powers[axis] * element(nodes)))
    kept = [k for k, axis in enumerate(problem.axes) if axis not in powers]
    places = [k for k, axis in enumerate(problem.axes) if axis in powers]
    inside = np.array(list(product(*[nodes for nodes, _ in rules])))
    weights = np.array([np.prod(w) for w in product(*[weights for _, weights in rules])])
    found, size = [], []
    for point in points:
        at = np.empty((len(inside), len(problem.axes)))
        at[:, kept], at[:, places] = point, inside
        values = problem.evaluate(u, at)
        found.append(values @ weights)
        size.append(np.abs(values) @ np.abs(weights))
    return np.array(found), np.max(size)


CASES = [
    ([X, V], 4, 2, "sparse", {V: 0}),
    ([X, V], 4, 2, "sparse", {V: 2}),
    ([V, X], (3, 2), 1, "full", {V: 1}),
    ([X, V], 3, 1, "sparse", {V: 3}),  # beyond the degree: all cells of v
    ([X, V], 3, 0, "full", {V: 2}),
    ([X, V], (0, 3), 2, "full", {V: 1}),
    ([X, V], 4, 1, gaps, {V: 1}),
    ([X, V, W], 3, 2, "sparse", {V: 2, W: 1}),
    ([X, V, W], 3, 1, Mixed([X], [V, W]), {W: 1, V: 0}),
    ([V, X, Y], 3, 1, "sparse", {V: 1}),
    ([X, Y, V], 2, 1, Mixed([X, Y], [V]), {V: 2}),
    ([X, V, Y, W], 2, 1, "sparse", {V: 1, W: 1}),
    ([X, V, Y, W], 2, 1, Mixed([X, Y], [V, W]), {V: 0, W: 0, Y: 1}),
]


# with a volume element, powers beyond the degree are refused
CURVED = [case for case in CASES if max(case[4].values()) <= case[2]]


@pytest.mark.parametrize(
    ("axes", "level", "degree", "grid", "powers", "curved"),
    [(*case, False) for case in CASES] + [(*case, True) for case in CURVED],
)
def test_moments_are_integrals_of_the_state(rng, axes, level, degree, grid, powers, curved):
    volume = {V: lambda v: 1.0 + v**2, X: lambda x: 2.0 + x} if curved else {}
    volume = {axis: dV for axis, dV in volume.items() if axis in axes}
    problem = problem_on(axes, level, degree, grid if not callable(grid) else "full", volume)
    if callable(grid):
        problem = problem.on_grid(grid(problem.grid))
    u = rng.uniform(0.5, 1.5, problem.unknowns)
    kept = [axis for axis in axes if axis not in powers]
    points = np.stack([rng.uniform(axis.lower, axis.upper, 5) for axis in kept], axis=1)
    field = problem.moment(u, powers)
    assert field.axes == tuple(kept)
    expected, size = by_quadrature(problem, u, powers, points, volume)
    np.testing.assert_allclose(field.evaluate(points), expected, atol=1e-13 * size)
    whole, size = by_quadrature(problem, u, {**powers, **dict.fromkeys(kept, 0)}, [[]], volume)
    assert field.integral() == pytest.approx(whole[0], abs=1e-13 * size)
    weights = problem.moment_weights(powers)
    assert weights @ u == pytest.approx(whole[0], abs=1e-13 * size)


@pytest.mark.parametrize("curved", [False, True])
def test_integral_marginal_and_norm(rng, curved):
    volume = {W: lambda w: w**2 + 0.5, X: lambda x: 2.0 + x} if curved else {}
    problem = problem_on([X, V, W], 2, 2, "sparse", volume)
    u = rng.uniform(0.5, 1.5, problem.unknowns)
    expected, size = by_quadrature(problem, u, {X: 0, V: 0, W: 0}, [[]], volume)
    assert problem.integral(u) == pytest.approx(expected[0], abs=1e-13 * size)
    marginal = problem.marginal(u, [W, X])
    assert marginal.axes == (X, W)
    np.testing.assert_array_equal(marginal.coefficients, problem.moment(u, V).coefficients)
    single = problem.marginal(u, X)
    assert single.integral() == pytest.approx(expected[0], abs=1e-13 * size)
    nodes, weights = points_and_weights(X, 2)
    square = single.evaluate(nodes) ** 2 @ (weights * volume.get(X, np.ones_like)(nodes))
    assert single.norm() == pytest.approx(np.sqrt(square), rel=1e-13)


def test_slices_are_values_of_the_state(rng):
    problem = problem_on([X, V, W], 3, 2)
    u = rng.uniform(0.5, 1.5, problem.unknowns)
    points = np.stack([rng.uniform(axis.lower, axis.upper, 7) for axis in (X, W)], axis=1)
    for at in (0.0, -3.0, 2.0, 0.77):
        cut = problem.slice(u, {V: at})
        assert cut.axes == (X, W)
        whole = np.insert(points, 1, at, axis=1)
        expected = problem.evaluate(u, whole)
        np.testing.assert_allclose(cut.evaluate(points), expected, atol=1e-12)
    line = problem.slice(u, {V: 0.3, X: 0.1})
    fixed = np.tile([0.1, 0.3], (len(points), 1))
    expected = problem.evaluate(u, np.column_stack([fixed, points[:, 1]]))
    np.testing.assert_allclose(line.evaluate(points[:, 1]), expected, atol=1e-12)


def test_fields_of_the_state_are_evaluated(rng):
    problem = problem_on([X, V], 3, 2)
    x = np.linspace(-0.97, 1.93, 9)
    u = problem.initial + 1e-3 * rng.uniform(-1, 1, problem.unknowns)
    n, m, e = (problem.moment(u, {V: k}).evaluate(x) for k in (0, 1, 2))
    density = Moment(V)
    cases = {
        density * density: n * n,
        3.0 - density: 3.0 - n,
        Moment({V: 1}) / density: m / n,
        (Moment({V: 2}) / density - (Moment({V: 1}) / density) ** 2) ** 0.5: np.sqrt(
            e / n - (m / n) ** 2
        ),
        np.cos * density: np.cos(x) * n,
        2.0 / (1.0 + (lambda s: s**2) * density): 2.0 / (1.0 + x**2 * n),
        density**3 - 1: n**3 - 1,
        density / (lambda s: s - 5.0) / -2.0: n / (x - 5.0) / -2.0,
    }
    for expression, expected in cases.items():
        field = problem.field(u, expression)
        np.testing.assert_allclose(field.evaluate(x), expected, atol=1e-11)
    assert problem.field(u, density).integral() == pytest.approx(problem.integral(u), rel=1e-13)


def test_fields_along_an_axis_with_a_volume_element(rng):
    """Their values are known; their integrals would need the element for a higher degree."""
    problem = problem_on([X, V], 3, 2, volume={X: lambda x: 2.0 + x})
    u = rng.uniform(0.5, 1.5, problem.unknowns)
    field, moment = problem.field(u, Moment({V: 1})), problem.moment(u, {V: 1})
    points = np.linspace(-1.0, 2.0, 13)
    np.testing.assert_allclose(field.evaluate(points), moment.evaluate(points), atol=1e-12)
    for ask in (field.integral, field.norm):
        with pytest.raises(ValueError, match="whose volume element a problem knows for its own"):
            ask()
    assert moment.norm() > abs(moment.integral()) / 4.0 > 0.0


def test_a_moment_is_watched_during_a_run():
    pde = PDE([X, V], div(X, -1.0), boundary="periodic", initial=2.0)
    problem = pde.discretize(2, 1)
    watch = {"mass": Quantity.moment(problem, X), "flow": Quantity.moment(problem, {V: 1})}
    result = evolve(problem, until=0.1, watch=watch)
    assert result.watched["mass"].first == pytest.approx(2.0 * 3.0 * 5.0, rel=1e-14)
    assert result.watched["flow"].last == pytest.approx(2.0 * 3.0 * (4.0 - 9.0) / 2, rel=1e-13)


def test_a_repeated_moment_is_planned_once(rng):
    problem = problem_on([X, V], 3, 1)
    u = rng.uniform(0.5, 1.5, problem.unknowns)
    first = problem.moment(u, {V: 1})
    known = dict(problem.output._contractions)
    assert problem.moment(u, {V: 1}).grid is first.grid
    assert problem.output._contractions == known


def test_what_is_refused():
    problem = problem_on([X, V], 3, 1, volume={V: lambda v: v**2})
    u = problem.initial
    with pytest.raises(
        ValueError, match=r"the power 2 of 'v', which has a volume element.*degree=2"
    ):
        problem.moment(u, {V: 2})
    with pytest.raises(ValueError, match="no axis is left for the result"):
        problem.moment(u, [X, V])
    with pytest.raises(ValueError, match="is not an axis of the problem; its axes are"):
        problem.moment(u, {W: 0})
    with pytest.raises(TypeError, match="the moment is given str"):
        problem.moment(u, "v")
    with pytest.raises(ValueError, match="u has shape"):
        problem.moment(u[1:], V)
    with pytest.raises(ValueError, match="u has shape"):
        problem.integral(u[1:])
    with pytest.raises(ValueError, match="marginal keeps all axes"):
        problem.marginal(u, [X, V])
    with pytest.raises(TypeError, match="places is Axis"):
        problem.slice(u, V)
    with pytest.raises(ValueError, match="expected a point of axis 'v'"):
        problem.slice(u, {V: 9.0})
    with pytest.raises(ValueError, match="no axis is named"):
        problem.slice(u, {})
    with pytest.raises(TypeError, match="the field is float; expected one made of"):
        problem.field(u, 1.0)
    with pytest.raises(ValueError, match="has no moment"):
        problem.field(u, Uniform(1.0))
