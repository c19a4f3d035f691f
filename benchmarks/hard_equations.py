"""Equations that are hard for preconditioners: large contrasts, oblique axes, strong advection."""

import numpy as np

from batchkron.problems import PDE, Axis, Dirichlet, Inflow, SparseGrid
from batchkron.problems.discretization.basis.multiwavelets import legendre_values, to_hierarchical
from batchkron.problems.statement.terms import div, grad, laplacian, mass


def axes_of(dimensions):
    """Return axes of the unit cube."""
    return [Axis(name, 0, 1) for name in "xyzw"[:dimensions]]


def with_coefficient(amplitude, f, dimensions=2):
    """Return u_t = ∇·(k ∇u), k = 1 + amplitude · f(x_1) ⋯ f(x_d), u = 0 on the boundary."""
    axes = axes_of(dimensions)
    terms = [*laplacian(axes)]
    for own in axes:
        term = div(own) @ mass(own, f) @ grad(own)
        for other in axes:
            if other is not own:
                term = mass(other, f) @ term
        terms.append(amplitude * term)
    return PDE(axes, terms, boundary=Dirichlet(), initial=0.0)


def wave(s):
    """Return sin 8πs."""
    return np.sin(8 * np.pi * s)


def hill(s):
    """Return exp(-(s - ½)² / (2 · 0.1²))."""
    return np.exp(-((s - 0.5) ** 2) / (2 * 0.1**2))


def inside(s):
    """Return 1 on [¼, ¾], 0 elsewhere."""
    return ((s >= 0.25) & (s <= 0.75)).astype(float)


def sin8(dimensions=2):
    """Return diffusion with k = 1 + 0.9 Π sin 8πx."""
    return with_coefficient(0.9, wave, dimensions)


def bump(amplitude=100.0, dimensions=2):
    """Return diffusion that is faster by the amplitude in the middle."""
    return with_coefficient(amplitude, hill, dimensions)


def box(dimensions=2):
    """Return diffusion that is a thousand times as fast in a box."""
    return with_coefficient(1e3, inside, dimensions)


def oblique(dimensions=2):
    """Return diffusion with the tensor R diag(1, ε, …) Rᵀ, ε = 0.01, R rotations by 30°."""
    axes = axes_of(dimensions)
    R, cosine, sine = np.eye(dimensions), np.cos(np.pi / 6), np.sin(np.pi / 6)
    for i in range(dimensions - 1):
        turn = np.eye(dimensions)
        turn[i : i + 2, i : i + 2] = [[cosine, -sine], [sine, cosine]]
        R = R @ turn
    K = R @ np.diag([1.0] + [1e-2] * (dimensions - 1)) @ R.T
    terms = [K[i, j] * div(x) @ grad(y) for i, x in enumerate(axes) for j, y in enumerate(axes)]
    return PDE(axes, terms, boundary=Dirichlet(), initial=0.0)


def wind(dimensions=2):
    """Return u_t = 10⁻⁴ Δu + ∇·(v u), v turning about the middle of the first two axes."""
    axes = x, y, *_ = axes_of(dimensions)
    terms = [
        *laplacian(axes, 1e-4),
        div(x, 1.0, others={y: lambda s: s - 0.5}, boundary=Inflow()),
        div(y, 1.0, others={x: lambda s: 0.5 - s}, boundary=Inflow()),
    ]
    return PDE(axes, terms, boundary=Dirichlet(), initial=0.0)


def diffusion(dimensions=2):
    """Return u_t = Δu, u = 0 on the boundary."""
    axes = axes_of(dimensions)
    return PDE(axes, laplacian(axes), boundary=Dirichlet(), initial=0.0)


_SHAPES = {
    "front": lambda x, y: np.tanh((x + y - 1.0) / 0.05),
    "corner": lambda x, y: np.exp(-(x + y) / 0.1),
    "two bumps": lambda x, y: (
        np.exp(-((x - 0.3) ** 2 + (y - 0.3) ** 2) / 0.005)
        + np.exp(-((x - 0.7) ** 2 + (y - 0.6) ** 2) / 0.005)
    ),
}
SHAPES = tuple(_SHAPES)


def adapted_grid(shape, level, tolerance=1e-3):
    """Return the cells where a function of `SHAPES` has large coefficients, and their ancestors.

    They are of its projection of degree 2; large is a block's norm from ``tolerance`` on.
    """
    nodes, weights = np.polynomial.legendre.leggauss(4)
    count = 1 << level
    places = ((np.arange(count)[:, None] + (nodes + 1) / 2) / count).ravel()
    project = np.kron(np.eye(count), (legendre_values(nodes, 2) * weights[:, None]).T)
    values = project @ _SHAPES[shape](places[:, None], places) @ project.T / (2 * count)
    for axis in range(2):
        values = to_hierarchical(values, level, 2, axis=axis)
    sizes = np.linalg.norm(values.reshape(count, 3, count, 3), axis=(1, 3))
    return SparseGrid.custom(np.argwhere(sizes >= tolerance), (level, level)).closed()
