"""The limiter of full and mixed grids: means, positive states, shocks, files, refusals."""

import numpy as np
import pytest
from device_check import run_check

from batchkron import NotPhysicalError
from batchkron.problems import (
    PDE,
    Axis,
    Mixed,
    Separable,
    SparseGrid,
    div,
    grad,
    load_problem,
    pointwise,
    save_problem,
)
from batchkron.problems.semidiscrete.limiter import PositiveLimiter
from batchkron.solvers import Adapt, EvolveStatus, evolve

TURN = 2 * np.pi
X, Y, Z = Axis("x", 0, TURN), Axis("y", -1, 2), Axis("z", 0, 1)


def transport(axes, level=3, degree=2, **more):
    pde = PDE(axes, [div(axis, -1.0) for axis in axes], boundary="periodic", initial=0.0)
    return pde.discretize(level, degree, more.pop("grid", "full"), **more)


def means(problem, u, axes):
    """Return the means of finest cells by the values at many places of each."""
    nodes, weights = np.polynomial.legendre.leggauss(problem.degree + 1)
    counts = [1 << level for level in problem.grid.levels]
    lines = [
        axis.lower + axis.length / count * (np.arange(count)[:, None] + (nodes + 1) / 2).ravel()
        for axis, count in zip(axes, counts, strict=True)
    ]
    values = problem.evaluate(
        u, np.stack(np.meshgrid(*lines, indexing="ij"), -1).reshape(-1, len(axes))
    )
    shape = [size for count in counts for size in (count, nodes.size)]
    values = values.reshape(shape)
    for k in reversed(range(len(axes))):
        values = np.moveaxis(values, 2 * k + 1, -1) @ weights / 2
    return values


@pytest.mark.parametrize(("axes", "level"), [([X], 4), ([X, Y], (2, 3)), ([X, Y, Z], (2, 1, 2))])
@pytest.mark.parametrize("degree", [0, 1, 2, 5])
def test_means_stay_and_negative_values_vanish(axes, level, degree):
    problem = transport(axes, level, degree, limiter="positive")
    random = np.random.default_rng(1)
    size = 0.4 if len(axes) == 1 else 0.2
    u = problem.initial + size * random.standard_normal(problem.unknowns)
    u[0] = 5.0 * np.sqrt(np.prod([axis.length for axis in axes]))  # a mean of 5
    before, mean = u.copy(), means(problem, u, axes)
    assert mean.min() > 0.0
    problem.limit_state(0.0, u)
    np.testing.assert_allclose(means(problem, u, axes), mean, rtol=0, atol=1e-12)
    assert abs(problem.integral(u) - problem.integral(before)) <= 1e-12
    values = problem.system.transform.values(before)
    if degree == 5:  # the points of the limiter and the transform are the same
        assert values.min() < 0.0
        assert problem.system.transform.values(u).min() > -1e-12
    again = u.copy()
    problem.limit_state(0.0, again)
    np.testing.assert_allclose(again, u, rtol=0, atol=1e-13)


def test_positive_states_keep_their_bits():
    problem = transport([X, Y], limiter="positive")
    u = problem.project("3 + sin(x) * y")
    before = u.copy()
    problem.limit_state(0.0, u)
    np.testing.assert_array_equal(u, before)


def test_negative_means_are_refused():
    problem = transport([X], limiter="positive")
    with pytest.raises(NotPhysicalError, match=r"the mean of f in the cell around x = .*shorter"):
        problem.limit_state(0.0, problem.project("0.9 + sin(x)"))


def box(x, y):
    return np.where((abs(x - 2) < 1) & (abs(y) < 0.6), 1.0, 0.0)


@pytest.mark.parametrize("method", ["ssp-rk3", "forward-euler"])
def test_a_box_is_carried_without_undershoots(method):
    least = {}
    for limiter in (None, "positive"):
        pde = PDE([X, Y], [div(X, -1.0), div(Y, -0.5)], boundary="periodic", initial=box)
        problem = pde.discretize((4, 3), 1, "full", limiter=limiter)
        dt = problem.stepper.dt / (20 if method == "forward-euler" else 2)
        start = problem.initial.copy()
        if limiter:
            problem.limit_state(0.0, start)
        result = evolve(problem, until=0.5, method=method, dt=dt, watch=problem.quantities("min"))
        assert result.status is EvolveStatus.COMPLETED
        assert abs(problem.integral(result.u) - problem.integral(problem.initial)) < 1e-12
        least[limiter] = result.watched["min"].last
    assert least[None] < -0.02
    assert least["positive"] > -2e-3  # between the points of the limiter, of one degree less


def test_burgers_after_the_shock():
    """With f ≥ 0 at the points of F, and the exact mass."""
    flux = pointwise(lambda f: f**2 / 2, speed_of=lambda f: f)
    pde = PDE([X], -1 * div(X) @ flux, boundary="periodic", initial=lambda x: 1 + np.sin(x))
    least = {}
    for limiter in (None, "positive"):
        problem = pde.discretize(5, 2, "full", limiter=limiter)
        result = evolve(problem, until=1.5, dt=problem.stepper.dt / 2)
        assert result.status is EvolveStatus.COMPLETED
        assert abs(problem.integral(result.u) - TURN) < 1e-12
        least[limiter] = problem.system.transform.values(result.u).min()
    assert least[None] < -0.02
    assert least["positive"] > -1e-12


