"""Backward diffusion is refused, whatever it is written with, and where it is not is not."""

import pickle

import numpy as np
import pytest

from batchkron.problems import (
    PDE,
    Axis,
    Moment,
    NoFlux,
    Problem,
    Separable,
    div,
    grad,
    laplacian,
    lenard_bernstein,
    load_problem,
    mass,
    save_problem,
    time,
)
from batchkron.solvers import evolve

X, Y, Z = Axis("x", 0.0, 1.0), Axis("y", 0.0, 1.0), Axis("z", 0.0, 1.0)
V = Axis("v", -4.0, 4.0)
COS = time.cos(4.0)  # negative from t = π/8 on


def discretized(terms, level=2, axes=(X, Y), **options) -> Problem:
    return PDE(axes, terms, boundary="periodic", initial=1.0).discretize(level, 1, **options)


def chain(a, b):
    return div(a) @ grad(b)


FOURTH = chain(X, X) @ chain(X, X)


@pytest.mark.parametrize(
    ("terms", "text"),
    [
        (div(X, -0.1) @ grad(X), r"along 'x' is -0.1, less than 0: terms\[0\], div\(x, -0.1\)"),
        (-0.1 * chain(X, X), r"is -0.1, less than 0: terms\[0\], -0.1 \* div"),
        (div(X) @ grad(X, -0.1), "is -0.1,"),
        (div(X) @ mass(X, -2.0) @ grad(X), "is -2,"),
        (mass(X, lambda s: -1.0 - s) @ chain(X, X), "at x = 0.99"),
        (-1.0 * grad(X) @ grad(X), "is -1,"),
        (-1.0 * div(X) @ div(X), "is -1,"),
        (-1.0 * grad(X) @ div(X), "is -1,"),
        (laplacian([X, Y], -1.0), "along 'x' is -1,"),
        ([laplacian(X), laplacian(Y, -1e-6)], r"along 'y' is -1e-06, less than 0: terms\[1\]"),
        (div(X) @ mass(X, lambda s: s - 0.01) @ grad(X), "at x = 0.0003"),
        (div(X, lambda s: np.where(abs(s - 0.3) < 2e-3, -1.0, 1.0)) @ grad(X), "at x = 0.3"),
        (div(X, others={Y: lambda s: s - 0.5}) @ grad(X), "along 'x' is -0.499.* at y = 0.0003"),
        ([*laplacian([X, Y]), *(-1.5 * chain(a, b) for a, b in ((X, Y), (Y, X)))], "negative eig"),
        (chain(X, Y), r"\[\[0, 0.5\], \[0.5, 0\]\]"),
        ([laplacian(X), chain(X, Y)], r"\[\[1, 0.5\], \[0.5, 0\]\]"),
        ([*laplacian([X, Y]), mass(X, lambda s: 4 * s) @ chain(X, Y)], "at x = 0.99"),
        (COS * chain(X, X), "is -1 at t = 0.785.* needs its until="),
        (div(X, time=time.constant(-1.0)) @ grad(X), "is -1,"),
        ([div(X, 0.5) @ grad(X), COS * chain(X, X)], "is -0.5 at t = 0.785"),
        ([*laplacian([X, Y]), div(X, -2.0, others={Y: np.square}) @ grad(X)], "along 'x' is -0.99"),
        ([chain(X, X), FOURTH], "of order 4 along 'x' is 1, a sign with which"),
    ],
)
def test_backward_diffusion(terms, text):
    with pytest.raises(ValueError, match=text) as raised:
        discretized(terms)
    assert "+div(x, k) @ grad(x)" in str(raised.value)
    assert discretized(terms, allow_ill_posed=True).unknowns > 0


@pytest.mark.parametrize(
    "terms",
    [
        div(X, -1.0) @ grad(X, -0.1),
        div(X, lambda s: np.sin(np.pi * s)) @ grad(X),  # -1e-16 at the end
        [*laplacian([X, Y]), *(-1.0 * chain(a, b) for a, b in ((X, Y), (Y, X)))],
        [div(X, 0.09) @ grad(X), div(Y, 0.49) @ grad(Y), 0.42 * chain(X, Y)],  # K = b bᵀ
        [*laplacian([X, Y]), -2.0 * chain(X, Y) @ mass(X, lambda s: 1 - s)],
        [div(X, 2.0) @ grad(X), COS * chain(X, X)],
        [*laplacian([X, Y]), div(X, -1.0, others={Y: np.square}) @ grad(X)],
        [-1.0 * chain(X, X), -1.0 * FOURTH],  # Kuramoto and Sivashinsky
        div(X) @ grad(X) @ grad(X),  # dispersion
        [mass(X, -5.0), mass(X, 7.0), div(X, -1.0), grad(X, 2.0)],
        -1.0 * COS * div(X, lambda s: -2.0 - np.sin(2 * np.pi * s), flux="central"),
    ],
)
def test_what_is_well_posed_is_not_refused(terms):
    assert discretized(terms).unknowns > 0


