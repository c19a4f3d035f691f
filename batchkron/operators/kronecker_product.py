"""The Kronecker product of matrices as a linear operator."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NoReturn, cast, overload

import numpy as np
from numpy.typing import ArrayLike

from batchkron.array_kinds import any_foreign, native_entries
from batchkron.arrays import array_module, as_list, to_host
from batchkron.backends import (
    Backend,
    BatchPlan,
    Owners,
    Product,
    backend_for,
    building_on,
    own_apply,
    own_spread,
    reserve,
    tuned_plans,
    tuning_for,
)
from batchkron.functions.kron import kron
from batchkron.operators import factor_by_factor as direct
from batchkron.operators.algebra import Identity, Operator
from batchkron.operators.diagonal import Diagonal
from batchkron.operators.direct_methods import DirectOperator
from batchkron.operators.eigenvalue_order import arranged
from batchkron.operators.kept import Kept
from batchkron.operators.kronecker_terms import KroneckerTerms, product_terms
from batchkron.operators.linear_operator import Scalar, Vectors
from batchkron.operators.placement import on_device
from batchkron.operators.pseudo_inverse import FactorValues, LeastSquares, cholesky_factors
from batchkron.operators.scaling import balanced, kernel_factors, multiplied, outer_product
from batchkron.operators.valued_operator import ValuedOperator
from batchkron.spec.batch import identity_flags, one_product_spec
from batchkron.spec.identities import Factor, is_identity, skipped_modes, with_marks_as_matrices
from batchkron.spec.kron import (
    Array,
    BatchSpec,
    Precision,
    check_precision,
    compute_dtype,
    dense_factors,
    factor_list,
    given_factors,
    same_shapes,
    structured_copies,
)


class KroneckerProduct(ValuedOperator):
    """The operator A_1 ⊗ … ⊗ A_d.

    Parameters
    ----------
    factors : sequence of array_like, each (P_k, Q_k) or (..., P_k, Q_k), or of `Identity`
        The matrices; they are copied, sparse ones of SciPy as dense ones. A_1 belongs to the
        slowest index, as in `scipy.linalg.kron`. Leading axes broadcast together to
        ``batch_shape``: one system for each index. As with `batchkron.kron`, the matrices may also
        be separate arguments: ``KroneckerProduct(A_1, A_2)``. An ``Identity(n)`` among them takes
        memory for 2 n numbers, unless others have leading axes.
    *more : array_like, each (P_k, Q_k) or (..., P_k, Q_k)
        The other matrices, if the first argument is a single matrix.
    precision : {None, "tf32x3", "tf32"}
        How float32 may be multiplied on a GPU, as in `batchkron.gekmm`; .T, .H and ``to`` keep it.
    tune : bool
        On a CUDA device, search the fastest kernels for each number of vectors when it first
        occurs, for up to two minutes, unless an earlier search has found them: the result is stored
        for all processes of the user. No effect on the CPU.

    Raises
    ------
    ValueError
        If there is no factor, a factor is not a matrix, leading axes do not broadcast, or the
        precision is unknown.
    TypeError
        If a dtype has no kernels, or ``tune`` is not a bool.

    Notes
    -----
    Factors that are exactly c I, an identity or a multiple of one, are found here and by `update`.
    They are skipped: a product takes the time of the other factors alone, and 0 · inf is not
    computed, so that an infinity or NaN in x stays in its place of these modes. Solves,
    determinants and eigenvalues skip identities, too.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> op = bk.KroneckerProduct([[[1.0, 2.0], [3.0, 4.0]], np.eye(2)])
    >>> op @ np.ones(4)
    array([3., 3., 7., 7.])
    >>> op.trace()
    np.float64(10.0)
    >>> bk.KroneckerProduct(bk.Identity(1000), [[0.0, 1.0]], bk.Identity(1000)).shape
    (1000000, 2000000)
    """

    def __init__(
        self,
        factors: Iterable[Factor] | Factor,
        *more: Factor,
        precision: Precision | None = None,
        tune: bool = False,
    ) -> None:
        self.precision = check_precision(precision)
        tuning, self._tune = tuning_for(tune), tune
        entries: list[Any] = native_entries(dense_factors(given_factors(factors, more)), "factors")
        module = array_module(*entries)
        chosen = backend_for(module)
        matrices = factor_list(entries, module=module, marks=True)
        given = [to_host(matrix, "factors") for matrix in with_marks_as_matrices(matrices)]
        dtype = compute_dtype(*given)
        self.factors = structured_copies(given, dtype)
        self._outputs = tuple(factor.shape[-2] for factor in self.factors)
        self._inputs = tuple(factor.shape[-1] for factor in self.factors)
        self._batch_plan: BatchPlan | None = None
        self._product: Product | None = None
        work, self._skipped = _work_of(self.factors)
        with tuned_plans(tuning):
            self._plan_work(chosen, work)
        shape = (math.prod(self._outputs), math.prod(self._inputs))
        batch_shape = work.batch_shape if isinstance(work, BatchSpec) else ()
        super().__init__(shape, dtype, batch_shape, chosen)
        self._merged: weakref.WeakSet[_MergedProduct] = weakref.WeakSet()
        self._kept_inverse: Kept[Operator] = Kept()
        self._kept_eigenpairs: Kept[tuple[Array, KroneckerProduct]] = Kept()

    def _recipe(self) -> tuple[Any, ...]:
        made = partial(type(self), precision=self.precision, tune=self._tune)
        return made, (self._mapped(lambda factor: factor),)

    def _mapped(self, function: Callable[[Array], Array]) -> list[Any]:
        """Return a function of each factor, and an `Identity` for each one that is the identity."""
        return [
            Identity(len(factor), self.dtype) if is_identity(factor) else function(factor)
            for factor in self.factors
        ]

    def _plan_work(self, chosen: Backend, work: list[Any] | BatchSpec) -> None:
        if isinstance(work, BatchSpec):
            self._batch_plan = chosen.batch_plan(work)
        else:
            self._hold(chosen.kron_product(work, self.precision))

    def _hold(self, product: Product) -> None:
        self._product = product
        self._apply_fast = own_apply(product)

    @property
    def _plan(self) -> Product:
        plan = self._batch_plan or self._product
        assert plan is not None
        return plan

    def _grids(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self._outputs, self._inputs

    def _reserve(self, outer: int, inner: int) -> None:
        reserve(self._plan, outer, inner)

    def _run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        self._plan.run(x, y, outer, inner, alpha, accumulate)

    def _spread(self, owners: Owners, x: Array, outer: int, inner: int, alpha: complex) -> bool:
        """Write the product to the memory of its owners, if the backend can."""
        return own_spread(self._plan)(owners, x, outer, inner, alpha)

    def update(self, factors: Sequence[Factor]) -> None:
        """Replace the factors by others of the same shapes, in place, here and in .T, .H, ….

        It must not be called while another thread applies the operator.

        Parameters
        ----------
        factors : sequence of array_like or `Identity`, each of the old factor's shape

        Raises
        ------
        ValueError
            If a shape or the number of factors differs.
        TypeError
            If the dtype cannot be converted to the operator's.
        """
        given = as_list(native_entries(dense_factors(factors), "factors"), "factors")
        matrices = with_marks_as_matrices(given, self.dtype)
        self._update(same_shapes(matrices, self.factors, self.dtype, "factors"), None)

    def _assign(self, matrices: Sequence[Array], weights: Array | None) -> None:
        factors = structured_copies(matrices, self.dtype)
        work, skipped = _work_of(factors)
        if skipped != self._skipped:  # other factors are identities than until now
            self._refuse_elsewhere()
            self._backend.repetition.note_move()
            with tuned_plans(tuning_for(self._tune)):
                self._plan_work(self._backend, work)
        elif isinstance(work, BatchSpec):
            assert self._batch_plan is not None
            self._batch_plan.set_values(work.pools, work.weights)
        else:
            self._hold(self._backend.kron_product(work, self.precision, self._product))
        self.factors, self._skipped = factors, skipped
        for product in self._merged:
            product.merge_again()

    @overload
    def dot(self, x: Operator | Scalar) -> Operator: ...
    @overload
    def dot(self, x: Vectors) -> Array: ...
    @overload
    def dot(self, x: object) -> Any: ...
    def dot(self, x: object) -> Any:
        """Compute A x for a vector or matrix, or form the operator A x for an operator or number.

        If x is a `KroneckerProduct`, too, of factors whose sizes fit, d > 1, and the products of
        the factors have no more entries than both, it is (A_1 B_1) ⊗ … ⊗ (A_d B_d). Scales that
        cancel are moved from factor to factor; products that no factors of the dtype can hold stay
        apart.

        Parameters
        ----------
        x : array_like, (N,) or (N, K); or an operator, or a number

        Returns
        -------
        ndarray or Operator
        """
        if isinstance(x, KroneckerProduct) and self._merges_with(x):
            products = multiplied(self.factors, x.factors)
            if products is not None:
                return _MergedProduct(self, x, products)
        return super().dot(x)

    def _merges_with(self, other: KroneckerProduct) -> bool:
        """Whether the product with another one is one Kronecker product of no more entries.

        One factor is a matrix like any other, and products of large ones take longer than applying
        both.
        """
        if len(self.factors) == 1:
            return False
        if self._inputs != other._outputs or self.batch_shape or other.batch_shape:
            return False
        alike = (self._place, self.precision, self._tune, self.dtype)
        if alike != (other._place, other.precision, other._tune, other.dtype):
            return False
        pairs = zip(self._outputs, other._inputs, strict=True)
        both = zip(self.factors, other.factors, pairs, strict=True)
        merged = sum(
            rows * columns
            for left, right, (rows, columns) in both
            if not (is_identity(left) and is_identity(right))
        )
        return bool(merged <= self._entries + other._entries)

    @property
    def _entries(self) -> int:
        """The number of stored entries of factors that are no identities."""
        return sum(factor.size for factor in self.factors if not is_identity(factor))

    def _merged_with(self, other: DirectOperator[Any]) -> KroneckerProduct | None:
        """Return the product with another Kronecker product of factors whose sizes fit, or None."""
        if not isinstance(other, KroneckerProduct) or self.batch_shape or other.batch_shape:
            return None
        if self._inputs != other._outputs:
            return None
        factors = multiplied(self.factors, other.factors)
        if factors is None:
            return None
        return cast(KroneckerProduct, KroneckerProduct(factors).to(self.device))

    def _of_terms(self, terms: KroneckerTerms) -> Operator | None:
        if terms.cells is not None or len(terms.terms) != 1:
            return None
        modes = terms.terms[0].modes or (0,)
        coefficient = np.array([[terms.terms[0].coefficient]])
        scale, *given = balanced([coefficient, *[terms.factor(0, mode) for mode in modes]])
        given[0] = scale[0, 0] * given[0]
        factors: list[Any] = [Identity(size, self.dtype) for size in terms.sizes]
        for mode, factor in zip(modes, given, strict=True):
            factors[mode] = factor.astype(self.dtype)
        return KroneckerProduct(factors).to(self.device)

    def _like(self, factors: Sequence[Factor]) -> KroneckerProduct:
        """Return a product of other factors with the same ``precision`` and ``tune``."""
        return KroneckerProduct(factors, precision=self.precision, tune=self._tune)

    def _build_on(self, device: str) -> KroneckerProduct:
        return self._like(self._mapped(lambda factor: factor))

    def _build_transpose(self) -> KroneckerProduct:
        return self._like(self._mapped(lambda factor: factor.swapaxes(-1, -2)))

    def _build_conjugate(self) -> KroneckerProduct:
        return self._like(self._mapped(np.ndarray.conj))

    def _build_as(self, dtype: np.dtype[Any]) -> KroneckerProduct:
        factors = self._mapped(lambda factor: factor.astype(dtype))
        return self._like(with_marks_as_matrices(factors, dtype))

    def to_dense(self) -> Array:
        """Return the matrix itself, (ΠP, ΠQ)."""
        self._refuse_batch("to_dense")
        return kron(*self._backend.place(balanced(self.factors)))

    def diagonal(self) -> Array:
        """Return the diagonal, (min(ΠP, ΠQ),)."""
        self._refuse_batch("diagonal")
        if self._outputs == self._inputs:
            entries = outer_product([factor.diagonal() for factor in self.factors])
            return self._arrays.asarray(entries)  # type: ignore[no-any-return]
        rows = columns = np.arange(min(self.shape))
        result = np.ones(len(rows), self.dtype)
        for factor in reversed(balanced(self.factors)):
            rows, i = np.divmod(rows, factor.shape[0])
            columns, j = np.divmod(columns, factor.shape[1])
            result *= factor[i, j]
        return self._arrays.asarray(result)  # type: ignore[no-any-return]

    def trace(self) -> Any:
        """Return the sum of the diagonal; from the factors' traces if they are square.

        Raises
        ------
        ValueError
            If the operator is not square.
        """
        if self._outputs == self._inputs and not self.batch_shape:
            return outer_product([factor.trace()[None] for factor in self.factors])[0]
        return super().trace()

    def solve(self, b: ArrayLike) -> Array:
        """Solve A x = b, factor by factor.

        Parameters
        ----------
        b : array_like, (N,) or (N, K)
            On the operator's device.

        Returns
        -------
        ndarray, the shape of b

        Raises
        ------
        ValueError
            If a factor is not square or b does not fit.
        numpy.linalg.LinAlgError
            If a factor is singular.

        Notes
        -----
        On the CPU by an LU factorisation of each factor. On a device by the factors' inverses,
        which are computed on the host in double precision for the first solve, and kept until
        `update`: errors of x are of the same order, but A x - b may be larger by the factors'
        condition numbers.
        """
        self._refuse_batch("solve")
        if any_foreign(b):
            return self._in_kind(self.solve, b)  # type: ignore[no-any-return]
        if self.device == "cpu":
            return direct.solve_product(self.factors, b)
        direct.square_sizes(self.factors)
        rhs = direct.right_hand_side(b, self.shape[0], self._arrays)
        self._refuse_elsewhere()
        inverse = self._kept_inverse.get(self.factors, self._precise_inverse)
        return inverse.astype(np.result_type(self.dtype, rhs.dtype.type(0).real.dtype)) @ rhs

    def _precise_inverse(self) -> Operator:
        """Return the inverse in double precision, on the operator's device."""
        wide = np.result_type(self.dtype, np.float64)
        factors = structured_copies(self.factors, wide)
        return KroneckerProduct(direct.inverses(factors)).to(self.device)

    def _check_solvable(self, name: str) -> None:
        self._refuse_batch(name)
        direct.square_sizes(self.factors)

    def factorise(self) -> NoReturn:
        """Raise TypeError: a product is solved factor by factor, and `inverse` is an operator."""
        raise TypeError(
            "a KroneckerProduct is solved by its factors without a factorisation: call solve(b), "
            "or inverse() for an operator that solves many right-hand sides"
        )

    def logdet(self) -> Any:
        """Return the logarithm of the determinant, Σ (N / n_k) log det A_k.

        NaN for a real operator with a negative determinant, -inf for a singular one. Signs are
        exact; a phase has the error of a factor's one times N / n_k.

        Raises
        ------
        ValueError
            If a factor is not square.
        """
        self._refuse_batch("logdet")
        return direct.logarithm_of(*direct.slogdet_product(self.factors))

    def slogdet(self) -> tuple[Any, Any]:
        """Return the sign, or phase, of the determinant and the logarithm of its modulus.

        0 and -inf for a singular operator, as `numpy.linalg.slogdet`.

        Raises
        ------
        ValueError
            If a factor is not square.
        """
        self._refuse_batch("slogdet")
        return direct.slogdet_product(self.factors)

    @overload
    def eigh(
        self, *, sort: Literal[False] = False, k: None = None
    ) -> tuple[Array, KroneckerProduct]: ...
    @overload
    def eigh(self, *, sort: bool = False, k: int | None = None) -> tuple[Array, Any]: ...
    def eigh(self, *, sort: bool = False, k: int | None = None) -> tuple[Array, Any]:
        """Return eigenvalues and eigenvectors of a product of Hermitian factors.

        Parameters
        ----------
        sort, k : bool and int, optional
            As for `batchkron.eigh`: values in ascending order, or |k| of them.

        Returns
        -------
        values : ndarray, (N,)
            Real, in the order of the columns of ``vectors``, not sorted.
        vectors : KroneckerProduct
            Unitary: A = V diag(values) V^H.

        Raises
        ------
        ValueError
            If a factor is not Hermitian up to rounding, see the notes of `batchkron.eigh`.
        """
        self._refuse_batch("eigh")
        return arranged(self._placed(*direct.hermitian_eigenpairs(self.factors)), sort, k)

    def _placed(
        self, values: Sequence[Array], vectors: Sequence[Array]
    ) -> tuple[Array, KroneckerProduct]:
        """Return all products of the factors' values, and of their vectors, on the device."""
        product = cast(KroneckerProduct, KroneckerProduct(vectors).to(self.device))
        return on_device(outer_product(values), self.device), product

    def inverse(self) -> KroneckerProduct:
        """Return A⁻¹ = A_1⁻¹ ⊗ … ⊗ A_d⁻¹, on the operator's device.

        Raises
        ------
        ValueError
            If a factor is not square.
        numpy.linalg.LinAlgError
            If a factor is singular.

        Examples
        --------
        >>> import numpy as np, batchkron as bk
        >>> op = bk.KroneckerProduct([np.diag([1.0, 2.0]), np.diag([4.0, 5.0])])
        >>> (op.inverse() @ (op @ np.ones(4))).round(12)
        array([1., 1., 1., 1.])
        """
        inverses = KroneckerProduct(direct.inverses(self.factors))
        return cast(KroneckerProduct, inverses.to(self.device))

    def svd(self) -> tuple[KroneckerProduct, Array, KroneckerProduct]:
        """Return U, s and Vᴴ of the singular value decomposition A = U diag(s) Vᴴ, by factors.

        Returns
        -------
        U, Vh : KroneckerProduct, (M, Π min(P_k, Q_k)) and (Π min(P_k, Q_k), N)
            U has orthonormal columns, Vh orthonormal rows.
        s : ndarray, (Π min(P_k, Q_k),)
            Singular values, in the order of the columns of U, not sorted.
        """
        self._refuse_batch("svd")
        parts = [direct.singular_values(factor) for factor in self.factors]
        values, left = self._placed([part[1] for part in parts], [part[0] for part in parts])
        right = KroneckerProduct([part[2] for part in parts]).to(self.device)
        return left, values, cast(KroneckerProduct, right)

    def cholesky(self) -> KroneckerProduct:
        """Return L = L_1 ⊗ … ⊗ L_d, lower triangular, with A = L Lᴴ, by the factors' roots.

        Returns
        -------
        KroneckerProduct
            On the operator's device, with positive diagonal entries.

        Raises
        ------
        ValueError
            If a factor is not Hermitian up to rounding, see the notes of `batchkron.eigh`.
        numpy.linalg.LinAlgError
            If A is not positive definite.

        Examples
        --------
        >>> import numpy as np, batchkron as bk
        >>> K = bk.KroneckerProduct([[4.0, 2.0], [2.0, 5.0]], [[9.0]])
        >>> K.cholesky().to_dense()
        array([[6., 0.],
               [3., 6.]])
        """
        self._refuse_batch("cholesky")
        roots = KroneckerProduct(cholesky_factors(self.factors))
        return cast(KroneckerProduct, roots.to(self.device))

    def pinv(self, rcond: float | None = None) -> Operator:
        """Return the pseudo-inverse A⁺, (N, M), by the factors' singular values.

        Parameters
        ----------
        rcond : float, optional
            Singular values of A, the products of those of the factors, count as zero if they are at
            most rcond times the largest; max(M, N) eps by default, as for a dense matrix.

        Returns
        -------
        Operator
            On the operator's device: a `KroneckerProduct` if what counts as zero is so for single
            factors already, as with full rank. Otherwise V diag(1/s) Uᴴ, with Π min(P_k, Q_k)
            numbers.

        Raises
        ------
        ValueError
            If rcond is not in [0, 1).

        Notes
        -----
        A cutoff for each factor by itself is another operator: of factors with the singular values
        (1, 1e-9) each, the product has 1e-18, which is rounding.

        Examples
        --------
        >>> import numpy as np, batchkron as bk
        >>> A = bk.KroneckerProduct([[1.0, 1.0], [1.0, 1.0]], [[2.0], [0.0]])
        >>> A.pinv().to_dense()
        array([[0.125, 0.   , 0.125, 0.   ],
               [0.125, 0.   , 0.125, 0.   ]])
        """
        self._refuse_batch("pinv")
        found = FactorValues(self.factors, rcond)
        factors = found.inverse_factors()
        if factors is not None:
            return KroneckerProduct(factors).to(self.device)
        left, right = KroneckerProduct(found.left).H, KroneckerProduct(found.right).H
        return (right @ Diagonal(found.inverse_values()) @ left).to(self.device)

    def lstsq(self, b: ArrayLike, rcond: float | None = None) -> LeastSquares:
        """Minimise ‖A x - b‖ by the factors' singular values; x is the solution of least length.

        Parameters
        ----------
        b : array_like, (M,) or (M, K)
            On the operator's device.
        rcond : float, optional
            As for `pinv`.

        Returns
        -------
        LeastSquares
            ``x``, ``residuals``, ``rank`` and ``s`` as of `numpy.linalg.lstsq`, on the operator's
            device; x is a tensor if b is one. Of rectangular factors s has fewer values, as zeros
            that follow from the shapes are not in it.

        Raises
        ------
        ValueError
            If b does not fit, or rcond is not in [0, 1).
        numpy.linalg.LinAlgError
            If a singular value is larger than any number of the dtype; those smaller count as 0.

        Examples
        --------
        >>> import numpy as np, batchkron as bk
        >>> A = bk.KroneckerProduct([[1.0], [1.0]], [[2.0, 0.0], [0.0, 1.0]])
        >>> x, residuals, rank, s = A.lstsq([2.0, 1.0, 4.0, 1.0])
        >>> x.round(12), residuals.round(12), rank
        (array([1.5, 1. ]), array([2.]), 2)
        """
        self._refuse_batch("lstsq")
        if any_foreign(b):
            found: list[LeastSquares] = []

            def solution(b: Array) -> Array:
                found.append(self.lstsq(b, rcond))
                return found[0].x

            x = self._in_kind(solution, b)
            return found[0]._replace(x=x)
        rows, columns = self.shape
        rhs = direct.right_hand_side(b, rows, self._arrays)
        parts = FactorValues(self.factors, rcond)
        left, right = (
            cast(KroneckerProduct, KroneckerProduct(one).to(self.device))
            for one in (parts.left, parts.right)
        )
        parts.check_range()
        weights = on_device(parts.inverse_values(), self.device)
        x = right.H @ self._arrays.ascontiguousarray(((left.H @ rhs).T * weights).T)
        rank = int(parts.kept.sum())
        residuals = self._arrays.empty(0, x.real.dtype)
        if rank == columns < rows:
            squares = abs(rhs - self @ x) ** 2
            residuals = squares.reshape(rows, -1).sum(axis=0)
        values = -np.sort(-outer_product(parts.values))
        return LeastSquares(x, residuals, rank, on_device(values, self.device))

    def eig(self) -> tuple[Array, KroneckerProduct]:
        """Return eigenvalues and eigenvectors, A V = V diag(values), of square factors.

        Returns
        -------
        values : ndarray, (N,)
            In the order of the columns of ``vectors``, not sorted.
        vectors : KroneckerProduct

        Raises
        ------
        ValueError
            If a factor is not square.
        """
        self._refuse_batch("eig")
        return self._placed(*direct.eigenpairs(self.factors))

    def expm_apply(self, x: ArrayLike, t: complex = 1.0) -> Array:
        """Compute exp(t A) x through the eigenvectors of the Hermitian factors.

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
            If a factor is not Hermitian, or x does not fit; for other factors pass the operator to
            `batchkron.solvers.expm_multiply`.
        TypeError
            If t is not a number.
        """
        if any_foreign(x):
            return self._in_kind(self.expm_apply, x, t=t)  # type: ignore[no-any-return]
        t = direct.checked_time(t)
        self._refuse_elsewhere()
        on_host = self.device == "cpu"
        found = self.eigh() if on_host else self._kept_eigenpairs.get(self.factors, self.eigh)
        return direct.apply_diagonalised(found[1], self._arrays.exp(t * found[0]), x)

    def kronecker_terms(self) -> KroneckerTerms:
        """Return the product as one term.

        Raises
        ------
        ValueError
            If a factor is not square, or the operator has several systems.
        """
        self._refuse_batch("kronecker_terms")
        if self._outputs != self._inputs:
            raise ValueError(f"factors of shapes {[f.shape for f in self.factors]} are not square")
        return product_terms(self.factors)

    def describe(self) -> str:
        """Return a text with the factors' shapes and the work of one product."""
        shapes = " ⊗ ".join(f"{p}×{q}" for p, q in zip(self._outputs, self._inputs, strict=True))
        entries = self._entries
        count = sum(self._skipped)
        skipped = f"\n  {count} of {len(self.factors)} factors skipped: identities" if count else ""
        precision = "" if self.precision is None else f"\n  float32 on a GPU as {self.precision}"
        return (
            f"{super().describe()}: {shapes}\n"
            f"  {entries} stored entries instead of {self.shape[0] * self.shape[1]}"
            f"{skipped}{precision}"
        )


