"""The preconditioner "auto" on hard problems: few iterations of GMRES(50) to 1e-6, c = 1."""

import numpy as np
import pytest
from hard_problems import equations
from raw_lists import as_raw
from scipy.sparse.linalg import lobpcg

import batchkron as bk
from batchkron.problems import PDE, Dirichlet, gallery
from batchkron.problems.statement.terms import laplacian, mass
from batchkron.solvers import cg, gmres, preconditioners
from batchkron.solvers.preconditioners import CombinationPreconditioner
from batchkron.solvers.preconditioners.factorised import stored_numbers


def solved(A, c=1.0, name="auto", M=None):
    b = np.random.default_rng(0).standard_normal(A.shape[0])
    M = preconditioners.make(name, A, c) if M is None else M
    result = gmres(bk.Identity(A.shape[0]) - c * A, b, M=M, rtol=1e-6, restart=50, maxiter=8)
    assert result.converged
    return result.iterations, M


def operator(pde, level, grid="sparse"):
    return pde.discretize(level=level, degree=2, grid=grid).operator


DIFFUSIONS = {
    "sin8": equations.sin8,
    "bump 100": equations.bump,
    "bump 1e4": lambda dimensions=2: equations.bump(1e4, dimensions),
    "box": equations.box,
    "oblique": equations.oblique,
}


@pytest.mark.parametrize("level", [4, 5, 6])
@pytest.mark.parametrize("name", DIFFUSIONS)
def test_diffusion_with_contrast_and_oblique_axes(name, level):
    A = operator(DIFFUSIONS[name](), level)
    iterations, M = solved(A)
    assert iterations <= 20
    assert "'factorised'" in M.describe()
    if level < 6:
        M = CombinationPreconditioner(A, 1.0, local="factorised", composition="multiplicative")
        assert solved(A, M=M)[0] <= 15


@pytest.mark.parametrize(("c", "most"), [(0.1, 20), (1.0, 32)])
@pytest.mark.parametrize("level", [4, 5, 6])
def test_wind(c, most, level):
    assert solved(operator(equations.wind(), level), c)[0] <= most


@pytest.mark.parametrize("name", ["bump 100", "oblique"])
def test_cg_takes_it_as_well(name):
    A = operator(DIFFUSIONS[name](), 5)
    b = np.random.default_rng(0).standard_normal(A.shape[0])
    B = bk.Identity(A.shape[0]) - A
    result = cg(B, b, M=preconditioners.make("auto", A, 1.0), rtol=1e-6, maxiter=40)
    assert result.converged
    assert np.linalg.norm(b - B @ result.x) <= 1.01e-6 * np.linalg.norm(b)


@pytest.mark.parametrize("level", [3, 4, 5])
def test_full_grids(level):
    assert solved(operator(equations.bump(), level, "full"))[0] <= 2


@pytest.mark.parametrize("level", [3, 4, 5])
def test_full_grids_by_the_scaled_laplacian(level):
    assert solved(operator(equations.bump(), level, "full"), name="scaled-sum")[0] <= 60


@pytest.mark.parametrize(
    ("name", "dimensions", "level"),
    [(name, 3, 4) for name in ("sin8", "box", "oblique", "bump 100")] + [("sin8", 4, 3)],
)
def test_three_and_four_dimensions(name, dimensions, level):
    assert solved(operator(DIFFUSIONS[name](dimensions=dimensions), level))[0] <= 32


def test_wind_in_three_dimensions():
    assert solved(operator(equations.wind(3), 3))[0] <= 32


@pytest.mark.parametrize("name", ["bump 100", "sin8", "oblique"])
def test_raw_lists_take_as_many_as_the_problem(name):
    problem = DIFFUSIONS[name]().discretize(level=4, degree=2)
    raw = as_raw(problem.with_form("batch").operator)
    assert solved(raw)[0] == solved(problem.operator)[0]


@pytest.mark.parametrize("c", [1.0, 0.005])
@pytest.mark.parametrize("build", [equations.diffusion, equations.bump])
@pytest.mark.parametrize("shape", equations.SHAPES)
def test_adapted_grids(shape, build, c):
    grid = equations.adapted_grid(shape, 6, 5e-4)
    A = build().discretize(grid=grid, degree=2).operator
    iterations, M = solved(A, c)
    assert iterations <= 12
    assert "the grid has only parts of its full grids" in M.describe()


