"""Volume elements of curvilinear coordinates: operators, projections, norms, sources."""

from functools import reduce

import numpy as np
import pytest
from numpy.polynomial import Polynomial
from problem_oracle import gauss2, orders, points_and_weights, steady
from scipy.special import jn_zeros

from batchkron.problems import (
    PDE,
    Axis,
    Dirichlet,
    Neumann,
    Separable,
    SparseGrid,
    div,
    grad,
    laplacian,
    mass,
    penalty,
    time,
)
from batchkron.problems.discretization.basis.multiwavelets import hierarchical_transform
from batchkron.problems.discretization.matrices.volume_element import VolumeElement
from batchkron.problems.semidiscrete.weighted_norm import orthonormal_transform
from batchkron.solvers import evolve

R, S, T = Axis("r", 0.0, 1.0), Axis("s", 0.5, 2.0), Axis("theta", 0.0, np.pi)


def square(r):
    return r**2


def steep(r):
    return np.exp(3 * r) * (1.5 + np.sin(9 * r))


def dense_mass(blocks):
    """The dense mass matrix in the hierarchical basis, from its blocks per finest cell."""
    cells, n, _ = blocks.shape
    nodal = np.zeros((cells, n, cells, n))
    nodal[np.arange(cells), :, np.arange(cells), :] = blocks
    W = hierarchical_transform(cells.bit_length() - 1, n - 1)
    return W @ nodal.reshape(cells * n, cells * n) @ W.T


VOLUMES = [(R, square), (S, steep), (T, np.sin), (R, lambda r: r**6)]


@pytest.mark.parametrize(("axis", "volume"), VOLUMES)
@pytest.mark.parametrize(("level", "degree"), [(0, 2), (1, 0), (3, 1), (4, 2), (2, 7)])
def test_orthonormal_coordinates_are_the_cholesky_factor(axis, volume, level, degree):
    """Gram-Schmidt from coarse to fine is the upper triangular T with Tᵀ T = M."""
    M = dense_mass(VolumeElement(axis, level, degree, volume).mass_blocks)
    transform = orthonormal_transform(VolumeElement(axis, level, degree, volume).mass_blocks)
    expected = np.linalg.cholesky(M).T
    tolerance = 1e-10 * np.abs(expected).max()  # M is ill-conditioned
    np.testing.assert_allclose(transform.to_dense(), expected, atol=tolerance)
    rows, columns = transform.rows, transform.columns
    for row, column in zip(rows, columns, strict=True):
        while column > row:
            column >>= 1
        assert column == row  # from a cell to itself and its ancestors only


@pytest.mark.parametrize(("axis", "volume"), VOLUMES)
def test_projections_are_orthogonal_in_the_weighted_norm(axis, volume):
    level, degree = 3, 2
    element = VolumeElement(axis, level, degree, volume)
    problem = PDE(
        [axis],
        [],
        sources=0.0,
        boundary="neumann",
        initial=Separable(**{axis.name: np.cos}),
        volume={axis: volume},
    ).discretize(level, degree)
    points, weights = points_and_weights(axis, level)
    rest = np.cos(points) - problem.evaluate(problem.initial, points[:, None])
    moments = [
        (rest * points**k * weights * volume(points)).reshape(8, -1).sum(1) for k in range(3)
    ]
    assert np.abs(rest).max() > 1e-6
    np.testing.assert_allclose(moments, 0.0, atol=1e-13 * np.abs(volume(points)).max())
    np.testing.assert_allclose(
        element.project(1.5),
        PDE([axis], [], sources=0.0, boundary="neumann", initial=1.5)
        .discretize(level, degree)
        .initial,
        atol=1e-14,
    )


