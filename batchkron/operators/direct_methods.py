"""Direct solves, determinants, eigenpairs and exponentials by the structure of an operator."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NoReturn, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from batchkron.array_kinds import any_foreign
from batchkron.backends import Backend
from batchkron.operators.diagonal_entries import DiagonalEntries
from batchkron.operators.diagonalised_terms import DiagonalisedTerms
from batchkron.operators.factor_by_factor import checked_time, logarithm_of
from batchkron.operators.hermitian import is_hermitian
from batchkron.operators.kept import Kept
from batchkron.operators.kronecker_terms import KroneckerTerms
from batchkron.operators.scipy_protocol import SciPyOperator
from batchkron.spec.kron import Array

__all__ = ["DirectOperator", "kind_of"]

Related = TypeVar("Related", bound="DirectOperator[Any]")

_ITERATIVE = (
    "batchkron.solvers.gmres(A, b) solves with any operator (cg(A, b) if it is Hermitian and "
    "positive definite), where M=P.inverse() of a KroneckerProduct P ≈ A is a preconditioner"
)
_DETERMINANT = (
    "batchkron.solvers.logdet_slq(A) estimates log det A of a Hermitian, positive definite "
    "operator, and numpy.linalg.slogdet(A.to_dense()) computes it for a small one"
)
# What else there is, for errors of the methods that an operator does not have.
_OTHER_WAYS = {
    "solve": _ITERATIVE,
    "factorise": _ITERATIVE,
    "inverse": f"solve(b), where the structure has it, needs no inverse; {_ITERATIVE}",
    "slogdet": _DETERMINANT,
    "logdet": _DETERMINANT,
    "expm_apply": "batchkron.solvers.expm_multiply(t * A, x) takes any operator",
    "phi_apply": "a KroneckerSum has it, and batchkron.solvers.phi_multiply(A, vectors, t) takes "
    "any operator",
    "eigh": "batchkron.eigh(A), or eigvalsh(A), takes sums of Kronecker products whose factors "
    "commute, and batchkron.solvers.eigsh(A) finds some eigenpairs of any Hermitian operator",
    "eig": "batchkron.solvers.eigs(A) finds some eigenpairs of any operator",
    "svd": "scipy.sparse.linalg.svds(A) finds some singular values of any operator",
    "cholesky": "numpy.linalg.cholesky(A.to_dense()) computes it for a small one",
    "pinv": "batchkron.solvers.lsqr(A, b) solves least squares with any operator",
    "lstsq": "batchkron.solvers.lsqr(A, b) solves least squares with any operator",
}


class DirectOperator(SciPyOperator[Related]):
    """An operator with direct methods, found by its structure.

    These are the methods of any operator that is diagonal, or a sum of Kronecker products whose
    factors are diagonalised together, or one Kronecker product or sum after its terms are
    collected. Classes that know more of themselves override them. For all others they raise
    TypeError and say what else there is.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        dtype: Any,
        batch_shape: tuple[int, ...] = (),
        chosen: Backend | None = None,
    ) -> None:
        super().__init__(shape, dtype, batch_shape, chosen)
        self._kept_structure: Kept[DiagonalisedTerms | DirectOperator[Any]] = Kept()

    @property
    def _is_diagonal(self) -> bool:
        """Whether the operator is diagonal by its construction."""
        return False

    def _multiple_of_identity(self) -> complex | None:
        """Return c if the operator is c I by its construction, else None."""
        return None

    def _direct_terms(self) -> KroneckerTerms:
        """Return the Kronecker terms for direct methods; raise as `kronecker_terms`."""
        return self.kronecker_terms()

    def _of_terms(self, terms: KroneckerTerms) -> DirectOperator[Any] | None:
        """Return terms as one operator of the kind of this one, or of a part of it; or None."""
        return None

    def _merged_with(self, other: DirectOperator[Any]) -> DirectOperator[Any] | None:
        """Return the product with another operator as one of the same kind, or None."""
        return None

    def _whole(self) -> DirectOperator[Any] | None:
        """Return the operator as (a multiple of) one Kronecker product or sum, or None."""
        try:
            return self._of_terms(self._direct_terms().collected())
        except (TypeError, ValueError):
            return None

    def factorise(self) -> Any:
        """Return the operator factorised, for many solves.

        Returns
        -------
        DiagonalisedTerms, SumFactorisation or DiagonalEntries
            It has ``solve(b)``, and works on the operator's device.

        Raises
        ------
        ValueError
            If the operator is a sum of Kronecker products, not one product or Kronecker sum, whose
            factors are not diagonalised together (see `solve`); if it is not square, or has several
            systems.
        TypeError
            If the operator has no structure by which it is factorised; the text says what else
            there is.
        """
        found = self._by_structure("factorise")
        return found.factorise() if isinstance(found, DirectOperator) else found

    def solve(self, b: ArrayLike) -> Array:
        """Solve A x = b for a diagonal operator or a sum of Kronecker products, by their factors.

        In each mode the factors, among them identities, must be Hermitian and commute, or one must
        be positive definite and take the others to matrices that do: then A is diagonalised mode by
        mode. Examples are K + σ I, M ⊗ K + K ⊗ M, and (M ⊗ K + K ⊗ M) + σ M ⊗ M. Or the terms make
        one Kronecker sum, or one product, of any square factors: S + σ I and P - P / 3 do.

        Parameters
        ----------
        b : array_like, (N,) or (N, K)
            On the operator's device. There the factorisation of the first solve is kept until a
            summand is updated.

        Returns
        -------
        ndarray, the shape of b

        Raises
        ------
        ValueError
            If b does not fit; else as for `factorise`.
        TypeError
            As for `factorise`.
        numpy.linalg.LinAlgError
            If the operator is singular to working precision.

        Examples
        --------
        >>> import numpy as np, batchkron as bk
        >>> A = bk.KroneckerProduct(np.ones((2, 2)), np.ones((3, 3))) + 0.5 * bk.Identity(6)
        >>> A.solve(A @ np.arange(1.0, 7.0)).round(12)
        array([1., 2., 3., 4., 5., 6.])
        """
        if type(b) is not self._arrays.ndarray and any_foreign(b):
            return self._in_kind(self.solve, b)  # type: ignore[no-any-return]
        return self._by_structure("solve").solve(b)  # type: ignore[no-any-return]

    def slogdet(self) -> tuple[Any, Any]:
        """Return the sign, or phase, of the determinant and the logarithm of its modulus.

        0 and -inf for an operator that is singular to working precision.

        Raises
        ------
        ValueError, TypeError
            As for `factorise`.
        """
        return self._by_structure("slogdet").slogdet()  # type: ignore[no-any-return]

    def logdet(self) -> Any:
        """Return the logarithm of the determinant.

        NaN for a real operator with a negative determinant, -inf for a singular one; an array of
        ``batch_shape`` for many systems.

        Raises
        ------
        ValueError, TypeError
            As for `factorise`.
        """
        sign, logarithm = self.slogdet()
        if np.ndim(sign) == 0:
            return logarithm_of(sign, logarithm)
        pairs = zip(np.ravel(sign), np.ravel(logarithm), strict=True)
        return np.array([logarithm_of(*one) for one in pairs]).reshape(np.shape(sign))

    def expm_apply(self, x: ArrayLike, t: complex = 1.0) -> Array:
        """Compute exp(t A) x by the factors, if they have common eigenvectors or A is one sum.

        Parameters
        ----------
        x : array_like, (N,) or (N, K)
        t : scalar

        Returns
        -------
        ndarray, the shape of x

        Raises
        ------
        ValueError
            If the factors of a mode do not commute, or x does not fit; else as for `factorise`.
        TypeError
            If t is not a number; else as for `factorise`.
        """
        if type(x) is not self._arrays.ndarray and any_foreign(x):
            return self._in_kind(self.expm_apply, x, t=t)  # type: ignore[no-any-return]
        t = checked_time(t)
        found = self._by_structure("expm_apply")
        if isinstance(found, DirectOperator):
            return found.expm_apply(x, t)
        if not found.unitary:
            raise ValueError(
                "the factors of a mode do not commute, so exp(t A) is not found by factors; "
                "pass the operator to batchkron.solvers.expm_multiply"
            )
        return found.exponential(x, t)  # type: ignore[no-any-return]

    def phi_apply(self, vectors: Sequence[Array | None], t: complex = 1.0) -> Array:
        """Compute Σ_k t^k φ_k(t A) v_k if A is one Kronecker sum; see `KroneckerSum.phi_apply`."""
        return cast(Array, self._by_whole("phi_apply")(vectors, t))

    def eigh(self, *, sort: bool = False, k: int | None = None) -> tuple[Array, Any]:
        """Return eigenvalues and eigenvectors of one Kronecker product or sum."""
        return cast("tuple[Array, Any]", self._by_whole("eigh")(sort=sort, k=k))

    def eigvalsh(self) -> Array:
        """Return the eigenvalues of a Hermitian operator in ascending order.

        Returns
        -------
        ndarray, (N,) or (*batch_shape, N)

        Raises
        ------
        ValueError, TypeError
            As for `eigh`.
        """
        return cast(Array, self._arrays.sort(self.eigh()[0], axis=-1))

    @abstractmethod
    def _in_order(self, order: Array) -> Related:
        """Return the operator with its columns in another order."""

    def eig(self) -> tuple[Array, Related]:
        """Return eigenvalues and eigenvectors as of `KroneckerProduct.eig`; raise as `eigh`."""
        return cast("tuple[Array, Related]", self._by_whole("eig")())

    def svd(self) -> tuple[Related, Array, Related]:
        """Return U, s and Vᴴ as of `KroneckerProduct.svd`; raise TypeError as `eigh`."""
        return cast("tuple[Related, Array, Related]", self._by_whole("svd")())

    def cholesky(self) -> Related:
        """Return L as of `KroneckerProduct.cholesky`; raise TypeError as `eigh`."""
        return cast(Related, self._by_whole("cholesky")())

    def pinv(self, rcond: float | None = None) -> Related:
        """Return A⁺ as of `KroneckerProduct.pinv`; raise TypeError as `eigh`."""
        return cast(Related, self._by_whole("pinv")(rcond))

    def lstsq(self, b: ArrayLike, rcond: float | None = None) -> Any:
        """Return `KroneckerProduct.lstsq` of one Kronecker product; raise TypeError as `eigh`."""
        return self._by_whole("lstsq")(b, rcond)

    def inverse(self) -> Related:
        """Return A⁻¹ as of `KroneckerProduct.inverse`; raise TypeError as `eigh`."""
        return cast(Related, self._by_whole("inverse")())

    def _by_whole(self, name: str) -> Any:
        """Return a method of the one Kronecker product or sum that the operator is."""
        self._refuse_distributed(name)
        whole = self._whole()
        if whole is None:
            self._refuse_direct(name)
        if getattr(type(whole), name) is getattr(DirectOperator, name):
            self._refuse_direct(name, f"{kind_of(whole)} has none")
        return getattr(whole, name)

    def _by_structure(self, name: str) -> Any:
        """Return what has ``solve`` and ``slogdet``: entries, diagonalised terms or an operator.

        On a device it is kept until a part of the operator is updated.
        """
        if self._is_diagonal:
            return DiagonalEntries(self.diagonal(), self._arrays)
        terms = self._known_terms(name)
        if self.device == "cpu":
            return self._diagonalised(terms, name)
        self._refuse_elsewhere()
        factors = [factor for term in terms.terms for factor in term.factors]
        coefficients = tuple((type(term.coefficient), term.coefficient) for term in terms.terms)
        return self._kept_structure.get(
            factors, lambda: self._diagonalised(terms, name), coefficients
        )

    def _diagonalised(
        self, terms: KroneckerTerms, name: str
    ) -> DiagonalisedTerms | DirectOperator[Any]:
        are_hermitian = _are_hermitian(terms)
        if not are_hermitian:  # then Schur forms of one sum drop nothing
            whole = self._of_terms(terms.collected())
            if whole is not None:
                return whole
        try:
            return DiagonalisedTerms(terms, self.dtype, self.device)
        except ValueError as error:
            collected = terms.collected()
            whole = self._of_terms(collected) if are_hermitian else None
            if whole is not None:
                return whole
            if terms.cells is None and collected.is_sum:
                raise ValueError(
                    f"{error}; but the terms are those of a Kronecker sum, and "
                    "batchkron.KroneckerSum of its factors takes any square ones"
                ) from None
            more = "" if _OTHER_WAYS[name] is _ITERATIVE else f"; {_OTHER_WAYS[name]}"
            raise ValueError(f"{error}{more}") from None

    def _known_terms(self, name: str) -> KroneckerTerms:
        """Return the Kronecker terms, or raise an error that says what to take instead."""
        if self.batch_shape:
            raise ValueError(
                f"the operator has batch_shape {self.batch_shape}, so {name} is not defined; a "
                "KroneckerSum of many systems has it, and its factorise().solve(b, shift) solves "
                "with a multiple of the identity added"
            )
        self._refuse_non_square(name)
        self._refuse_distributed(name)
        try:
            return self._direct_terms()
        except (TypeError, ValueError):
            self._refuse_direct(name)

    def _check_solvable(self, name: str) -> None:
        """Raise the errors of a direct method that need no work."""
        if not self._is_diagonal:
            self._known_terms(name)

    def _refuse_distributed(self, name: str) -> None:
        if self.communicator is not None:
            other = f"call {name} of the operator that was distributed"
            if name in ("solve", "factorise", "inverse"):
                other = f"{_ITERATIVE}, or {other}"
            raise TypeError(f"{name} is not done by factors on ranks that share vectors; {other}")

    def _refuse_direct(self, name: str, reason: str | None = None) -> NoReturn:
        raise TypeError(
            f"{name} is not found by the operator's structure: {reason or self._reason()}; "
            f"{_OTHER_WAYS[name]}"
        )

    def _reason(self) -> str:
        """Return why the structure has no direct methods, for error texts."""
        return f"{kind_of(self)} is not one Kronecker product or a sum of them"


def kind_of(operator: DirectOperator[Any]) -> str:
    """Return the name of the first public class that an operator is of."""
    names = (kind.__name__ for kind in type(operator).__mro__)
    return next(name for name in names if not name.startswith("_"))


def _are_hermitian(terms: KroneckerTerms) -> bool:
    """Whether all factors on a tensor product are Hermitian to working precision."""
    if terms.cells is not None:
        return True
    factors = {id(factor): factor for term in terms.terms for factor in term.factors}
    return all(factor is None or is_hermitian(factor) for factor in factors.values())
