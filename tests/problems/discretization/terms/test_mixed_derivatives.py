"""Diffusion by a full matrix K: no mode grows, and errors converge with boundary data."""

import numpy as np
import pytest
from problem_oracle import dense_div, dense_end_penalty, dense_grad, dense_sum, orders, steady

from batchkron.problems import (
    PDE,
    Axis,
    Dirichlet,
    Neumann,
    Separable,
    div,
    grad,
    laplacian,
    mass,
    time,
)

X, Y, Z = Axis("x", 0.0, 1.0), Axis("y", -1.0, 1.0), Axis("z", 0.0, 2.0)
WALLS = ("dirichlet", "neumann")
BOUNDARIES = {
    "dirichlet": "dirichlet",
    "neumann": "neumann",
    "periodic": "periodic",
    "walls": {"x": WALLS, "y": WALLS[::-1], "z": "dirichlet"},
}


def rotated(degrees, epsilon=1e-2):
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    R = np.array([[c, -s], [s, c]])
    return R @ np.diag([1.0, epsilon]) @ R.T


def sheared(k):
    return np.array([[1.0, k], [k, 1.0]])


DIFFUSIVITIES = [sheared(0.9), sheared(0.99), sheared(-0.99), rotated(30), rotated(-30)]


def diffusion(axes, K):
    """Σ ∂_i K_ij ∂_j."""
    pairs = [(i, j) for i in range(len(axes)) for j in range(len(axes)) if K[i, j]]
    return [K[i, j] * div(axes[i]) @ grad(axes[j]) for i, j in pairs]


def growth(axes, terms, boundary, level, degree, grid="full"):
    """The largest real part of an eigenvalue of A, and the largest one of A + Aᵀ, over ‖A‖."""
    ends = {axis: boundary[axis.name] for axis in axes} if type(boundary) is dict else boundary
    A = (
        PDE(axes, terms, boundary=ends, initial=0.0)
        .discretize(level, degree, grid)
        .operator.to_dense()
    )
    size = np.linalg.norm(A, 2)
    return np.linalg.eigvals(A).real.max() / size, np.linalg.eigvalsh(A + A.T)[-1] / size


@pytest.mark.parametrize("grid", ["full", "sparse"])
@pytest.mark.parametrize("boundary", BOUNDARIES.values(), ids=BOUNDARIES)
def test_constant_diffusion_does_not_grow(boundary, grid):
    for K in DIFFUSIVITIES:
        for level, degree in ((2, 1), (3, 0)):
            found = growth([X, Y], diffusion([X, Y], K), boundary, level, degree, grid)
            assert max(found) <= 1e-10


@pytest.mark.parametrize("boundary", BOUNDARIES.values(), ids=BOUNDARIES)
def test_constant_diffusion_in_three_dimensions_does_not_grow(boundary):
    Q, _ = np.linalg.qr(np.random.default_rng(29).standard_normal((3, 3)))
    K = Q @ np.diag([1.0, 0.1, 0.01]) @ Q.T
    assert max(growth([X, Y, Z], diffusion([X, Y, Z], K), boundary, 2, 1, "sparse")) <= 1e-10
    assert max(growth([X, Y, Z], diffusion([X, Y, Z], K), boundary, 1, 1)) <= 1e-10


ONE_CHAIN = {
    "number": lambda k: k * div(X) @ grad(Y),
    "minus": lambda k: -(-k * div(X) @ grad(Y)),
    "in div": lambda k: div(X, k) @ grad(Y),
    "in grad": lambda k: div(X) @ grad(Y, k),
    "others": lambda k: div(X, others={Y: k}) @ grad(Y),
    "mass": lambda k: div(X) @ mass(X, k) @ grad(Y),
    "time": lambda k: div(X, time=time.constant(k)) @ grad(Y),
    "exchanged": lambda k: grad(Y) @ div(X, lambda s: k + 0 * s),
}


