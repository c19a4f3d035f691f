"""Random smooth solutions of random equations, with sources by exact differentiation.

A solution is Σ_j a_j Π_k trig(n_jk x_k + φ_jk) trig(ω_j t + ψ_j), and so is each coefficient;
derivatives of such sums are sums of the same kind, so that nothing is differenced here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from batchkron.problems import (
    PDE,
    Axis,
    Dirichlet,
    Mixed,
    Neumann,
    Robin,
    div,
    grad,
    laplacian,
    pointwise,
)
from batchkron.solvers import Adapt, EvolveStatus, evolve

TURN = 2 * np.pi
AXES = [Axis(name, 0, TURN) for name in "xy"]


@dataclass(frozen=True)
class Wave:
    """a Π_k cos(n_k x_k + φ_k) cos(ω t + ψ)."""

    size: float
    numbers: tuple[int, ...]
    phases: tuple[float, ...]
    omega: float
    psi: float

    def __call__(self, *points_and_time):
        *points, t = points_and_time
        found = self.size * np.cos(self.omega * t + self.psi)
        for n, phase, x in zip(self.numbers, self.phases, points, strict=True):
            found = found * np.cos(n * x + phase)
        return found

    def along(self, k):
        """The derivative along axis k: cos' is a cos with its phase moved."""
        phases = list(self.phases)
        phases[k] += np.pi / 2
        return Wave(self.size * self.numbers[k], self.numbers, tuple(phases), self.omega, self.psi)

    def in_time(self):
        return Wave(
            self.size * self.omega, self.numbers, self.phases, self.omega, self.psi + np.pi / 2
        )


@dataclass(frozen=True)
class Sum:
    """A mean and some waves."""

    mean: float
    waves: tuple[Wave, ...]

    def __call__(self, *points_and_time):
        return self.mean + sum(wave(*points_and_time) for wave in self.waves)

    def along(self, k):
        return Sum(0.0, tuple(wave.along(k) for wave in self.waves))

    def in_time(self):
        return Sum(0.0, tuple(wave.in_time() for wave in self.waves))


def random_sum(rng, axes, mean, size, *, steady=False):
    """Return a sum of three waves of at most ``size`` together."""
    waves = []
    for _ in range(3):
        numbers = tuple(int(n) for n in rng.integers(0, 3, axes))
        phases = tuple(rng.uniform(0, TURN, axes))
        omega = 0.0 if steady else float(rng.uniform(0.5, 2.0))
        waves.append(Wave(size / 3, numbers, phases, omega, float(rng.uniform(0, TURN))))
    return Sum(mean, tuple(waves))


def named(function, axes):
    """Return a function of (f, x, t) or (f, x, y, t) by name."""
    if axes == 1:
        return lambda f, x, t: function(f, x, t)
    return lambda f, x, y, t: function(f, x, y, t)


def flux_case(rng, axes):
    """f_t + Σ_k ∂(c_k f²/2 + b f)/∂x_k = s, with random coefficients of space and time."""
    f = random_sum(rng, axes, 0.4, 0.8)
    b = random_sum(rng, axes, 0.2, 0.5)
    numbers = rng.uniform(-1, 1, axes)

    def flux(u, *at):
        return u**2 / 2 + b(*at) * u

    speed = pointwise(named(flux, axes), speed_of=named(lambda u, *at: u + b(*at), axes))
    terms = [float(-c) * div(axis) @ speed for c, axis in zip(numbers, AXES, strict=False)]

    def source(*at):
        u = f(*at)
        slopes = [
            c * ((u + b(*at)) * f.along(k)(*at) + b.along(k)(*at) * u)
            for k, c in enumerate(numbers)
        ]
        return f.in_time()(*at) + sum(slopes)

    return f, terms, source, {"method": "ssp-rk3"}


def reaction_case(rng, axes):
    """f_t = ν Δf + sin(f) r + f g² + s."""
    f = random_sum(rng, axes, 0.5, 0.7)
    r, g = (random_sum(rng, axes, 0.5, 0.5) for _ in range(2))
    nu = float(rng.uniform(0.01, 0.05))

    def reaction(u, *at):
        return np.sin(u) * r(*at) + u * g(*at) ** 2

    terms = [nu * div(axis) @ grad(axis) for axis in AXES[:axes]]
    terms.append(pointwise(named(reaction, axes)))

    def source(*at):
        curve = sum(f.along(k).along(k)(*at) for k in range(axes))
        return f.in_time()(*at) - nu * curve - reaction(f(*at), *at)

    return f, terms, source, {"method": "ark3", "dt": 0.02}


