"""The one-dimensional basis: Legendre functions on cells and Alpert's multiwavelets.

On a cell of width h the nodal basis functions are phi_j = sqrt((2j+1)/h) P_j, j = 0 … degree, with
the Legendre polynomials P_j. The hierarchical basis of the same space consists of the
n = degree + 1 nodal functions of the whole axis (level 0, cell 0) and, for each level l ≥ 1, of n
multiwavelets on each of 2^(l-1) cells. The cell at position p of level l has the 1-D index
2^(l-1) + p. Coefficients are ordered by cell, then by function.

The multiwavelets are determined by two conditions: psi_i is orthogonal to every polynomial of
degree below n + i and to the other psi of its cell, and ∫ psi_i x^(n+i) dx > 0, with x measured
from the middle of the cell. This is the basis of Alpert, *A class of bases in L2 for the sparse
representation of integral operators*, SIAM J. Math. Anal. 24 (1993), in which the signs are free;
the second condition fixes them.
"""

from fractions import Fraction
from functools import cache
from math import factorial, isqrt
from typing import NamedTuple

import numpy as np
from numpy.polynomial.legendre import legvander
from numpy.typing import ArrayLike, NDArray

from ...grids.levels import check_level
from ...statement.axis import Axis
from ...statement.number_checks import check_integer

BASIS_ID = "alpert-parity-1"
"""The name of this basis in files, which hold coefficients in it."""

MAX_DEGREE = 32
"""Largest polynomial degree."""


class Filters(NamedTuple):
    """Two-scale filters H0, H1, G0, G1, each float64 (n, n), read-only.

    Let phi^0 and phi^1 be the nodal functions of the left and the right half of a cell. Then the
    cell's own nodal functions are H0 phi^0 + H1 phi^1, and its multiwavelets G0 phi^0 + G1 phi^1.
    """

    H0: NDArray[np.float64]
    H1: NDArray[np.float64]
    G0: NDArray[np.float64]
    G1: NDArray[np.float64]


def check_degree(degree: int) -> int:
    """Return the degree as an int; it has to be one in 0 … ``MAX_DEGREE``."""
    return check_integer("degree", degree, MAX_DEGREE)


def legendre_values(points: ArrayLike, degree: int, width: float = 2.0) -> NDArray[np.float64]:
    """Return the orthonormal Legendre functions of one cell, phi_j(s) = sqrt((2j+1)/width) P_j(s).

    Of reference points (...) in [-1, 1], from the cell's left end to its right one: (..., degree +
    1), the last index is j.

    Examples
    --------
    >>> legendre_values(0.5, 1)
    array([0.70710678, 0.61237244])
    """
    places = np.asarray(points, dtype=np.float64)
    values = legvander(places.ravel(), degree) * _normalisation(degree, width)
    return values.reshape(*places.shape, degree + 1)


def legendre_derivatives(points: ArrayLike, degree: int, width: float = 2.0) -> NDArray[np.float64]:
    """Return the derivatives dphi_j/dx of `legendre_values` with respect to the coordinate x.

    Computed with the recurrence P'_(j+1) = P'_(j-1) + (2j+1) P_j.
    """
    places = np.asarray(points, dtype=np.float64)
    values = legvander(places.ravel(), degree)
    slopes = np.zeros(values.shape)
    for j in range(degree):
        slopes[:, j + 1] = (2 * j + 1) * values[:, j]
        if j > 0:
            slopes[:, j + 1] += slopes[:, j - 1]
    slopes *= _normalisation(degree, width) * (2.0 / width)
    return slopes.reshape(*places.shape, degree + 1)


def _normalisation(degree: int, width: float) -> NDArray[np.float64]:
    return np.asarray(np.sqrt((2 * np.arange(degree + 1) + 1) / width), dtype=np.float64)


