"""Problems whose axes have different polynomial degrees."""

from dataclasses import replace

import numpy as np
import pytest
from problem_oracle import rates

from batchkron.distributed import distribute, simulate
from batchkron.errors import ProblemFileError
from batchkron.problems import (
    PDE,
    Axis,
    Dirichlet,
    Inflow,
    Mixed,
    Moment,
    Poisson,
    Separable,
    bgk,
    div,
    grad,
    lenard_bernstein,
    load_problem,
    make,
    mass,
    pointwise,
    save_problem,
    time,
)
from batchkron.problems.discretization.basis.multiwavelets import hierarchical_transform
from batchkron.problems.discretization.matrices.dg_matrices import (
    div_matrix,
    grad_matrix,
    mass_matrix,
)
from batchkron.problems.files.decode import decode_problem
from batchkron.problems.files.encode import encode_problem
from batchkron.problems.semidiscrete.value import content_of
from batchkron.solvers import Adapt, evolve, preconditioners

X, V = Axis("x", -1.0, 2.0), Axis("v", -3.0, 3.0)
GRIDS = ["sparse", "full", Mixed([X], [V])]
DEGREES = {X: 2, V: 3}


def polynomials(seed=3):
    """Polynomials of the largest degrees, with their derivatives."""
    draw = np.random.default_rng(seed).standard_normal
    p, q = (np.polynomial.Polynomial(draw(degree + 1)) for degree in (2, 3))
    return p, q, lambda x, v: p(x) * q(v)


def discretized(terms, boundary, *, grid="sparse", degree=None, **given):
    pde = PDE([X, V], terms, boundary=boundary, **given)
    return pde.discretize((3, 2), degree=DEGREES if degree is None else degree, grid=grid)


def places(count=60):
    draw = np.random.default_rng(5).random((count, 2))
    return np.array([X.lower, V.lower]) + draw * np.array([X.length, V.length])


@pytest.mark.parametrize("given", [{X: 2, V: 3}, {"v": 3, "x": 2}, (2, 3), [2, 3]])
def test_ways_to_give_them(given):
    problem = discretized(div(X, -1.0), "periodic", initial=0.0, degree=given)
    assert problem.degree == problem.degrees == (2, 3)
    assert problem.block_size == 12
    assert problem.unknowns == 12 * problem.grid.num_cells == problem.initial.size
    assert "degree 2 along x, 3 along v" in repr(problem)


def test_equal_ones_are_one_degree():
    problem = discretized(div(X, -1.0), "periodic", initial="cos(v)", degree={X: 2, V: 2})
    same = discretized(div(X, -1.0), "periodic", initial="cos(v)", degree=2)
    assert problem.degree == 2
    assert problem.degrees == (2, 2)
    assert problem.content_hash == same.content_hash


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({X: 2}, ValueError, "degree has the axes x; expected a degree for each of x, v"),
        ({"x": 2, "w": 3}, ValueError, "degree has the axes x, w"),
        ({X: 2, "x": 3, V: 1}, ValueError, "degree has the axes x, v"),
        ((2, 3, 1), ValueError, "degree has 3 numbers; expected one for each of x, v"),
        ((2, 3.5), TypeError, "degree is float; expected an integer"),
        ({X: 2, V: 40}, ValueError, "degree is 40; expected 0 … 32"),
        ("23", TypeError, "degree is str; expected an integer"),
    ],
)
def test_wrong_degrees(given, error, text):
    with pytest.raises(error, match=text):
        discretized(div(X, -1.0), "periodic", initial=0.0, degree=given)


@pytest.mark.parametrize("grid", GRIDS, ids=["sparse", "full", "mixed"])
def test_operator_is_the_dense_one(grid, rng):
    """-∂x (v f) + ∂v² f of one-dimensional matrices of their own degrees, form by form."""
    terms = [div(X, -1.0, others={V: lambda v: 1.0 + v * v}), div(V) @ grad(V)]
    problem = discretized(terms, {X: "periodic", V: "neumann"}, grid=grid, initial=0.0)
    transforms = [hierarchical_transform(*own) for own in zip((3, 2), (2, 3), strict=True)]

    def hierarchical(k, nodal):
        return transforms[k] @ nodal.toarray() @ transforms[k].T

    moved = hierarchical(
        0, div_matrix(X, 3, 2, -1.0, flux="upwind", boundary=("periodic", "periodic"))
    )
    speed = hierarchical(1, mass_matrix(V, 2, 3, lambda v: 1.0 + v * v))
    spread = hierarchical(
        1,
        div_matrix(V, 2, 3, 1.0, flux="right", boundary=("dirichlet", "dirichlet"))
        @ grad_matrix(V, 2, 3, 1.0, flux="left", boundary=("neumann", "neumann")),
    )
    whole = np.kron(moved, speed) + np.kron(np.eye(len(moved)), spread)
    cells = problem.grid.cells
    rows = (cells[:, 0, None] * 3 + np.arange(3))[:, :, None] * 16
    rows = (rows + (cells[:, 1, None] * 4 + np.arange(4))[:, None, :]).ravel()
    expected = whole[np.ix_(rows, rows)]
    for form in ("sweep", "batch", "dense"):
        operator = problem.with_form(form).operator
        u = rng.standard_normal(problem.unknowns)
        np.testing.assert_allclose(operator @ u, expected @ u, atol=1e-10)
        np.testing.assert_allclose(operator.T @ u, expected.T @ u, atol=1e-10)