def diffusion_case(rng, axes):
    """f_t = ∇·(k ∇f) + s with k = k(x, t) that is no product, by implicit steps."""
    f = random_sum(rng, axes, 0.0, 1.0)
    k = random_sum(rng, axes, 0.3, 0.2)
    coefficient = pointwise(named(lambda u, *at: k(*at) * u, axes), linear=True)
    terms = [div(axis) @ coefficient @ grad(axis) for axis in AXES[:axes]]

    def source(*at):
        total = f.in_time()(*at)
        for j in range(axes):
            slope = f.along(j)
            total = total - k(*at) * slope.along(j)(*at) - k.along(j)(*at) * slope(*at)
        return total

    return f, terms, source, {"method": "esdirk3", "dt": 0.02}


def porous_case(rng, axes):
    """f_t = Δ(f² + f) + s with f > 0, by implicit steps."""
    f = random_sum(rng, axes, 1.0, 0.5)
    terms = [0.1 * div(a) @ grad(a) @ pointwise("f**2 + f") for a in AXES[:axes]]

    def source(*at):
        u, total = f(*at), f.in_time()(*at)
        for j in range(axes):
            slope = f.along(j)
            total = total - 0.1 * ((2 * u + 1) * slope.along(j)(*at) + 2 * slope(*at) ** 2)
        return total

    return f, terms, source, {"method": "esdirk3", "dt": 0.02}


CASES = {
    "flux": flux_case,
    "reaction": reaction_case,
    "diffusion": diffusion_case,
    "porous": porous_case,
}


def errors(case, seed, axes, levels, grid, degree):
    """Return L² errors at t = 0.1, relative to those of the projection."""
    rng = np.random.default_rng(seed)
    f, terms, source, run = CASES[case](rng, axes)
    found = []
    for level in levels:
        exact = _as_function(f, axes)
        pde = PDE(AXES[:axes], terms, boundary="periodic", sources=_as_function(source, axes),
                  exact=exact)  # fmt: skip
        problem = pde.discretize(level, degree, grid, until=0.1)
        result = evolve(problem, until=0.1, **run)
        assert result.status is EvolveStatus.COMPLETED
        best = problem.l2_error(problem.project(exact, 0.1), 0.1)
        found.append((problem.l2_error(result.u, 0.1), best))
    return np.array(found)


def _as_function(given, axes):
    if axes == 1:
        return lambda x, t: given(x, t)
    return lambda x, y, t: given(x, y, t)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_in_one_axis_errors_fall_with_the_order(case, seed):
    found = errors(case, seed, 1, (3, 4), "full", 2)
    assert (found[:, 0] < 6 * found[:, 1]).all()
    assert found[0, 0] > 5 * found[1, 0]


@pytest.mark.parametrize(
    ("case", "grid"),
    [("flux", "sparse"), ("reaction", "sparse"), ("diffusion", "full"), ("porous", "sparse")],
)
def test_in_two_axes_errors_fall(case, grid):
    found = errors(case, 3, 2, (3, 4) if grid == "sparse" else (2, 3), grid, 2)
    assert (found[:, 0] < 8 * found[:, 1]).all()
    assert found[0, 0] > 2.5 * found[1, 0]


@pytest.mark.parametrize("case", ["flux", "reaction"])
def test_a_source_that_lacks_a_part_is_noticed(case):
    """The tests above can fail: half of a derivative is missing."""
    f, terms, source, run = CASES[case](np.random.default_rng(1), 1)
    wrong = lambda x, t: source(x, t) - 0.5 * f.in_time()(x, t)  # noqa: E731
    pde = PDE(AXES[:1], terms, boundary="periodic", sources=wrong, exact=_as_function(f, 1))
    problem = pde.discretize(4, 2, until=0.1)
    u = evolve(problem, until=0.1, **run).u
    assert problem.l2_error(u, 0.1) > 20 * problem.l2_error(problem.exact_coefficients(0.1), 0.1)


