"""Inflow and outflow ends, no-flux walls, and the warning about values given at an outflow."""

import warnings

import numpy as np
import pytest
from problem_oracle import orders, rk3
from scipy.integrate import quad
from scipy.special import erf

from batchkron.problems import (
    PDE,
    Axis,
    Dirichlet,
    Inflow,
    Moment,
    Neumann,
    NoFlux,
    OutflowWarning,
    Separable,
    div,
    grad,
    laplacian,
    mass,
    penalty,
    pointwise,
    time,
)
from batchkron.solvers import evolve

X, V = Axis("x", -1.0, 1.0), Axis("v", -1.0, 1.0)
IN_AT_LEFT, IN_AT_RIGHT = (Dirichlet(), Neumann()), (Neumann(), Dirichlet())


def itself(s):
    return s


def positive(s):
    return np.maximum(s, 0.0)


def negative(s):
    return np.minimum(s, 0.0)


def dense(terms, boundary, axes=(X, V), level=3, degree=2, grid="sparse", **options):
    if "exact" not in options:
        options = {"initial": 0.0, **options}
    pde = PDE(axes, terms, boundary=boundary, **options)
    return pde.discretize(level, degree, grid, allow_ill_posed=True)  # matrices of any sign


def matrix(*arguments, **options):
    return dense(*arguments, **options).operator.to_dense()


STREAMING = div(X, -1.0, others={V: itself})
ROTATION = [STREAMING, div(V, 1.0, others={X: itself})]


def test_a_pulse_leaves():
    """f(x, v, t) = f0(x - v t, v): what is left is what has not reached an end."""
    pulse = Separable(x=lambda s: np.exp(-30 * s**2), v=lambda s: 1 + s / 2)
    problem = dense(STREAMING, {X: Inflow(), V: "neumann"}, initial=pulse, level=4, grid="full")
    weight = problem.initial[0]
    width = np.sqrt(30.0)
    for t in (1.0, 4.0):
        result = evolve(problem, until=t, method="ssp-rk3", dt=0.02)

        def share(v, t=t):
            ends = erf(width * (1 - v * t)) + erf(width * (1 + v * t))
            return (1 + v / 2) * ends / erf(width) / 4

        exact, _ = quad(share, -1, 1, epsabs=1e-12, points=[-1 / t, 1 / t])
        assert result.u[0] / weight == pytest.approx(exact, abs=2e-4)
        assert np.linalg.norm(result.u) < np.linalg.norm(problem.initial)
    assert exact == pytest.approx(0.25)


def test_nothing_grows_in_a_rotating_flow():
    A = matrix(ROTATION, "inflow", level=4)
    assert np.linalg.eigvals(A).real.max() <= 1e-12 * np.linalg.norm(A, 2)
    assert np.linalg.eigvalsh(A + A.T).max() <= 1e-12 * np.linalg.norm(A, 2)


def test_inflow_is_decided_for_each_sign():
    by_hand = [
        div(X, -1.0, others={V: positive}, boundary=IN_AT_LEFT),
        div(X, -1.0, others={V: negative}, boundary=IN_AT_RIGHT),
        div(V, 1.0, others={X: positive}, boundary=IN_AT_RIGHT),
        div(V, 1.0, others={X: negative}, boundary=IN_AT_LEFT),
    ]
    expected = matrix(by_hand, "neumann")
    np.testing.assert_allclose(matrix(ROTATION, "inflow"), expected, atol=1e-13)
    own = [
        div(X, -1.0, others={V: itself}, boundary=Inflow()),
        div(V, 1.0, others={X: itself}, boundary="inflow"),
    ]
    np.testing.assert_allclose(matrix(own, "neumann"), expected, atol=1e-13)


@pytest.mark.parametrize("build", [div, grad])
@pytest.mark.parametrize("flux", ["upwind", "central", "downwind"])
@pytest.mark.parametrize(
    ("coefficient", "ends"),
    [
        (lambda s: s - 3.0, IN_AT_LEFT),
        (lambda s: 3.0 - s, IN_AT_RIGHT),
        (lambda s: s, (Dirichlet(), Dirichlet())),
        (lambda s: -s, (Neumann(), Neumann())),
        (-2.0, IN_AT_LEFT),
    ],
    ids=["right-going", "left-going", "inwards", "outwards", "number"],
)
def test_inflow_is_decided_at_each_end(build, flux, coefficient, ends):
    found = matrix(build(X, coefficient, flux=flux), Inflow(), (X,))
    expected = matrix(build(X, coefficient, flux=flux), ends, (X,))
    np.testing.assert_array_equal(found, expected)
    weighted = {"volume": {X: lambda s: 1.5 + s}}
    found = matrix(build(X, coefficient, flux=flux), Inflow(), (X,), **weighted)
    expected = matrix(build(X, coefficient, flux=flux), ends, (X,), **weighted)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("ends", [Inflow(), NoFlux()])