@pytest.mark.parametrize("write", ONE_CHAIN.values(), ids=ONE_CHAIN)
def test_the_side_depends_on_the_axis_alone(write):
    """However K_xy = -0.99 is written, it gives -G_xᵀ K_xy G_y, G as in second derivatives."""
    terms = [2.0 * div(X) @ grad(X), *laplacian(Y), div(X, -1.0) @ grad(X), write(-0.99)]
    problem = PDE([X, Y], terms, boundary="dirichlet", initial=0.0).discretize(2, 1, "full")

    def one(points):
        return np.ones_like(points)

    edges = ("dirichlet", "dirichlet")
    grads = {axis: dense_grad(axis, 2, 1, one, "downwind", edges) for axis in (X, Y)}
    divs = {axis: dense_div(axis, 2, 1, one, "upwind", ("neumann", "neumann")) for axis in (X, Y)}
    for axis in (X, Y):
        np.testing.assert_allclose(divs[axis], -grads[axis].T, atol=1e-12)
    expected = dense_sum(
        [
            (divs[X] @ grads[X] + dense_end_penalty(X, 2, 1), None),
            (None, divs[Y] @ grads[Y] + dense_end_penalty(Y, 2, 1)),
            (-0.99 * divs[X], grads[Y]),
        ],
        problem.grid,
        1,
    )
    A = problem.operator_at(0.0).to_dense()
    np.testing.assert_allclose(A, expected, atol=1e-12 * np.abs(expected).max())


def test_fluxes_that_are_named_hold_for_the_axis():
    """flux="downwind" in one chain holds for all of its axis: the mirrored operator, stable too."""
    K = sheared(-0.99)
    for named in (
        [div(X, flux="downwind") @ grad(X), *laplacian(Y), -1.98 * div(X) @ grad(Y)],
        [*laplacian([X, Y]), -1.98 * div(X, flux="downwind") @ grad(Y)],
        [*laplacian([X, Y]), 1.98 * div(X, -1.0, flux="upwind") @ grad(Y)],
        [div(X) @ grad(X, flux="upwind"), *laplacian(Y), -1.98 * div(X) @ grad(Y)],
    ):
        assert max(growth([X, Y], named, "dirichlet", 2, 1)) <= 1e-10
        A = (
            PDE([X, Y], named, boundary="periodic", initial=0.0)
            .discretize(2, 1)
            .operator.to_dense()
        )
        plain = PDE([X, Y], diffusion([X, Y], K), boundary="periodic", initial=0.0).discretize(2, 1)
        assert np.abs(A - plain.operator.to_dense()).max() > 1.0
    central = [*laplacian([X, Y]), 1.98 * div(X, flux="central") @ grad(Y, flux="central")]
    assert max(growth([X, Y], central, "dirichlet", 2, 1)) <= 1e-10


@pytest.mark.parametrize(
    ("terms", "text"),
    [
        (
            [div(X, flux="downwind") @ grad(X), laplacian(Y), div(X, flux="upwind") @ grad(Y)],
            r"'x' has a mixed derivative .* div\(..., flux='downwind'\) and div\(..., flux='upwind",
        ),
        (
            [laplacian(X), div(X) @ grad(Y, flux="downwind"), div(Y, flux="downwind") @ grad(Y)],
            "axis 'y' has a",
        ),
        (
            [laplacian(Y), div(X, -1.0, flux="upwind") @ grad(Y), div(X, flux="upwind") @ grad(X)],
            "Leave flux=",
        ),
        ([*laplacian([X, Y]), div(X, np.cos, flux="upwind") @ grad(Y)], None),
        (
            [*laplacian([X, Y]), div(X, lambda s: s - 0.5, flux="upwind") @ grad(Y)],
            "that changes sign",
        ),
    ],
)
def test_fluxes_that_contradict_each_other_are_refused(terms, text):
    pde = PDE([X, Y], terms, boundary="dirichlet", initial=0.0)
    if text is None:
        assert pde.discretize(1, 1).unknowns == 12
        return
    with pytest.raises(ValueError, match=text):
        pde.discretize(1, 1)


