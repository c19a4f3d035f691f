"""Inverses on one tensor product: of I - c · A, or of A, from bases of the 1-D matrices."""

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
from batchkron.operators.scaling import norm

from .bases import ModeBases, ModeBasis, dtype_of_solves, trivial_basis
from .wavelets import wavelets

Vector = NDArray[Any]


class _Transforms:
    """F = F_1 ⊗ … ⊗ F_d and V = V_1 ⊗ … ⊗ V_d of the bases of all modes, on the CPU or a device."""

    def __init__(
        self, bases: Sequence[ModeBasis], numbers: Vector, dtype: Any, device: str
    ) -> None:
        kind = self.dtype = dtype_of_solves(dtype, numbers, *(basis.vectors for basis in bases))
        forward, back = [b.forward for b in bases], [b.vectors for b in bases]
        self._forward = KroneckerProduct(forward).astype(kind).to(device)
        self._back = KroneckerProduct(back).astype(kind).to(device)
        self._real = np.dtype(dtype).kind != "c"

    def forward(self, x: Vector) -> Vector:
        """Return F x in a fresh array, in the dtype of the solve."""
        return self._forward.apply(x.astype(self.dtype, copy=False))

    def back(self, y: Vector) -> Vector:
        """Return V y, of real vectors its real part."""
        z = self._back.apply(y)
        return z.real if self._real else z


class DiagonalInverse:
    """V D⁻¹ F with the diagonal D, (Π n_k,), and V and F of the bases of all modes.

    Entries of D that are zero up to rounding are replaced by its mean modulus.
    """

    def __init__(self, bases: Sequence[ModeBasis], values: Vector, dtype: Any, device: str) -> None:
        self._transforms = _Transforms(bases, values, dtype, device)
        inverted = (1.0 / _regular(values)).astype(self._transforms.dtype)
        self._scale = on_device(inverted, device)

    def apply(self, x: Vector) -> Vector:
        """Return the product with x, (N,); a fresh array."""
        y = self._transforms.forward(x)
        np.multiply(y, self._scale, out=y)
        return self._transforms.back(y)


class OneModeInverse:
    """An inverse with all modes but one diagonalised; along that one, dense inverses.

    ``blocks`` are the matrices along that mode, (J, n, n), one for each combination of the other
    modes' eigenvalues, in their order. Storage: J n² = N n elements.
    """

    def __init__(
        self, bases: Sequence[ModeBasis], blocks: Vector, mode: int, dtype: Any, device: str
    ) -> None:
        self._transforms = _Transforms(bases, blocks, dtype, device)
        sizes = [len(basis.vectors) for basis in bases]
        before, n, after = math.prod(sizes[:mode]), sizes[mode], math.prod(sizes[mode + 1 :])
        self._shape = before, n, after
        inverted = np.linalg.inv(blocks).reshape(before, after, n, n)
        self._inverses = on_device(inverted.astype(self._transforms.dtype), device)

    def apply(self, x: Vector) -> Vector:
        """Return the product with x, (N,); a fresh array."""
        y = self._transforms.forward(x)
        columns = y.reshape(self._shape).swapaxes(1, 2)[..., None]
        solved = (self._inverses @ columns)[..., 0].swapaxes(1, 2)
        return self._transforms.back(solved.reshape(-1))


class SchurInverse:
    """The inverse of a Kronecker sum by Schur forms, on the CPU, for matrices far from normal."""

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


class ScaledInverse:
    """W D^-½ Wᵀ S⁻¹ W D^-½ Wᵀ: an inverse S⁻¹ for an S scaled to the diagonal of another matrix.

    W = W_1 ⊗ … ⊗ W_d is orthogonal, D is diag(Wᵀ B W) / diag(Wᵀ S W) for a matrix B. Source: P.
    Concus, G. H. Golub, SIAM J. Numer. Anal. 10 (1973).
    """

    def __init__(
        self,
        inner: TensorInverse,
        transforms: Sequence[Vector],
        ratio: Vector,
        dtype: Any,
        device: str,
    ) -> None:
        self._inner = inner
        self._forward = KroneckerProduct([W.T for W in transforms]).astype(dtype).to(device)
        self._back = KroneckerProduct(transforms).astype(dtype).to(device)
        size = np.abs(ratio)
        scale = 1.0 / np.sqrt(np.where(size > 0.0, size, 1.0))
        self._scale = on_device(scale.astype(dtype), device)

    def apply(self, x: Vector) -> Vector:
        """Return the product with x, (N,); a fresh array."""
        return self._scaled(self._inner.apply(self._scaled(x)))

    def _scaled(self, x: Vector) -> Vector:
        y = self._forward.apply(x)
        np.multiply(y, self._scale, out=y)
        return self._back.apply(y)


