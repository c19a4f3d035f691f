"""Problems whose right-hand side is known in parts, and textbook steps that do not know them."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
from methods import EQUAL_STEPS

from batchkron.solvers import steppers


class Parts:
    """u' = Σ_g f_g(t) P_g(t, u) + Σ_h f_h(t) s_h, elementwise and not linear.

    ``rhs`` is written out here; ``split`` says whether steppers may know the parts.
    """

    t0 = 0.0

    def __init__(self, initial, products, sources, *, split, module=np, is_repeatable=False):
        self.initial = module.asarray(initial)
        self.products, self._is_repeatable = products, is_repeatable
        self.sources = [(function, module.asarray(vector)) for function, vector in sources]
        self.calls = 0
        if split:
            self.split_rhs = self._split

    def rhs(self, t, u, out):
        self.calls += 1
        total = 0.0 * u
        for function, product in self.products:
            part = u * np.nan
            product(t, u, part)
            total = total + (1.0 if function is None else float(function(t))) * part
        for function, vector in self.sources:
            total = total + float(function(t)) * vector
        out[...] = total

    def _split(self):
        def counted(product, is_first):
            def call(t, u, out):
                self.calls += is_first
                out[...] = np.nan  # a product does not read it
                product(t, u, out)

            return call

        products = [
            (function, counted(product, g == 0))
            for g, (function, product) in enumerate(self.products)
        ]
        return SimpleNamespace(
            products=products,
            sources=self.sources,
            is_repeatable=self._is_repeatable,
            turn=nullcontext,
        )


def turned(t, u, out):
    """A rotation of neighbours, and a nonlinear part."""
    out[:-1] = 0.7 * u[1:]
    out[-1:] = -0.7 * u[:1]
    out -= 0.3 * abs(u) * u


def damped(t, u, out):
    out[...] = -0.4 * u


def driven(t, u, out):
    """Depends on time by itself."""
    out[...] = (0.2 + 0.1 * t) * u[::-1]


def wave(t):
    return np.cos(3.0 * t + 0.2)


def ramp(t):
    return 0.5 + t


def decay(t):
    return np.exp(-2.0 * t)


PRODUCTS = {
    "one": ((None, turned),),
    "one with a factor": ((wave, turned),),
    "two": ((None, turned), (wave, damped)),
    "two with factors": ((ramp, turned), (wave, damped)),
    "three": ((decay, turned), (None, driven), (wave, damped)),
}
SOURCES = {"no": (), "one": (wave,), "three": (wave, ramp, decay)}


def random_state(rng, size, dtype):
    values = rng.uniform(0.5, 1.5, size)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.uniform(-1.0, 1.0, size)
    return values.astype(dtype)


def pair(rng, products, sources, dtype=np.float64, size=7, **options):
    """The same problem with its parts, and with ``rhs`` alone."""
    initial = random_state(rng, size, dtype)
    vectors = [(function, random_state(rng, size, dtype)) for function in SOURCES[sources]]
    return [
        Parts(initial, PRODUCTS[products], vectors, split=split, **options)
        for split in (True, False)
    ]


def value(problem, t, u):
    out = np.full_like(u, np.nan)
    problem.rhs(t, u, out)
    return out


def textbook_dense_stages(tableau, problem, u, times, slopes):
    """The slopes of the stages that only the solution inside a step needs."""
    found = list(slopes)
    for row in () if tableau.dense_stages is None else tableau.dense_stages:
        stage = np.array(u)
        for weight, slope in zip(row, found, strict=False):
            stage = stage + float(times.dt * weight) * slope
        found.append(value(problem, times.at(float(row.sum())), stage))
    return found[len(slopes) :]


def textbook_step(method, problem, u, t, t_next, dt):
    """u_next, the estimated error (None without one) and the slopes, from ``rhs`` alone."""

    def f(node, v):
        return value(problem, t_next if abs(node - 1.0) < 1e-14 else t + node * dt, v)

    u = np.array(u)
    if method == "forward-euler":
        k = [f(0.0, u)]
        return u + dt * k[0], None, k
    if method == "rk4":
        k = [f(0.0, u)]
        for node in (0.5, 0.5, 1.0):
            k.append(f(node, u + node * dt * k[-1]))
        return u + dt / 6.0 * (k[0] + 2.0 * k[1] + 2.0 * k[2] + k[3]), None, k
    if method == "ssp-rk3":
        k = [f(0.0, u)]
        v = u + dt * k[0]
        k.append(f(1.0, v))
        w = 0.75 * u + 0.25 * (v + dt * k[1])
        k.append(f(0.5, w))
        return u / 3.0 + 2.0 / 3.0 * (w + dt * k[2]), None, k
    tableau = steppers.get(method).tableau
    k = []
    for node, row in zip(tableau.nodes, tableau.explicit, strict=True):
        stage = u.copy()
        for weight, slope in zip(row, k, strict=False):
            stage = stage + float(dt * weight) * slope
        k.append(f(float(node), stage))
    u_next, error = u.copy(), np.zeros_like(u)
    for weight, slope in zip(tableau.weights, k, strict=True):
        u_next = u_next + float(dt * weight) * slope
    if tableau.embedded is None:
        return u_next, None, k
    for weight, slope in zip(tableau.weights - tableau.embedded, k, strict=True):
        error = error + float(dt * weight) * slope
    return u_next, error, k


def rounding(u, dt, slopes):
    """A bound of the rounding errors of a step: some for each of its stages and their sums.

    The slopes of these problems change by at most 4 times as much as their states.
    """
    largest = max(
        np.abs(u).max(initial=0.0), *(abs(dt) * np.abs(k).max(initial=0.0) for k in slopes)
    )
    return 32.0 * len(slopes) * np.finfo(u.dtype).eps * largest


# Methods that the gallery of steppers has none of: without FSAL or an estimate, with both, with
# many stages, and one with a stage at t_next that is not the last.
_HALVES = [[0.0, 0.0], [1.0, 0.0]]
HEUN = steppers.Tableau("heun", 2, [0.5, 0.5], explicit=_HALVES)
HEUN_EULER = steppers.Tableau(
    "heun-euler", 2, [0.5, 0.5], explicit=_HALVES, embedded=[1.0, 0.0], embedded_order=1
)
LAST_IS_FIRST = steppers.Tableau("last-is-first", 1, [1.0, 0.0], explicit=_HALVES)


def many_stages(count, name="many-stages"):
    """Small Euler steps, whose sums have as many terms as stages; with another one as estimate."""
    explicit = np.tril(np.full((count, count), 1.0 / count), -1)
    embedded = np.linspace(0.5, 1.5, count) / count
    return steppers.Tableau(
        name, 1, np.full(count, 1.0 / count), explicit=explicit, embedded=embedded, embedded_order=1
    )


MANY = many_stages(9)
EXPLICIT = [name for name in EQUAL_STEPS if not steppers.get(name).implicit]
METHODS = [*EXPLICIT, HEUN, HEUN_EULER, LAST_IS_FIRST, MANY]


def name_of(method):
    return getattr(method, "name", method)