@pytest.mark.parametrize("grid", GRIDS, ids=["sparse", "full", "mixed"])
def test_polynomials_are_exact(grid):
    """Advection and diffusion with data at all ends, of polynomials of the space."""
    p, q, f = polynomials()
    whole = Separable(x=p, v=q)
    terms = [div(X, -1.0), 2.0 * div(V) @ grad(V), 0.5 * mass(X)]
    boundary = {X: (Inflow(whole), Inflow(whole)), V: Dirichlet(whole)}
    problem = discretized(terms, boundary, grid=grid, initial=whole)
    at = places()
    x, v = at.T
    np.testing.assert_allclose(problem.evaluate(problem.initial, at), f(x, v), atol=1e-11)
    expected = -p.deriv()(x) * q(v) + 2.0 * p(x) * q.deriv(2)(v) + 0.5 * f(x, v)
    found = problem.evaluate(rates(problem, problem.initial), at)
    np.testing.assert_allclose(found, expected, atol=1e-8)
    mesh = [np.linspace(-0.9, 1.9, 7)[:, None], np.linspace(-2.9, 2.9, 5)[None]]
    np.testing.assert_allclose(problem.evaluate(problem.initial, *mesh), f(*mesh), atol=1e-11)


def test_data_that_are_functions():
    """Boundary data, sources and initial states at points give the same as products."""
    p, q, f = polynomials(4)
    whole = Separable(x=p, v=q)

    def data(x, v, t):
        return f(x, v) * (1.0 + t)

    found = []
    for own, source in ((Separable(x=p, v=q, t=time.polynomial([1.0, 1.0])), whole), (data, f)):
        boundary = {X: (Inflow(own), Inflow(own)), V: Dirichlet(own)}
        terms = [div(X, -1.0), div(V) @ grad(V)]
        problem = discretized(terms, boundary, initial=source, sources=source)
        found.append((problem.initial, rates(problem, problem.initial, 0.7)))
    np.testing.assert_allclose(found[0][0], found[1][0], atol=1e-8)
    np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-7)


@pytest.mark.parametrize("extra", ["p", "p+1"])
def test_pointwise_functions(extra):
    """The flux f² of a function of degree 1 in x and v is exact at degrees 2 and 3."""
    flux = pointwise(lambda f: f**2, speed=9.0, degree=extra)
    periodic = {X: "neumann", V: "neumann"}
    problem = discretized([-1 * div(X) @ flux], periodic, initial=lambda x, v: x * (1.0 + v))
    at = places()
    found = problem.evaluate(rates(problem, problem.initial), at)
    np.testing.assert_allclose(found, -2.0 * at[:, 0] * (1.0 + at[:, 1]) ** 2, atol=1e-7)


def kinetic(degree, level=4):
    x, v = Axis("x", 0.0, 4 * np.pi), Axis("v", -6.0, 6.0)
    field = Poisson(x, Moment(v))
    pde = PDE(
        [x, v],
        [div(x, -1.0, others={v: lambda s: s}), div(v, -1.0, others={x: field})],
        boundary={x: "periodic", v: "no-flux"},
        initial=Separable(x=lambda s: 1 + 0.3 * np.cos(s / 2), v=lambda s: np.exp(-s * s / 2)),
    )
    return pde.discretize(level, degree=degree), field


def test_moments_and_fields():
    """Moments against quadrature of the state, the field against that of the density."""
    problem, field = kinetic({"x": 2, "v": 3})
    x, v = problem.axes
    u = problem.initial + 0.01 * np.random.default_rng(2).standard_normal(problem.unknowns)
    nodes, weights = np.polynomial.legendre.leggauss(8)
    cells = v.lower + v.length / 16 * (np.arange(16)[:, None] + (nodes + 1) / 2)
    at = np.linspace(0.1, 12.0, 9)
    for power in (0, 2, 3):
        values = problem.evaluate(u, at[:, None], cells.ravel()[None])
        own = np.tile(weights, 16) * v.length / 32 * cells.ravel() ** power
        found = problem.moment(u, {v: power})
        assert found.degree == 2
        np.testing.assert_allclose(found.evaluate(at), values @ own, atol=1e-10)
    assert problem.marginal(u, v).degree == 3
    slope = (
        problem.field(u, field).evaluate(at + 1e-5) - problem.field(u, field).evaluate(at - 1e-5)
    ) / 2e-5
    density = problem.moment(u, {v: 0})
    np.testing.assert_allclose(
        slope, density.evaluate(at) - density.integral() / x.length, atol=1e-6
    )


