"""Weights of cells by axes, fields and moments, against loops over cells and their points."""

import itertools
import pickle

import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss

from batchkron import NotPhysicalError
from batchkron.problems import PDE, Axis, Moment, Poisson, Separable, SparseGrid, div, make, mass
from batchkron.problems.semidiscrete.adaptation.cell_weights import cell_weight
from batchkron.solvers import Adapt, EvolveStatus, evolve

POINTS = (leggauss(8)[0] + 1.0) / 2.0


@pytest.fixture(scope="module")
def two_stream():
    """n = ½ (1 - ½ cos(x/2)), whose field is -½ sin(x/2)."""
    return make("two-stream", 5, 2)


def exact_field(x):
    return -0.5 * np.sin(0.5 * x)


def support(axis, index):
    """The interval on which the functions of a 1-D cell are not zero."""
    count = 1 if index < 2 else 1 << (index.bit_length() - 1)
    width = axis.length / count
    first = axis.lower + (index - count if index >= 2 else 0) * width
    return first, width


def looked_at(problem, grid, function):
    """The largest |function(x, v, E)| of each cell: 8 points in x, ends and centre in v."""
    x, v = problem.axes
    found = []
    for i, j in grid.cells.tolist():
        (left, width), (low, height) = support(x, i), support(v, j)
        found.append(
            max(
                abs(function(left + a * width, low + b * height, exact_field(left + a * width)))
                for a, b in itertools.product(POINTS, (0.0, 0.5, 1.0))
            )
        )
    return np.array(found)


def weights(problem, weight, fields=(), grid=None, u=None):
    made = cell_weight(problem.output, weight, fields)
    state = problem.initial if u is None else u
    return made.for_state(problem.output, state, 0.0)(problem.grid if grid is None else grid)


def mixed(x, v, E):
    return (1.0 + E) * v + 0.1 * x


def test_functions_of_axes_and_fields(two_stream):
    x, v = two_stream.axes
    E = Poisson(x, Moment(v))
    finer = SparseGrid.sparse([7, 4])  # cells of half and of a quarter of the finest width
    for grid in (two_stream.grid, finer):
        found = weights(two_stream, mixed, [E], grid)
        np.testing.assert_allclose(found, looked_at(two_stream, grid, mixed), rtol=0, atol=2e-5)
        found = weights(two_stream, E**2, grid=grid)
        expected = looked_at(two_stream, grid, lambda x, v, E: E**2)
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


def test_a_field_with_zeros_at_ends_and_centre_counts(two_stream):
    found = weights(two_stream, Poisson(two_stream.axes[0], Moment(two_stream.axes[1])))
    assert found[two_stream.grid.find([0, 0])] > 0.49  # its zeros are at both ends and the middle


def test_texts_are_products_of_powers(two_stream):
    x, v = two_stream.axes
    E = Poisson(x, Moment(v))
    np.testing.assert_array_equal(
        weights(two_stream, "v^2"), weights(two_stream, lambda x, v: v**2)
    )
    np.testing.assert_allclose(
        weights(two_stream, "field^2*v*v^2"),
        weights(two_stream, lambda x, v, E: v**3 * E**2, [E]),
        rtol=1e-14,
        atol=0,
    )
    np.testing.assert_allclose(
        weights(two_stream, "field"), weights(two_stream, E), rtol=1e-14, atol=0
    )


def test_fields_of_several_axes_and_moments_of_the_state():
    """n(x) of x and g(v) of v are those of the state that is given."""
    x, v = Axis("x", 0.0, 1.0), Axis("v", 0.0, 2.0)
    start = Separable(x=lambda s: 1.0 + s, v=lambda s: 3.0 - s)
    problem = PDE([x, v], [div(x, -1.0)], boundary="inflow", initial=start).discretize(3, 1)
    n, g = Moment(v), Moment(x)  # 4 (1 + x) and 1.5 (3 - v)
    found = weights(problem, lambda x, v, n, g: n * g, [n, g], u=2.0 * problem.initial)
    expected = [
        max(
            8.0 * (1.0 + support(x, i)[0] + a * support(x, i)[1])
            * 3.0 * (3.0 - support(v, j)[0] - b * support(v, j)[1])
            for a, b in itertools.product(POINTS, POINTS)
        )
        for i, j in problem.grid.cells.tolist()
    ]  # fmt: skip
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=0)


