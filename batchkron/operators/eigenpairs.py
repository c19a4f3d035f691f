"""Eigenvalues and eigenvectors of Hermitian sums of Kronecker products, by their factors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, cast, overload

import numpy as np
import scipy.linalg

from batchkron.arrays import array_module
from batchkron.operators.algebra import Operator
from batchkron.operators.diagonalised_terms import DiagonalisedTerms
from batchkron.operators.eigenvalue_order import arranged
from batchkron.operators.hermitian import hermitian_part
from batchkron.operators.kronecker_product import KroneckerProduct
from batchkron.operators.kronecker_sum.operator import KroneckerSum
from batchkron.operators.kronecker_terms import KroneckerTerm, KroneckerTerms
from batchkron.operators.placement import on_device
from batchkron.operators.scaling import times_power_of_two, unit_exponent
from batchkron.spec.kron import Array

__all__ = ["eigh", "eigvalsh"]


@overload
def eigh(
    A: Operator, B: KroneckerProduct | None = None, *, sort: Literal[False] = False, k: None = None
) -> tuple[Array, KroneckerProduct]: ...
@overload
def eigh(
    A: Operator, B: KroneckerProduct | None = None, *, sort: bool = False, k: int | None = None
) -> tuple[Array, Any]: ...
def eigh(
    A: Operator, B: KroneckerProduct | None = None, *, sort: bool = False, k: int | None = None
) -> tuple[Array, Any]:
    """Return all eigenvalues and eigenvectors of A v = λ v, or of A v = λ B v, by factors.

    Parameters
    ----------
    A : Operator, (N, N)
        A Kronecker product or sum, a multiple, or a sum of these and of `Identity`, with Hermitian
        factors that commute in each mode: K + σ² I, for example. With B, those that L_k⁻¹ F L_k⁻ᴴ
        makes of the factors F of mode k have to commute, B_k = L_k L_kᴴ: those of K ⊗ M + M ⊗ K
        and B = M ⊗ M do.
    B : KroneckerProduct, (N, N), optional
        Of Hermitian, positive definite factors B_1, …, B_d.
    sort : bool
        Whether values are in ascending order. By default they are in the order in which the factors
        give them, for which the eigenvectors are one Kronecker product.
    k : int, optional
        The number of eigenpairs, in ascending order: the k smallest eigenvalues, or the |k| largest
        for a negative k. All N values are computed all the same, and vectors of these alone.

    Returns
    -------
    values : ndarray, (N,) or (|k|,)
        Real, in the order of the columns of ``vectors``; on the device of A. The work for the
        factors is done on the host.
    vectors : KroneckerProduct, (N, N)
        With ``sort`` another operator, of the same columns in another order; with k an array
        (N, |k|). The matrix V of eigenvectors: Vᴴ A V = diag(values), Vᴴ V = I, and with B instead
        Vᴴ B V = I. So A = V diag(values) Vᴴ, or A⁻¹ = V diag(1 / values) Vᴴ with B.

    Raises
    ------
    ValueError
        If k is out of range, a factor is not Hermitian up to rounding (see Notes), factors of a
        mode do not commute, a coefficient is complex, a factor of B is not positive definite, or
        sizes differ.
    TypeError
        If A is no operator, or B no `KroneckerProduct`; if A does not know its Kronecker terms.

    Notes
    -----
    The eigenvectors of a sum of terms that commute are the products of those of the factors, from
    fast diagonalisation (R. E. Lynch, J. R. Rice and D. H. Thomas, Numer. Math. 6, 1964); pencils
    are reduced as by algorithm 8.7.1 of Golub and Van Loan, Matrix Computations, 4th edition. The
    work is Σ n_k³, and N for the eigenvalues.

    Inverses, square roots and kernels are Hermitian up to rounding errors that grow with their
    condition numbers. So of a factor F with ‖F - Fᴴ‖ ≤ min(n · eps · condition, 1e-8) ‖F‖, in
    Frobenius norms, the Hermitian part (F + Fᴴ) / 2 is taken. In single precision 3e-4 is in the
    place of 1e-8: either is about half of the digits. Factors commute up to the same bounds.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> K = bk.KroneckerProduct(np.diag([1.0, 2.0]), np.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> values, V = bk.eigh(K + 0.5 * bk.Identity(4))
    >>> np.sort(values).round(12)
    array([1.5, 2.5, 3.5, 6.5])
    >>> (V @ (values * (V.H @ np.ones(4)))).round(12)  # (K + I/2) 1
    array([3.5, 3.5, 6.5, 6.5])
    """
    if not isinstance(A, Operator):
        raise TypeError(f"A is a {type(A).__name__}; expected an operator of batchkron")
    if B is None and isinstance(A, (KroneckerProduct, KroneckerSum)):
        return A.eigh(sort=sort, k=k)
    if B is None and A._is_diagonal and A._multiple_of_identity() is None:
        raise TypeError(
            "A is diagonal, so that its eigenvectors are the columns of the identity; A.eigh() "
            "returns them and the eigenvalues"
        )
    terms, masses, dtype = A._known_terms("eigh"), [], A.dtype
    if B is not None:
        masses = _masses(B, terms)
        dtype = np.result_type(dtype, B.dtype)
        terms = _reduced(terms, masses, B.factors, dtype)
    try:
        found = DiagonalisedTerms(terms, dtype)
    except ValueError:
        whole = A._whole() if B is None else None
        if whole is None:
            raise
        return whole.eigh(sort=sort, k=k)
    if not found.unitary:
        raise ValueError(
            "the factors of a mode do not commute, so there are no eigenvectors by factors; for "
            "A v = λ B v with a Kronecker product B, pass B as well"
        )
    if found.values.dtype.kind == "c":
        raise ValueError("a coefficient of A is complex; expected a Hermitian operator")
    vectors = found.vectors
    if masses:
        vectors = [
            times_power_of_two(scipy.linalg.solve_triangular(root.conj().T, one), -exponent)
            for (root, exponent), one in zip(masses, vectors, strict=True)
        ]
    real = dtype.type(0).real.dtype
    product = KroneckerProduct([one.astype(dtype) for one in vectors])
    placed = cast(KroneckerProduct, product.to(A.device))
    return arranged((on_device(found.values.astype(real), A.device), placed), sort, k)


def eigvalsh(A: Operator, B: KroneckerProduct | None = None) -> Array:
    """Return the eigenvalues of A v = λ v, or of A v = λ B v, in ascending order.

    Parameters
    ----------
    A, B
        As for `eigh`.

    Returns
    -------
    ndarray, (N,)
        Real, on the device of A; (*batch_shape, N) of many systems.

    Raises
    ------
    ValueError, TypeError
        As for `eigh`.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> K = bk.KroneckerProduct(np.diag([1.0, 2.0]), np.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> bk.eigvalsh(K + 0.5 * bk.Identity(4)).round(12)
    array([1.5, 2.5, 3.5, 6.5])
    """
    return array_module(values := eigh(A, B)[0]).sort(values, axis=-1)  # type: ignore[no-any-return]


def _masses(B: object, terms: KroneckerTerms) -> list[tuple[Array, int]]:
    """Return L, in double precision, and e of each factor B_k = 4^e L Lᴴ."""
    if not isinstance(B, KroneckerProduct):
        raise TypeError(f"B is a {type(B).__name__}; expected a batchkron.KroneckerProduct")
    B._refuse_batch("eigh")
    shapes = [factor.shape for factor in B.factors]
    if shapes != [(size, size) for size in terms.sizes]:
        raise ValueError(
            f"B has factors of the shapes {shapes}; expected square ones of the sizes "
            f"{terms.sizes}, as A has"
        )
    found = []
    for k, factor in enumerate(B.factors):
        part = hermitian_part(factor, f"B.factors[{k}] is not Hermitian")
        exponent = unit_exponent(factor) // 2
        scaled = times_power_of_two(part, -2 * exponent)
        try:
            found.append((np.asarray(scipy.linalg.cholesky(scaled, lower=True)), exponent))
        except np.linalg.LinAlgError:
            raise ValueError(f"B.factors[{k}] is not positive definite") from None
    return found


def _reduced(
    terms: KroneckerTerms,
    masses: Sequence[tuple[Array, int]],
    given: Sequence[Array],
    dtype: np.dtype[Any],
) -> KroneckerTerms:
    """Return the terms with L_k⁻¹ F L_k⁻ᴴ for the factors F of each mode; B_k becomes 1 exactly."""
    found = []
    for t, term in enumerate(terms.terms):
        factors: list[Array | None] = []
        scale = 0  # exponent of what is left out of the factors
        for k, ((root, exponent), mass) in enumerate(zip(masses, given, strict=True)):
            factor = terms.factor(t, k)
            if np.array_equal(factor, mass):
                factors.append(None)
                continue
            part = hermitian_part(factor, f"the factors of mode {k} are not all Hermitian")
            unit = unit_exponent(factor)
            scale += unit - 2 * exponent
            scaled = times_power_of_two(part, -unit)
            half = scipy.linalg.solve_triangular(root, scaled, lower=True)
            whole = scipy.linalg.solve_triangular(root, half.conj().T, lower=True)
            factors.append(((whole + whole.conj().T) / 2).astype(dtype))
        found.append(KroneckerTerm(times_power_of_two(term.coefficient, scale), tuple(factors)))
    return replace(terms, terms=tuple(found))