def test_kinetic_runs_agree_with_those_of_one_degree():
    (mixed, _), (equal, _) = kinetic({"x": 2, "v": 3}), kinetic(3)
    runs = [evolve(problem, until=0.4, dt=0.01) for problem in (mixed, equal)]
    at = np.random.default_rng(1).random((200, 2)) * [12.0, 6.0] - [0.0, 3.0]
    values = [
        problem.evaluate(run.u, at) for problem, run in zip((mixed, equal), runs, strict=True)
    ]
    assert np.abs(values[0] - values[1]).max() < 1e-2
    assert mixed.integral(runs[0].u) == pytest.approx(mixed.integral(mixed.initial), abs=1e-10)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_collisions(order):
    """A Maxwellian is at rest under collisions of both kinds, whatever axis comes first."""
    x, v = Axis("x", 0.0, 1.0), Axis("v", -7.0, 7.0)
    rest = Separable(v=lambda s: np.exp(-s * s / 2))
    for collisions, bound in ((bgk(v, nu=2.0), 1e-6), (lenard_bernstein(v, nu=2.0), 2e-3)):
        axes = [(x, v)[k] for k in order]
        boundary = {x: "periodic", v: "no-flux"}
        pde = PDE(axes, collisions, boundary=boundary, initial=rest)
        levels = [{x: 2, v: 5}[axis] for axis in axes]
        problem = pde.discretize(levels, degree={x: 1, v: 4}, grid="full")
        found = rates(problem, problem.initial)
        assert np.linalg.norm(found) < bound * np.linalg.norm(problem.initial)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("of_x", [1, 4])
def test_collisions_that_conserve(of_x, order):
    """They take moments to which cells other than the first of v contribute."""
    axes = [(X, V)[k] for k in order]
    terms = lenard_bernstein(V, nu=2.0, conserve="exact")
    start = Separable(x=lambda s: 2 + np.sin(s), v=lambda s: np.exp(-2 * (s - 0.4) ** 2))
    pde = PDE(axes, terms, boundary={X: "neumann", V: "no-flux"}, initial=start)
    problem = pde.discretize(3, degree={X: of_x, V: 3})
    found = rates(problem, problem.initial)
    assert np.linalg.norm(found) > 0.1
    for power in range(3):
        assert abs(problem.moment_weights({V: power}) @ found) < 1e-11


def test_exact_solutions_and_errors():
    """The error against products is that against the same function by quadrature."""
    exact = Separable(
        x=lambda s: np.exp(np.sin(2 * np.pi * s / 3)),
        v=lambda s: np.cos(np.pi * s / 3),
        t=time.polynomial([1.0, 1.0]),
    )

    def function(x, v, t):
        return (1 + t) * np.exp(np.sin(2 * np.pi * x / 3)) * np.cos(np.pi * v / 3)

    problems = [
        discretized(mass(X), {X: "periodic", V: "periodic"}, exact=own, sources=0.0)
        for own in (exact, function)
    ]
    u = np.random.default_rng(3).standard_normal(problems[0].unknowns)
    errors = [problem.l2_error(u, 0.5) for problem in problems]
    assert errors[0] == pytest.approx(errors[1], rel=1e-10)
    least = [problem.l2_error(problem.exact_coefficients(0.5), 0.5) for problem in problems]
    assert least[0] == pytest.approx(least[1], rel=1e-6)
    assert problems[0].l2_norm_exact(0.5) == pytest.approx(problems[1].l2_norm_exact(0.5))


def test_volume_elements():
    """Norms and integrals with dV = r², of a polynomial."""
    r, z = Axis("r", 0.5, 1.5), Axis("z", 0.0, 1.0)
    pde = PDE(
        [r, z],
        div(r) @ grad(r),
        boundary="neumann",
        initial=Separable(r=lambda s: s, z=lambda s: s**3),
        volume={r: lambda s: s**2},
    )
    problem = pde.discretize(2, degree={"r": 1, "z": 3})
    expected = (1.5**4 - 0.5**4) / 4 * 0.25
    assert problem.integral(problem.initial) == pytest.approx(expected)
    norm = np.sqrt((1.5**5 - 0.5**5) / 5 / 7)
    assert problem.quantities("norm")["norm"](0.0, problem.initial) == pytest.approx(norm)