def test_transport_that_is_not_conservative(ends):
    """g ∂f/∂x = ∂(g f)/∂x - g' f, at ends and edges too."""

    def speed(s):
        return 0.7 - s + s**2 / 5

    def slope(s):
        return 2 * s / 5 - 1

    found = matrix(grad(X, speed, others={V: itself}), {X: ends, V: "neumann"})
    terms = [div(X, speed, others={V: itself}), -mass(X, slope, others={V: itself})]
    expected = matrix(terms, {X: ends, V: "neumann"})
    np.testing.assert_allclose(found, expected, atol=1e-12 * np.abs(expected).max())


def test_a_central_flux_is_split_for_its_ends():
    term = div(X, -1.0, others={V: itself}, flux="central")
    by_hand = [
        div(X, -1.0, others={V: part}, flux="central", boundary=ends)
        for part, ends in ((positive, IN_AT_LEFT), (negative, IN_AT_RIGHT))
    ]
    expected = matrix(by_hand, "neumann")
    np.testing.assert_allclose(
        matrix(term, {X: "inflow", V: "neumann"}), expected, atol=1e-13 * np.abs(expected).max()
    )
    with pytest.raises(
        ValueError, match=r"becomes negative.* ends with Inflow .* other conditions"
    ):
        dense(div(X, time=time.cos(9.0), flux="central"), "inflow", (X,))


def test_penalties_have_no_ends():
    expected = matrix(penalty(X, itself), Neumann(), (X,))
    assert np.abs(expected).max() > 0.1
    for ends in (Inflow(2.0), NoFlux()):
        problem = dense(penalty(X, itself), ends, (X,))
        np.testing.assert_array_equal(problem.operator.to_dense(), expected)
        assert not problem.sources


@pytest.mark.parametrize("data", ["from exact", "given"])
def test_inflow_data_in_time_and_other_coordinates(data):
    """f_t = -v f_x + s with f = exp(x/2) cos v cos 2t, which flows in at both ends."""
    exact = Separable(x=lambda s: np.exp(s / 2), v=np.cos, t=time.cos(2.0))
    ends = Inflow("from exact")
    if data == "given":
        left, right = (
            Separable(v=np.cos, t=time.cos(2.0), coefficient=np.exp(s)) for s in (-0.5, 0.5)
        )
        ends = (Inflow(left), Inflow(right))
    errors = []
    for level in (2, 3, 4):
        problem = dense(
            STREAMING,
            {X: ends, V: "neumann"},
            level=level,
            degree=1,
            grid="full",
            exact=exact,
            sources="from exact",
        )
        errors.append(problem.l2_error(rk3(problem, 0.5, 40), 0.5))
    assert orders(errors).min() > 1.85
    assert errors[-1] < 2e-3


def test_inflow_of_what_a_grid_holds_is_exact():
    """(x - v t)² solves f_t = -v f_x; the data are polynomials of v and t."""
    parts = [
        Separable(x=lambda s: s**2),
        Separable(x=itself, v=itself, t=time.polynomial([0, 1]), coefficient=-2.0),
        Separable(v=lambda s: s**2, t=time.polynomial([0, 0, 1])),
    ]
    problem = dense(
        STREAMING,
        {X: Inflow("from exact"), V: "neumann"},
        exact=parts[0] + parts[1] + parts[2],
        grid="full",
        level=2,
        degree=4,
    )
    result = evolve(problem, until=1.0, method="rk4", dt=0.005)
    assert problem.relative_error(result.u, 1.0) < 1e-6


def well(s):
    return np.cos(3 * s) + s**2


def drift(s):
    return -3 * np.sin(3 * s) + 2 * s


WALLED = {
    "drift and diffusion": [div(X, drift), div(X) @ grad(X)],
    "outwards": [div(X, lambda s: -3.0 * s), 0.1 * div(X) @ mass(X, lambda s: 2 + s) @ grad(X)],
    "other coordinates": [*ROTATION, mass(V, lambda s: 2 + s) @ div(X, 0.1) @ grad(X)],
    "central": [div(X, 2.0, flux="central"), div(X) @ grad(X)],
}