def test_cells_leave_by_the_weighted_state(rng):
    """f_t = 0 with n as weight: four times the tolerance for twice the state, cell by cell."""
    x, v = Axis("x", 0.0, 1.0), Axis("v", -1.0, 1.0)
    problem = PDE([x, v], [], boundary="periodic", initial=0.0, sources=0.0).discretize(4, 1)
    u = rng.standard_normal(problem.unknowns)
    u *= np.repeat(4.0 ** -problem.grid.cell_levels.sum(axis=1), problem.block_size)

    def remaining(state, tol, **settings):
        now = problem.adaptive(tol=tol, **settings)
        for _ in range(2):
            now = now.changed(state, 0.0, 1.0, 0.1)
        return now.problem.grid.cells

    cells = remaining(u, 0.5, weight=Moment(v))
    twice = remaining(2.0 * u, 2.0, weight=Moment(v))
    np.testing.assert_array_equal(twice, cells)
    sizes = np.linalg.norm(u.reshape(-1, problem.block_size), axis=1)
    density = problem.moment(u, v)
    seen = [
        np.abs(density.evaluate(support(x, i)[0] + POINTS * support(x, i)[1])).max()
        for i, _ in problem.grid.cells.tolist()
    ]
    needed = problem.grid.cells[sizes * seen >= 0.05]
    assert 4 < len(needed) <= len(cells) < problem.grid.num_cells
    assert (SparseGrid.custom(cells, problem.grid.levels).find(needed) >= 0).all()


def test_runs_take_weights_and_end_where_they_are_not_defined():
    problem = make("two-stream", 3, 2)
    x, v = problem.axes
    n, E = Moment(v), Poisson(x, Moment(v))
    run = {"until": 0.2, "dt": 0.02, "method": "rk4"}

    def maxwellian(x, v, n, T):
        return n * np.exp(-0.5 * v**2 / T) / np.sqrt(2.0 * np.pi * T)

    T = Moment({v: 2}) / n
    by_fields = evolve(problem, **run, adapt=Adapt(1e-3, every=5, weight=E**2))
    by_text = evolve(problem, **run, adapt=Adapt(1e-3, every=5, weight="field^2"))
    np.testing.assert_array_equal(by_fields.problem.grid.cells, by_text.problem.grid.cells)
    rule = Adapt(1e-3, every=5, weight=maxwellian, fields=[n, T])
    by_maxwellian = evolve(problem, **run, adapt=rule)
    sizes = {result.u.size for result in (by_fields, by_maxwellian)}
    assert {result.status for result in (by_fields, by_maxwellian)} == {EvolveStatus.COMPLETED}
    assert len(sizes) == 2


def test_a_weight_that_is_not_defined_ends_the_run():
    """n = 2 exp(-t), and a weight that divides by n - 1.9."""
    x, v = Axis("x", 0.0, 1.0), Axis("v", -1.0, 1.0)
    pde = PDE([x, v], [mass(x, -1.0)], boundary="periodic", initial=1.0)
    problem = pde.discretize(2, 1)
    rule = Adapt(1e-3, every=2, weight=1.0 / (Moment(v) - 1.9))
    result = evolve(problem, until=1.0, dt=0.02, method="rk4", adapt=rule)
    assert (result.status, result.steps) == (EvolveStatus.NOT_PHYSICAL, 4)  # 2 exp(-0.06) = 1.88
    assert "(Moment({v: 0}) - 1.9) is -0.05" in result.message
    assert problem.integral(result.u) == pytest.approx(2.0 * np.exp(-result.t), rel=1e-8)
    rule = Adapt(1e-3, every=2, weight=1.0 / (Moment(v) - 3.0))  # not at the beginning, either
    result = evolve(problem, until=1.0, dt=0.02, method="rk4", adapt=rule)
    assert (result.status, result.steps) == (EvolveStatus.NOT_PHYSICAL, 0)
    assert "(Moment({v: 0}) - 3) is -1" in result.message