TensorInverse: TypeAlias = DiagonalInverse | OneModeInverse | SchurInverse | ScaledInverse


class FullGrid:
    """B = I - c · A, or A if c is None, on the tensor product of all 1-D functions up to levels."""

    def __init__(self, bases: ModeBases, levels: Sequence[int], c: Any) -> None:
        self._bases, self._levels = bases, tuple(levels)
        self._is_shifted, self._scale = c is not None, 1.0 if c is None else -c
        self._terms: list[tuple[Any, list[int]]] = []
        if self._is_shifted:
            self._terms.append((1.0, [-1] * len(self._levels)))
        for coefficient, numbers in zip(bases.coefficients, bases.numbers, strict=True):
            self._terms.append((self._scale * coefficient, numbers))

    def inverse(self, dtype: Any, device: str) -> TensorInverse:
        """Return B⁻¹ for vectors of a dtype on a device.

        It is exact if the matrices of all modes, or all but one, commute and can be diagonalised,
        or if A is a Kronecker sum and the device is the CPU. Otherwise it is the best of a few
        approximations, judged by their residuals for a random vector.
        """
        joint = self._bases.up_to(self._levels)
        bad = [mode for mode, basis in enumerate(joint) if not basis.is_exact]
        if not bad:
            return self._diagonal(joint, dtype, device)
        if len(bad) == 1:
            return self._one_mode(joint, bad[0], dtype, device)
        if self._bases.are_exact(self._levels, device):
            return SchurInverse(self._sum_matrices(), dtype)
        congruent = [
            self._bases.congruence(mode, level) if mode in bad else None
            for mode, level in enumerate(self._levels)
        ]
        mixed = [other or basis for basis, other in zip(joint, congruent, strict=True)]
        worst = max(bad, key=lambda mode: (joint[mode].defect, len(joint[mode].vectors)))
        makers: list[Callable[[Any, str], TensorInverse]] = []
        for found in (joint, mixed) if any(congruent) else (joint,):
            makers.append(partial(self._diagonal, found))
            makers.append(partial(self._one_mode, found, worst))
        wide = np.result_type(dtype, np.float64)
        residuals = [self._residual(make(wide, "cpu")) for make in makers]
        return makers[int(np.argmin(residuals))](dtype, device)

    def diagonal(self, found: Sequence[ModeBasis]) -> Vector:
        """Return the diagonal of B in bases, (Π n_k,), its zeros replaced by the mean modulus."""
        return _regular(self._values(found))

    def _values(self, found: Sequence[ModeBasis]) -> Vector:
        total: Any = np.zeros(math.prod(len(basis.ones) for basis in found))
        for coefficient, numbers in self._terms:
            total = total + coefficient * _outer(found, numbers)
        return np.asarray(total)

    def _diagonal(self, found: Sequence[ModeBasis], dtype: Any, device: str) -> DiagonalInverse:
        """Return the inverse with all matrices replaced by their diagonals in the bases."""
        return DiagonalInverse(found, self._values(found), dtype, device)

    def _one_mode(
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
        return OneModeInverse(kept, blocks, mode, dtype, device)

    def _sum_matrices(self) -> list[Vector]:
        """Return the factors of B as a Kronecker sum, with the identity in mode 1."""
        rows = self._rows()
        sums: list[Any] = [np.zeros((n, n)) for n in rows]
        for coefficient, numbers in self._terms:
            mode = next((mode for mode, number in enumerate(numbers) if number >= 0), 0)
            number = numbers[mode]
            matrices = self._bases.matrices(mode, self._levels[mode])
            sums[mode] = sums[mode] + coefficient * (
                np.eye(rows[0]) if number < 0 else matrices[number]
            )
        return sums

    def unmixed_factors(self) -> list[Vector]:
        """Return the factors of a Kronecker sum of B's terms on one mode each.

        For a mode without such terms those on several modes are taken that have their largest
        matrix there, the others' matrices being replaced by the mean of their diagonals.
        """
        rows = self._rows()
        alone: list[Any] = [0.0] * len(rows)
        mixed: list[Any] = [0.0] * len(rows)
        identity: Any = 0.0
        for coefficient, numbers in self._terms:
            own = {
                mode: self._bases.matrices(mode, self._levels[mode])[number]
                for mode, number in enumerate(numbers)
                if number >= 0
            }
            if not own:
                identity = identity + coefficient
                continue
            main = max(own, key=lambda mode: float(norm(own[mode])) / math.sqrt(rows[mode]))
            for mode, matrix in own.items():
                if mode != main:
                    coefficient = coefficient * np.trace(matrix) / rows[mode]
            sums = alone if len(own) == 1 else mixed
            sums[main] = sums[main] + coefficient * own[main]
        found = [
            np.zeros((n, n)) + (rest if np.ndim(single) == 0 else single)
            for n, single, rest in zip(rows, alone, mixed, strict=True)
        ]
        found[0] = found[0] + identity * np.eye(rows[0])
        return found

    def nodal_transforms(self) -> list[Vector]:
        """Return W_k of each mode, dense; the identity where the filters are not known."""
        known = self._bases.terms.transforms or (None,) * len(self._levels)
        return [
            np.eye(n) if filters is None else wavelets(level, filters).toarray()
            for n, filters, level in zip(self._rows(), known, self._levels, strict=True)
        ]

    def diagonal_ratio(self, factors: Sequence[Vector], transforms: Sequence[Vector]) -> Vector:
        """Return diag(Wᵀ B W) / diag(Wᵀ S W), (Π n_k,), of a Kronecker sum S given by factors."""
        pairs = zip(self.stacks(), transforms, strict=True)
        own = [np.einsum("ji,tjk,ki->ti", W, stack, W, optimize=True) for stack, W in pairs]
        whole = sum(reduce(np.kron, parts) for parts in zip(*own, strict=True))
        parts = [np.diag(W.T @ S @ W) for S, W in zip(factors, transforms, strict=True)]
        scaled = reduce(lambda x, y: np.add.outer(x, y).ravel(), parts)
        return np.asarray(whole / _regular(scaled))

    def _residual(self, inverse: TensorInverse) -> float:
        """Return ‖v - B M v‖ / ‖v‖ for a random v, M being the inverse."""
        rows = self._rows()
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

    def _rows(self) -> list[int]:
        return [self._bases.terms.rows(mode, level) for mode, level in enumerate(self._levels)]

    def stacks(self) -> list[Vector]:
        """Return the factors of all terms of B, (terms, n_k, n_k) for each mode."""
        terms, stacks = self._bases.terms, []
        for mode, (level, rows) in enumerate(zip(self._levels, self._rows(), strict=True)):
            matrices = [np.eye(rows)] * self._is_shifted
            matrices += [terms.factor(t, mode, level) for t in range(len(terms.terms))]
            stacks.append(np.stack(matrices))
        weights: list[Any] = [1.0] * self._is_shifted
        weights += [self._scale * term.coefficient for term in terms.terms]
        stacks[0] = stacks[0] * np.asarray(weights)[:, None, None]
        return stacks


def _outer(found: Sequence[ModeBasis], numbers: Sequence[int]) -> Vector:
    """Return the Kronecker product of one diagonal per mode; number -1 is the identity's."""
    chosen = [
        basis.ones if n < 0 else basis.values[n] for basis, n in zip(found, numbers, strict=True)
    ]
    return reduce(np.kron, chosen, np.ones(1))


def _regular(values: Vector) -> Vector:
    """Return the values, with those that are zero up to rounding replaced by the mean modulus."""
    size = np.abs(values)
    largest = float(size.max(initial=0.0))
    tiny = size <= 64 * np.finfo(np.float64).eps * largest
    return np.where(tiny, size.mean() if largest else 1.0, values) if tiny.any() else values
