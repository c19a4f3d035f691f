"""Functions of all axes on a grid: their projections, as initial states, sources and solutions."""

import tracemalloc

import numpy as np
import pytest

from batchkron.problems import (
    PDE,
    Axis,
    Mixed,
    Separable,
    SparseGrid,
    div,
    grad,
    load_problem,
    save_problem,
    time,
)
from batchkron.problems.discretization.interpolation.transform import PointTransform
from batchkron.problems.semidiscrete.sources import MovingSources
from batchkron.solvers import Adapt, evolve

TURN = 2 * np.pi
NAMES = "xyzw"


def circles(d):
    return [Axis(name, 0, TURN) for name in NAMES[:d]]


def still(axes, **parts):
    """A PDE f_t = 0, or with these sources."""
    return PDE(axes, [], boundary="periodic", **{"sources": 0.0, **parts})


# Errors of the L² projection of exp(Σ cos x_k), as root mean squares, by (axes, degree), from the
# given level on.
PROJECTIONS = {
    (2, 1): (4, [3.6e-2, 1.1e-2, 3.4e-3, 1.0e-3]),
    (2, 2): (4, [3.4e-3, 8.8e-4, 1.25e-4, 1.8e-5]),
    (2, 3): (4, [1.6e-4, 2.2e-5, 1.6e-6, 1.3e-7]),
    (3, 1): (4, [1.2e-1, 4.4e-2]),
    (3, 2): (4, [9.3e-3, 2.3e-3]),
}


@pytest.mark.parametrize(("d", "degree"), list(PROJECTIONS))
def test_interpolation_is_nearly_the_projection(d, degree):
    first, expected = PROJECTIONS[d, degree]
    bump = Separable(**{name: lambda s: np.exp(np.cos(s)) for name in NAMES[:d]})
    for level, size in enumerate(expected, start=first):
        problem = still(circles(d), exact=bump).discretize(level, degree)
        least = problem.l2_error(problem.initial, 0.0)
        assert least < 1.2 * size * TURN ** (d / 2)

        def function(*points):
            return np.exp(sum(np.cos(own) for own in points))

        found = problem.project(function)
        assert least <= problem.l2_error(found, 0.0) < 1.1 * least
        equal = PointTransform(problem.axes, problem.grid, degree, extra=0)
        cheap = equal.project(lambda *points: function(*points[:-1]), 0.0)
        assert problem.l2_error(cheap, 0.0) < (10 if degree == 1 else 7) * least


@pytest.mark.parametrize(("degree", "expected"), [(2, [4.0e-3, 6.1e-4, 8.8e-5, 1.2e-5]),
                                                  (3, [6.7e-5, 4.9e-6, 3.5e-7])])  # fmt: skip
def test_a_wave_that_is_two_products(degree, expected):
    sines = Separable(x=np.sin, y=np.sin)
    wave = Separable(x=np.cos, y=np.cos) - sines
    for level, size in enumerate(expected, start=4):
        problem = still(circles(2), exact=wave).discretize(level, degree)
        assert problem.l2_error(problem.project("cos(x + y)"), 0.0) < 1.2 * size * TURN


@pytest.mark.parametrize("grid", ["full", "mixed", "adapted"])
def test_initial_states_on_other_grids(grid):
    axes = circles(2)
    chosen = {"full": "full", "mixed": Mixed([axes[0]], [axes[1]])}.get(grid)
    level = 3
    if grid == "adapted":
        cells = SparseGrid.custom([[9, 0], [3, 5], [0, 12]], [4, 4]).closed()
        chosen, level = cells, None
    problem = still(axes, initial=lambda y, x: x * (6 - x) * (2 + y)).discretize(level, 2, chosen)
    points = np.random.default_rng(2).uniform(0, TURN, (30, 2))
    expected = points[:, 0] * (6 - points[:, 0]) * (2 + points[:, 1])
    np.testing.assert_allclose(problem.evaluate(problem.initial, points), expected, rtol=1e-8)


def test_initial_states_with_jumps_and_singular_ends():
    """Each point at an edge has the value from its own cell; ends of axes are not met."""
    r = Axis("r", 0, 1)
    pde = still([r, Axis("y", 0, 1)], initial=lambda r, y: np.where(r < 0.5, 1 / r * r, 3.0))
    problem = pde.discretize(2, 1)
    found = problem.evaluate(problem.initial, [[0.2, 0.3], [0.49, 0.9], [0.51, 0.1], [1.0, 1.0]])
    np.testing.assert_allclose(found, [1, 1, 3, 3], rtol=1e-9)