@pytest.mark.parametrize("volume", [None, lambda s: 1.5 + s])
@pytest.mark.parametrize("case", WALLED)
def test_walls_conserve_mass(case, volume):
    """Each column of the operator has integral zero."""
    options = {} if volume is None else {"volume": {X: volume}}
    problem = dense(WALLED[case], "no-flux", **options)
    A = problem.operator.to_dense()
    content = dense([], "neumann", sources=0.0, initial=1.0, **options).initial
    if volume is not None:
        content = PDE(
            [X, V], [], sources=0.0, boundary="neumann", initial=Separable(x=volume)
        ).discretize(3)
        content = content.initial
    assert np.linalg.norm(content @ A) < 1e-14 * np.linalg.norm(content) * np.linalg.norm(A, 2)
    assert not problem.sources


def test_walls_keep_the_equilibrium():
    """∂(w' f + f_x)/∂x vanishes for exp(-w)."""
    equilibrium = Separable(x=lambda s: np.exp(-well(s)))
    problem = dense(WALLED["drift and diffusion"], NoFlux(), (X,), 5, initial=equilibrium)
    values, vectors = np.linalg.eig(problem.operator.to_dense())
    order = np.argsort(-values.real)
    assert abs(values[order[0]]) < 1e-10
    assert values[order[1]].real < -0.1
    steady = vectors[:, order[0]].real
    steady *= problem.initial[0] / steady[0]
    assert np.linalg.norm(steady - problem.initial) < 1e-4 * np.linalg.norm(steady)


def test_walls_of_a_chain_and_of_a_factor():
    """NoFlux is Dirichlet() of a div that stands alone, and Neumann() of a chain div @ grad."""
    before = [div(X, 2.0, boundary=Dirichlet()), div(X, itself) @ grad(X, 3.0)]
    expected = matrix(before, Neumann(), (X,))
    for terms, ends in [
        ([div(X, 2.0), div(X, itself) @ grad(X, 3.0)], NoFlux()),
        ([div(X, 2.0, boundary=NoFlux()), div(X, itself) @ grad(X, 3.0)], Neumann()),
        (
            [div(X, 2.0, boundary=NoFlux()), div(X, itself, boundary=NoFlux()) @ grad(X, 3.0)],
            Inflow(7.0),
        ),
        (
            [
                div(X, 2.0, boundary="no-flux"),
                div(X, itself, boundary="no-flux") @ grad(X, 3.0, boundary="no-flux"),
            ],
            "dirichlet",
        ),
    ]:
        np.testing.assert_array_equal(matrix(terms, ends, (X,)), expected)


def test_walls_of_mixed_derivatives():
    """At a wall the outer div takes no flux, the inner grad the trace from inside."""
    k = 0.5
    mixed = [k * div(X) @ grad(V), k * div(V) @ grad(X)]
    found = matrix([*laplacian([X, V]), *mixed], "no-flux")
    np.testing.assert_array_equal(found, matrix([*laplacian([X, V]), *mixed], Neumann()))
    own = [
        k * div(X, boundary=NoFlux()) @ grad(V, boundary=NoFlux()),
        k * div(V, boundary=NoFlux()) @ grad(X, boundary=NoFlux()),
    ]
    np.testing.assert_array_equal(matrix(own, "dirichlet"), matrix(mixed, "no-flux"))
    content = dense([], "neumann", sources=0.0, initial=1.0).initial
    assert np.linalg.norm(content @ found) < 1e-14 * np.linalg.norm(found, 2)


def test_collisions_between_inflow_ends():
    """Vlasov-Fokker-Planck: inflow ends for the force term, no flux for the collision terms."""
    terms = [
        div(V, 1.0, others={X: itself}),
        div(V, itself, boundary=NoFlux()),
        div(V, boundary=NoFlux()) @ grad(V),
    ]
    found = matrix(terms, {X: "neumann", V: "inflow"})
    force = matrix(terms[0], {X: "neumann", V: "inflow"})
    collisions = matrix([div(V, itself), div(V) @ grad(V)], {X: "neumann", V: "no-flux"})
    np.testing.assert_allclose(found, force + collisions, atol=1e-12 * np.abs(found).max())


