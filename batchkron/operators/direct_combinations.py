"""Direct methods of multiples, sums and compositions of operators, from those of their parts."""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence
from functools import reduce
from operator import mul
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from batchkron.array_kinds import any_foreign
from batchkron.arrays import as_array
from batchkron.operators.direct_methods import DirectOperator, kind_of
from batchkron.operators.eigenvalue_order import arranged
from batchkron.operators.factor_by_factor import checked_time
from batchkron.operators.kronecker_terms import KroneckerTerms
from batchkron.spec.kron import Array, compute_dtype, is_finite

__all__ = ["CompositionMethods", "MultipleMethods", "SumMethods"]

Related = TypeVar("Related", bound=DirectOperator[Any])


class MultipleMethods(DirectOperator[Related]):
    """The direct methods of c A."""

    scalar: complex
    operator: Related

    @property
    def _is_diagonal(self) -> bool:
        return self.operator._is_diagonal

    def _multiple_of_identity(self) -> complex | None:
        known = self.operator._multiple_of_identity()
        return None if known is None else self.scalar * known

    def _direct_terms(self) -> KroneckerTerms:
        return self.operator._direct_terms().scaled(self.scalar)

    def _of_terms(self, terms: KroneckerTerms) -> DirectOperator[Any] | None:
        return self.operator._of_terms(terms)

    def _check_solvable(self, name: str) -> None:
        self.operator._check_solvable(name)

    def _reason(self) -> str:
        return self.operator._reason()

    def solve(self, b: ArrayLike) -> Array:
        """Solve c A x = b by the solve of A; for many systems as A takes b.

        Raises `numpy.linalg.LinAlgError` if c is 0, or as for A. `ValueError` if c is infinite or
        NaN, or as for A. `TypeError` as for A.
        """
        if type(b) is not self._arrays.ndarray and any_foreign(b):
            return self._in_kind(self.solve, b)  # type: ignore[no-any-return]
        rhs = as_array(b, "b", self._arrays)
        rhs = rhs.astype(compute_dtype(rhs), copy=False)
        self.operator._check_solvable("solve")
        scalar = self._invertible(np.result_type(self.dtype, rhs.dtype))
        # What is computed first is not smaller than the result: an underflow would be unseen.
        if abs(scalar) < 1:
            return self.operator.solve(rhs / scalar)
        return self.operator.solve(rhs) / scalar

    def _invertible(self, dtype: np.dtype[Any]) -> complex:
        """Return c after checking that it can be divided by."""
        if not is_finite(self.scalar, dtype):
            raise ValueError(f"the operator's factor is {self.scalar}; expected a finite {dtype}")
        if dtype.type(self.scalar) == 0:
            raise np.linalg.LinAlgError(
                f"the operator is singular: its factor is {self.scalar}, which is 0 as {dtype}"
            )
        return self.scalar

    def slogdet(self) -> tuple[Any, Any]:
        """Return the sign, or phase, of c^N det A and log |c^N det A|; as for A."""
        sign, logarithm = self.operator.slogdet()
        size, scalar = self.shape[0], self.scalar
        if size == 0:
            return sign, logarithm
        with np.errstate(divide="ignore"):
            return sign * _phase_of_power(scalar, size), logarithm + size * np.log(np.abs(scalar))

    def expm_apply(self, x: ArrayLike, t: complex = 1.0) -> Array:
        """Compute exp(t c A) x as `expm_apply` of A; as for A."""
        return self.operator.expm_apply(x, checked_time(t) * self.scalar)

    def eigh(self, *, sort: bool = False, k: int | None = None) -> tuple[Array, Any]:
        """Return c · values and vectors of `eigh` of A; `batchkron.eigh` describes ``sort``, ``k``.

        Raises `ValueError` if c is complex, or as for A. `TypeError` as for A.
        """
        if isinstance(self.scalar, complex) and self.scalar.imag:
            raise ValueError(f"the factor {self.scalar} is complex; expected a Hermitian operator")
        values, vectors = self.operator.eigh()
        return arranged((self.scalar.real * values, vectors), sort, k)

    def eig(self) -> tuple[Array, Related]:
        """Return c · values and vectors of `eig` of A; as for A."""
        values, vectors = self.operator.eig()
        return self.scalar * values, vectors

    def svd(self) -> tuple[Related, Array, Related]:
        """Return U, |c| s and Vᴴ of `svd` of A, where U has the phase of c ≠ 0; as for A."""
        left, values, right = self.operator.svd()
        phase = _phase_of_power(self.scalar, 1) if self.scalar != 0 else 1
        return left if phase == 1 else phase * left, abs(self.scalar) * values, right

    def pinv(self, rcond: float | None = None) -> Related:
        """Return A⁺ / c; as for A, and LinAlgError if c is 0."""
        scalar = self._invertible(self.dtype)
        return cast(Related, self.operator.pinv(rcond) / scalar)

    def lstsq(self, b: ArrayLike, rcond: float | None = None) -> Any:
        """Minimise ‖c A x - b‖ as `lstsq` of A does; as for A, and LinAlgError if c is 0."""
        scalar = self._invertible(self.dtype)
        found = self.operator.lstsq(b, rcond)
        return found._replace(x=found.x / scalar, s=abs(scalar) * found.s)

    def inverse(self) -> Related:
        """Return A⁻¹ / c; as for A.

        Raises `ValueError`, `numpy.linalg.LinAlgError` as for `solve`.
        """
        scalar = self._invertible(self.dtype)
        return cast(Related, self.operator.inverse() / scalar)

    def factorise(self) -> Any:
        """Return the operator factorised, for many solves; as for A."""
        whole = None if isinstance(self.operator, SumMethods) else self._whole()
        return super().factorise() if whole is None else whole.factorise()