@cache
def filters(degree: int) -> Filters:
    """Return the two-scale filters H0, H1, G0, G1 of the multiwavelet basis `BASIS_ID`.

    Each is (degree + 1, degree + 1) and read-only; [[H0, H1], [G0, G1]] is orthogonal.

    The Gram-Schmidt process is applied to 1, x, …, x^(2n-1), each projected onto the polynomials of
    degree n - 1 on the two half-cells [-1, 0] and [0, 1]. The first n results are the nodal
    functions of the cell, the other n the multiwavelets. It is computed in rational numbers: with
    the shifted Legendre polynomials p_j on [0, 1], ∫ x^m p_j dx = (m!)^2 / ((m-j)! (m+j+1)!), and
    the left half follows by parity. Each entry is the square root of a rational number, rounded to
    float64 once, so that the filters have the same bits on every machine.

    Examples
    --------
    >>> filters(0).G1
    array([[0.70710678]])
    """
    n = check_degree(degree) + 1
    right = np.empty((2 * n, n))
    for power, vector in enumerate(orthogonal_functions(n)):
        squared_norm = 2 * half_product(vector, vector)
        for j, entry in enumerate(vector):
            right[power, j] = signed_root(entry, 1 / ((2 * j + 1) * squared_norm))
    parity = 1 - 2 * ((np.arange(2 * n)[:, None] + np.arange(n)) % 2)
    left = right * parity + 0.0  # adding 0.0 turns negative zeros into positive ones
    parts = Filters(
        *(np.ascontiguousarray(part) for part in (left[:n], right[:n], left[n:], right[n:]))
    )
    for part in parts:
        part.setflags(write=False)
    return parts


def orthogonal_functions(n: int) -> list[list[Fraction]]:
    """Apply Gram-Schmidt to the projections of x^m, m = 0 … 2n - 1 (notes of `filters`).

    Each result is given by its coefficients of the shifted Legendre polynomials p_0 … p_(n-1) on
    the right half-cell [0, 1]; it is not normalized.
    """
    functions: list[list[Fraction]] = []
    for m in range(2 * n):
        vector = [
            Fraction((2 * j + 1) * factorial(m) ** 2, factorial(m - j) * factorial(m + j + 1))
            if j <= m
            else Fraction(0)
            for j in range(n)
        ]
        for other in functions[m % 2 :: 2]:  # opposite parities are orthogonal
            share = half_product(vector, other) / half_product(other, other)
            vector = [a - share * b for a, b in zip(vector, other, strict=True)]
        functions.append(vector)
    return functions


def half_product(a: list[Fraction], b: list[Fraction]) -> Fraction:
    """Return ∫ a b dx over [0, 1], from the coefficients of shifted Legendre polynomials."""
    terms = (x * y / (2 * j + 1) for j, (x, y) in enumerate(zip(a, b, strict=True)))
    return sum(terms, Fraction(0))


