"""Equations with functions of the solution, and the errors that they are known to have.

The numbers ``expected`` were computed by a NumPy prototype on the same basis; tests run small
levels, and ``python -m benchmarks.nonlinear_errors`` all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import ive

from batchkron.problems import PDE, Axis, div, grad, make, mass, pointwise
from batchkron.solvers import evolve, gmres

TURN = 2 * np.pi
X, Y, Z = (Axis(name, 0, TURN) for name in "xyz")
BURGERS = {0.5: 0.3291639352, 1.5: 0.8738537304, 2.5: 0.8835370379, 3.0: 0.2759309667}
COLE_HOPF = {0.5: 0.24540155, 1.5: 0.69758978, 2.5: 0.94960620, 3.0: 0.53865375}
FISHER = {0.0: 0.48589165, 2.0: 0.25422681}


@dataclass(frozen=True)
class Case:
    """An equation on a kind of grid, with an error for each level.

    Attributes
    ----------
    name : str
    error : callable
        ``error(level, **settings)``: root mean square, or the largest at some places.
    expected : mapping of int to float
        The errors by level.
    settings : mapping
    factor : float
        By how much an error may be larger.
    """

    name: str
    error: Callable[..., float]
    expected: Mapping[int, float]
    settings: Mapping[str, Any] = field(default_factory=dict)
    factor: float = 1.2

    @property
    def text(self) -> str:
        given = ", ".join(f"{key} {value}" for key, value in self.settings.items())
        return f"{self.name}, {given}" if given else self.name


def burgers_1d(level: int, degree: int, points: str) -> float:
    flux = pointwise("f**2 / 2", speed=1.0, degree=points)
    exact = make("burgers-1d", 1).exact.function
    pde = PDE([X], -1 * div(X) @ flux, boundary="periodic", initial="sin(x)", exact=exact)
    problem = pde.discretize(level, degree)
    u = evolve(problem, until=0.5).u
    return problem.l2_error(u, 0.5) / TURN**0.5


def burgers_2d(level: int, degree: int) -> float:
    problem = make("burgers-2d", level, degree)
    result = evolve(problem)
    change = problem.integral(result.u) - problem.integral(problem.initial)
    assert abs(change) < 1e-12
    return problem.l2_error(result.u, 0.1) / TURN


def cole_hopf(x: Any, t: float, nu: float = 0.05) -> Any:
    """Return the solution of f_t + (f²/2)_x = nu f_xx from sin x, as ratio of two series."""
    n = np.arange(1, 200)
    weights = ive(n, 0.5 / nu) * np.exp(-nu * n * n * t)
    angles = np.outer(np.atleast_1d(x), n)
    below = ive(0, 0.5 / nu) + 2 * (weights * np.cos(angles)).sum(1)
    return 4 * nu * (n * weights * np.sin(angles)).sum(1) / below


def viscous(level: int, degree: int, points: str) -> float:
    flux = pointwise("f**2 / 2", speed=1.0, degree=points)
    terms = [0.05 * div(X) @ grad(X), -1 * div(X) @ flux]
    problem = PDE([X], terms, boundary="periodic", initial="sin(x)").discretize(level, degree)
    u = evolve(problem, until=1.0, method="ark3", rtol=1e-6).u
    nodes, weights = np.polynomial.legendre.leggauss(5)
    count = 1 << level
    places = (TURN / count * (np.arange(count)[:, None] + (nodes + 1) / 2)).ravel()
    off = problem.evaluate(u, places) - cole_hopf(places, 1.0)
    return float(np.sqrt((off**2 * np.tile(weights, count)).sum() / (2 * count)))


def logistic(level: int, degree: int, axes: int) -> float:
    """Each point has its own equation f' = f (1 - f)."""

    def exact(*points_and_time: Any) -> Any:
        *points, t = points_and_time
        start = 0.5 + 0.3 * np.cos(sum(points))
        return start * np.exp(t) / (1 + start * (np.exp(t) - 1))

    box = [X, Y, Z][:axes]
    pde = PDE(box, pointwise("f * (1 - f)"), boundary="periodic",
              initial=lambda *points: exact(*points, 0.0), exact=exact)  # fmt: skip
    problem = pde.discretize(level, degree)
    u = evolve(problem, until=1.0, method="rk4", dt=0.1).u
    return problem.l2_error(u, 1.0) / TURN ** (axes / 2)