class SumMethods(DirectOperator[Related]):
    """The direct methods of A_1 + … + A_m."""

    terms: tuple[Related, ...]

    @property
    def _is_diagonal(self) -> bool:
        return all(term._is_diagonal for term in self.terms)

    def _of_terms(self, terms: KroneckerTerms) -> DirectOperator[Any] | None:
        found = (term._of_terms(terms) for term in self.terms)
        return next((one for one in found if one is not None), None)

    def _reason(self) -> str:
        for term in self.terms:
            try:
                term._direct_terms()
            except (TypeError, ValueError):
                kind = kind_of(_multiple_and_part(term)[1])
                return f"the sum has a {kind}, which is not made of Kronecker products"
        sizes = dict.fromkeys(
            term._direct_terms().sizes
            for term in self.terms
            if term._multiple_of_identity() is None
        )
        if len(sizes) < 2:
            return "the terms do not make one Kronecker product or Kronecker sum"
        text = " and ".join(str(one) for one in sizes)
        return f"the summands are on different tensor products, of the sizes {text}"

    def _direct_terms(self) -> KroneckerTerms:
        terms: KroneckerTerms = self._added_terms("_direct_terms")
        return terms

    def _added_terms(self, name: str) -> Any:
        """Return the terms, or the diagonal blocks, of all summands by a method of theirs."""
        multiples = [term._multiple_of_identity() for term in self.terms]
        pairs = list(zip(self.terms, multiples, strict=True))
        known = [getattr(term, name)() for term, multiple in pairs if multiple is None]
        if not known:
            known, multiples = [getattr(term, name)() for term in self.terms], []
        one = known[0].identity()
        known += [one.scaled(multiple) for multiple in multiples if multiple is not None]
        return reduce(lambda first, second: first.plus(second), known)