def signed_root(value: Fraction, scale: Fraction) -> float:
    """Return value * sqrt(scale) as a float, rounded once and so the same on every machine."""
    square = value * value * scale
    numerator, denominator = square.numerator, square.denominator
    shift = max(0, 128 + denominator.bit_length() - numerator.bit_length())
    shift += shift % 2
    root = isqrt((numerator << shift) // denominator) / (1 << (shift // 2))
    return -root if value < 0 else root


def to_hierarchical(
    coefficients: ArrayLike, level: int, degree: int, *, axis: int = 0
) -> NDArray[np.float64]:
    """Return W c: the hierarchical coefficients from nodal ones c on the 2^level finest cells.

    The dimension ``axis`` of c has 2^level (degree + 1) entries, by cell from left to right, then
    by function. The transform is orthogonal and takes O(size) operations.

    Examples
    --------
    >>> to_hierarchical([1.0, 1.0], level=1, degree=0)
    array([1.41421356, 0.        ])
    """
    work = _as_cells(coefficients, level, degree, axis)
    two_scale = filters(degree)
    result = np.empty_like(work)
    for half in (1 << finer for finer in range(level - 1, -1, -1)):
        left, right = work[0::2], work[1::2]
        result[half : 2 * half] = two_scale.G0 @ left + two_scale.G1 @ right
        work = two_scale.H0 @ left + two_scale.H1 @ right
    result[:1] = work
    return _from_cells(result, np.shape(coefficients), axis)


def to_nodal(
    coefficients: ArrayLike, level: int, degree: int, *, axis: int = 0
) -> NDArray[np.float64]:
    """Return W^T c: the nodal coefficients from hierarchical ones c, inverse of `to_hierarchical`.

    Examples
    --------
    >>> to_nodal(to_hierarchical([1.0, 3.0], 1, 0), level=1, degree=0)
    array([1., 3.])
    """
    work = _as_cells(coefficients, level, degree, axis)
    two_scale = filters(degree)
    result = work[:1]
    for half in (1 << coarser for coarser in range(level)):
        wavelets = work[half : 2 * half]
        finer = np.empty((2 * half, *work.shape[1:]))
        finer[0::2] = two_scale.H0.T @ result + two_scale.G0.T @ wavelets
        finer[1::2] = two_scale.H1.T @ result + two_scale.G1.T @ wavelets
        result = finer
    return _from_cells(result, np.shape(coefficients), axis)


def _as_cells(values: ArrayLike, level: int, degree: int, axis: int) -> NDArray[np.float64]:
    """Copy the coefficients to an array (cells, n, everything else)."""
    cells, n = 1 << check_level(level), check_degree(degree) + 1
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 0 or array.shape[axis] != cells * n:
        raise ValueError(
            f"coefficients have shape {array.shape}; expected length {cells * n} = 2^{level} * {n} "
            f"along axis {axis} for level {level} and degree {degree}"
        )
    return np.moveaxis(array, axis, 0).reshape(cells, n, -1).copy()


def _from_cells(
    values: NDArray[np.float64], shape: tuple[int, ...], axis: int
) -> NDArray[np.float64]:
    others = list(shape)
    length = others.pop(axis)
    return np.ascontiguousarray(np.moveaxis(values.reshape(length, *others), 0, axis))


def hierarchical_transform(level: int, degree: int) -> NDArray[np.float64]:
    """Return the orthogonal matrix W of `to_hierarchical`, dense, for small sizes and tests.

    Rows belong to hierarchical functions, columns to nodal ones.
    """
    size = (1 << check_level(level)) * (check_degree(degree) + 1)
    return to_hierarchical(np.eye(size), level, degree)


def hierarchical_values(
    points: ArrayLike, axis: Axis, level: int, degree: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the cells and values of all hierarchical functions that are not zero at points (m,).

    They are, for each point and level, the 1-D index of the cell that contains the point, (m, level
    + 1), and the values of that cell's functions, (m, level + 1, degree + 1). A point on the edge
    of two cells belongs to the right one, the right end of the axis to the last cell.

    Examples
    --------
    >>> cells, values = hierarchical_values([1.0], Axis("x", 0, 1), level=2, degree=0)
    >>> cells
    array([[0, 1, 3]])
    >>> values[..., 0]
    array([[1.        , 1.        , 1.41421356]])
    """
    places = _check_points(points, axis)
    levels, count = check_level(level), 1 << level
    scaled = (places - axis.lower) / axis.length * count
    finest = np.minimum(scaled.astype(np.int64), count - 1)
    cells = np.zeros((places.size, levels + 1), dtype=np.int64)
    values = np.empty((places.size, levels + 1, degree + 1))
    whole = 2 * np.clip(scaled / count, 0.0, 1.0) - 1
    values[:, 0] = legendre_values(whole, degree, axis.length)
    two_scale = filters(degree)
    for finer in range(1, levels + 1):
        half_cell = finest >> (levels - finer)
        local = np.clip(scaled / (1 << (levels - finer)) - half_cell, 0.0, 1.0)
        nodal = legendre_values(2 * local - 1, degree, axis.cell_width(finer))
        on_right = (half_cell % 2 == 1)[:, None]
        cells[:, finer] = (1 << (finer - 1)) + (half_cell >> 1)
        values[:, finer] = np.where(on_right, nodal @ two_scale.G1.T, nodal @ two_scale.G0.T)
    return cells, values


def _check_points(points: ArrayLike, axis: Axis) -> NDArray[np.float64]:
    places = np.asarray(points, dtype=np.float64)
    if places.ndim != 1:
        raise ValueError(f"points have shape {places.shape}; expected one index, (m,)")
    outside = np.flatnonzero(~((places >= axis.lower) & (places <= axis.upper)))
    if outside.size:
        raise ValueError(
            f"points[{outside[0]}] is {places[outside[0]]}; expected a point of axis "
            f"{axis.name!r}, [{axis.lower}, {axis.upper}]"
        )
    return places