@pytest.mark.parametrize("degree", [1, 2, 3, 7])
@pytest.mark.parametrize("boundary", [("neumann", "dirichlet"), ("dirichlet", "neumann")])
@pytest.mark.parametrize(
    ("term", "result"),
    [
        (div, lambda f: f.deriv() + 2 * (f // Polynomial([0, 1]))),
        (grad, lambda f: f.deriv()),
        (penalty, lambda f: 0.0 * f),
    ],
    ids=["div", "grad", "penalty"],
)
def test_first_derivatives_of_polynomials_are_exact(term, result, boundary, degree):
    """With dV = s²: (1/s²) ∂(s² f)/∂s = f' + 2 f/s and ∂f/∂s, for polynomials f with f(0) = 0."""
    rng = np.random.default_rng(degree)
    f = Polynomial([0.0, *rng.uniform(0.5, 1.0, degree)])
    ends = tuple(Dirichlet("from exact") if kind == "dirichlet" else Neumann() for kind in boundary)
    speed = 2.0 if boundary[1] == "dirichlet" else -2.0  # f flows in where it is given
    pde = PDE([S], term(S, speed), boundary=ends, exact=Separable(s=f), volume={S: square})
    problem = pde.discretize(2, degree)
    out = np.full(problem.unknowns, np.nan)
    problem.rhs(0.0, problem.initial, out)
    wanted = Separable(s=speed * result(f))
    expected = PDE([S], [], sources=0.0, boundary="neumann", initial=wanted).discretize(2, degree)
    scale = np.abs(problem.operator.to_dense()).max() * np.abs(problem.initial).max()
    np.testing.assert_allclose(out, expected.initial, atol=1e-13 * scale)


@pytest.mark.parametrize(
    ("axis", "volume", "boundary", "eigenvalues"),
    [
        (R, square, (Neumann(), Dirichlet()), (np.pi * np.arange(1, 4)) ** 2),
        (R, lambda r: r, (Neumann(), Dirichlet()), jn_zeros(0, 3) ** 2),
        (T, np.sin, Neumann(), [0.0, 2.0, 6.0]),
        (Axis("z", -3.0, 3.0), lambda z: np.exp(-(z**2) / 2), Neumann(), None),
    ],
    ids=["ball", "cylinder", "polar angle", "confined"],
)
@pytest.mark.parametrize("degree", [1, 2, 4])
def test_diffusion_has_the_known_modes(axis, volume, boundary, eigenvalues, degree):
    """The Laplacian in radius and angle: eigenvalues from zeros of Bessel functions, n(n + 1)."""
    problem = PDE(
        [axis], laplacian(axis), boundary=boundary, initial=0.0, volume={axis: volume}
    ).discretize(5, degree)
    A, M = problem.operator.to_dense(), dense_mass(problem.masses[0])
    weighted = M @ A
    assert np.abs(weighted - weighted.T).max() < 1e-11 * np.abs(weighted).max()
    found = np.sort(-np.linalg.eigvals(A).real)[:3]
    assert found[0] > -1e-8
    if eigenvalues is not None:
        np.testing.assert_allclose(found, eigenvalues, rtol=10.0 ** (-1.5 - degree), atol=1e-8)


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_heat_in_a_ball_converges(degree):
    """f_t = (1/r²) (r² f_r)_r, f = exp(-π² t) sin(πr)/(πr), which is regular at the centre."""
    pde = PDE(
        [R],
        laplacian(R),
        boundary=(Neumann(), Dirichlet("from exact")),
        exact=Separable(r=np.sinc, t=time.exp(-(np.pi**2))),
        volume={R: square},
    )
    errors = []
    for level in (3, 4):
        problem = pde.discretize(level, degree)
        errors.append(problem.l2_error(gauss2(problem, 0.05, 20), 0.05))
        best = problem.l2_error(problem.exact_coefficients(0.05), 0.05)
        assert best < errors[-1] < 3.5 * best
    assert orders(errors)[0] == pytest.approx(degree + 1, abs=0.25)


def test_contents_are_kept_where_nothing_flows_out():
    """d/dt ∫ f dV = 0: the row 1ᵀ M A vanishes."""
    terms = [laplacian(T), div(T, np.sin)]
    problem = PDE([T], terms, boundary=Neumann(), initial=0.0, volume={T: np.sin}).discretize(3, 2)
    one = PDE([T], [], sources=0.0, boundary="neumann", initial=1.0).discretize(3, 2).initial
    row = one @ dense_mass(problem.masses[0]) @ problem.operator.to_dense()
    np.testing.assert_allclose(row, 0.0, atol=1e-11)


def test_a_flow_from_a_source_is_carried_outwards():
    """f_t = -(1/s²) ∂(s² f/s²)/∂s: f is constant along s³/3 - t."""

    def pulse(s, t):
        return np.exp(-(((s**3 / 3 - t - 0.8) / 0.2) ** 2))

    pde = PDE(
        [S],
        -div(S, lambda s: s**-2.0),
        boundary=(Dirichlet(), Neumann()),
        exact=pulse,
        volume={S: square},
    )
    errors = []
    for level in (4, 5, 6):
        problem = pde.discretize(level, 2)
        result = evolve(problem, until=0.8, method="rk4")
        errors.append(problem.relative_error(result.u, 0.8))
        growth = np.linalg.eigvals(problem.operator.to_dense()).real.max()
        assert growth < 0.0
    assert orders(errors)[-1] > 2.6
    assert errors[-1] < 1e-3


CASES = {
    "cylinder": (
        [R, S],
        {R: lambda r: r},
        {R: (Neumann(), Dirichlet("from exact")), S: Dirichlet("from exact")},
    ),
    "ball": (
        [R, T],
        {R: square, T: np.sin},
        {R: (Neumann(), Dirichlet("from exact")), T: Neumann()},
    ),
    "steep": (
        [R, S],
        {R: lambda r: np.exp(3 * r), S: lambda s: np.exp(-2 * s)},
        {R: Dirichlet("from exact"), S: (Neumann("from exact"), Dirichlet("from exact"))},
    ),
}


def smooth(axes):
    return Separable(
        **{axes[0].name: lambda s: np.cos(1.5 * s**2), axes[1].name: lambda s: np.cos(2 * s)}
    )


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("grid", ["sparse", "full"])
@pytest.mark.parametrize("degree", [1, 2])
def test_steady_diffusion_in_two_dimensions_converges(case, grid, degree):
    axes, volume, boundary = CASES[case]
    pde = PDE(
        axes,
        laplacian(axes),
        boundary=boundary,
        exact=smooth(axes),
        sources="from exact",
        volume=volume,
    )
    errors = []
    for level in (2, 3) if grid == "full" else (3, 4, 5):
        problem = pde.discretize(level, degree, grid)
        u = steady(problem)
        errors.append(problem.l2_error(u, 0.0))
        best = problem.l2_error(problem.exact_coefficients(0.0), 0.0)
        assert errors[-1] < 3.5 * best
        if level < 5:
            assert np.linalg.eigvals(problem.operator.to_dense()).real.max() < -5.0
    assert orders(errors)[-1] > degree + 0.6


def by_quadrature(problem, u, t, volumes):
    """‖u - f(t)‖ by a tensor rule on the finest cells, with weights dV."""
    rules = [
        points_and_weights(axis, level, 14)
        for axis, level in zip(problem.axes, problem.grid.levels, strict=True)
    ]
    points = np.stack([p.ravel() for p in np.meshgrid(*(r[0] for r in rules), indexing="ij")], -1)
    scaled = [
        weights * volumes.get(axis, np.ones_like)(places)
        for axis, (places, weights) in zip(problem.axes, rules, strict=True)
    ]
    values = sum(
        part.coefficient
        * part.time(t)
        * np.prod([part.factor(axis)(points[:, k]) for k, axis in enumerate(problem.axes)], axis=0)
        for part in EXACT.parts
    )
    weights = reduce(np.multiply.outer, scaled).ravel()
    return np.sqrt(weights @ (problem.evaluate(u, points) - values) ** 2)


EXACT = Separable(r=np.exp, s=np.cos, t=time.cos(1.0), coefficient=-2.0) + Separable(
    r=np.sin, s=np.exp, t=time.exp(0.3)
)
GRIDS = {
    "sparse": "sparse",
    "full": "full",
    "with holes": SparseGrid.custom([[0, 0], [1, 0], [0, 3], [3, 3], [7, 1]], [3, 2]),
}


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize(
    "volumes", [{R: square}, {S: steep}, {R: square, S: steep}], ids=["r", "s", "both"]
)
def test_errors_equal_quadrature(grid, volumes, rng):
    levels = None if grid == "with holes" else [3, 2]
    pde = PDE([R, S], [], sources=0.0, boundary="neumann", exact=EXACT, volume=volumes)
    problem, t = pde.discretize(levels, 2, GRIDS[grid]), 0.8
    best = problem.exact_coefficients(t)
    for u in (rng.standard_normal(problem.unknowns), best, 1.001 * best):
        expected = by_quadrature(problem, u, t, volumes)
        assert problem.l2_error(u, t) == pytest.approx(expected, rel=1e-8)
    norm = by_quadrature(problem, np.zeros(problem.unknowns), t, volumes)
    assert problem.l2_norm_exact(t) == pytest.approx(norm, rel=1e-9)


def test_a_number_scales_the_norm_and_nothing_else():
    options = {"boundary": Dirichlet("from exact"), "exact": EXACT, "sources": "from exact"}
    terms = [div(R, -1.0), laplacian([R, S])]
    plain = PDE([R, S], terms, **options).discretize(2, 1)
    scaled = PDE([R, S], terms, **options, volume={"r": 4.0}).discretize(2, 1)
    A = plain.operator.to_dense()
    np.testing.assert_allclose(scaled.operator.to_dense(), A, atol=1e-12 * np.abs(A).max())
    u = np.random.default_rng(0).standard_normal(plain.unknowns)
    for call in ("l2_error", "relative_error"):
        ratio = getattr(scaled, call)(u, 0.3) / getattr(plain, call)(u, 0.3)
        assert ratio == pytest.approx(2.0 if call == "l2_error" else 1.0, rel=1e-12)


def test_volumes_of_one_cost_nothing():
    terms = [div(R, -1.0), laplacian([R, S])]
    plain = PDE([R, S], terms, boundary="dirichlet", initial=0.0).discretize(2, 1)
    one = PDE([R, S], terms, boundary="dirichlet", initial=0.0, volume={R: 1.0, S: 1}).discretize(
        2, 1
    )
    assert one.masses == plain.masses == (None, None)
    assert one.content_hash == plain.content_hash
    weighted = PDE([R, S], terms, boundary="dirichlet", initial=0.0, volume={R: square}).discretize(
        2, 1
    )
    assert weighted.masses[1] is None
    assert [[mode is None for mode in term.modes] for term in weighted.terms] == [
        [mode is None for mode in term.modes] for term in plain.terms
    ]


def test_sources_through_every_kind_of_term():
    """s = -Σ terms(f) makes the exact solution steady, whatever the chain and its coefficients."""
    terms = [
        div(S, lambda s: -s),
        grad(S, 0.5, others={R: lambda r: 1 + r}),
        div(S) @ mass(S, np.exp) @ grad(S),
        grad(S, flux="central", boundary=Neumann())
        @ div(S, 0.1, flux="central", boundary=Neumann()),
        mass(S, np.sin, others={R: np.cos}),
        div(R, lambda r: 1 + r) @ grad(R, 2.0),
        penalty(S, 3.0),
    ]
    pde = PDE(
        [R, S],
        terms,
        boundary=Dirichlet("from exact"),
        exact=Separable(r=np.exp, s=np.sin),
        sources="from exact",
        volume={R: square, S: steep},
    )
    errors = []
    for level in (2, 3):
        problem = pde.discretize(level, 3, "full")
        out = np.full(problem.unknowns, np.nan)
        problem.rhs(0.0, problem.initial, out)
        errors.append(np.linalg.norm(out) / np.abs(problem.operator.to_dense()).max())
    assert orders(errors)[0] > 3.0
    assert errors[-1] < 2e-5


def test_sources_through_an_inner_div_need_a_volume_at_the_ends():
    pde = PDE(
        [R],
        grad(R, boundary=Neumann()) @ div(R, boundary=Neumann()),
        boundary=Neumann(),
        exact=Separable(r=np.cos),
        sources="from exact",
        volume={R: square},
    )
    with pytest.raises(ValueError, match="volume element vanishes at an end"):
        pde.discretize(2, 1)


@pytest.mark.parametrize("degree", [0, 1, 2, 5])
def test_coefficients_are_integrated_with_the_volume_element(degree):
    """∫ r⁻² φ φ r² dr is the plain mass matrix, the identity."""
    problem = PDE(
        [R], mass(R, lambda r: r**-2.0), boundary="neumann", initial=0.0, volume={R: square}
    ).discretize(3, degree)
    weighted = dense_mass(problem.masses[0]) @ problem.operator.to_dense()
    np.testing.assert_allclose(weighted, np.eye(problem.unknowns), atol=1e-12)


@pytest.mark.parametrize(
    ("volume", "error", "text"),
    [
        ({"q": square}, ValueError, "volume names the axis 'q'"),
        ({T: square}, ValueError, "volume names the axis 'theta'"),
        ({R: "r"}, TypeError, "volume element of 'r' is str"),
        ({R: True}, TypeError, "volume element of 'r' is bool"),
        ({R: -1.0}, ValueError, "volume element of 'r' is -1.0; expected a positive number"),
        ({R: np.nan}, ValueError, "volume element of 'r' is nan"),
        (square, TypeError, "volume is function; expected a mapping"),
        ({R: lambda r: r - 0.4}, ValueError, "volume element of 'r' is -0.4 at 0.0"),
        ({R: lambda r: (r - 0.5) ** 2}, ValueError, "volume element of 'r' is 0.0 at 0.5"),
        ({R: lambda r: 1 / r}, ValueError, "volume element of 'r' is inf at 0.0"),
        ({R: lambda r: 1j * r}, TypeError, "volume element of 'r' gave dtype complex128"),
    ],
)
def test_what_is_refused(volume, error, text):
    with pytest.raises(error, match=text):
        PDE([R, S], laplacian([R, S]), boundary="dirichlet", initial=0.0, volume=volume).discretize(
            1, 1
        )
