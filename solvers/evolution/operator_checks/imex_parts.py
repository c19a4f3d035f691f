"""The explicit and the implicit part of a linear operator, projected on a Krylov space."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import to_host

from ...products import Product, Ranks, Vector, dot_over, norm_over, sum_over
from ...spectrum import Arnoldi, random_start
from ...steppers.tableau import Tableau
from .step_growth import HomogeneousProblem, excess_growth

__all__ = ["Parts", "Worst", "krylov_parts"]

# Eigenvalues of the implicit part are also taken times these numbers: components of the explicit
# part may meet any of them.
_MULTIPLES = np.concatenate([[0.0], 2.0 ** np.arange(-12, 7)])
_KNOWN: OrderedDict[tuple[object, ...], Parts] = OrderedDict()  # the oldest are removed first
_MAX_KNOWN = 64  # largest number of cached pairs of matrices (20 × 20); chosen by hand


Worst: TypeAlias = tuple[float, float, float]
"""Of the component that a step amplifies most, relative to the solution: by how much, see
`excess_growth`; the factor of the step; and the rate with which the solution changes it."""


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of A = A_E + A_I, projected on orthonormal vectors V.

    ``explicit``, ``implicit`` (ndarray, shape (m, m), complex128): V^H A_E V and V^H A_I V.
    ``is_whole``: whether V spans the whole space, so that the projected problem is all of it.
    ``is_complete``: whether V is as large as asked for, or both parts map it into itself; not if
      A_E alone does.
    """

    explicit: NDArray[np.complex128]
    implicit: NDArray[np.complex128]
    is_whole: bool = False
    is_complete: bool = True

    def worst(self, tableau: Tableau, dt: float) -> Worst:
        """Return the component of the projected problem that a step amplifies most."""
        return _worst(tableau, dt, self.explicit, self.implicit)

    def worst_pair(self, tableau: Tableau, dt: float) -> Worst:
        """Return the same for all pairs of eigenvalues of both parts, as if they commuted."""
        explicit = np.concatenate([[0.0], np.linalg.eigvals(self.explicit)])
        implicit = np.outer(_MULTIPLES, np.linalg.eigvals(self.implicit))
        pairs = np.meshgrid(explicit, implicit)
        return _worst(tableau, dt, *(values.reshape(-1, 1, 1) for values in pairs))


def _worst(
    tableau: Tableau, dt: float, explicit: NDArray[np.complex128], implicit: NDArray[np.complex128]
) -> Worst:
    """Return the worst component for matrices (..., m, m) of both parts."""
    whole = explicit + implicit
    with np.errstate(all="ignore"):
        try:
            steps = tableau.step_matrix(dt * explicit, dt * implicit)
        except np.linalg.LinAlgError:
            return math.inf, math.inf, 0.0
        if not np.isfinite(steps).all():
            return math.inf, math.inf, 0.0
        factors, vectors = np.linalg.eig(steps)
        rates = (vectors.conj() * (whole @ vectors)).sum(axis=-2).real
        excess = excess_growth(factors, dt * rates).ravel()
    k = int(np.argmax(excess))
    return float(excess[k]), float(np.abs(factors).flat[k]), float(rates.flat[k])


def krylov_parts(problem: HomogeneousProblem, t: float, ranks: Ranks | None) -> Parts | None:
    """Return the parts of A(t), projected on a Krylov space of A_E, cached; None if not finite.

    The cache's key is computed from the first products, as for `krylov_matrix`.
    """
    start = random_start(problem.initial, ranks)
    whole, implicit = problem.product(t), problem.implicit_product(t)
    image = np.full_like(start, np.nan)

    def explicit(x: Vector, out: Vector) -> None:
        whole(x, out)
        implicit(x, image)
        np.subtract(out, image, out=out)

    process = Arnoldi(explicit, start, ranks)
    process.step()
    name: tuple[object, ...] | None = None
    if ranks is None and process.count:
        first = complex(process.matrix[0, 0]), process.below
        second = dot_over(ranks, start, image), norm_over(ranks, image)
        name = start.size, start.dtype.str, *first, *second
        if name in _KNOWN:
            return _KNOWN[name]
    while process.step():
        pass
    if not process.is_finite:
        return None
    projected, is_invariant = _projected(implicit, process.basis, ranks)
    parts = Parts(
        process.hessenberg.astype(np.complex128),
        projected,
        process.is_whole,
        is_complete=is_invariant or not process.is_invariant,
    )
    if name is not None:
        _KNOWN[name] = parts
        while len(_KNOWN) > _MAX_KNOWN:
            _KNOWN.popitem(last=False)
    return parts


def _projected(
    product: Product, basis: Vector, ranks: Ranks | None
) -> tuple[NDArray[np.complex128], bool]:
    """Return V^H A V for the rows of ``basis``, V^T, and whether A maps them into their span."""
    matrix = np.empty((len(basis), len(basis)), np.complex128)
    image, conjugate, length = np.full_like(basis[0], np.nan), basis.conj(), 0.0
    for j, vector in enumerate(basis):
        product(vector, image)
        matrix[:, j] = to_host(conjugate @ image, "products")
        length = math.hypot(length, norm_over(ranks, image))
    sum_over(ranks, matrix)
    inside = float(np.linalg.norm(matrix / length)) if length > 0.0 else 1.0
    return matrix, 1.0 - inside**2 <= float(np.finfo(basis.dtype).eps) ** 0.5