class CompositionMethods(DirectOperator[Related]):
    """The direct methods of A_1 … A_m."""

    links: tuple[Related, ...]

    @property
    def _is_diagonal(self) -> bool:
        return all(link._is_diagonal for link in self.links)

    def diagonal(self) -> Array:
        """Return the diagonal, (min(M, N),); (*batch_shape, N) of diagonal operators."""
        if not self._is_diagonal:
            return super().diagonal()
        return reduce(mul, [link.diagonal() for link in self.links])

    def _whole(self) -> DirectOperator[Any] | None:
        """Return the composition as (a multiple of) one Kronecker product, or None."""
        if self.batch_shape:
            return None
        scalar: complex = 1.0
        merged: DirectOperator[Any] | None = None
        for link in self.links:
            multiple = link._multiple_of_identity()
            factor, part = _multiple_and_part(link) if multiple is None else (multiple, None)
            scalar *= factor
            if part is None:
                continue
            merged = part if merged is None else merged._merged_with(part)
            if merged is None:
                return None
        return merged if merged is None or scalar == 1 else scalar * merged

    def _direct_terms(self) -> KroneckerTerms:
        whole = self._whole()
        return self.kronecker_terms() if whole is None else whole._direct_terms()

    def _of_terms(self, terms: KroneckerTerms) -> DirectOperator[Any] | None:
        whole = self._whole()
        return None if whole is None else whole._of_terms(terms)

    def _reason(self) -> str:
        return (
            "the operators that are composed do not make one Kronecker product; those in A.links "
            "may have methods of their own"
        )

    def _check_solvable(self, name: str) -> None:
        self._refuse_non_square(name)
        if any(rows != columns for rows, columns in (link.shape for link in self.links)):
            if self._whole() is None:
                self._refuse_direct(name)
            return
        for link in self.links:
            link._check_solvable(name)

    def solve(self, b: ArrayLike) -> Array:
        """Solve A_1 … A_m x = b by the solves of A_1, …, A_m, one after another.

        Raises
        ------
        ValueError, TypeError, numpy.linalg.LinAlgError
            As for the first operator that has no solve, or is singular.
        """
        if type(b) is not self._arrays.ndarray and any_foreign(b):
            return self._in_kind(self.solve, b)  # type: ignore[no-any-return]
        x = as_array(b, "b", self._arrays)
        for link in self._square_links("solve"):
            x = link.solve(x)
        return x

    def slogdet(self) -> tuple[Any, Any]:
        """Return the product of the signs, and the sum of log |det|, of the operators A_1, …, A_m.

        Raises
        ------
        ValueError, TypeError
            As for the first operator that has none.
        """
        pairs = [link.slogdet() for link in self._square_links("slogdet")]
        signs, logarithms = zip(*pairs, strict=True)
        return np.prod(signs, axis=0), np.sum(logarithms, axis=0)

    def _square_links(self, name: str) -> Sequence[DirectOperator[Any]]:
        """Return operators with the same product that have a solve and a determinant."""
        self._check_solvable(name)
        if all(rows == columns for rows, columns in (link.shape for link in self.links)):
            return self.links
        return [cast(DirectOperator[Any], self._whole())]


def _phase_of_power(scalar: complex, exponent: int) -> complex:
    """Return (c / |c|)^exponent, 0 for c = 0; exact for real and imaginary c."""
    if scalar == 0 or scalar != scalar:
        return scalar
    if not scalar.imag:
        phase = -1.0 if scalar.real < 0 and exponent % 2 else 1.0
        return complex(phase) if isinstance(scalar, complex) else phase
    if not scalar.real:
        return (1, 1j, -1, -1j)[exponent * (1 if scalar.imag > 0 else 3) % 4] + 0j
    return cmath.exp(1j * math.remainder(exponent * cmath.phase(scalar), math.tau))


def _multiple_and_part(operator: DirectOperator[Any]) -> tuple[complex, DirectOperator[Any]]:
    """Return c and A of an operator c A, 1 and the operator itself of others."""
    if isinstance(operator, MultipleMethods):
        return operator.scalar, operator.operator
    return 1.0, operator
