"""Poisson's equation in several coordinates on the full grid of finest cells, by eigenvectors.

E = -∇φ and div E = ρ are discretized by the mixed finite elements of Raviart and Thomas: φ and ρ
are polynomials of degree p in each cell, and E_i is one of degree p + 1 along its own axis, where
it is continuous, and of degree p along the others. For each axis let M be the mass matrix of the
continuous functions, and K the derivative from these to the polynomials of degree p, both with
orthonormal functions of the latter. Then E_i = M⁻¹ Kᵀ φ along axis i, and φ solves

    (S ⊗ I + I ⊗ S) φ = ρ,    S = K M⁻¹ Kᵀ,

whose terms have the eigenvectors of S along their axis (shown for two axes).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache, reduce
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, solve

from batchkron.operators import KroneckerProduct, on_device

from ...statement.axis import Axis
from ..basis.multiwavelets import legendre_derivatives, legendre_values, to_hierarchical, to_nodal
from ..basis.quadrature import gauss_rule
from .points import product

__all__ = ["MAX_FUNCTIONS", "MixedPoisson"]

Values = NDArray[np.float64]

MAX_FUNCTIONS = 4096
"""Largest number of functions along a position; eigenvectors of more take minutes."""


_Component: TypeAlias = tuple[KroneckerProduct, Values, Values]
"""The map from φ by eigenvectors to a component of E; the field of the potential at the ends and of
a given background; and that of the density 1."""


@lru_cache(maxsize=16)
def _axis_solution(length: float, level: int, degree: int, periodic: bool) -> tuple[Values, ...]:
    """Return matrices of one axis, in orthonormal nodal functions of the finest cells.

    They are the eigenvalues of S, (cells n,), exactly 0 for the constants of a periodic axis; the
    eigenvectors as columns, (cells n, cells n); the field, M⁻¹ Kᵀ times the eigenvectors, with
    functions of degree p + 1, (cells (n + 1), cells n); what potentials 1 at the lower and at the
    upper end add to ρ, times the vectors, (2, cells n); and what they add to the field, (cells
    (n + 1), 2).
    """
    width = length / (1 << level)
    shapes = _continuous(level, degree + 1, width, periodic)  # (functions, cells, degree + 2)
    nodes, weights = gauss_rule(degree + 2)
    tested = legendre_values(nodes, degree, width) * (weights * (width / 2))[:, None]
    slope = tested.T @ legendre_derivatives(nodes, degree + 1, width)
    derivative = (shapes @ slope.T).reshape(len(shapes), -1)
    functions = shapes.reshape(len(shapes), -1)
    right = np.hstack([derivative, _jump(shapes, width, periodic)])
    solved = solve(functions @ functions.T, right, assume_a="pos")
    from_phi, from_ends = solved[:, :-2], -solved[:, -2:]  # M e = Kᵀ φ - [τ φ]
    stiffness = derivative.T @ from_phi
    eigenvalues, vectors = eigh(0.5 * (stiffness + stiffness.T))
    if periodic:
        eigenvalues[0] = 0.0
    return (
        eigenvalues,
        vectors,
        functions.T @ from_phi @ vectors,
        -(derivative.T @ from_ends).T @ vectors,
        functions.T @ from_ends,
    )


def _continuous(level: int, degree: int, width: float, periodic: bool) -> Values:
    """Return continuous functions by their coefficients in the orthonormal ones of all cells.

    They are a hat for each edge, and in each cell the functions P_(k+1) - P_(k-1), which are zero
    at its ends: (functions, cells, degree + 1).
    """
    cells = 1 << level
    hats = cells if periodic else cells + 1
    found = np.zeros((hats + cells * (degree - 1), cells, degree + 1))
    cell = np.arange(cells)
    for side, edge in ((-1.0, cell), (1.0, (cell + 1) % hats)):
        np.add.at(found[:, :, 0], (edge, cell), 0.5)
        np.add.at(found[:, :, 1], (edge, cell), 0.5 * side)
    for k in range(1, degree):
        own = hats + (k - 1) * cells + cell
        found[own, cell, k + 1] = 1.0
        found[own, cell, k - 1] = -1.0
    return found / legendre_values(1.0, degree, width)


def _jump(shapes: Values, width: float, periodic: bool) -> Values:
    """Return -τ at the lower end and τ at the upper one, for all functions τ: (functions, 2)."""
    found = np.zeros((len(shapes), 2))
    if not periodic:
        degree = shapes.shape[2] - 1
        found[:, 0] = -(shapes[:, 0] @ legendre_values(-1.0, degree, width))
        found[:, 1] = shapes[:, -1] @ legendre_values(1.0, degree, width)
    return found


class MixedPoisson:
    """The map from a density to the field E of -Δφ = density - background, E = -∇φ.

    ``axes``: the d positions.
    ``levels``: their finest levels.
    ``degree``: degree p of densities.
    ``periodic``: which of the positions are periodic.
    ``background``: None is the mean of the density.
    ``potential``: φ at the ends of each position.
    ``points`` (sequence of ndarray, shape (points_k,), float64): coordinates along each position,
      at whose combinations the field is asked for. They are not at edges of cells, or moved into
      theirs.
    ``device`` ({"cpu", "cuda"}).

    Raises `ValueError` if a position has more than 4096 functions.

    Each evaluation has products with a dense matrix for each axis, one to eigenvectors, and one
    for each component to points: O(Σ_k N_k) operations for each of the Π N_k functions.
    """

    def __init__(
        self,
        axes: Sequence[Axis],
        levels: Sequence[int],
        degree: int,
        periodic: Sequence[bool],
        background: float | None,
        potential: Sequence[tuple[float, float]],
        points: Sequence[Values],
        device: str = "cpu",
    ) -> None:
        for axis, level in zip(axes, levels, strict=True):
            if (degree + 1) << level > MAX_FUNCTIONS:
                raise ValueError(
                    f"the electric field has level {level} along {axis.name!r}, "
                    f"{(degree + 1) << level} functions; expected at most {MAX_FUNCTIONS}. Give "
                    "positions a lower level than velocities"
                )
        self._axes, self._levels, self._degree = tuple(axes), tuple(levels), degree
        self._device, self._background = device, background
        self._potential = [np.array(own) for own in potential]
        parts = [
            _axis_solution(axis.length, level, degree, own)
            for axis, level, own in zip(axes, levels, periodic, strict=True)
        ]
        eigenvalues, self._vectors, self._fields, self._sources, self._of_ends = zip(
            *parts, strict=True
        )
        self._forward = self._placed([
            own.T @ to_nodal(np.eye(len(own)), level, degree)
            for own, level in zip(self._vectors, levels, strict=True)
        ])  # fmt: skip
        total = reduce(np.add.outer, eigenvalues)
        self._is_neutral = all(periodic)  # then constants of the density have no effect
        if self._is_neutral:
            total[(0,) * len(axes)] = np.inf
        self._inverse = on_device((1.0 / total).ravel(), device)
        rows = list(zip(axes, levels, points, strict=True))
        density = [_values(axis, level, degree, at) for axis, level, at in rows]
        field = [_values(axis, level, degree + 1, at) for axis, level, at in rows]
        self._at_points = self._components(
            list(map(np.matmul, density, self._vectors)),
            list(map(np.matmul, field, self._fields)),
            list(map(np.matmul, field, self._of_ends)),
        )

    def __call__(self, density: Values) -> list[Values]:
        """Return the components of E at all combinations of the points, (Π points_k,) each.

        ``density`` are the hierarchical coefficients of all combinations of functions of the
        positions, (Π N_k,).
        """
        phi = self._modes(density)
        return [self._component(own, phi, density) for own in self._at_points]

    def coefficients(self, density: Values, number: int) -> Values:
        """Return the hierarchical coefficients of degree p + 1 of a component of E."""
        return self._component(self._by_coefficients[number], self._modes(density), density)

    def _modes(self, density: Values) -> Values:
        """Return what the density adds to φ, by eigenvectors, (Π N_k,)."""
        return self._inverse * (self._forward @ density)

    def _component(self, own: _Component, phi: Values, density: Values) -> Values:
        operator, fixed, of_one = own
        found: Values = operator @ phi
        if self._is_neutral:
            return found
        found += fixed
        if self._background is None:
            found -= product(density, self._mean) * of_one
        return found

    @cached_property
    def _by_coefficients(self) -> list[_Component]:
        plain, along, ends, n = [], [], [], self._degree + 1
        for k, (vectors, level) in enumerate(zip(self._vectors, self._levels, strict=True)):
            wide = np.zeros((1 << level, n + 1, len(vectors)))
            wide[:, :n] = vectors.reshape(1 << level, n, -1)
            plain.append(to_hierarchical(wide.reshape(-1, len(vectors)), level, n))
            along.append(to_hierarchical(self._fields[k], level, n))
            ends.append(to_hierarchical(self._of_ends[k], level, n))
        return self._components(plain, along, ends)

    def _components(
        self, plain: Sequence[Values], along: Sequence[Values], ends: Sequence[Values]
    ) -> list[_Component]:
        """Return all components by matrices of each axis, from eigenvectors to what is asked for.

        These are of φ, of the field along the axis, and of the field by the potential at its ends.
        """
        ones = [vectors.T @ _one(axis, len(vectors) // (self._degree + 1), self._degree)
                for vectors, axis in zip(self._vectors, self._axes, strict=True)]  # fmt: skip
        source = sum(
            _outer([own @ added if j == k else one for j, one in enumerate(ones)])
            for k, (own, added) in enumerate(zip(self._potential, self._sources, strict=True))
        )
        by_potential = on_device(source, self._device) * self._inverse
        by_one = on_device(_outer(ones), self._device) * self._inverse
        found = []
        for k, potential in enumerate(self._potential):
            operator = self._placed([along[j] if j == k else own for j, own in enumerate(plain)])
            direct = [ends[j] @ potential if j == k else plain[j] @ one
                      for j, one in enumerate(ones)]  # fmt: skip
            of_one = operator @ by_one
            fixed = operator @ by_potential + on_device(_outer(direct), self._device)
            if self._background is not None:
                fixed -= self._background * of_one
            found.append((operator, fixed, of_one))
        return found

    @cached_property
    def _mean(self) -> Values:
        """The vector whose product with a density is its mean over all positions."""
        first = [np.eye(1, len(vectors))[0] / axis.length**0.5
                 for vectors, axis in zip(self._vectors, self._axes, strict=True)]  # fmt: skip
        return on_device(_outer(first), self._device)

    def _placed(self, factors: Sequence[Values]) -> KroneckerProduct:
        found = KroneckerProduct(list(factors)).to(self._device)
        assert isinstance(found, KroneckerProduct)
        return found


def _values(axis: Axis, level: int, degree: int, points: Values) -> Values:
    """Return the values of all orthonormal nodal functions at points, (points, cells n)."""
    cells, width = 1 << level, axis.cell_width(level)
    steps = (points - axis.lower) / width
    cell = np.clip(np.floor(steps).astype(np.int64), 0, cells - 1)
    found = np.zeros((len(points), cells, degree + 1))
    local = np.clip(2.0 * (steps - cell) - 1.0, -1.0, 1.0)
    found[np.arange(len(points)), cell] = legendre_values(local, degree, width)
    return found.reshape(len(points), -1)


def _one(axis: Axis, cells: int, degree: int) -> Values:
    """Return the nodal coefficients of the function 1."""
    found = np.zeros((cells, degree + 1))
    found[:, 0] = (axis.length / cells) ** 0.5
    return found.ravel()


def _outer(vectors: Sequence[Values]) -> Values:
    return np.ravel(reduce(np.multiply.outer, vectors))
