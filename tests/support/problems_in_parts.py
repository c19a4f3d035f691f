"""Problems whose right-hand sides have parts of all kinds, by their names."""

import numpy as np

from batchkron.problems import PDE, Axis, Moment, Poisson, Separable, bgk, div, make, mass, time


def with_everything(*, constant=True):
    """Terms with fields and without, constant and not, sources that change, and a gain."""
    x, v = Axis("x", 0.0, 3.0), Axis("v", -6.0, 6.0)
    wave = time.cos(1.0)
    terms = [
        div(x, -1.0, others={v: lambda s: s}) * wave,
        div(v, -1.0, others={x: Poisson(x, Moment(v))}),
        *bgk(v, 2.0, position=x),
    ]
    if constant:
        terms.append(mass(x, lambda s: -0.1 * s))
    initial = Separable(
        x=lambda s: 1.0 + 0.1 * np.cos(2.0 * np.pi * s / 3.0),
        v=lambda s: np.exp(-0.5 * (s - 1.0) ** 2),
    )
    sources = [
        Separable(x=lambda s: 1.0 + 0.0 * s, v=lambda s: np.exp(-(s**2)), t=function)
        for function in (wave, time.exp(-1.0))
    ]
    boundary = {x: "periodic", v: "inflow"}
    return PDE([x, v], terms, boundary=boundary, initial=initial, sources=sources).discretize(3, 2)


def factors_only():
    """No term that does not depend on time."""
    x = Axis("x", 0.0, 1.0)
    terms = [div(x, -1.0) * time.cos(1.0), mass(x, lambda s: -s) * time.exp(-1.0)]
    initial = Separable(x=lambda s: np.cos(2.0 * np.pi * s))
    return PDE([x], terms, boundary={x: "periodic"}, initial=initial).discretize(3, 2)


PROBLEMS = {
    "fields": with_everything,
    "fields and factors": lambda: with_everything(constant=False),
    "factors": factors_only,
    "two-stream": lambda: make("two-stream", 3, 1),
    "batch": lambda: with_everything().with_form("batch"),
    "source": lambda: make("continuity-2d", 3, 1),
    "boundary data": lambda: make("diffusion-2d", 3, 1),
    "gain": lambda: make("bgk-1x1v", 3, 1),
}