def test_files(tmp_path):
    """Terms, fields, volume elements, exact solutions and pointwise formulas of both degrees."""
    exact = Separable(x=lambda s: np.cos(2 * np.pi * s / 3), v=lambda s: np.cos(np.pi * s / 3))
    terms = [div(X, -1.0), div(V) @ grad(V), -1 * div(V) @ pointwise("f**2", speed=1.0)]
    plain = discretized(
        terms, {X: "periodic", V: "neumann"}, exact=exact, initial="x * v", sources="cos(x * v + t)"
    )
    r = Axis("r", 0.5, 1.5)
    curved = PDE(
        [r, V],
        [div(V, -1.0, others={r: Moment(V)}), div(r) @ grad(r)],
        boundary="neumann",
        initial=Separable(v=lambda s: np.exp(-s * s)),
        volume={r: lambda s: s**2},
    ).discretize(3, degree={"r": 3, "v": 1})
    for problem in (plain, curved):
        save_problem(tmp_path / "p.h5", problem, overwrite=True)
        loaded = load_problem(tmp_path / "p.h5")
        assert loaded.degrees == problem.degrees
        assert loaded.content_hash == problem.content_hash
        u = np.random.default_rng(1).standard_normal(problem.unknowns)
        np.testing.assert_array_equal(rates(loaded, u, 0.3), rates(problem, u, 0.3))


@pytest.mark.parametrize("degrees", [[3, 3], [2, 4], [2, 3, 1], [-1, 3], [[2, 3]]], ids=str)
def test_files_with_other_degrees_are_refused(degrees):
    document = written()
    datasets = {**document.datasets, "basis/degrees": np.array(degrees)}
    with pytest.raises(ProblemFileError, match="dataset 'basis/degrees'"):
        decode_problem(replace(document, datasets=datasets))


@pytest.mark.parametrize("place", [(0, 3, 0), (0, 0, 3)], ids=["row", "column"])
def test_files_with_more_than_an_operator_are_refused(place):
    document = written()
    blocks = document.datasets["operators/blocks"].copy()
    blocks[place] = 1.0
    datasets = {**document.datasets, "operators/blocks": blocks}
    with pytest.raises(ProblemFileError, match="beyond the 3 functions of operator 0"):
        decode_problem(replace(document, datasets=datasets))


def written():
    problem = discretized(div(X, -1.0), "periodic", initial=0.0)
    return encode_problem(content_of(problem))


def test_the_grid_follows():
    """Adapted grids, with finer levels than the first, keep the degrees."""
    pulse = Separable(x=lambda s: np.exp(-20 * (s - 0.5) ** 2), v=lambda s: np.exp(-s * s))
    problem = discretized(div(X, -1.0), "periodic", initial=pulse)
    result = evolve(problem, until=0.1, dt=0.005, adapt=Adapt(1e-3, max_level=6))
    assert result.problem.degrees == (2, 3)
    at = places()
    x, v = at.T
    exact = np.exp(-20 * (x - 0.1 - 0.5) ** 2 - v * v)
    assert np.abs(result.problem.evaluate(result.u, at) - exact).max() < 0.03


def test_preconditioned_solves():
    """Implicit diffusion with every preconditioner that is chosen by name."""
    problem = discretized([div(X) @ grad(X), div(V) @ grad(V)], "dirichlet", initial="cos(x + v)")
    A = problem.operator
    eye = np.eye(problem.unknowns)
    b = np.random.default_rng(2).standard_normal(problem.unknowns)
    expected = np.linalg.solve(eye - 0.1 * A.to_dense(), b)
    for name in preconditioners.names():
        result = evolve(
            problem, u0=b, until=0.1, dt=0.1, method="backward-euler", preconditioner=name
        )
        assert str(result.status) == "completed"
        np.testing.assert_allclose(result.u, expected, atol=1e-4 * np.abs(expected).max())


def test_ranks():
    terms = [div(X, -1.0), div(V) @ grad(V)]
    problem = discretized(terms, {X: "periodic", V: "dirichlet"}, initial="cos(x + v)")
    options = {"until": 0.01, "dt": 0.001, "method": "rk4"}
    alone = evolve(problem, **options)

    def program(comm):
        part = distribute(problem, comm)
        return part.gather(evolve(part, **options).u)

    for u in simulate(3, program):
        np.testing.assert_array_equal(u, alone.u)


def test_pictures_and_datasets(tmp_path):
    problem, _ = kinetic({"x": 1, "v": 2}, 3)
    axes = problem.plot(problem.initial)
    assert axes is not None
    dataset = problem.to_xarray(problem.initial)
    assert dataset.attrs["degree"] == (1, 2)
    assert dataset["f"].shape == (2 << 3, 3 << 3)


def test_a_gallery_problem_has_one_degree():
    assert make("continuity-2d", 3, 2).degrees == (2, 2)
