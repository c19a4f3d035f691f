"""Inverses on one tensor product: (shift · I + scale · A)⁻¹ from bases of the 1-D matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, TypeAlias

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from batchkron.functions.kron import gekmm
from batchkron.operators import KroneckerProduct, on_device
from batchkron.operators.factor_by_factor import solve_triangular_sum

from .bases import (
    NEGLIGIBLE,
    ModeBases,
    ModeBasis,
    trivial_basis,
)

Vector = NDArray[Any]


class DiagonalInverse:
    """V D⁻¹ F with V = V_1 ⊗ … ⊗ V_d and F = F_1 ⊗ … ⊗ F_d, on the CPU or a device.

    Parameters
    ----------
    vectors, forward : sequence of ndarray, (n_k, n_k)
        The V_k and F_k.
    values : ndarray, (Π n_k,)
        The diagonal D. Entries that are zero up to rounding are replaced by its mean modulus.
    dtype : numpy.dtype
        Dtype of the vectors.
    device : {"cpu", "cuda"}
        Device of the vectors.
    """

    def __init__(
        self,
        vectors: Sequence[Vector],
        forward: Sequence[Vector],
        values: Vector,
        dtype: Any,
        device: str,
    ) -> None:
        kind = np.result_type(values, *vectors, dtype)
        kind = np.result_type(dtype, 1j) if kind.kind == "c" else np.dtype(dtype)
        self._forward = KroneckerProduct(forward).astype(kind).to(device)
        self._back = KroneckerProduct(vectors).astype(kind).to(device)
        self._scale = on_device((1.0 / _regular(values)).astype(kind), device)
        self._real = np.dtype(dtype).kind != "c"

    def apply(self, x: Vector) -> Vector:
        """Return the product with x, (N,); a fresh array."""
        y = self._forward.apply(x.astype(self._forward.dtype, copy=False))
        np.multiply(y, self._scale, out=y)
        z = self._back.apply(y)
        return z.real if self._real else z


class OneModeInverse:
    """An inverse with all modes but one diagonalised; along that one, dense inverses.

    Parameters
    ----------
    vectors, forward : sequence of ndarray, (n_k, n_k)
        As for `DiagonalInverse`; the identity for the mode that is not diagonalised.
    blocks : ndarray, (J, n, n)
        The matrices along that mode, one for each combination of the other modes' eigenvalues:
        J = Π n_k over the other modes, in their order.
    mode : int
        The mode that is not diagonalised.
    dtype, device
        As for `DiagonalInverse`.

    Notes
    -----
    Storage: J n² = N n elements.
    """

    def __init__(
        self,
        vectors: Sequence[Vector],
        forward: Sequence[Vector],
        blocks: Vector,
        mode: int,
        dtype: Any,
        device: str,
    ) -> None:
        kind = np.result_type(blocks, *vectors, dtype)
        kind = np.result_type(dtype, 1j) if kind.kind == "c" else np.dtype(dtype)
        sizes = [len(v) for v in vectors]
        self._shape = (math.prod(sizes[:mode]), sizes[mode], math.prod(sizes[mode + 1 :]))
        self._forward = KroneckerProduct(forward).astype(kind).to(device)
        self._back = KroneckerProduct(vectors).astype(kind).to(device)
        before, n, after = self._shape
        inverted = np.linalg.inv(blocks).reshape(before, after, n, n)
        self._inverses = on_device(inverted.astype(kind), device)
        self._real = np.dtype(dtype).kind != "c"

    def apply(self, x: Vector) -> Vector:
        """Return the product with x, (N,); a fresh array."""
        y = self._forward.apply(x.astype(self._forward.dtype, copy=False))
        columns = y.reshape(self._shape).swapaxes(1, 2)[..., None]
        solved = (self._inverses @ columns)[..., 0].swapaxes(1, 2)
        z = self._back.apply(solved.reshape(-1))
        return z.real if self._real else z


class SchurInverse:
    """The inverse of a Kronecker sum by Schur forms, on the CPU, for matrices far from normal.

    Parameters
    ----------
    matrices : sequence of ndarray, (n_k, n_k)
        The matrices of the sum A_1 ⊕ … ⊕ A_d.
    dtype : numpy.dtype
        Dtype of the vectors.
    """

    def __init__(self, matrices: Sequence[Vector], dtype: Any) -> None:
        real = len(matrices) == 2 and not any(np.iscomplexobj(m) for m in matrices)
        output = "real" if real else "complex"
        pairs = [scipy.linalg.schur(matrix, output=output) for matrix in matrices]
        self._triangles = [t for t, _ in pairs]
        self._forward = KroneckerProduct([u.conj().T for _, u in pairs])
        self._back = KroneckerProduct([u for _, u in pairs])
        self._dtype, self._real = np.dtype(dtype), np.dtype(dtype).kind != "c"

    def apply(self, x: Vector) -> Vector:
        """Return the product with x, (N,); a fresh array."""
        y = solve_triangular_sum(self._triangles, self._forward.apply(x)[:, None])[:, 0]
        z = self._back.apply(np.ascontiguousarray(y))
        return (z.real if self._real else z).astype(self._dtype, copy=False)


class ProductInverse:
    """A_1⁻¹ ⊗ … ⊗ A_d⁻¹, on the CPU or a device.

    Parameters
    ----------
    factors : sequence of ndarray, (n_k, n_k)
        The A_k.
    dtype, device
        As for `DiagonalInverse`.
    """

    def __init__(self, factors: Sequence[Vector], dtype: Any, device: str) -> None:
        inverses = [np.linalg.inv(factor) for factor in factors]
        self._operator = KroneckerProduct(inverses).astype(dtype).to(device)

    def apply(self, x: Vector) -> Vector:
        """Return the product with x, (N,); a fresh array."""
        return self._operator.apply(x)


TensorInverse: TypeAlias = DiagonalInverse | OneModeInverse | SchurInverse


def tensor_inverse(
    bases: ModeBases, levels: Sequence[int], shift: Any, scale: Any, dtype: Any, device: str
) -> TensorInverse:
    """Return (shift · I + scale · A)⁻¹ on the tensor product of all 1-D functions up to levels.

    Parameters
    ----------
    bases : ModeBases
        The bases of A's 1-D matrices.
    levels : sequence of int
        The largest level of each mode.
    shift, scale : scalar
        The two numbers.
    dtype : numpy.dtype
        Dtype of the vectors.
    device : {"cpu", "cuda"}
        Device of the vectors.

    Returns
    -------
    object with ``apply(x)``
        The inverse. It is exact if the matrices of all modes, or all but one, commute and can be
        diagonalised, or if A is a Kronecker sum and the device is the CPU. Otherwise it is the best
        of a few approximations, judged by their residuals for a random vector.
    """
    joint = [bases.basis(mode, level) for mode, level in enumerate(levels)]
    bad = [mode for mode, basis in enumerate(joint) if basis.defect > NEGLIGIBLE]
    problem = _Shifted(bases, tuple(levels), shift, scale)
    if not bad:
        return problem.diagonal(joint, dtype, device)
    if len(bad) == 1:
        return problem.one_mode(joint, bad[0], dtype, device)
    if bases.is_sum and device == "cpu":
        return SchurInverse(_sum_matrices(bases, levels, shift, scale), dtype)
    congruent = [
        bases.congruence(mode, levels[mode]) if mode in bad else None for mode in range(len(levels))
    ]
    mixed = [other or basis for basis, other in zip(joint, congruent, strict=True)]
    worst = max(bad, key=lambda mode: (joint[mode].defect, len(joint[mode].vectors)))
    wide = np.result_type(dtype, np.float64)
    makers: list[Callable[[Any, str], TensorInverse]] = []
    for found in (joint, mixed) if any(congruent) else (joint,):
        makers.append(partial(problem.diagonal, found))
        makers.append(partial(problem.one_mode, found, worst))
    residuals = [problem.residual(make(wide, "cpu")) for make in makers]
    return makers[int(np.argmin(residuals))](dtype, device)


def joint_bases(bases: ModeBases, levels: Sequence[int]) -> list[ModeBasis] | None:
    """Return the basis of each mode up to levels where all are exact, else None.

    Parameters
    ----------
    bases : ModeBases
        Of A.
    levels : sequence of int
        One per mode.

    Returns
    -------
    list of ModeBasis or None
    """
    joint = [bases.basis(mode, level) for mode, level in enumerate(levels)]
    return joint if all(basis.defect <= NEGLIGIBLE for basis in joint) else None


def joint_diagonal(
    bases: ModeBases, levels: Sequence[int], joint: Sequence[ModeBasis], shift: Any, scale: Any
) -> Vector:
    """Return the diagonal of shift · I + scale · A in the bases of `joint_bases`, Π n_k values.

    Entries that are zero up to rounding are replaced by the mean modulus.
    """
    return _regular(_Shifted(bases, tuple(levels), shift, scale).values(joint))


class _Shifted:
    """B = shift · I + scale · A on the functions up to some levels, and approximate inverses."""

    def __init__(self, bases: ModeBases, levels: tuple[int, ...], shift: Any, scale: Any) -> None:
        self._bases, self._levels = bases, levels
        self._terms = [(shift, [-1] * len(levels))] if shift else []
        self._terms += [
            (scale * coefficient, numbers)
            for coefficient, numbers in zip(bases.coefficients, bases.numbers, strict=True)
        ]

    def diagonal(self, found: Sequence[ModeBasis], dtype: Any, device: str) -> DiagonalInverse:
        """Return the inverse with all matrices replaced by their diagonals in the bases."""
        vectors, forward = [b.vectors for b in found], [b.forward for b in found]
        return DiagonalInverse(vectors, forward, self.values(found), dtype, device)

    def values(self, found: Sequence[ModeBasis]) -> Vector:
        """Return the diagonal of B in the given bases."""
        total: Any = np.zeros(math.prod(len(basis.ones) for basis in found))
        for coefficient, numbers in self._terms:
            total = total + coefficient * _outer(found, numbers)
        return np.asarray(total)

    def one_mode(
        self, found: Sequence[ModeBasis], mode: int, dtype: Any, device: str
    ) -> OneModeInverse:
        """Return the inverse with the matrices of one mode kept, the others made diagonal."""
        rows = len(found[mode].vectors)
        matrices = self._bases.matrices(mode, self._levels[mode])
        others = [basis for k, basis in enumerate(found) if k != mode]
        blocks: Any = 0.0
        for coefficient, numbers in self._terms:
            weights = coefficient * _outer(others, [n for k, n in enumerate(numbers) if k != mode])
            matrix = np.eye(rows) if numbers[mode] < 0 else matrices[numbers[mode]]
            blocks = blocks + weights[:, None, None] * matrix
        kept = [trivial_basis(rows) if k == mode else basis for k, basis in enumerate(found)]
        vectors, forward = [b.vectors for b in kept], [b.forward for b in kept]
        return OneModeInverse(vectors, forward, blocks, mode, dtype, device)

    def residual(self, inverse: TensorInverse) -> float:
        """Return ‖v - B M v‖ / ‖v‖ for a random v, M being the inverse."""
        rows = [self._bases.terms.rows(k, level) for k, level in enumerate(self._levels)]
        v = np.random.default_rng(0).standard_normal(math.prod(rows))
        x = inverse.apply(v)
        left: Any = v
        for coefficient, numbers in self._terms:
            factors = [
                np.eye(rows[k]) if n < 0 else self._bases.matrices(k, self._levels[k])[n]
                for k, n in enumerate(numbers)
            ]
            left = left - coefficient * gekmm(factors, x)
        size = float(np.linalg.norm(left) / np.linalg.norm(v))
        return size if np.isfinite(size) else np.inf


def _outer(found: Sequence[ModeBasis], numbers: Sequence[int]) -> Vector:
    """Return the Kronecker product of one diagonal per mode; number -1 is the identity's."""
    chosen = [
        basis.ones if n < 0 else basis.values[n] for basis, n in zip(found, numbers, strict=True)
    ]
    return reduce(np.kron, chosen, np.ones(1))


def _sum_matrices(bases: ModeBases, levels: Sequence[int], shift: Any, scale: Any) -> list[Vector]:
    """Return the factors of shift · I + scale · A as a Kronecker sum, with the shift in mode 1."""
    rows = [bases.terms.rows(mode, level) for mode, level in enumerate(levels)]
    sums: list[Any] = [np.zeros((n, n)) for n in rows]
    sums[0] = sums[0] + shift * np.eye(rows[0])
    for coefficient, numbers in zip(bases.coefficients, bases.numbers, strict=True):
        acting = [mode for mode, number in enumerate(numbers) if number >= 0]
        mode = acting[0] if acting else 0
        matrix = bases.matrices(mode, levels[mode])[numbers[mode]] if acting else np.eye(rows[0])
        sums[mode] = sums[mode] + scale * coefficient * matrix
    return sums


def _regular(values: Vector) -> Vector:
    """Return the values, with those that are zero up to rounding replaced by the mean modulus."""
    size = np.abs(values)
    largest = float(size.max(initial=0.0))
    tiny = size <= 64 * np.finfo(np.float64).eps * largest
    return np.where(tiny, size.mean() if largest else 1.0, values) if tiny.any() else values