def test_three_axes():
    """K = I + c (1 1ᵀ - I) has the smallest eigenvalue 1 - |c| for c > 0, 1 - 2 |c| for c < 0."""
    mixed = [chain(a, b) for a in (X, Y, Z) for b in (X, Y, Z) if a != b]
    own = laplacian([X, Y, Z])
    for c in (0.9, -0.49):
        discretized([*own, *(c * term for term in mixed)], 1, (X, Y, Z))
    for c in (1.1, -0.51):
        with pytest.raises(ValueError, match="matrix of diffusion along x, y, z"):
            discretized([*own, *(c * term for term in mixed)], 1, (X, Y, Z))


def test_diffusion_that_becomes_backward_in_a_longer_run(tmp_path):
    """Runs are checked like the discretization, also those of pickles and of files."""
    falling = time.polynomial([1.0, -0.5])
    problem = discretized(falling * chain(X, X), axes=(X,))
    save_problem(tmp_path / "own.h5", problem)
    stored = load_problem(tmp_path / "own.h5")
    assert stored.content_hash == problem.content_hash
    for own in (problem, stored, pickle.loads(pickle.dumps(problem))):
        assert str(evolve(own, until=2.0, method="sdirk2", dt=1.0).status) == "completed"
        with pytest.raises(ValueError, match=r"terms\[0\] becomes negative .* ill-posed"):
            evolve(own, until=3.0, method="sdirk2", dt=1.0)
    problem = discretized(falling * chain(X, X), axes=(X,), allow_ill_posed=True)
    save_problem(tmp_path / "allowed.h5", problem)
    for own in (problem, load_problem(tmp_path / "allowed.h5")):
        own.check_interval(0.0, 3.0)


def test_sums_that_become_backward_in_a_longer_run():
    """No term alone decides here, but their sum does."""
    falling = time.polynomial([0.0, -1.0])
    problem = discretized([div(X, 2.0) @ grad(X), falling * chain(X, X)], axes=(X,))
    problem.check_interval(0.0, 1.9)
    with pytest.raises(ValueError, match=r"along 'x' is -0.5 at t = 2.5"):
        problem.check_interval(0.0, 2.5)
    mixed = discretized([*laplacian([X, Y]), time.polynomial([0.0, 1.0]) * chain(X, Y)])
    with pytest.raises(ValueError, match="negative eigenvalue"):
        mixed.check_interval(0.0, 2.5)


RISING = time.polynomial([0.0, 1.0])


@pytest.mark.parametrize(
    ("terms", "last"),
    [
        ([div(X, 2.0) @ grad(X), -1 * RISING * chain(X, X)], 2.0),
        ([*laplacian([X, Y]), RISING * chain(X, Y)], 2.0),
        ([time.polynomial([1.2, -1.0]) * chain(X, X), 0.5 * chain(X, X)], 1.7),
        (2 * [time.polynomial([3.0, -1.0]) * chain(X, X)], 3.0),
        (time.polynomial([-1.3, 1.0]) * FOURTH, 1.3),
        (time.polynomial([-1.5, 1.0]) * div(X, -1.0) @ grad(X), 1.5),
        ([time.polynomial([2.5, -1.0]) * chain(X, X), laplacian(Y), chain(X, Y)], 2.25),
        ([time.spline([0.0, 5.0], [1.0, 1.0]) * chain(X, X), laplacian(X)], 5.0),
        ([time.exp(1.0) * chain(X, X), laplacian(X)], 709.7),  # e^710 overflows
    ],
)
def test_sums_of_files_and_pickles_that_become_backward(terms, last, tmp_path):
    """They have no PDE to look at, but know until when it is well-posed."""
    problem = discretized(terms, until=1)
    save_problem(tmp_path / "own.h5", problem)
    stored = load_problem(tmp_path / "own.h5")
    save_problem(tmp_path / "again.h5", stored)
    again = load_problem(tmp_path / "again.h5")
    assert stored.content_hash == again.content_hash == problem.content_hash
    pickled = pickle.loads(pickle.dumps(problem))
    for own in (stored, again, pickled, pickle.loads(pickle.dumps(stored))):
        own.check_interval(0.0, 0.9999 * last)
        with pytest.raises(ValueError, match=r"well-posed until|becomes negative|lies outside"):
            own.check_interval(0.0, 1.001 * last)


def test_long_runs_of_pickles(tmp_path):
    terms = [div(X, 2.0) @ grad(X), -1 * RISING * chain(X, X)]
    whole = discretized(terms, axes=(X,), until=2)
    save_problem(tmp_path / "own.h5", whole)
    assert load_problem(tmp_path / "own.h5").well_posed_until == 2.0
    problem = pickle.loads(pickle.dumps(whole))
    for own in (problem, problem.on_grid(problem.grid), problem.beginning_at(problem.initial, 1.0)):
        with pytest.raises(ValueError, match=r"well-posed until t = .*discretize\(..., until=4.0"):
            evolve(own, until=4.0, method="crank-nicolson", dt=0.1)


