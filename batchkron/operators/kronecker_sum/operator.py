"""The Kronecker sum of square matrices as a linear operator."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, cast, overload

import numpy as np
from numpy.typing import ArrayLike

from batchkron.array_kinds import any_foreign, common_kind, in_kind, native_entries
from batchkron.arrays import array_module, as_array, to_host
from batchkron.backends import SumPlan, backend_for, own_apply, reserve
from batchkron.operators import factor_by_factor as direct
from batchkron.operators.algebra import Operator
from batchkron.operators.eigenvalue_order import arranged
from batchkron.operators.kept import Kept
from batchkron.operators.kronecker_product import KroneckerProduct
from batchkron.operators.kronecker_sum.factorisation import (
    BatchedSumFactorisation,
    SumFactorisation,
)
from batchkron.operators.kronecker_sum.phi_functions import PhiFunctions
from batchkron.operators.kronecker_sum.scaled_exponential import SumExponential, scaled_exponential
from batchkron.operators.kronecker_terms import KroneckerTerms, sum_terms
from batchkron.operators.placement import on_device
from batchkron.operators.valued_operator import ValuedOperator
from batchkron.spec.batch import batch_shape_of
from batchkron.spec.kron import (
    Array,
    compute_dtype,
    dense_factors,
    factor_list,
    given_factors,
    read_only_copies,
    same_shapes,
)


class KroneckerSum(ValuedOperator):
    """The operator A_1 ⊕ … ⊕ A_d = Σ_k I ⊗ … ⊗ A_k ⊗ … ⊗ I.

    Parameters
    ----------
    factors : sequence of array_like, each (n_k, n_k) or (..., n_k, n_k)
        The square matrices; they are copied, sparse ones of SciPy as dense ones. A_1 belongs to the
        slowest index. Leading axes broadcast together to ``batch_shape``: one system for each
        index. The matrices may also be separate arguments: ``KroneckerSum(A_1, A_2)``.
    *more : array_like, each (n_k, n_k) or (..., n_k, n_k)
        The other matrices, if the first argument is a single matrix.

    Raises
    ------
    ValueError
        If there is no factor, a factor is not square, or leading axes do not broadcast.
    TypeError
        If a dtype has no kernels.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> second = np.array([[-2.0, 1.0], [1.0, -2.0]])
    >>> laplacian = bk.KroneckerSum([second, second])
    >>> laplacian @ np.ones(4)
    array([-2., -2., -2., -2.])

    Two systems, with two first factors and the same second one:

    >>> both = bk.KroneckerSum([np.stack([second, 3 * second]), second])
    >>> both.apply(np.ones((2, 4)))
    array([[-2., -2., -2., -2.],
           [-4., -4., -4., -4.]])
    """

    def __init__(self, factors: Iterable[ArrayLike] | ArrayLike, *more: ArrayLike) -> None:
        matrices: list[Any] = native_entries(dense_factors(given_factors(factors, more)), "factors")
        module = array_module(*matrices)
        chosen = backend_for(module)
        given = factor_list([to_host(f, "factors") for f in factor_list(matrices, module=module)])
        for k, factor in enumerate(given):
            if factor.shape[-2] != factor.shape[-1]:
                raise ValueError(f"factors[{k}] has shape {factor.shape}; expected a square matrix")
        dtype = compute_dtype(*given)
        self.factors = read_only_copies(given, dtype)
        self._sizes = tuple(factor.shape[-1] for factor in self.factors)
        batch_shape = batch_shape_of(self.factors)
        self._plan = chosen.sum_plan(self.factors)
        self._apply_fast = own_apply(self._plan)
        size = math.prod(self._sizes)
        super().__init__((size, size), dtype, batch_shape, chosen)
        self._kept: Kept[SumFactorisation | BatchedSumFactorisation] = Kept()
        self._exponential: Kept[SumExponential] = Kept()

    def _recipe(self) -> tuple[Any, ...]:
        return type(self), (self.factors,)

    @property
    def system_plan(self) -> SumPlan | None:
        """How many systems are multiplied at once; None for one system."""
        return self._plan if self.batch_shape else None

    def _grids(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self._sizes, self._sizes

    def _reserve(self, outer: int, inner: int) -> None:
        reserve(self._plan, outer, inner)

    def _run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        self._plan.run(x, y, outer, inner, alpha, accumulate)

    def update(self, factors: Sequence[ArrayLike]) -> None:
        """Replace the factors by others of the same shapes; see `KroneckerProduct.update`."""
        given = native_entries(dense_factors(factors), "factors")
        self._update(same_shapes(given, self.factors, self.dtype, "factors"), None)

    def _assign(self, matrices: Sequence[Array], weights: Array | None) -> None:
        self.factors = read_only_copies(matrices, self.dtype)
        self._plan.set_factors(self.factors)
        self._apply_fast = own_apply(self._plan)

    def _build_on(self, device: str) -> KroneckerSum:
        return KroneckerSum(self.factors)

    def _build_transpose(self) -> KroneckerSum:
        return KroneckerSum([factor.swapaxes(-1, -2) for factor in self.factors])

    def _build_conjugate(self) -> KroneckerSum:
        return KroneckerSum([factor.conj() for factor in self.factors])

    def _build_as(self, dtype: np.dtype[Any]) -> KroneckerSum:
        return KroneckerSum([factor.astype(dtype) for factor in self.factors])

    def _of_terms(self, terms: KroneckerTerms) -> Operator | None:
        if terms.cells is not None or not terms.is_sum:
            return None
        factors = [factor.astype(self.dtype) for factor in terms.sum_factors()]
        return KroneckerSum(factors).to(self.device)

    def diagonal(self) -> Array:
        """Return the diagonal, (*batch_shape, N)."""
        entries = direct.outer_sum([f.diagonal(axis1=-2, axis2=-1) for f in self.factors])
        return self._arrays.asarray(entries)  # type: ignore[no-any-return]

    def trace(self) -> Any:
        """Return the sum of the diagonal, Σ_k (N / n_k) tr A_k; (*batch_shape) for many systems."""
        return self._arrays.asarray(direct.trace_of_sum(self.factors))[()]

    def _check_solvable(self, name: str) -> None:
        """Accept: a sum is solved, for many systems, too."""

    def solve(self, b: ArrayLike) -> Array:
        """Solve A x = b by diagonalising the factors, or their Schur forms if not Hermitian.

        Parameters
        ----------
        b : array_like, (N,) or (N, K); (..., *batch_shape, N) for many systems
            On the operator's device. There the factorisation of the first solve is kept until
            `update`.

        Returns
        -------
        ndarray, the shape of b

        Raises
        ------
        ValueError
            If b does not fit.
        numpy.linalg.LinAlgError
            If the operator, or one of its systems, is singular.

        Notes
        -----
        Fast diagonalisation: Lynch, Rice and Thomas, Numer. Math. 6 (1964); with Schur forms the
        method of Bartels and Stewart (1972) for any number of factors.
        """
        if any_foreign(b):
            return self._in_kind(self.solve, b)  # type: ignore[no-any-return]
        self._refuse_elsewhere()
        on_host = self.device == "cpu"
        found = self.factorise() if on_host else self._kept.get(self.factors, self.factorise)
        return found.solve(b)

    def factorise(self) -> SumFactorisation | BatchedSumFactorisation:
        """Return the operator factorised, for many solves and shifts.

        Returns
        -------
        SumFactorisation, or BatchedSumFactorisation of many systems
            It has ``solve(b, shift)`` and ``solve_shifted(b, shifts)``, and works on the operator's
            device.
        """
        made = BatchedSumFactorisation if self.batch_shape else SumFactorisation
        return made(self.factors, self.device)

    def eig(self) -> tuple[Array, KroneckerProduct]:
        """Return eigenvalues and eigenvectors, A V = V diag(values), of diagonalisable factors.

        Returns
        -------
        values : ndarray, (*batch_shape, N)
            In the order of the columns of ``vectors``, not sorted.
        vectors : KroneckerProduct
            Its condition number is the product of the factors' ones; for factors that are far from
            normal use `factorise`.
        """
        return self._placed(*direct.eigenpairs(self.factors))

    def _placed(
        self, values: Sequence[Array], vectors: Sequence[Array]
    ) -> tuple[Array, KroneckerProduct]:
        """Return all sums of the factors' values, and their vectors' product, on the device."""
        product = cast(KroneckerProduct, KroneckerProduct(vectors).to(self.device))
        return on_device(direct.outer_sum(values), self.device), product

    def phi_apply(self, vectors: Sequence[Array | None], t: complex = 1.0) -> Array:
        """Compute Σ_k t^k φ_k(t A) v_k: the state at t of w' = A w + v_1 + t v_2 + …, w(0) = v_0.

        Parameters
        ----------
        vectors : sequence of ndarray, (N,), or None
            v_0, v_1, … on the operator's device; None stands for zero.
        t : scalar

        Returns
        -------
        ndarray, (N,)
            Of the common dtype of operator and vectors, complex if t is.

        Raises
        ------
        ValueError
            If there is no vector, or the operator has a ``batch_shape``.
        TypeError
            If t is not a number.

        Notes
        -----
        As for `expm_apply`, factors may have shifts that cancel in their sum.
        `PhiFunctions` (kronecker_sum/phi_functions.py) is faster for many vectors and the same t.

        Examples
        --------
        >>> import numpy as np, batchkron as bk
        >>> decay = bk.KroneckerSum([np.diag([-1.0, -2.0])])
        >>> decay.phi_apply([np.zeros(2), np.ones(2)], 1.0).round(6)  # (1 - exp(-λ)) / λ
        array([0.632121, 0.432332])
        """
        self._refuse_batch("phi_apply")
        if any_foreign(vectors):
            kind = common_kind(vectors=vectors)
            return in_kind(self.phi_apply, kind, vectors, t=t)  # type: ignore[no-any-return]
        return PhiFunctions(self, t).apply(vectors)

    def logdet(self) -> Any:
        """Return the logarithm of the determinant, the sum of the eigenvalues' logarithms.

        NaN for a real operator with a negative determinant, -inf for a singular one; an array
        of ``batch_shape`` for many systems. All N eigenvalues are formed, and two more arrays.

        Raises
        ------
        MemoryError
            Before that, if the memory cannot hold them.
        """
        return direct.logdet_sum(self.factors)

    def slogdet(self) -> tuple[Any, Any]:
        """Return the sign, or phase, of the determinant and the logarithm of its modulus.

        0 and -inf for a singular operator, as `numpy.linalg.slogdet`; arrays of ``batch_shape`` for
        many systems. Memory and errors are those of `logdet`.
        """
        return direct.slogdet_sum(self.factors)

    @overload
    def eigh(
        self, *, sort: Literal[False] = False, k: None = None
    ) -> tuple[Array, KroneckerProduct]: ...
    @overload
    def eigh(self, *, sort: bool = False, k: int | None = None) -> tuple[Array, Any]: ...
    def eigh(self, *, sort: bool = False, k: int | None = None) -> tuple[Array, Any]:
        """Return eigenvalues and eigenvectors of a sum of Hermitian factors.

        Parameters
        ----------
        sort, k : bool and int, optional
            As for `batchkron.eigh`: values in ascending order, or |k| of them.

        Returns
        -------
        values : ndarray, (*batch_shape, N)
            Real, in the order of the columns of ``vectors``, not sorted.
        vectors : KroneckerProduct
            Unitary: A = V diag(values) V^H.

        Raises
        ------
        ValueError
            If a factor is not Hermitian up to rounding, see the notes of `batchkron.eigh`.
        """
        return arranged(self._placed(*direct.hermitian_eigenpairs(self.factors)), sort, k)

    def expm_apply(self, x: ArrayLike, t: complex = 1.0) -> Array:
        """Compute exp(t A) x by the Kronecker product of the factors' exponentials.

        Parameters
        ----------
        x : array_like, (N,) or (N, K); (..., *batch_shape, N) for many systems
        t : scalar

        Returns
        -------
        ndarray, the shape of x

        Raises
        ------
        ValueError
            If x does not fit.
        TypeError
            If t is not a number.

        Notes
        -----
        Factors may have shifts that cancel in their sum, however large: the sizes of their
        exponentials are taken out as powers of two, and these are added up before they are
        multiplied. A number beyond the range of the dtype is infinite, with NumPy's warning of an
        overflow, and one below is 0; beside infinity, numbers too small to be found are NaN.
        """
        if any_foreign(x):
            return self._in_kind(self.expm_apply, x, t=t)  # type: ignore[no-any-return]
        t = direct.checked_time(t)

        def compute() -> SumExponential:
            dtype = (
                np.result_type(self.dtype, np.complex64) if isinstance(t, complex) else self.dtype
            )
            scaled = [scaled_exponential(factor, t) for factor in self.factors]
            return SumExponential(scaled, dtype, self.device)

        self._refuse_elsewhere()
        if self.device == "cpu":
            exponential = compute()
        else:  # 1.0 and 1 + 0j are equal, but not their results
            exponential = self._exponential.get(self.factors, compute, (type(t), t))
        return exponential.apply(as_array(x, "x", self._arrays))

    def kronecker_terms(self) -> KroneckerTerms:
        """Return the terms, one per factor."""
        self._refuse_batch("kronecker_terms")
        return sum_terms(self.factors)

    def describe(self) -> str:
        """Return a text with the factors' sizes."""
        return f"{super().describe()}: " + " ⊕ ".join(f"{n}×{n}" for n in self._sizes)