def test_files_and_defaults(tmp_path):
    problem = transport([X], limiter="positive")
    assert problem.stepper.method == "ssp-rk3"
    assert transport([X]).limit_state is None
    save_problem(tmp_path / "p.h5", problem)
    again = load_problem(tmp_path / "p.h5")
    assert again.limiter == "positive"
    assert again.content_hash == problem.content_hash != transport([X]).content_hash
    u = problem.project("0.5 + 0.5 * cos(x)")
    first, second = u.copy(), u.copy()
    problem.limit_state(0.0, first)
    again.limit_state(0.0, second)
    np.testing.assert_array_equal(first, second)
    parabolic = PDE([X], div(X) @ grad(X), boundary="periodic", initial=1.0)
    assert parabolic.discretize(2, 1, limiter="positive").stepper.method == "ssp-rk3"


MIXED = {
    "one full axis": (Mixed([X], [Y, Z]), (0,)),
    "the last axis": (Mixed([X, Y], [Z]), (2,)),
    "the middle one": (Mixed([X, Z], [Y]), (1,)),
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("degree", [0, 1, 2, 5])
def test_mixed_grids_have_cells_of_their_full_axes(name, degree):
    """At each place of the other axes the means of cells stay; values with means >= 0 are >= 0."""
    grid, full = MIXED[name]
    problem = transport([X, Y, Z], (2, 3, 2), degree, grid=grid, limiter="positive")
    random = np.random.default_rng(4)
    u = problem.project("0.3 + sin(2 * x) * cos(y + z)") + 0.01 * random.standard_normal(
        problem.unknowns
    )
    before = u.copy()
    problem.limit_state(0.0, u)
    limiter = PositiveLimiter(problem)
    for place in ([1.3, -0.2, 0.3], [4.0, 1.9, 0.9], [0.1, 0.77, 0.501]):
        np.testing.assert_allclose(
            line_means(problem, u, full[0], place), line_means(problem, before, full[0], place),
            rtol=0, atol=1e-12,
        )  # fmt: skip
    nodal = limiter._nodal(u)
    values = nodal @ limiter._shapes[0].T
    kept = limiter._mean * nodal[:, 0] >= 0.0
    assert values[kept].min() > -1e-12
    if degree > 0:
        first = limiter._nodal(before)
        assert (first @ limiter._shapes[0].T)[kept].min() < -0.1
        assert not kept.all()
        assert abs(nodal[~kept, 1:]).max() < 1e-12  # nothing is left but the mean
    again = u.copy()
    problem.limit_state(0.0, again)
    np.testing.assert_allclose(again, u, rtol=0, atol=1e-13)


@pytest.mark.parametrize("grid", [Mixed(["x"], ["y"], ["z", "w"]), Mixed(["w"], ["x", "z"], ["y"])])
def test_several_full_axes_among_others(grid):
    axes = [X, Y, Z, Axis("w", -2, 0)]
    problem = transport(axes, (2, 1, 2, 2), 2, grid=grid, limiter="positive")
    u = 0.05 * np.random.default_rng(0).standard_normal(problem.unknowns)
    u[0] = 1.2 * np.sqrt(np.prod([axis.length for axis in axes]))  # a mean of 1.2
    limiter, before = PositiveLimiter(problem), u.copy()
    nodal = limiter._nodal(u)
    np.testing.assert_allclose(limiter._hierarchical(nodal), u, rtol=0, atol=1e-13)
    problem.limit_state(0.0, u)
    assert abs(u - before).max() > 0.1
    np.testing.assert_allclose(limiter._nodal(u)[:, 0], nodal[:, 0], rtol=0, atol=1e-13)
    assert abs(problem.integral(u) - problem.integral(before)) < 1e-12


def line_means(problem, u, k, place):
    """Return the means of the cells of axis k along the line through a place."""
    nodes, weights = np.polynomial.legendre.leggauss(problem.degree + 1)
    axis, count = problem.axes[k], 1 << problem.grid.levels[k]
    line = axis.lower + axis.length / count * (np.arange(count)[:, None] + (nodes + 1) / 2)
    places = np.tile(place, (line.size, 1))
    places[:, k] = line.ravel()
    return problem.evaluate(u, places).reshape(line.shape) @ weights / 2


def test_a_mixed_grid_of_single_axes_is_a_full_one():
    states = []
    for grid in ("full", Mixed([X], [Y])):
        problem = transport([X, Y], (3, 2), 2, grid=grid, limiter="positive")
        states.append(problem.project("1.01 + sin(x) * cos(2 * y)") * 1.0)
        states[-1] += 0.01 * np.random.default_rng(0).standard_normal(problem.unknowns)
        before = states[-1].copy()
        problem.limit_state(0.0, states[-1])
        assert not np.array_equal(states[-1], before)
    np.testing.assert_array_equal(*states)


def test_a_run_on_a_mixed_grid():
    """A jump in x of a gas of two velocities; the density at each velocity stays."""
    v, w = Axis("v", -4, 4), Axis("w", -4, 4)
    start = Separable(
        x=lambda s: np.where(abs(s - 2) < 1, 1.0, 0.0),
        v=lambda s: np.exp(-(s**2) / 2),
        w=lambda s: np.exp(-(s**2) / 2),
    )
    least, densities = {}, {}
    for limiter in (None, "positive"):
        pde = PDE([X, v, w], div(X, -1.0, others={v: lambda s: s}),
                  boundary={X: "periodic", v: "neumann", w: "neumann"}, initial=start)  # fmt: skip
        problem = pde.discretize((5, 3, 3), 2, Mixed([X], [v, w]), limiter=limiter)
        result = evolve(problem, until=0.3)
        assert result.status is EvolveStatus.COMPLETED
        places = [[s, 0.3, -0.2] for s in np.linspace(0.01, 6.2, 400)]
        least[limiter] = problem.evaluate(result.u, places).min()
        densities[limiter] = line_means(problem, result.u, 0, [0.0, 0.3, -0.2]).sum()
    assert least[None] < -0.02
    assert least["positive"] > 0.35 * least[None]  # between the points
    assert densities["positive"] == pytest.approx(densities[None], abs=1e-11)


@pytest.mark.parametrize("grid", ["sparse", Mixed([X, Y, Z])])
def test_sparse_grids_are_refused(grid):
    with pytest.raises(ValueError, match=r"a sparse grid has no cell means; use grid='full', Mix"):
        transport([X, Y, Z], 3, 1, grid=grid, limiter="positive")


def test_points_of_the_other_axes_are_needed():
    with pytest.raises(ValueError, match="there are sets for the degrees 0, 1, 2, 3, 4, 5; got"):
        transport([X, Y, Z], 2, 6, grid=Mixed([X], [Y, Z]), limiter="positive")
    open_ = [[0, 0], [0, 2], [1, 0], [1, 2]]
    with pytest.raises(ValueError, match=r"lacks an ancestor of one of its cells"):
        transport([X, Y], None, 1, grid=SparseGrid.custom(open_, (1, 2)), limiter="positive")


@pytest.mark.parametrize("method", ["rk4", "rkc2", "ssp-rk2", "ark3", "bdf", "exponential-euler"])
def test_methods_are_refused_before_any_work(method):
    """When the problem is made; and at the beginning of a run, without an evaluation of f."""
    text = f"combinations of Euler steps, and the method is {method!r}"
    with pytest.raises(ValueError, match=text):
        transport([X], limiter="positive", method=method)
    calls = []
    pde = PDE([X], pointwise(lambda f: calls.append(1) or -f), boundary="periodic", initial=1.0)
    problem = pde.discretize(2, 1, "full", limiter="positive", dt=0.1)
    calls.clear()
    options = {"rtol": 1e-3} if method == "bdf" else {"dt": 0.01}
    with pytest.raises(ValueError, match="a limiter, which is for combinations of Euler steps"):
        evolve(problem, until=0.1, method=method, **options)
    assert not calls


def test_grids_that_follow_the_solution_are_refused():
    problem = transport([X], limiter="positive")
    with pytest.raises(ValueError, match="leave out one of limiter= and adapt="):
        evolve(problem, until=0.1, adapt=Adapt(1e-3))
    with pytest.raises(ValueError, match="leave out one of limiter= and adapt="):
        problem.with_adapt(Adapt(1e-3))


def test_refusals():
    with pytest.raises(ValueError, match="limiter is 'minmod'; expected None or 'positive'"):
        transport([X], limiter="minmod")
    problem = transport([X], limiter="positive")
    coarse = SparseGrid.custom(problem.grid.cells[:3], problem.grid.levels)
    with pytest.raises(ValueError, match="has no cell means"):
        problem.on_grid(coarse)
    radius = Axis("r", 0, 1)
    pde = PDE([radius], div(radius, -1.0), boundary="no-flux", initial=1.0,
              volume={radius: lambda s: s})  # fmt: skip
    with pytest.raises(ValueError, match="without a volume element"):
        pde.discretize(2, 1, limiter="positive")


@pytest.mark.timeout(300)
def test_on_a_device():
    run_check("limiter", "on_a_device")


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_fronts_that_touch_zero(degree):
    """A flux through points of degree p has f's own values at ends, that of p + 1 has not."""
    x = Axis("x", 0.0, 2 * np.pi)

    def run(points):
        flux = pointwise("f**2/2", speed=1.0, degree=points)
        initial = lambda x: np.maximum(np.sin(x), 0)  # noqa: E731
        pde = PDE([x], -1 * div(x) @ flux, boundary="periodic", initial=initial)
        problem = pde.discretize(4, degree, "full", limiter="positive")
        return evolve(problem, until=1.5, dt=problem.stepper.dt / 2)

    assert run("p").status is EvolveStatus.COMPLETED
    assert "degree='p' in a pointwise flux" in run("p+1").message