REFUSED = [
    (laplacian(X), "inflow", r"div\(x\) @ grad\(x\) meets the condition Inflow"),
    (div(X) @ grad(X), (Inflow(), "neumann"), "nothing about second ones"),
    (div(X) @ grad(V), {X: "inflow", V: "neumann"}, r"div\(x\) @ grad\(v\) meets"),
    (div(X) @ grad(X, boundary="inflow"), "neumann", "give the chain its own condition"),
    (div(X, boundary=(NoFlux(), Neumann())) @ grad(X), "inflow", "end of axis 'x'"),
    (div(X), "in-flow", "expected one of periodic, dirichlet, neumann, inflow, no-flux"),
    (div(X), {X: Inflow(Separable(q=1.0)), V: "neumann"}, "names the axis 'q'"),
    (div(X), ("inflow", "periodic"), "periodic at one end only"),
    (div(X, boundary=Inflow("from exact")), "neumann", "needs exact="),
]


@pytest.mark.parametrize(("terms", "boundary", "text"), REFUSED)
def test_what_is_refused(terms, boundary, text):
    with pytest.raises(ValueError, match=text):
        PDE([X, V], terms, boundary=boundary, initial=0.0)


def test_a_circle_has_no_walls():
    pde = PDE([X], div(X, boundary=NoFlux()) @ grad(X), boundary="periodic", initial=0.0)
    with pytest.raises(ValueError, match="own boundary 'no-flux', but the PDE's axis is periodic"):
        pde.discretize(1, 1)


def test_data_are_checked():
    with pytest.raises(ValueError, match=r"Inflow: 'zero \+' is no formula .* The only word"):
        Inflow("zero +")
    with pytest.raises(TypeError, match="Inflow's data must be"):
        Inflow(object())


WARNED = {
    "to the right": (
        div(X, -1.0),
        Dirichlet(),
        "right end, where f flows out: its coefficient is -1 ",
    ),
    "to the left": (div(X, 2.0), (Dirichlet(1.0), Neumann()), "left end, .* its coefficient is 2 "),
    "by the scale": (-2.0 * div(X), ("neumann", "dirichlet"), "right end, .* is -2 there"),
    "not conservative": (grad(X, -3.0), "dirichlet", "grad along 'x'"),
    "either sign": (STREAMING, "dirichlet", "(left|right) end"),
    "central": (div(X, -1.0, flux="central"), "dirichlet", "right end"),
    "of its own": (div(X, -1.0, boundary=Dirichlet()), "neumann", "right end"),
    "weak diffusion": ([div(X, -1.0), laplacian(X, 1e-3)], "dirichlet", "boundary= of the term"),
    "a wall with data": (
        [div(X, -1.0, boundary=(Neumann(), Dirichlet(2.0))), laplacian(X)],
        "neumann",
        "right end",
    ),
    "volume": (div(V, -1.0), {X: "neumann", V: "dirichlet"}, "times the volume element is -2 "),
}


@pytest.mark.parametrize("case", WARNED)
def test_values_given_at_an_outflow_are_warned_of(case):
    terms, boundary, text = WARNED[case]
    pde = PDE([X, V], terms, boundary=boundary, initial=0.0, volume={V: lambda s: 1 + s})
    with pytest.warns(OutflowWarning, match=text) as caught:
        pde.discretize(2, 1)
    assert len(caught) == (2 if case == "either sign" else 1)
    for each in caught:
        assert "Inflow(data)" in str(each.message)
        assert "NoFlux()" in str(each.message)
        assert "next release" in str(each.message)
        assert each.filename == __file__


SILENT = {
    "inflow": (STREAMING, {X: "inflow", V: "neumann"}),
    "walls": (STREAMING, {X: "no-flux", V: "neumann"}),
    "in at the left": (div(X, -1.0), (Dirichlet(1.0), Neumann())),
    "inwards": (div(X, itself), Dirichlet()),
    "vanishes": (-div(X, lambda s: 1 - s**2), Dirichlet()),
    "vanishes but for rounding": (div(X, lambda s: np.sin(np.pi * s)), Dirichlet()),
    "vanishes in front": (mass(X, lambda s: 1 - s**2) @ div(X, -1.0), Dirichlet()),
    "nothing there": (0.0 * div(X, -1.0), Dirichlet()),
    "diffusion": (laplacian(X), Dirichlet(1.0)),
    "chains": (div(X, -1.0) @ grad(X, -1.0), Dirichlet()),
    "mixed": ([*laplacian([X, V]), 0.5 * div(X) @ grad(V)], Dirichlet()),
    "strong diffusion": ([div(X, -1.0), laplacian(X)], Dirichlet()),
    "strong diffusion in time": (
        [div(X, -1.0, time=time.exp(-1.0)), laplacian(X, time=time.exp(-1.0))],
        Dirichlet(),
    ),
    "closed by factors": (
        [div(X, -1.0, boundary=Dirichlet()), laplacian(X, 1e-3)],
        Neumann(),
    ),
    "closed by a chain": (
        [div(X, -1.0), div(X, boundary=Dirichlet()) @ grad(X, boundary=Neumann())],
        Dirichlet(),
    ),
    "volume element": (div(V, 1.0), {X: "neumann", V: "dirichlet"}),
    "penalty": (penalty(X, -1.0), Dirichlet()),
    "mass": (mass(X, -1.0), Dirichlet()),
}