def elliptic(level: int, grid: str, coefficient: str = "at points") -> float:
    """f - ∇·(k ∇f) = s with k = 2 + sin x cos y, by GMRES; cg does not solve it."""
    known = make("diffusivity-2d", 1)
    terms: list[Any] = [mass(X, -1.0)]
    if coefficient == "at points":
        k = pointwise("(2 + sin(x) * cos(y)) * f", linear=True)
        terms += [div(axis) @ k @ grad(axis) for axis in (X, Y)]
    else:
        wave = {X: np.sin, Y: np.cos}
        for axis, other in ((X, Y), (Y, X)):
            along = {other: _plain(wave[other])}
            terms += [2.0 * div(axis) @ grad(axis)]
            terms += [div(axis, _plain(wave[axis]), others=along) @ grad(axis)]
    source = known.source_functions[0].text
    assert source is not None
    pde = PDE([X, Y], terms, boundary="periodic", initial=0.0, sources=source,
              exact="sin(x + 2*y)")  # fmt: skip
    problem = pde.discretize(level, 2, grid)  # type: ignore[arg-type]
    s = np.empty(problem.unknowns)
    problem.source(0.0, s)
    solved = gmres(problem.operator, -s, rtol=1e-8, restart=200, maxiter=4000)
    assert solved.converged
    return problem.l2_error(solved.x, 0.0) / TURN


def _plain(function: Any) -> Callable[[Any], Any]:
    return lambda s: function(s)


def at_places(level: int, name: str) -> float:
    """Return the largest error at the places of which values are known to eight digits."""
    known, until = {"burgers-1d": (BURGERS, 0.5), "fisher": (FISHER, 1.0)}[name]
    problem = make(name, level, 2)
    result = evolve(problem, until=until)
    found = problem.evaluate(result.u, list(known))
    return float(np.abs(found - list(known.values())).max())


def porous_medium(level: int) -> float:
    """Return ∫ |f - Barenblatt's| at t = 1."""
    problem = make("porous-medium", level)
    result = evolve(problem)
    change = problem.integral(result.u) - problem.integral(problem.initial)
    assert abs(change) < 1e-12
    x = np.linspace(-8, 8, 8001)
    exact = problem.exact.function(x, 1.0)
    return float(np.abs(problem.evaluate(result.u, x) - exact).mean() * 16)


def robin(level: int) -> float:
    """-f'' = cos x on [-½, 2] with f_n + r f = 0 at both ends, f = cos x: the L² error."""
    from batchkron.problems import Robin, Separable, laplacian

    axis, wave = Axis("x", -0.5, 2.0), Separable(x=lambda s: np.cos(s))
    ends = Robin(0.54630249), Robin(-2.18503986)
    pde = PDE([axis], laplacian(axis), boundary=ends, initial=0.0, sources=wave, exact=wave)
    problem = pde.discretize(level, 2)
    s = np.empty(problem.unknowns)
    problem.source(0.0, s)
    return problem.l2_error(np.linalg.solve(problem.operator.to_dense(), -s), 0.0)


def energies(level: int, grid: str, samples: int = 8) -> list[float]:
    """Return ∫ ½ ε² |∇f|² + ¼ (1 - f²)² of `allen-cahn` at equal times until 0.8."""
    problem = make("allen-cahn", level, 2, grid)  # type: ignore[arg-type]
    found = [energy(problem, problem.initial)]
    at = np.linspace(0, 0.8, samples + 1)[1:]
    result = evolve(problem, until=0.8, at=at, raise_on_failure=True)
    return found + [energy(problem, u) for _, u in result.samples]