def _work_of(factors: Sequence[Array]) -> tuple[list[Any] | BatchSpec, tuple[bool, ...]]:
    """Return what a backend plans for factors, and which of these are skipped.

    It plans a product or, of many systems, a list. Skipped are identities and multiples of one.
    """
    if all(factor.ndim == 2 for factor in factors):
        kept = kernel_factors(factors)
        return kept, skipped_modes(kept)
    spec = one_product_spec(factors, 1)
    flags = tuple(identity_flags(pool) for pool in spec.pools)
    return replace(spec, identity=flags), tuple(bool(flag[0]) for flag in flags)


class _MergedProduct(KroneckerProduct):
    """The product A B of two Kronecker products, which follows updates of A and B."""

    def __init__(
        self, left: KroneckerProduct, right: KroneckerProduct, products: Sequence[Array]
    ) -> None:
        self._links = left, right
        with building_on(left._backend):
            super().__init__(products, precision=left.precision, tune=left._tune)
        self._place = left._place
        self.args = (left, right)
        for link in self._links:
            link._merged.add(self)

    def _recipe(self) -> tuple[Any, ...]:
        made = partial(KroneckerProduct, precision=self.precision, tune=self._tune)
        return made, (self._mapped(lambda factor: factor),)

    def merge_again(self) -> None:
        """Take the factors that A and B have now; NaN if no factors hold their product."""
        found = multiplied(*[link.factors for link in self._links])
        if found is None:
            found = [np.full_like(factor, np.nan) for factor in self.factors]
        self._update(found, None)