@pytest.mark.parametrize(
    ("terms", "options"),
    [
        (laplacian([X, Y]), {}),
        ([COS * div(X, -1.0, flux="central"), laplacian(X)], {}),
        ([(1.0 + COS) * term for term in laplacian([X, Y])], {}),  # each decides alone
        ([div(X, 2.0) @ grad(X), -1 * RISING * chain(X, X)], {"allow_ill_posed": True}),
    ],
)
def test_files_whose_terms_say_all(terms, options, tmp_path):
    """They are as before: there is no time until which they are known to be well-posed."""
    problem = discretized(terms, **options)
    save_problem(tmp_path / "own.h5", problem)
    for own in (load_problem(tmp_path / "own.h5"), pickle.loads(pickle.dumps(problem))):
        assert own.well_posed_until is None
        own.check_interval(0.0, 1e6)


def test_negative_diffusivity_and_negative_time():
    """Two signs cancel; the time alone decides nothing then."""
    rising = time.polynomial([-1.0, -1.0])
    problem = discretized(rising * (div(X) @ mass(X, lambda s: -1.0 - s) @ grad(X)), axes=(X,))
    problem.check_interval(0.0, 5.0)


@pytest.mark.parametrize(
    "terms",
    [
        time.exp(-1.0) * (-1.0 * div(X, -1.0) @ grad(X)),
        [-1.0 * time.exp(-1.0) * term for term in laplacian(X, -1.0)],
        time.polynomial([-1.0, -1.0]) * div(X, -1.0) @ grad(X),
        time.polynomial([-1.0, -1.0]) * div(X) @ grad(X, -2.0),
        time.polynomial([-1.0, -1.0]) * mass(X, -1.0) @ div(X) @ grad(X),
    ],
)
def test_negative_numbers_and_negative_time(terms):
    discretized(terms, axes=(X,)).check_interval(0.0, 5.0)


@pytest.mark.parametrize("terms", [chain(X, X), div(X, -1.0)])
def test_time_that_ends_at_zero_up_to_rounding(terms):
    """0.7 - 7 · 0.1 is -1e-16; what is negative beyond rounding remains refused."""
    problem = discretized(time.polynomial([0.7, -7.0]) * terms, axes=(X,), until=0.1)
    assert problem.terms[0].time(0.1) < 0.0
    with pytest.raises(ValueError, match="becomes negative"):
        problem.check_interval(0.0, 0.1001)


def test_collisions_whose_rate_becomes_negative():
    terms = [time.polynomial([1.0, -0.5]) * term for term in lenard_bernstein(V, 1.0)]
    ends = {X: "periodic", V: NoFlux()}
    problem = PDE([X, V], terms, boundary=ends, initial=1.0).discretize(1, 2)
    problem.check_interval(0.0, 2.0)
    with pytest.raises(ValueError, match=r"becomes negative .* ill-posed"):
        problem.check_interval(0.0, 3.0)


DENSITY = Moment(V)
BY_DENSITY = div(V, others={X: DENSITY}) @ grad(V)
MAXWELLIAN = Separable(x=lambda s: 1 + 0.5 * np.cos(2 * np.pi * s), v=lambda s: np.exp(-s * s / 2))


def with_fields(terms, **options) -> Problem:
    ends = {X: "periodic", V: NoFlux()}
    return PDE([X, V], terms, boundary=ends, initial=MAXWELLIAN).discretize(3, 2, **options)


@pytest.mark.parametrize(
    ("terms", "text"),
    [
        ([div(V, -0.1) @ grad(V), 1e-3 * BY_DENSITY], r"-0.09.* for the initial state"),
        (-1.0 * BY_DENSITY, r"-1.2.* for the initial state.*terms\[0\], -1 \* mass\(x, Moment"),
        (div(V, -1.0, others={X: DENSITY}) @ grad(V), "for the initial state"),
        ([-0.1 * term for term in lenard_bernstein(V, 1.0)], "for the initial state"),
        ([time.constant(-1.0) * term for term in lenard_bernstein(V, DENSITY)], "initial state"),
        ([*lenard_bernstein(V, 0.01), laplacian(V, -0.1)], "for the initial state"),
        ([1e-3 * BY_DENSITY, laplacian(V), laplacian(X, -1.0)], "along 'x' is -1,"),
    ],
)
@pytest.mark.parametrize("step", [{}, {"method": "ark2", "dt": 0.1}])
def test_backward_diffusion_with_fields(terms, text, step):
    with pytest.raises(ValueError, match=text):
        with_fields(terms, **step)
    with_fields(terms, allow_ill_posed=True, **step)


@pytest.mark.parametrize(
    "terms",
    [
        [div(V, -1.0) @ grad(V), BY_DENSITY],  # the density is from 1.25 to 3.76
        [div(V, -1.0) @ grad(V, -1.0), BY_DENSITY],
        div(V, others={X: Moment({V: 1})}) @ grad(V),  # 0 up to rounding
        -1.0 * div(V, others={X: Moment({V: 1})}) @ grad(V),
        div(V, others={X: DENSITY - 2.0}) @ grad(V),  # forward somewhere
        [1.0 * term for term in lenard_bernstein(V, 1.0)],
        lenard_bernstein(V, lambda s: 1.0 + s),
        [RISING * BY_DENSITY],
    ],
)
def test_fields_that_may_be_well_posed(terms):
    assert with_fields(terms).unknowns > 0
