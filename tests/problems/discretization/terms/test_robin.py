"""The condition f_n + r f = data: known solutions, data of all kinds, files, refusals."""

import numpy as np
import pytest
from problem_oracle import rates

from batchkron.problems import (
    PDE,
    Axis,
    Dirichlet,
    Inflow,
    Neumann,
    Robin,
    Separable,
    div,
    grad,
    laplacian,
    load_problem,
    mass,
    pointwise,
    save_problem,
    time,
)
from batchkron.solvers import evolve

X, Y = Axis("x", -0.5, 2.0), Axis("y", 0.0, 1.0)
COS = Separable(x=np.cos)


def steady(problem):
    source = np.empty(problem.unknowns)
    problem.source(0.0, source)
    return np.linalg.solve(problem.operator.to_dense(), -source)


@pytest.mark.parametrize("g", [0.0, "from exact"])
def test_cosine(g):
    """-f'' = cos x, f = cos x: f_n + r f = 0 with r = tan of the ends, and other data for r = 1."""
    r = (np.tan(0.5), np.tan(2.0)) if g == 0.0 else (1.0, 1.0)
    ends = (Robin(r[0], g), Robin(r[1], g))
    pde = PDE([X], laplacian(X), boundary=ends, initial=COS, sources=COS, exact=COS)
    errors = []
    for level in (4, 5, 6):
        problem = pde.discretize(level, 2)
        errors.append(problem.l2_error(steady(problem), 0.0))
    assert errors[-1] <= 4e-7
    assert errors[0] > 7 * errors[1] > 49 * errors[2]


def known(x, y, t):
    return np.exp(-t) * (2 + np.sin(x + 0.3)) * (1 + y**2)


KNOWN = Separable(x=lambda s: 2 + np.sin(s + 0.3), y=lambda s: 1 + s**2, t=time.exp(-1.0))


def data_at(r, end, sign):
    """Return f_n + r f at an end of x, as a function of all axes and as a product."""
    value = sign * np.cos(end + 0.3) + r * (2 + np.sin(end + 0.3))
    product = Separable(y=lambda s: value * (1 + s**2), t=time.exp(-1.0))
    return lambda y, t: value * np.exp(-t) * (1 + y**2), product


@pytest.mark.parametrize("kind", ["exact", "function", "product"])
def test_data_that_change_in_time(kind):
    """f_t = ∇·(k ∇f) + s in two axes, with k = exp(x)."""
    ends = []
    for r, end, sign in ((0.7, -0.5, -1.0), (2.5, 2.0, 1.0)):
        function, product = data_at(r, end, sign)
        given = {"exact": "from exact", "function": function, "product": product}[kind]
        ends.append(Robin(r, given))
    terms = [div(X, lambda s: np.exp(s)) @ grad(X), 0.5 * div(Y) @ grad(Y)]
    boundary = {X: tuple(ends), Y: (Neumann(), Robin(-1.0))}  # f_y = 2, f = 2 at y = 1
    pde = PDE([X, Y], terms, boundary=boundary, exact=KNOWN, sources="from exact")
    problem = pde.discretize(4, 2, "full")
    result = evolve(problem, until=0.3, dt=0.02, method="esdirk3")
    assert problem.relative_error(result.u, 0.3) < 1e-5


def test_it_is_a_flux():
    """∫ f changes by the flux through the ends, k (g - r f), and by nothing else."""
    pde = PDE([X], div(X, 3.0) @ grad(X), boundary=(Robin(0.4, 2.0), Robin(-0.3, 0.5)), initial=0.0)
    problem = pde.discretize(3, 2)
    u = np.random.default_rng(1).standard_normal(problem.unknowns)
    left, right = problem.evaluate(u, [[-0.5], [2.0]])
    flux = 3.0 * (2.0 - 0.4 * left) + 3.0 * (0.5 + 0.3 * right)
    np.testing.assert_allclose(problem.integral(rates(problem, u)), flux, rtol=1e-11)


def test_no_share_is_neumann():
    """r = 0 is Neumann, but with the slope along the outward normal."""
    problems = [
        PDE([X], laplacian(X), boundary=ends, initial=1.0).discretize(3, 2)
        for ends in ((Robin(0.0, 2.0), Robin(0, 0.5)), (Neumann(-2.0), Neumann(0.5)))
    ]
    u = np.random.default_rng(1).standard_normal(problems[0].unknowns)
    np.testing.assert_allclose(*(rates(problem, u) for problem in problems), atol=1e-11)