@pytest.mark.parametrize("build", [equations.diffusion, equations.bump])
def test_an_adapted_grid_with_many_unknowns(build):
    """Factors in the hierarchical basis are small enough only in an order of minimum degree."""
    grid = equations.adapted_grid("front", 7, 1e-4)
    iterations, M = solved(build().discretize(grid=grid, degree=2).operator)
    assert iterations <= 12
    assert "'factorised'" in M.describe()


@pytest.mark.parametrize("amplitude", [1e-12, 1e-9, 1e-6, 1e-3])
def test_small_terms_do_no_harm(amplitude):
    iterations, M = solved(operator(equations.bump(amplitude), 5))
    assert iterations <= 8
    assert "without 2 small terms" in M.describe()


def test_terms_of_low_order_are_not_small():
    """A reaction is small beside fine derivatives, and not for smooth functions."""
    x, y = axes = equations.axes_of(2)
    reaction = mass(x, equations.hill) @ mass(y, equations.hill)
    pde = PDE(axes, [*laplacian(axes), 50.0 * reaction], boundary=Dirichlet(), initial=0.0)
    M = preconditioners.make("auto", operator(pde, 6), 1.0)
    assert "small terms" not in M.describe()


@pytest.mark.parametrize("name", DIFFUSIONS)
def test_making_it_takes_no_products_and_little_memory(monkeypatch, name):
    A = operator(DIFFUSIONS[name](), 5)
    monkeypatch.setattr(type(A), "accumulate", None)
    monkeypatch.setattr(type(A), "apply_flat", None)
    M = preconditioners.make("auto", A, 1.0)
    assert M.numbers <= 0.6 * stored_numbers(A.kronecker_terms())
    assert 0.7 * M.numbers <= M.cost.numbers <= 1.5 * M.numbers


def test_the_memory_of_the_operator_is_estimated_by_rows():
    for pde, level in ((equations.bump(), 4), (equations.oblique(3), 2)):
        A = pde.discretize(level=level, degree=1).operator
        blocks = A.to_dense().reshape(len(A.kronecker_terms().cells), 2 ** len(pde.axes), -1)
        blocks = np.abs(blocks).max(axis=1).reshape(len(blocks), len(blocks), -1).max(axis=2)
        assert stored_numbers(A.kronecker_terms()) >= (blocks > 0).sum() * 4 ** len(pde.axes)
        assert stored_numbers(A.kronecker_terms()) <= 1.3 * (blocks > 0).sum() * 4 ** len(pde.axes)


@pytest.fixture
def small_limit(monkeypatch):
    """No factorisation is small enough."""
    limits = "batchkron.solvers.preconditioners.factorised.limits"
    monkeypatch.setattr(f"{limits}._MAX_MULTIPLY_ADDS", {"cpu": 10})


@pytest.mark.parametrize(
    ("build", "grid", "chosen", "most"),
    [
        (equations.bump, "full", "scaled", 60),
        (equations.sin8, "full", "unmixed", 30),
        (equations.oblique, "full", "unmixed", 60),
        (equations.sin8, "sparse", "unmixed", 14),
    ],
)
def test_trials_choose_well_where_factors_are_too_large(small_limit, build, grid, chosen, most):
    A = operator(build(), 4, grid)
    iterations, M = solved(A)
    assert iterations <= most
    assert f"local solves '{chosen}'" in M.describe()
    assert "residuals' reduction per product: unmixed-sum 0." in M.describe()
    assert "multiply-adds, more than 10" in M.describe()


def test_trials_are_made_once_for_an_operator_and_scales_near_each_other(small_limit, monkeypatch):
    A = operator(equations.sin8(), 3, "full")
    preconditioners.make("auto", A, 1.0)
    monkeypatch.setattr("batchkron.solvers.preconditioners.automatic.fastest", None)
    assert "by residuals" in preconditioners.make("auto", A, 1.2).describe()
    with pytest.raises(TypeError):
        preconditioners.make("auto", A, 2.0)


def test_trials_take_at_most_25_products(small_limit, monkeypatch):
    products = []

    def as_product(operator, *names):
        return lambda x, out: products.append(1) or np.copyto(out, operator @ x)

    monkeypatch.setattr("batchkron.solvers.preconditioners.trials.as_product", as_product)
    preconditioners.make("auto", operator(equations.bump(), 4, "full"), 1.0)
    assert 18 <= len(products) <= 25


def test_lobpcg_of_scipy_takes_it():
    A = -1.0 * gallery.make("diffusion-2d", level=3).operator
    M = preconditioners.make("auto", A)
    X = np.random.default_rng(0).standard_normal((A.shape[0], 3))
    values, _ = lobpcg(A, X, M=M, largest=False, maxiter=60)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(A.to_dense())[:3], rtol=1e-7)