@pytest.mark.parametrize("chain", [div(X) @ div(Y), 0.9 * grad(X) @ mass(X, np.cos) @ grad(Y)])
def test_mixed_derivatives_without_a_partner_are_warned_of(chain):
    pde = PDE([X, Y], [*laplacian([X, Y]), chain], boundary="dirichlet", initial=0.0)
    with pytest.warns(UserWarning, match=r"terms\[2\] is .* write div\(x\) @ grad\(y\)") as caught:
        pde.discretize(1, 1)
    assert caught[0].filename == __file__
    pde = PDE([X, Y], chain, boundary="periodic", initial=0.0)
    pde.discretize(1, 1, allow_ill_posed=True)


D, N = Dirichlet("from exact"), Neumann("from exact")


@pytest.mark.parametrize(
    ("K", "boundary"),
    [
        (rotated(30), {X: D, Y: D}),
        (rotated(-30), {X: (D, N), Y: (N, D)}),
        (np.array([[1.0, 0.7], [0.2, 0.5]]), {X: N, Y: D}),
    ],
)
@pytest.mark.parametrize(("degree", "levels"), [(1, (3, 4)), (2, (2, 3))])
def test_anisotropic_diffusion_with_data_converges(K, boundary, degree, levels):
    """Data that vary along both axes, up to the corners; Neumann data give the co-normal flux."""
    exact = Separable(x=np.exp, y=lambda s: np.cos(2 * s))
    exact = exact + Separable(x=np.sin, y=lambda s: s + 0.3 * s**2)
    pde = PDE([X, Y], diffusion([X, Y], K), boundary=boundary, exact=exact, sources="from exact")
    errors = []
    for level in levels:
        problem = pde.discretize(level, degree, "full")
        errors.append(problem.l2_error(steady(problem), 0.0))
    assert orders(errors)[0] > degree + 0.75
    assert errors[-1] < 1e-2


def test_no_flux_through_neumann_ends_conserves():
    """Neumann() without data sets the co-normal derivative to zero: nothing flows out."""
    problem = PDE(
        [X, Y], diffusion([X, Y], rotated(30)), boundary="neumann", initial=0.0
    ).discretize(2, 2)
    A = problem.operator.to_dense()
    assert np.abs(A[0]).max() <= 1e-12 * np.abs(A).max()  # coefficient 0 is the mean


def coupling(s):
    return 0.95 * np.sin(2 * np.pi * s)


@pytest.mark.parametrize("grid", ["full", "sparse"])
@pytest.mark.parametrize("boundary", ["dirichlet", "neumann", "periodic"])
def test_variable_diffusion_does_not_grow_with_its_matrix_in_between(boundary, grid):
    """div @ mass @ grad is -Gᵀ K G with K at the quadrature points, so that nothing grows."""
    terms = [
        div(X) @ mass(X, lambda s: 1 + coupling(s) ** 2) @ grad(X),
        *laplacian(Y),
        div(X) @ mass(X, coupling) @ mass(Y, np.cos) @ grad(Y),
        div(Y) @ mass(X, coupling) @ mass(Y, np.cos) @ grad(X),
    ]
    assert max(growth([X, Y], terms, boundary, 2, 2, grid)) <= 1e-10


def test_what_a_variable_coefficient_outside_costs():
    """The growth on a full grid that docs/background/discretization.md states; sparse: none."""
    terms = [*laplacian([X, Y]), div(X, coupling) @ grad(Y), div(Y) @ grad(X, coupling)]
    coarse, _ = growth([X, Y], terms, "dirichlet", 2, 2)
    assert coarse == pytest.approx(4.4e-2, rel=0.05)
    assert growth([X, Y], terms, "dirichlet", 2, 2, "sparse")[0] <= 1e-10