def test_radius():
    """With a volume element: the mode J_0(k r) of a disk, -k J_1(k) + r J_0(k) = 0."""
    from scipy.special import j0, j1

    k, radius = 1.7, Axis("r", 0.0, 1.0)
    share = k * j1(k) / j0(k)
    mode = Separable(r=lambda s: j0(k * s), t=time.exp(-k * k))
    pde = PDE([radius], div(radius) @ grad(radius), boundary=("no-flux", Robin(share)), exact=mode,
              volume={radius: lambda s: s})  # fmt: skip
    problem = pde.discretize(4, 2)
    result = evolve(problem, until=0.5, dt=0.01, method="esdirk3")
    assert problem.relative_error(result.u, 0.5) < 1e-5


def test_first_derivatives_with_conditions_of_their_own():
    """Advection and diffusion, f = exp(-x) with f_n + f = 0 at the right end: f_t = 0."""
    decay = Separable(x=lambda s: np.exp(-s))
    terms = [div(X, -1.0, boundary=(Inflow("from exact"), Neumann())), laplacian(X)]
    pde = PDE([X], terms, boundary=(Dirichlet("from exact"), Robin(1.0)), exact=decay,
              sources="from exact")  # fmt: skip
    problem = pde.discretize(4, 2)
    result = evolve(problem, until=0.5, dt=0.01, method="ark3")
    assert problem.relative_error(result.u, 0.5) < 3e-5


def test_files(tmp_path):
    ends = Robin(1.5, Separable(t=time.cos(2.0))), Robin(0.5)
    problem = PDE([X], laplacian(X), boundary=ends, initial=COS).discretize(3, 2)
    save_problem(tmp_path / "p.h5", problem)
    again = load_problem(tmp_path / "p.h5")
    assert again.content_hash == problem.content_hash
    np.testing.assert_array_equal(
        rates(again, problem.initial, 0.3), rates(problem, problem.initial, 0.3)
    )


def test_exact_solutions_with_other_data_are_found():
    ends = Robin(0.7, "from exact"), Robin(2.0, 1.0)
    pde = PDE([X], laplacian(X), boundary=ends, exact=COS, sources=COS)
    with pytest.warns(UserWarning, match=r"Robin\(2, 'from exact'\)"):
        pde.discretize(3, 2)


@pytest.mark.parametrize(
    ("terms", "boundary", "text"),
    [
        ([div(X, -1.0), laplacian(X)], Robin(1.0), "which says what second derivatives"),
        (div(X, -1.0, boundary=Robin(1.0)), "neumann", "which says what second derivatives"),
        ([mass(X, -1.0)], Robin(1.0), "has Robin data but no second derivative"),
        (
            [-1 * div(X) @ pointwise("f**2", speed=1.0), laplacian(X)],
            Robin(1.0),
            "only div @ grad of f",
        ),
        ([div(X) @ pointwise("f", linear=True) @ grad(X), laplacian(X)], Robin(1.0), "products"),
    ],
)
def test_refusals(terms, boundary, text):
    with pytest.raises(ValueError, match=text):
        PDE([X], terms, boundary=boundary, initial=0.0)


def test_refusals_of_arguments():
    for varying in (lambda y: y, "y", Separable(y=lambda s: s)):
        with pytest.raises(TypeError, match="expected a number, the same at all places of the end"):
            Robin(varying)
    with pytest.raises(TypeError, match="Robin's r is str; expected a number"):
        Robin("from exact")
    with pytest.raises(ValueError, match="The only word for data"):
        Robin(1.0, "exact +")
    with pytest.raises(ValueError, match=r"needs exact=Separable"):
        PDE([X], laplacian(X), boundary=Robin(1.0, "from exact"), initial=0.0)
    pde = PDE([X], div(X) @ grad(X) @ mass(X, lambda s: 2 + s), boundary=Robin(1.0), initial=0.0)
    with pytest.raises(ValueError, match="cannot take the slope of f as Neumann or Robin data"):
        pde.discretize(2, 1)