def energy(problem: Any, u: Any, epsilon: float = 0.3) -> float:
    """By quadrature in the finest cells, with the slope inside of each."""
    count = 1 << problem.grid.levels[0]
    nodes, weights = np.polynomial.legendre.leggauss(4)
    width = TURN / count
    line = (width * (np.arange(count)[:, None] + (nodes + 1) / 2)).ravel()
    places = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
    f = problem.evaluate(u, places).reshape(count, 4, count, 4)
    powers = np.vander(nodes, increasing=True)
    slopes = np.zeros((4, 4))
    slopes[:, 1:] = powers[:, :-1] * np.arange(1, 4)
    along = slopes @ np.linalg.inv(powers) * 2 / width
    f_x = np.einsum("ab,ibjc->iajc", along, f)
    f_y = np.einsum("ab,icjb->icja", along, f)
    density = 0.5 * epsilon**2 * (f_x**2 + f_y**2) + 0.25 * (1 - f**2) ** 2
    both = np.einsum("iajb,a,b->", density, weights, weights)
    return float(both * (width / 2) ** 2)


def _levels(first: int, errors: Sequence[float]) -> dict[int, float]:
    return dict(enumerate(errors, start=first))


CASES = (
    Case("burgers-1d", burgers_1d, _levels(3, [3.3e-2, 8.2e-3, 2.3e-3, 6.0e-4]),
         {"degree": 1, "points": "p+1"}),
    Case("burgers-1d", burgers_1d, _levels(3, [6.6e-3, 1.1e-3, 1.5e-4, 2.2e-5]),
         {"degree": 2, "points": "p+1"}),
    Case("burgers-1d", burgers_1d, _levels(3, [9.9e-3, 1.9e-3, 3.4e-4, 6.5e-5]),
         {"degree": 2, "points": "p"}),
    Case("burgers-2d", burgers_2d, _levels(4, [4.9e-2, 1.6e-2, 7.3e-3, 2.9e-3]), {"degree": 1}),
    Case("burgers-2d", burgers_2d, _levels(4, [8.3e-3, 2.3e-3, 4.3e-4, 8.8e-5]), {"degree": 2}),
    Case("burgers-2d", burgers_2d, _levels(4, [1.4e-3, 2.3e-4, 2.4e-5]), {"degree": 3}),
    Case("Cole-Hopf", viscous, _levels(4, [2.9e-2, 7.4e-3, 1.9e-3]),
         {"degree": 1, "points": "p+1"}),
    Case("Cole-Hopf", viscous, _levels(4, [7.5e-3, 1.2e-3, 1.5e-4]), {"degree": 2, "points": "p"}),
    Case("Cole-Hopf", viscous, _levels(4, [3.5e-3, 6.6e-4, 1.5e-4]),
         {"degree": 2, "points": "p+1"}),
    Case("logistic", logistic, _levels(4, [4.5e-3, 1.5e-3, 2.2e-4, 4.4e-5]),
         {"degree": 2, "axes": 2}),
    Case("logistic", logistic, _levels(4, [7e-4, 1.1e-4, 7.9e-6]), {"degree": 3, "axes": 2}),
    Case("logistic", logistic, _levels(4, [5.1e-2, 2.0e-2, 7.7e-3]), {"degree": 2, "axes": 3}),
    Case("elliptic", elliptic, _levels(3, [3.6e-1, 7.0e-2, 7.1e-3]), {"grid": "sparse"}),
    Case("elliptic", elliptic, _levels(3, [3.1e-1, 5.5e-2, 5.7e-3]),
         {"grid": "sparse", "coefficient": "as products"}),
    Case("elliptic", elliptic, _levels(3, [1.4e-2, 1.7e-3]), {"grid": "full"}),
    Case("values", at_places, {6: 1e-4}, {"name": "burgers-1d"}),
    Case("values", at_places, {6: 1e-5}, {"name": "fisher"}, factor=1.0),
    Case("porous-medium", porous_medium, _levels(4, [1.2e-1, 3.0e-2, 1.0e-2, 2.5e-3])),
    Case("Robin", robin, {6: 4e-7}, factor=1.0),
)  # fmt: skip
"""The last two have an aim in place of an error; that of the porous medium is our own."""

ALLEN_CAHN = {("sparse", 5): (9.3328, 8.6651), ("full", 4): (9.3324, 8.6795)}
"""The energy at the beginning and at t = 0.8, by a quadrature of whole grids; see `ENERGY_APART`.

The converged one falls from 9.332 to 8.659.
"""

ENERGY_APART = 0.02
"""How far our energies, of the slopes inside cells, may be from these."""