def test_a_field_that_is_not_a_number_has_no_weight(two_stream):
    """On a device fields have no values where they are not defined, and do not raise."""
    _, v = two_stream.axes
    weight = cell_weight(two_stream.output, lambda x, v, n: 1.0, [Moment(v)])
    undefined = [lambda s: np.where(s > 0.0, np.nan, s)]
    with pytest.raises(NotPhysicalError, match=r"Moment\({v: 0}\) is nan at x = .*, t = 0.5"):
        weight.of_cells(two_stream.axes, undefined, 0.5, two_stream.grid)


@pytest.mark.parametrize(
    ("weight", "fields", "error", "match"),
    [
        (2.0, (), TypeError, "weight is a float; expected a function of the axes"),
        ("w^2", (), ValueError, "weight is 'w\\^2'; expected a product of powers of x, v and of"),
        ("v^0", (), ValueError, "weight is 'v\\^0'"),
        ("", (), ValueError, "weight is ''"),
        (lambda x: x, (), TypeError, r"weight is a function of \(x\).*each axis \(x, v\)"),
        (lambda x, v: x, ["n"], TypeError, r"fields\[0\] is str; expected one made of Moment"),
        (lambda x, v: x, 2, TypeError, "fields is int; expected fields"),
        ("v", ["n"], ValueError, "fields are the last arguments .* weight is a str"),
        (None, ["n"], ValueError, "fields are the last arguments .* weight is not given"),
    ],
)
def test_what_is_not_understood_is_refused(two_stream, weight, fields, error, match):
    with pytest.raises(error, match=match):
        two_stream.adaptive(tol=1.0, weight=weight, fields=fields)


def test_other_refusals(two_stream):
    x, v = two_stream.axes
    n = Moment(v)
    with pytest.raises(TypeError, match=r"\(x, v\), then 1 for the fields"):
        two_stream.adaptive(tol=1.0, weight=lambda x, v: x, fields=n)
    with pytest.raises(ValueError, match=r"weight: Moment\({x: 0, v: 0}\) integrates over all"):
        two_stream.adaptive(tol=1.0, weight=Moment([x, v]))
    with pytest.raises(ValueError, match=r"fields\[0\]: Moment\({w: 0}\) names Axis"):
        two_stream.adaptive(tol=1.0, weight=lambda x, v, n: n, fields=[Moment(Axis("w", 0, 1))])
    with pytest.raises(ValueError, match="the terms of continuity-2d have no field of a Poisson"):
        make("continuity-2d", 3, 1).adaptive(tol=1.0, weight="field")
    with pytest.raises(ValueError, match="weight is not finite"):
        weights(two_stream, lambda x, v, n: n * np.nan, [n])
    with pytest.raises(ValueError, match=r"returned the shape \(2,\) for arrays of the shape"):
        weights(two_stream, lambda x, v: np.ones(2))
    with pytest.raises(TypeError, match="weight returned values of the dtype object; expected a"):
        weights(two_stream, lambda x, v: None)


def test_complex_weights_count_by_their_modulus(two_stream):
    expected = weights(two_stream, lambda x, v: np.hypot(x, v))
    np.testing.assert_allclose(weights(two_stream, lambda x, v: x + 1j * v), expected, rtol=1e-14)


def test_a_function_may_overwrite_its_arguments(two_stream):
    n = Moment(two_stream.axes[1])
    expected = weights(two_stream, lambda x, v, n: 2.0 * n, [n])
    found = weights(two_stream, lambda x, v, n: np.multiply(n, 2.0, out=n), [n])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("text", ["v^2", "field^2*v^2"])
def test_problems_with_weights_of_texts_are_pickled(two_stream, text):
    adaptive = two_stream.adaptive(tol=1e-3, weight=text)
    again = pickle.loads(pickle.dumps(adaptive))
    assert type(again) is type(adaptive)