def test_grids_that_follow_begin_with_the_function():
    axes = circles(2)

    def bump(x, y):
        return np.exp(-5 * ((x - 2) ** 2 + (y - 4 + 0.3 * x) ** 2))

    pde = PDE(axes, [div(axis, -1.0) for axis in axes], boundary="periodic", initial=bump)
    result = evolve(pde.discretize(3, 2), until=0.02, dt=0.01, adapt=Adapt(1e-4, max_level=6))
    assert max(result.problem.grid.levels) > 3
    points = np.random.default_rng(2).uniform(1, 5, (50, 2))
    found = result.problem.evaluate(result.u, points)
    assert np.abs(found - bump(*(points.T - 0.02))).max() < 5e-3


X, Y = Axis("x", 0, 1), Axis("y", -1, 1)
PRODUCT = Separable(x=lambda s: 1 + s, y=lambda s: s**2, t=time.cos(3.0))
FORMULA = "(1 + x) * y**2 * cos(3 * t)"


def driven(sources):
    terms = [div(X, -1.0), 0.1 * div(Y) @ grad(Y)]
    boundary = {X: "inflow", Y: "dirichlet"}
    pde = PDE([X, Y], terms, boundary=boundary, initial=Separable(x=np.sin, y=np.cos),
              sources=sources, t0=0.2)  # fmt: skip
    return pde.discretize(3, 2)


@pytest.mark.parametrize(
    "sources", [FORMULA, lambda x, y, t: (1 + x) * y**2 * np.cos(3 * t), ["x * 0", FORMULA]]
)
@pytest.mark.parametrize("method", ["ssp-rk3", "esdirk3", "ark3", "exponential-trapezoidal"])
def test_sources_in_time(sources, method):
    """Polynomials of the degree are reproduced, so that both runs are the same."""
    with_product, with_function = driven(PRODUCT), driven(sources)
    u = np.random.default_rng(3).standard_normal(with_product.unknowns)
    for t in (0.2, 0.7):
        found = []
        for problem in (with_product, with_function):
            rates = [np.full(u.size, np.nan) for _ in range(3)]
            problem.rhs(t, u, rates[0])
            problem.source(t, rates[1])
            problem.implicit_source(t, rates[2])
            found.append(np.concatenate(rates))
        np.testing.assert_allclose(*found, atol=1e-8)
    runs = [evolve(p, until=0.25, dt=0.01, method=method) for p in (with_product, with_function)]
    np.testing.assert_allclose(runs[0].u, runs[1].u, atol=1e-8)


def test_sources_may_return_the_same_array():
    kept: list[np.ndarray] = []

    def own(values):
        kept.append(values) if not kept else np.copyto(kept[0], values)
        return kept[0]

    sources = [lambda x, t: own(np.cos(x + t)), lambda x, t: own(np.sin(x) * t)]
    apart = [lambda x, t: np.cos(x + t), lambda x, t: np.sin(x) * t]
    found, expected = (
        still(circles(1), initial=0.0, sources=given).discretize(3, 2).rhs(0.3, np.zeros(24))
        for given in (sources, apart)
    )
    np.testing.assert_array_equal(found, expected)


def test_the_values_of_a_single_source_are_not_copied():
    """On a device that would be one more kernel in each evaluation."""
    values, given = np.ones(3), []

    class Transform:
        device = "cpu"

        def points(self):
            return [np.zeros(3)]

        def coefficients(self, values):
            given.append(values)
            return values

    MovingSources([lambda x, t: values], [], Transform).accumulate(0.0, np.zeros(3))
    assert given[0] is values


def test_steady_functions_are_vectors():
    """They can be spread over ranks, which functions of time cannot."""
    whole = Separable(x=lambda s: 1 + s, y=lambda s: s**2)
    steady, product = driven(["(1 + x) * y**2", "x"]), driven([whole, Separable(x=lambda s: s)])
    for own, other in zip(steady.time_parts().sources, product.time_parts().sources, strict=True):
        np.testing.assert_allclose(own[1], other[1], atol=1e-8)
    with pytest.raises(TypeError, match="functions of all axes and the time, which cannot be spr"):
        driven(FORMULA).time_parts()


def test_known_solutions_of_many_axes():
    """The tensor grid of Gauss points has too many of them; errors are interpolated."""
    axes = circles(4)
    product = Separable(**{axis.name: lambda s: np.exp(np.cos(s) / 4) for axis in axes})
    known = still(axes, exact=product).discretize(3, 2)

    def function(x, y, z, w, t):
        return np.exp((np.cos(x) + np.cos(y) + np.cos(z) + np.cos(w)) / 4)

    problem = still(axes, exact=function).discretize(3, 2)
    assert known.l2_error(problem.initial, 0.0) < 1.1 * known.l2_error(known.initial, 0.0)
    shifted = known.initial + 1e-2 * np.random.default_rng(1).standard_normal(known.unknowns)
    error = known.l2_error(shifted, 0.0)
    assert abs(problem.l2_error(shifted, 0.0) / error - 1) < 0.05
    assert abs(problem.l2_norm_exact(0.0) / known.l2_norm_exact(0.0) - 1) < 1e-4
    assert problem.l2_error(known.initial, 0.0) < 2 * known.l2_error(known.initial, 0.0)