def test_laplacians_and_robin_ends():
    """A wave that no end is made for: f_n + r f of it at both ends of x, in time and along y."""
    x, y = Axis("x", -0.3, 1.1), Axis("y", 0, TURN)
    f = random_sum(np.random.default_rng(5), 2, 0.3, 1.0)

    def data(r, sign):
        return lambda x, y, t: sign * f.along(0)(x, y, t) + r * f(x, y, t)

    def source(x, y, t):
        curve = f.along(0).along(0)(x, y, t) + f.along(1).along(1)(x, y, t)
        return f.in_time()(x, y, t) - curve

    ends = {x: (Robin(1.7, data(1.7, -1)), Robin(-0.4, data(-0.4, 1))), y: "periodic"}
    found = []
    for level in (2, 3):
        pde = PDE([x, y], laplacian([x, y]), boundary=ends, sources=source,
                  exact=_as_function(f, 2))  # fmt: skip
        problem = pde.discretize(level, 2, "full")
        u = evolve(problem, until=0.1, dt=0.01, method="esdirk3").u
        found.append(problem.l2_error(u, 0.1))
    assert found[0] > 5 * found[1]


def driven_case(seed):
    """f_t + ∂(k f)/∂x = ν f_yy + r sin(f) + s with k = k(x, y, t) > 0, in a box with random ends.

    f flows in at the left end of x; the ends of y have values, slopes, or f_n + r f.
    """
    rng = np.random.default_rng(seed)
    x, y = (Axis(name, *rng.uniform((-2, 0.5), (0, 2))) for name in "xy")
    f, k, r = (random_sum(rng, 2, mean, size) for mean, size in ((0.5, 1), (0.8, 0.3), (0.5, 0.5)))
    nu, share = float(rng.uniform(0.02, 0.1)), float(rng.uniform(-0.3, 2.0))

    slope = f.along(1)

    def at_end(end, given):
        return lambda x, t: given(x, end + 0 * x, t)

    kinds = {
        "value": lambda end, sign: Dirichlet(at_end(end, f)),
        "slope": lambda end, sign: Neumann(at_end(end, slope)),
        "both": lambda end, sign: Robin(
            share, at_end(end, lambda *xt: sign * slope(*xt) + share * f(*xt))
        ),
    }
    low, high = (str(name) for name in rng.choice(list(kinds), 2))
    boundary = {
        x: (Dirichlet(lambda y, t: f(x.lower + 0 * y, y, t)), Neumann()),
        y: (kinds[low](y.lower, -1.0), kinds[high](y.upper, 1.0)),
    }
    terms = [
        -1 * div(x) @ pointwise(lambda f, x, y, t: k(x, y, t) * f, speed=1.2, linear=True),
        nu * div(y) @ grad(y),
        pointwise(lambda f, x, y, t: r(x, y, t) * np.sin(f)),
    ]

    def source(x, y, t):
        at, u = (x, y, t), f(x, y, t)
        flow = k.along(0)(*at) * u + k(*at) * f.along(0)(*at)
        return f.in_time()(*at) + flow - nu * slope.along(1)(*at) - r(*at) * np.sin(u)

    exact = _as_function(f, 2)
    pde = PDE([x, y], terms, boundary=boundary, sources=source, exact=exact)
    return pde, exact, (low, high)


GRIDS = {"sparse": "sparse", "full": "full", "mixed": Mixed(["x"], ["y"])}


@pytest.mark.parametrize("seed", [8, 14, 15])
@pytest.mark.parametrize(("grid", "degree"), [("sparse", (2, 1)), ("full", (1, 3)), ("mixed", 2)])
def test_random_ends_and_coefficients(seed, grid, degree):
    pde, exact, _ = driven_case(seed)
    found = []
    for level in (2, 3):
        problem = pde.discretize(level, degree, GRIDS[grid], until=0.1)
        result = evolve(problem, until=0.1, dt=0.01, method="esdirk3")
        assert result.status is EvolveStatus.COMPLETED
        best = problem.l2_error(problem.project(exact, 0.1), 0.1)
        found.append((problem.l2_error(result.u, 0.1), best))
    found = np.array(found)
    assert (found[:, 0] < 4 * found[:, 1]).all()
    assert found[0, 0] > 2.5 * found[1, 0]


def test_random_ends_are_all_kinds():
    assert {kind for seed in (8, 14, 15) for kind in driven_case(seed)[2]} == {
        "value", "slope", "both"
    }  # fmt: skip


def test_grids_follow_random_solutions():
    pde, _, _ = driven_case(8)
    found = []
    for tol in (1e-2, 1e-3):
        problem = pde.discretize(2, 1, until=0.1)
        result = evolve(
            problem, until=0.1, dt=0.01, method="esdirk3", adapt=Adapt(tol, max_level=6)
        )
        assert result.status is EvolveStatus.COMPLETED
        found.append(result.problem.l2_error(result.u, 0.1))
    assert found[1] < 0.4 * found[0]
    assert found[1] < 2e-3