@pytest.mark.parametrize("case", SILENT)
def test_other_values_are_not_warned_of(case):
    terms, boundary = SILENT[case]
    pde = PDE([X, V], terms, boundary=boundary, initial=0.0, volume={V: lambda s: 1 + s})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pde.discretize(2, 1)


def test_the_example_of_the_warning_grows():
    """What the warning is about: an eigenvalue with a positive real part."""
    with pytest.warns(OutflowWarning):
        A = matrix(ROTATION, "dirichlet", level=2)
    assert np.linalg.eigvals(A).real.max() > 1e-3


BURGERS = -1 * div(X) @ pointwise("f**2 / 2", speed=2.0)
GIVEN = (Dirichlet(1.0), Dirichlet())
AT_POINTS = {
    "to the right": (BURGERS, GIVEN, 1.0, "right end .* flows out: .* is up to 1\\. The given"),
    "to the left": (BURGERS, "dirichlet", -0.5, "left end of axis 'x'.* is up to 0\\.5"),
    "a callable": (
        -2 * div(X) @ pointwise(lambda f, x: f**2 * (x + 2), speed=6.0), GIVEN, 1.0, "right .* 12",
    ),
    "somewhere": (BURGERS, (Neumann(), Dirichlet()), lambda x, v: v - 0.5, "right .* (0.5|0.49)"),
    "by the coefficients": (
        div(X, itself, others={V: lambda v: -v}) @ pointwise("f", linear=True, speed=2.0),
        (Neumann(), Dirichlet()), 0.0, "right end .* (1|0.99)",
    ),
    "in time": (BURGERS * time.sin(3.0), (Dirichlet(), Neumann()), -1.0, "left end .* is up to 1"),
    "weak diffusion": ([BURGERS, laplacian(X, 1e-3)], GIVEN, 1.0, "right end"),
}  # fmt: skip


@pytest.mark.parametrize("case", AT_POINTS)
def test_functions_of_the_state_at_an_outflow_are_warned_of(case):
    terms, boundary, initial, text = AT_POINTS[case]
    pde = PDE([X, V], terms, boundary={X: boundary, V: "neumann"}, initial=initial)
    with pytest.warns(OutflowWarning, match=text) as caught:
        pde.discretize(2, 1)
    (each,) = caught
    assert "Use Neumann(), " in str(each.message)
    assert each.filename == __file__


def of_a_table(f):
    if f.min() < 1.0 or f.max() > 1.0:
        raise RuntimeError("beyond the table")
    return -f


NOT_WARNED = {
    "inwards": (BURGERS, (Dirichlet(1.0), Neumann()), 1.0),
    "walls": (BURGERS, "no-flux", 1.0),
    "nothing flows": (BURGERS, "dirichlet", 0.0),
    "a tail": (BURGERS, "dirichlet", lambda x, v: np.exp(-20 * x**2)),
    "vanishes but for rounding": (BURGERS, "dirichlet", lambda x, v: np.sin(np.pi * x)),
    "strong diffusion": ([BURGERS, laplacian(X)], "dirichlet", 1.0),
    "a reaction": (pointwise("f**2"), "dirichlet", 1.0),
    "not defined": (-1 * div(X) @ pointwise("sqrt(f - 1)", speed=1.0), "dirichlet", 0.0),
    "defined for its values alone": (div(X) @ pointwise(of_a_table, speed=1.0), "dirichlet", 1.0),
    "not defined at the end": (
        div(X) @ pointwise(lambda f: 1 / f, speed=1.0),
        "dirichlet",
        lambda x, v: x,
    ),
    "a field": (-1 * div(X) @ pointwise("f * n", n=Moment(V), speed=1.0), "dirichlet", 1.0),
}


@pytest.mark.parametrize("case", NOT_WARNED)
def test_other_functions_of_the_state_are_not_warned_of(case):
    terms, boundary, initial = NOT_WARNED[case]
    pde = PDE([X, V], terms, boundary={X: boundary, V: "neumann"}, initial=initial)
    pde.discretize(2, 1)