def test_norms_of_many_axes_have_volume_elements():
    axes = [Axis("r", 0, 1), *circles(4)[1:]]
    parts = {"r": lambda s: 1 + s**2, **{axis.name: np.sin for axis in axes[1:]}}
    volume = {"r": lambda r: r**2}
    known = still(axes, exact=Separable(**parts), volume=volume).discretize(3, 2)
    exact = "(1 + r**2) * sin(y) * sin(z) * sin(w)"
    problem = still(axes, exact=exact, volume=volume).discretize(3, 2)
    u = 1.5 * known.initial
    assert abs(problem.l2_norm_exact(0.0) / known.l2_norm_exact(0.0) - 1) < 1e-2
    assert abs(problem.l2_error(u, 0.0) / known.l2_error(u, 0.0) - 1) < 2e-2


def test_formulas_are_saved_as_text(tmp_path):
    problem = driven([FORMULA, "exp(-x*y)", Separable(x=np.sin)])
    save_problem(tmp_path / "p.h5", problem)
    again = load_problem(tmp_path / "p.h5", trusted=True)
    assert again.content_hash == problem.content_hash
    assert [own.text for own in again.source_functions] == [FORMULA, "exp(-x*y)"]
    u = np.random.default_rng(3).standard_normal(problem.unknowns)
    rates = [np.full_like(u, np.nan) for _ in range(2)]
    problem.rhs(0.3, u, rates[0])
    again.rhs(0.3, u, rates[1])
    np.testing.assert_array_equal(*rates)
    runs = [evolve(p, until=0.24, dt=0.01, method="rk4").u for p in (problem, again)]
    np.testing.assert_array_equal(*runs)


def test_callables_are_not_saved(tmp_path):
    def pushing(x, y, t):
        return np.sin(x * y + t)

    problem = driven([1.0, pushing])
    with pytest.raises(TypeError, match=r"sources\[1\] is the Python function .*pushing, which"):
        save_problem(tmp_path / "p.h5", problem)
    assert not (tmp_path / "p.h5").exists()
    same, other = driven([1.0, pushing]), driven([1.0, lambda x, y, t: np.cos(x * y + t)])
    assert problem.content_hash == same.content_hash != other.content_hash


def test_initial_states_of_callables_are_saved(tmp_path):
    problem = still(circles(2), initial=lambda x, y: np.sin(x + y)).discretize(3, 1)
    save_problem(tmp_path / "p.h5", problem)
    again = load_problem(tmp_path / "p.h5", trusted=True)
    np.testing.assert_array_equal(again.initial, problem.initial)


def test_a_file_with_what_is_no_formula(tmp_path):
    h5py = pytest.importorskip("h5py")
    save_problem(tmp_path / "p.h5", driven(FORMULA))
    with h5py.File(tmp_path / "p.h5", "r+") as file:
        file["sources/functions"][0] = "__import__('os').getcwd()"
    with pytest.raises(ValueError, match=r"hash|sources/functions"):
        load_problem(tmp_path / "p.h5", trusted=True)


def test_refusals():
    with pytest.raises(ValueError, match="degrees 0, 1, 2, 3, 4, 5; got degree 6"):
        still(circles(2), initial="x + y").discretize(2, 6)
    gaps = SparseGrid.custom([[0, 0], [2, 0]], [2, 2])
    for parts in ({"initial": "x + y"}, {"initial": 0.0, "sources": "x + y"}):
        with pytest.raises(ValueError, match=r"grid\.closed\(\) has all"):
            still(circles(2), **parts).discretize(None, 1, gaps)
    problem = still(circles(2), initial=0.0).discretize(2, 1)
    with pytest.raises(TypeError, match="f must be a number"):
        problem.project(object())
    with pytest.raises(ValueError, match="initial is inf at x = "):
        still(circles(2), initial="1 / (x - x)").discretize(2, 1)


def test_six_axes_take_little_memory():
    """565 248 points; vectors of them, not operators, are what it takes."""
    axes = [Axis(name, 0, TURN) for name in "abcdef"]
    problem = still(axes, initial=0.0).discretize(3, 2)
    tracemalloc.start()
    u = problem.project(lambda a, b, c, d, e, f: np.sin(a + b - c) * np.cos(d - e + f))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert problem.system.transform.num_points == 565248
    assert peak < 250e6
    np.testing.assert_allclose(problem.evaluate(u, [[1.0] * 6]), np.sin(1) * np.cos(1), atol=0.1)
