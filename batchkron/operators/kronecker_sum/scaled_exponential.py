"""exp(t (A_1 ⊕ … ⊕ A_d)) by factors whose sizes do not leave the range of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import scipy.linalg

from batchkron.operators.factor_by_factor import outer_sum
from batchkron.operators.kronecker_product import KroneckerProduct
from batchkron.operators.placement import on_device
from batchkron.spec.kron import Array

__all__ = [
    "LN2",
    "MAX_FOLDED",
    "MAX_STEP",
    "ScaledMatrix",
    "SumExponential",
    "scaled_exponential",
    "squared",
]

_MAX_BITS = 10  # |log2| of an exponential's largest entry that needs no shift of the exponent
_MAX_SHIFTED_BITS = 500  # the same after a shift; entries are lost below 2^-1074 only
_MAX_SPREAD = 60  # of powers of two that the entries of one float32 matrix take without loss
_MAX_NORM = 1e300  # of t A; beyond, sums of a few entries may overflow
MAX_FOLDED = 32  # largest |p| of a 2^p that a factor takes over without harm to its small entries
MAX_STEP = {"f": 100, "d": 1000}  # 2^±step is a regular number of the dtype
_ALL_BITS = 2200  # 2^±this takes every regular number to infinity or to 0
# ln 2 as a sum: the first number has so few bits that its multiples up to 2^44 are exact
LN2 = 0.693359375, -2.121944400546905827679e-4


ScaledMatrix: TypeAlias = tuple[Array, Array]
"""The matrices diag(2^p) E, the largest entry of each E being near 1: E (..., n, n), and p (float64
(..., 1), or (..., n) if all matrices are diagonal), an integer: as a float it has no bound that
matters."""


def squared(scaled: ScaledMatrix) -> ScaledMatrix:
    """Return the squares of the matrices."""
    matrix, power = scaled
    return _balanced(matrix @ matrix, 2 * power)


def _balanced(matrix: Array, power: Array) -> ScaledMatrix:
    """Return matrices (..., n, n), or their rows, divided by the powers of two of their sizes."""
    rows = power.shape[-1] > 1
    sizes = np.abs(matrix).max(axis=-1 if rows else (-2, -1), initial=0)
    bits = np.frexp(sizes if rows else sizes[..., None])[1]
    if (np.abs(bits) <= 2).all():  # a few such factors are no danger
        return matrix, power
    for half in (bits // 2, bits - bits // 2):  # 2^-bits itself may overflow
        matrix = matrix * np.ldexp(1.0, -half)[..., None]
    return matrix, power + bits


def scaled_exponential(factor: Array, t: complex) -> ScaledMatrix:
    """Return exp(t A) of matrices (..., n, n) on the host, in double precision.

    Where its size is ordinary it is SciPy's, bit by bit.
    """
    with np.errstate(all="ignore"):
        matrices = t * factor.astype(np.result_type(factor, np.float64), copy=False)
        if not matrices.size:
            return matrices, np.zeros((*matrices.shape[:-2], 1))
        diagonal = matrices.diagonal(axis1=-2, axis2=-1)
        if np.count_nonzero(matrices) == np.count_nonzero(diagonal):
            size = np.abs(diagonal.real)
            is_far = (size > _MAX_BITS * math.log(2)) & (size < _MAX_NORM)
            power, rest = _shifted(diagonal, np.where(is_far, diagonal.real, 0.0))
            found = np.zeros_like(matrices)
            np.einsum("...ii->...i", found)[...] = np.exp(rest)
            return _balanced(found, power)
        found, power = np.array(scipy.linalg.expm(matrices)), np.zeros((*matrices.shape[:-2], 1))
        bits = np.abs(np.log2(np.abs(found).max(axis=(-2, -1), initial=0)))
        far = ~(bits <= _MAX_BITS)
        for where in np.argwhere(far) if far.any() else ():
            index = tuple(where)
            if np.linalg.norm(matrices[index], 1) < _MAX_NORM:
                found[index], power[index] = _far_exponential(matrices[index])
        return _balanced(found, power)


def _shifted(numbers: Array, shifts: Array) -> tuple[Array, Array]:
    """Return p, the shifts over ln 2 as integers, and numbers - p ln 2."""
    power = np.rint(shifts / math.log(2))
    return power, numbers - power * LN2[0] - power * LN2[1]


def _far_exponential(matrix: Array) -> tuple[Array, float]:
    """Return E and p, exp(A) = 2^p E, for a matrix whose exponential may leave the range.

    With α, the largest real part of an eigenvalue, taken out, the norm of exp(A - α) is at least 1.
    It overflows where A is so far from normal that exp(τ A) first grows by more than 10³⁰⁰ times
    exp(τ α). Then the exponential of a small multiple is squared, and scaled each time.
    """
    rest = matrix.copy()
    power, diagonal = _shifted(matrix.diagonal(), np.linalg.eigvals(matrix).real.max())
    np.fill_diagonal(rest, diagonal)
    found = np.asarray(scipy.linalg.expm(rest))
    if np.abs(np.log2(np.abs(found).max())) <= _MAX_SHIFTED_BITS:
        return found, float(power)
    doublings = max(0, math.ceil(math.log2(np.linalg.norm(rest, 1))))
    scaled = np.asarray(scipy.linalg.expm(rest * 2.0**-doublings)), np.zeros(1)
    for _ in range(doublings):
        scaled = squared(scaled)
    return scaled[0], float(scaled[1][0] + power)


def _collapsed(factor: ScaledMatrix) -> ScaledMatrix:
    """Return the matrices with a power each, if the powers of their rows are near each other."""
    matrix, power = factor
    if power.shape[-1] == 1:
        return factor
    largest = power.max(axis=-1, keepdims=True)
    below = power - largest
    if (below < -_MAX_SPREAD).any():
        return factor
    return matrix * np.ldexp(1.0, below.astype(np.intc))[..., None], largest


class SumExponential:
    """exp(t A) = diag(2^p) (E_1 ⊗ … ⊗ E_d) of a Kronecker sum A.

    The powers of two are added up first. So a result in the range of its dtype is right also where
    the exponentials of single factors are out of it. Others overflow to infinity, or are 0.

    ``factors``: the exp(t A_k).
    ``dtype``: of the E_k.
    ``device`` ({"cpu", "cuda"}): device of the vectors.
    """

    def __init__(
        self, factors: Sequence[ScaledMatrix], dtype: np.dtype[Any], device: str = "cpu"
    ) -> None:
        collapsed = [_collapsed(factor) for factor in factors]
        matrices = [matrix.astype(dtype, copy=False) for matrix, _ in collapsed]
        powers = [power for _, power in collapsed]
        if any(one.shape[-1] > 1 for one in powers):
            sizes = [matrix.shape[-1] for matrix in matrices]
            powers = [
                np.broadcast_to(p, (*p.shape[:-1], n)) for p, n in zip(powers, sizes, strict=True)
            ]
        power = outer_sum(powers)
        step = MAX_STEP[dtype.char.lower()]
        self._scales: list[Any] = []
        self._may_overflow = bool(power.max(initial=0) > step // 2)
        if power.shape[-1] > 1 or np.abs(power).max(initial=0) > MAX_FOLDED:
            left = np.clip(power, -_ALL_BITS, _ALL_BITS)
            while left.any():
                part = np.clip(left, -step, step)
                scale = np.ldexp(1.0, part.astype(np.intc))
                self._scales.append(scale.item() if scale.size == 1 else on_device(scale, device))
                left = left - part
        elif power.any():
            scale = np.ldexp(1.0, power.astype(np.intc))
            matrices[0] = (matrices[0] * scale[..., None]).astype(dtype)
        self._product = KroneckerProduct(matrices).to(device)

    def apply(self, x: Array) -> Array:
        """Return exp(t A) x, x as for the product of the factors.

        Where a vector overflows, its zeros are NaN: a number that is as small beside infinity may
        have been lost.
        """
        product = self._product
        y: Array = product.apply(x) if product.batch_shape else product @ x
        rows = y if product.batch_shape else y.T
        zero = rows == 0 if self._may_overflow else None
        for scale in self._scales:
            for part in (rows.real, rows.imag) if y.dtype.kind == "c" else (rows,):
                part *= scale  # in place
        if zero is not None:
            rows[zero & (abs(rows) == np.inf).any(axis=-1, keepdims=True)] = np.nan
        return y
