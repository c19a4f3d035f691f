"""Operators; their sums, multiples, compositions and inverses, evaluated lazily."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, cast, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from scipy.sparse import issparse
from scipy.sparse.linalg import aslinearoperator

from batchkron.array_kinds import any_foreign
from batchkron.arrays import as_array, is_scalar, is_sparse, refuse_masked, to_host
from batchkron.backends import Backend, building_on
from batchkron.operators.diagonal_blocks import DiagonalBlocks
from batchkron.operators.direct_combinations import CompositionMethods, MultipleMethods, SumMethods
from batchkron.operators.direct_methods import DirectOperator
from batchkron.operators.eigenvalue_order import arranged
from batchkron.operators.kronecker_terms import KroneckerTerm, KroneckerTerms
from batchkron.operators.layouts import layouts_of_composition, layouts_of_sum
from batchkron.operators.linear_operator import Scalar, Vectors
from batchkron.spec.identities import IdentityFactor
from batchkron.spec.kron import Array, as_scalar, check_dtype, is_finite, scaled_dtype, times

# Alignment of each of two buffers, in bytes: kernels copy whole 16-byte words and cache lines.
_ALIGNMENT = 256


class Operator(DirectOperator["Operator"]):
    """A linear operator y = A x on flat vectors.

    It is a `scipy.sparse.linalg.LinearOperator`, so that SciPy's functions accept it. Every product
    is computed by batchkron; with ``out=`` the result is written to the caller's memory. Sums,
    products and multiples of operators are operators again. A copied or unpickled operator has
    values of its own: they are not shared with a copy of its transpose.

    Attributes
    ----------
    shape : tuple of int, (M, N)
    dtype : numpy.dtype
        Dtype of the matrix entries. A product is computed in `numpy.result_type` of it and the
        vector's dtype; for vectors of higher precision the operator keeps a second, converted copy.
    batch_shape : tuple of int
        () for one system. Otherwise the operator consists of many independent systems of the same
        structure, and `apply` takes vectors with these axes before the last ones. It is no part of
        ``shape``, also with SciPy 1.18 and later, whose own operators can have such axes there: its
        functions take one system, and refuse others in words.
    """

    @overload
    def __add__(self, other: Operator) -> SumOperator: ...
    @overload
    def __add__(self, other: object) -> Any: ...
    def __add__(self, other: object) -> Any:
        if isinstance(other, Operator):
            return SumOperator([self, other])
        return self if _is_zero(other) else super().__add__(self._summand(other))

    def __radd__(self, other: object) -> Any:
        return self.__add__(other)

    @overload
    def __sub__(self, other: Operator) -> SumOperator: ...
    @overload
    def __sub__(self, other: object) -> Any: ...
    def __sub__(self, other: object) -> Any:
        if isinstance(other, Operator):
            return self + (-other)
        if _is_zero(other):
            return self
        summand = self._summand(other)
        return super().__sub__(summand) if hasattr(summand, "__neg__") else NotImplemented

    def __rsub__(self, other: object) -> Any:
        return self._scaled(-1).__add__(other)

    def _summand(self, other: object) -> Any:
        """Return a summand that is no operator of ours as SciPy's class takes it.

        A sparse array becomes an operator of SciPy.

        Raises `TypeError` if it is a number, an array, or a sparse array and the operator is on a
        device.
        """
        if is_sparse(other):
            if self.device == "cpu" and issparse(other):
                return aslinearoperator(other)
            raise TypeError(
                f"a {type(other).__name__} and an operator on the device {self.device!r} do not "
                "add; SciPy's sparse arrays and operators on the CPU do"
            )
        if is_scalar(other) and not isinstance(other, str):
            raise TypeError(
                f"an operator and the number {other} do not add; a multiple of the identity is "
                f"{other} * batchkron.Identity({self.shape[0]})"
            )
        if isinstance(other, self._arrays.ndarray):
            raise TypeError(
                f"an operator and an array of shape {np.shape(cast(ArrayLike, other))} do not add; "
                "scipy.sparse.linalg.aslinearoperator makes an operator of a matrix, and "
                "A.to_dense() is the operator's matrix"
            )
        return other

    def __neg__(self) -> Operator:
        return self._scaled(-1)

    @overload
    def __rmul__(self, other: Scalar) -> Operator: ...
    @overload
    def __rmul__(self, other: Vectors) -> Array: ...
    @overload
    def __rmul__(self, other: object) -> Any: ...
    def __rmul__(self, other: object) -> Any:
        if is_scalar(other):
            return self._scaled(other)
        refuse_masked(other, "x")
        rows = self.shape[0]
        self._refuse_stack(other, f"({rows},) or (K, {rows})", "T.apply")
        is_native = type(other) is self._arrays.ndarray
        if not is_native and any_foreign(other):
            return self._in_kind(self.__rmul__, other)
        if self.device == "cpu" and (is_native or not hasattr(other, "__cuda_array_interface__")):
            return super().__rmul__(other)
        array = as_array(cast(Array, other), "x", self._arrays)
        return self.T.matvec(array) if array.ndim == 1 else self.T.matmat(array.T).T

    def __truediv__(self, other: object) -> Operator:
        if not is_scalar(other):
            raise ValueError(
                f"Can only divide a linear operator by a scalar, not by a {type(other).__name__}"
            )
        return self._scaled(1 / as_scalar(other, "the divisor"))

    def __pow__(self, exponent: int | np.integer[Any]) -> Operator:
        if not is_scalar(exponent) or isinstance(exponent, str):
            return NotImplemented
        given = exponent.item() if hasattr(exponent, "item") else exponent
        if isinstance(given, int) and given >= 0:
            return PowerOperator(self, given)
        raise TypeError(
            f"the exponent is {exponent}; expected an integer of at least 0. A.solve(b) applies "
            "the inverse where the structure has it"
        )

    @overload
    def dot(self, x: Operator | Scalar) -> Operator: ...
    @overload
    def dot(self, x: Vectors) -> Array: ...
    @overload
    def dot(self, x: object) -> Any: ...
    def dot(self, x: object) -> Any:
        """Compute A x for a vector or matrix, or form the operator A x for an operator or number.

        Parameters
        ----------
        x : array_like, (N,) or (N, K); or an operator, or a number
            For Kronecker products and sums, and what is made of them, also one tensor
            (n_1, …, n_d) with an axis for each factor; the result is one, too. A matrix with N rows
            is always one of columns. Stacks of tensors are for `apply`, as vectors (..., N).

        Returns
        -------
        ndarray or Operator
        """
        if type(x) is self._arrays.ndarray and x.ndim == 1:  # type: ignore[attr-defined]
            return self.matvec(x)  # type: ignore[arg-type]
        if isinstance(x, Operator):
            return ComposedOperator(self, x)
        if is_scalar(x):
            return self._scaled(x)
        refuse_masked(x, "x")
        columns, grids = self.shape[1], self._grids()
        on_grid = grids is not None and _is_on_grid(x, columns, grids[1])
        if not on_grid:
            self._refuse_stack(x, f"({columns},) or ({columns}, K)", "apply")
        is_native = type(x) is self._arrays.ndarray
        if not is_native and any_foreign(x):
            return self._in_kind(self.dot, x)
        if grids is not None and on_grid:
            tensor = as_array(cast(Array, x), "x", self._arrays)
            return self.matvec(tensor.reshape(columns)).reshape(grids[0])
        if self.device == "cpu" and (is_native or not hasattr(x, "__cuda_array_interface__")):
            return super().dot(x)
        array = as_array(cast(Array, x), "x", self._arrays)
        return self.matvec(array) if array.ndim == 1 else self.matmat(array)

    def _scaled(self, scalar: Any) -> Operator:
        return ScaledOperator(scalar, self)

    def eigh(self, *, sort: bool = False, k: int | None = None) -> tuple[Array, Any]:
        """Return eigenvalues (N,) and a unitary operator of eigenvectors of a Hermitian operator.

        For a diagonal operator, and one Kronecker product or sum; `batchkron.eigh` takes other sums
        and pencils, and describes ``sort`` and ``k``.

        Raises
        ------
        ValueError
            If a factor is not Hermitian, or an entry of the diagonal not real.
        TypeError
            If the operator is of another kind.
        """
        if not self._is_diagonal:
            return super().eigh(sort=sort, k=k)
        self._refuse_batch("eigh")
        entries = to_host(self.diagonal(), "the diagonal")
        rounding = 8 * np.finfo(self.dtype).eps * np.abs(entries).max(initial=0.0)
        if (np.abs(entries.imag) > rounding).any():
            raise ValueError("the diagonal is complex; expected a Hermitian operator")
        (values,) = self._backend.place([np.ascontiguousarray(entries.real)])
        with building_on(self._backend):
            vectors = Identity(self.shape[0], self.dtype)
        return arranged((values, vectors), sort, k)

    def _in_order(self, order: Array) -> Operator:
        """Return the operator with its columns in another order."""
        with building_on(self._backend):
            return ComposedOperator(self, Reordering(order, self.dtype))

    def inverse(self) -> Operator:
        """Return A⁻¹ as an operator, for A that `solve` takes.

        Of one Kronecker product, a diagonal or the identity it is an operator of the same kind. Of
        a Kronecker sum, and a sum that is diagonalised by its factors, it is an operator whose
        products are solves; it belongs to the values that A has now.

        Raises
        ------
        ValueError, TypeError, numpy.linalg.LinAlgError
            As for `factorise`, and for several systems.

        Examples
        --------
        >>> import numpy as np, batchkron as bk
        >>> S = bk.KroneckerSum([np.diag([1.0, 2.0]), np.diag([3.0, 4.0])])
        >>> (S.inverse() @ (S @ np.ones(4))).round(12)
        array([1., 1., 1., 1.])
        """
        self._refuse_batch("inverse")
        self._refuse_distributed("inverse")
        whole = None if self._is_diagonal else self._whole()
        if whole is not None and type(whole).inverse is not Operator.inverse:
            return cast(Operator, whole.inverse())
        return InverseOperator(self)


class Identity(Operator, IdentityFactor):
    """The identity on vectors of N elements, also as a factor of a Kronecker product.

    As a factor of `KroneckerProduct`, `gekmm`, `gemkm`, `kron`, and of ``kron_matmul`` and
    ``gekmm`` of `batchkron.torch` and `batchkron.jax`, it says that this mode is not multiplied: it
    costs no time, and memory for 2 N numbers. There its dtype does not count.

    Parameters
    ----------
    size : int
        The number of elements N.
    dtype : float32, float64, complex64 or complex128, optional
        float64 by default.

    Raises
    ------
    TypeError
        If the size is not an integer, or for any other dtype.
    ValueError
        If the size is negative.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> op = bk.Identity(2) + bk.KroneckerProduct([np.ones((2, 2))])
    >>> op @ [1.0, 2.0]
    array([4., 5.])
    >>> bk.gekmm([bk.Identity(2), [[1.0, 2.0]]], [1.0, 2.0, 3.0, 4.0])
    array([ 5., 11.])
    """

    def __init__(self, size: int, dtype: DTypeLike = np.float64) -> None:
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
            raise TypeError(f"size is {size!r}; expected an integer")
        if size < 0:
            raise ValueError(f"size is {size}; expected 0 or more")
        super().__init__((int(size), int(size)), check_dtype(dtype))
        self._workspace = self._backend.workspace()

    def _recipe(self) -> tuple[Any, ...]:
        return Identity, (self.shape[0], self.dtype)

    def _run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        source, target = x.reshape(-1), y.reshape(-1)
        if not accumulate:
            self._arrays.multiply(source, alpha, out=target)
        elif alpha == 1:
            target += source
        else:
            scaled = self._workspace.array(source.size, self.dtype)
            self._arrays.multiply(source, alpha, out=scaled)
            target += scaled

    def _reserve(self, outer: int, inner: int) -> None:
        self._workspace.array(self.shape[0] * outer * inner, self.dtype)

    def _build_transpose(self) -> Identity:
        return self

    def _build_conjugate(self) -> Identity:
        return self

    def _build_as(self, dtype: np.dtype[Any]) -> Identity:
        return Identity(self.shape[0], dtype)

    def _build_on(self, device: str) -> Identity:
        return Identity(self.shape[0], self.dtype)

    @property
    def _is_diagonal(self) -> bool:
        return True

    def _multiple_of_identity(self) -> complex:
        return 1.0

    def kronecker_terms(self) -> KroneckerTerms:
        """Return the identity as one term of one mode."""
        return KroneckerTerms((self.shape[0],), (KroneckerTerm(1.0, (None,)),))

    def inverse(self) -> Identity:
        """Return the identity itself."""
        return self

    def trace(self) -> Any:
        """Return the sum of the diagonal, N."""
        return self.dtype.type(self.shape[0])

    def diagonal(self) -> Array:
        """Return the diagonal, (N,), all ones."""
        return self._arrays.ones(self.shape[0], self.dtype)  # type: ignore[no-any-return]


class _OfOperators(Operator):
    """What is made of other operators: its relatives are made of their relatives."""

    @abstractmethod
    def _with(self, change: Callable[[Operator], Operator]) -> Operator:
        """Return what is made in the same way of the changed operators."""

    def _build_transpose(self) -> Operator:
        return self._with(lambda one: one.T)

    def _build_conjugate(self) -> Operator:
        return self._with(lambda one: one._relative("conjugate"))

    def _build_as(self, dtype: np.dtype[Any]) -> Operator:
        return self._with(lambda one: one.astype(dtype))

    def _build_on(self, device: str) -> Operator:
        return self._with(lambda one: one.to(device))


class ScaledOperator(MultipleMethods["Operator"], _OfOperators):
    """The operator c A; usually written as ``c * A``."""

    def __init__(self, scalar: complex, operator: Operator) -> None:
        scalar = as_scalar(scalar, "the factor of an operator")
        dtype = scaled_dtype(operator.dtype, scalar, 0)
        if isinstance(operator, ScaledOperator):
            operator, inner = operator.args
            scalar = scalar * inner
        self.args = (operator, scalar)
        self.scalar: complex = scalar
        self.operator = operator.astype(dtype)
        super().__init__(operator.shape, dtype, operator.batch_shape, operator._backend)
        self._place = operator._place

    def _recipe(self) -> tuple[Any, ...]:
        return ScaledOperator, (self.scalar, self.operator)

    def _run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        scale = self.scalar if alpha == 1 else alpha * self.scalar
        if is_finite(scale, self.dtype):
            self.operator._run(x, y, outer, inner, scale, accumulate)
            return
        product = self._backend.empty(y.shape, self.dtype) if accumulate else y
        self.operator._run(x, product, outer, inner, 1, False)
        y[...] = y + times(scale, product) if accumulate else times(scale, product)

    def _layouts(self) -> tuple[Any, Any]:
        return self.operator._layouts()

    def _grids(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        return self.operator._grids()

    def _reserve(self, outer: int, inner: int) -> None:
        self.operator._reserve(outer, inner)

    def _with(self, change: Callable[[Operator], Operator]) -> Operator:
        return ScaledOperator(self.scalar, change(self.operator))

    def _build_conjugate(self) -> Operator:
        return ScaledOperator(np.conj(self.scalar), self.operator._relative("conjugate"))

    def kronecker_terms(self) -> KroneckerTerms:
        """Return the terms of c A."""
        return self.operator.kronecker_terms().scaled(self.scalar)

    def recover_terms(self) -> KroneckerTerms:
        """Return the terms of c A, which are found if A is a batch list."""
        return self.operator.recover_terms().scaled(self.scalar)

    def diagonal_blocks(self) -> DiagonalBlocks:
        """Return the diagonal blocks of c A."""
        return self.operator.diagonal_blocks().scaled(self.scalar)

    def diagonal(self) -> Array:
        """Return the diagonal, (min(M, N),)."""
        return (self.scalar * self.operator.diagonal()).astype(self.dtype, copy=False)

    def trace(self) -> Any:
        """Return the sum of the diagonal, c tr A."""
        return self.scalar * self.operator.trace()


class SumOperator(SumMethods["Operator"], _OfOperators):
    """The operator A_1 + … + A_m; usually written as ``A + B``."""

    def __init__(self, terms: Sequence[Operator]) -> None:
        first = terms[0]
        for term in terms[1:]:
            if term.shape != first.shape:
                raise ValueError(f"operators of shapes {first.shape} and {term.shape} do not add")
        self._ends = layouts_of_sum(terms)
        dtype = np.result_type(*[term.dtype for term in terms])
        flat: list[Operator] = []
        for term in terms:
            flat.extend(term.terms if isinstance(term, SumOperator) else [term])
        self.terms: tuple[Operator, ...] = tuple(term.astype(dtype) for term in flat)
        self.args = tuple(terms)
        super().__init__(first.shape, dtype, common_batch_shape(terms), common_backend(terms))
        self._place = first._place

    def _recipe(self) -> tuple[Any, ...]:
        return SumOperator, (self.terms,)

    def _run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        if self.device != "cpu":
            self._reserve(outer, inner)
        for term in self.terms:
            term._run(x, y, outer, inner, alpha, accumulate)
            accumulate = True

    def _layouts(self) -> tuple[Any, Any]:
        return self._ends

    def _grids(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        known = {term._grids() for term in self.terms} - {None}
        return known.pop() if len(known) == 1 else None

    def _reserve(self, outer: int, inner: int) -> None:
        for term in self.terms:
            term._reserve(outer, inner)

    def _with(self, change: Callable[[Operator], Operator]) -> Operator:
        return SumOperator(list(map(change, self.terms)))

    def kronecker_terms(self) -> KroneckerTerms:
        """Return the terms of all summands; multiples of `Identity` become one on their product."""
        return self._added_terms("kronecker_terms")  # type: ignore[no-any-return]

    def recover_terms(self) -> KroneckerTerms:
        """Return the terms of all summands, which are found for batch lists."""
        return self._added_terms("recover_terms")  # type: ignore[no-any-return]

    def diagonal_blocks(self) -> DiagonalBlocks:
        """Return the sums of the diagonal blocks of all summands.

        Diagonal matrices are added to the blocks of the others, whatever these are.

        Raises `TypeError` if a summand has no such blocks, or each rank has a part of a diagonal
        matrix.
        """
        diagonals = [
            term
            for term in self.terms
            if term._is_diagonal and term._multiple_of_identity() is None and not term.batch_shape
        ]
        others = [term for term in self.terms if term not in diagonals]
        if not diagonals or all(term._is_diagonal for term in others):
            return self._added_terms("diagonal_blocks")  # type: ignore[no-any-return]
        if self.communicator is not None and self.communicator.size > 1:
            raise TypeError(
                "each rank has its part of the diagonal, and diagonal blocks are those of the "
                "whole operator. Build the preconditioner of the whole list and diagonal, and deal "
                "it out: batchkron.distributed.distribute(M, communicator, like=distributed_list)"
            )
        rest = SumOperator(others) if len(others) > 1 else others[0]
        entries = [to_host(term.diagonal(), "diagonal") for term in diagonals]
        return rest.diagonal_blocks().plus_diagonal(sum(entries[1:], entries[0]))

    def diagonal(self) -> Array:
        """Return the diagonal, (min(M, N),)."""
        return sum(term.diagonal() for term in self.terms)  # type: ignore[return-value]

    def trace(self) -> Any:
        """Return the sum of the diagonal, Σ tr A_k."""
        return sum(term.trace() for term in self.terms)


class ComposedOperator(CompositionMethods["Operator"], _OfOperators):
    """The operator A B; usually written as ``A @ B``.

    A chain of compositions is evaluated from right to left with two buffers in turn. Each thread,
    and on a device each stream, has its own buffers.
    """

    def __init__(self, left: Operator, right: Operator) -> None:
        if left.shape[1] != right.shape[0]:
            raise ValueError(
                f"operators of shapes {left.shape} and {right.shape} do not compose: the left one "
                f"has {left.shape[1]} columns, the right one {right.shape[0]} rows"
            )
        self._prepare([*links_of(left), *links_of(right)], (left, right))

    def _prepare(self, links: Sequence[Operator], args: tuple[Any, ...]) -> None:
        """Set up the composition of ``links``, whose shapes fit."""
        self._ends = layouts_of_composition(links)
        dtype = np.result_type(*{link.dtype for link in links})
        self.links = tuple(link.astype(dtype) for link in links)
        self.args = args
        shape = (links[0].shape[0], links[-1].shape[1])
        super().__init__(shape, dtype, common_batch_shape(links), common_backend(links))
        self._place = links[0]._place
        self._workspace = self._backend.workspace()

    def _layouts(self) -> tuple[Any, Any]:
        return self._ends

    def _grids(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        first, last = self.links[0]._grids(), self.links[-1]._grids()
        return None if first is None or last is None else (first[0], last[1])

    @classmethod
    def _of(cls, links: Sequence[Operator]) -> ComposedOperator:
        """Return the composition of operators whose shapes fit."""
        operator = ComposedOperator.__new__(ComposedOperator)
        operator._prepare(links, tuple(links))
        return operator

    def _recipe(self) -> tuple[Any, ...]:
        return ComposedOperator._of, (self.links,)

    def _run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        first, *others = self._steps()
        buffers = self._buffers(outer, inner)
        source = x
        for k, link in enumerate(reversed(others)):
            target = buffers[k % 2, : link.shape[0] * outer * inner]
            link._run(source, target, outer, inner, 1, False)
            source = target
        first._run(source, y, outer, inner, alpha, accumulate)

    def _steps(self) -> Sequence[Operator]:
        """Return what is applied, from the left: the links, or others with the same product."""
        return self.links

    def _buffers(self, outer: int, inner: int) -> Array:
        size = max((step.shape[1] for step in self._steps()[:-1]), default=0) * outer * inner
        line = _ALIGNMENT // self.dtype.itemsize
        size = -(-size // line) * line
        memory: Array = self._workspace.array(2 * size, self.dtype)
        return memory.reshape(2, size)

    def _reserve(self, outer: int, inner: int) -> None:
        self._buffers(outer, inner)
        for step in self._steps():
            step._reserve(outer, inner)

    def inverse(self) -> Operator:
        """Return A⁻¹, of the inverses of the operators that are composed; see `Operator.inverse`.

        Raises
        ------
        ValueError, TypeError, numpy.linalg.LinAlgError
            As for the first operator that has none.
        """
        self._check_solvable("inverse")
        if self.batch_shape or self._whole() is not None:
            return super().inverse()
        return ComposedOperator._of([link.inverse() for link in reversed(self.links)])

    def _build_transpose(self) -> Operator:
        return ComposedOperator._of([link.T for link in reversed(self.links)])

    def _with(self, change: Callable[[Operator], Operator]) -> Operator:
        return ComposedOperator._of(list(map(change, self.links)))


class PowerOperator(ComposedOperator):
    """The operator A A … A; usually written as ``A**exponent``.

    Raises `ValueError` if the operator is not square.
    """

    def __init__(self, operator: Operator, exponent: int) -> None:
        operator._refuse_non_square("power")
        with building_on(operator._backend):
            one = Identity(operator.shape[0], operator.dtype)
        links = links_of(operator) * exponent
        self._prepare(links if len(links) > 1 else [*links, one, one][:2], (operator, exponent))

    def _build_on(self, device: str) -> Operator:
        return PowerOperator(self.args[0].to(device), self.args[1])


class InverseOperator(_OfOperators):
    """The operator A⁻¹ by a factorisation of A; usually written as ``A.inverse()``."""

    def __init__(self, operator: Operator) -> None:
        operator._refuse_batch("inverse")
        # a copy, so that updates of A change neither this operator nor a later transpose of it
        self.operator = copy.deepcopy(operator)
        self._factorised = self.operator.factorise()
        super().__init__(operator.shape, operator.dtype, (), operator._backend)
        self._place = operator._place

    @property
    def capturable(self) -> bool:
        """False: a solve on a device is not captured in CUDA graphs."""
        return False

    def _recipe(self) -> tuple[Any, ...]:
        return InverseOperator, (self.operator,)

    def _run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        size = self.shape[1]
        columns = x.reshape(outer, size, inner).swapaxes(0, 1).reshape(size, outer * inner)
        found = self._factorised.solve(columns).reshape(size, outer, inner).swapaxes(0, 1)
        target = y.reshape(outer, size, inner)
        product = found if alpha == 1 else times(alpha, found)
        if accumulate:
            target += product
        else:
            target[...] = product

    def _grids(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        grids = self.operator._grids()
        return None if grids is None else (grids[1], grids[0])

    def _with(self, change: Callable[[Operator], Operator]) -> Operator:
        return InverseOperator(change(self.operator))

    def solve(self, b: ArrayLike) -> Array:
        """Solve A⁻¹ x = b: x = A b."""
        return cast(Array, self.operator.dot(b))

    def slogdet(self) -> tuple[Any, Any]:
        """Return the sign, or phase, of 1 / det A and -log |det A|."""
        sign, logarithm = self.operator.slogdet()
        return np.conj(sign), -logarithm

    def inverse(self) -> Operator:
        """Return a copy of A."""
        return copy.deepcopy(self.operator)


class Reordering(Operator):
    """The permutation (A x)[order[j]] = x[j]; the columns of V A are those of V in this order.

    ``order`` (ndarray, (N,), int64): a permutation of 0 … N-1.
    ``dtype`` (float32, float64, complex64 or complex128).
    """

    def __init__(self, order: Array, dtype: DTypeLike) -> None:
        given = to_host(order, "order")
        super().__init__((given.size, given.size), check_dtype(dtype))
        (self._order,) = self._backend.place([given])

    def _recipe(self) -> tuple[Any, ...]:
        return Reordering, (to_host(self._order, "order"), self.dtype)

    def _run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        shape = (outer, self.shape[1], inner)
        source, target = x.reshape(shape), y.reshape(shape)
        scaled = source if alpha == 1 else times(alpha, source)
        if accumulate:
            target[:, self._order] += scaled
        else:
            target[:, self._order] = scaled

    def _build_transpose(self) -> Reordering:
        return Reordering(np.argsort(to_host(self._order, "order")), self.dtype)

    def _build_conjugate(self) -> Reordering:
        return Reordering(self._order, self.dtype)

    def _build_as(self, dtype: np.dtype[Any]) -> Reordering:
        return Reordering(self._order, dtype)

    def _build_on(self, device: str) -> Reordering:
        return Reordering(self._order, self.dtype)

    def inverse(self) -> Operator:
        """Return the transpose."""
        return self.T


def _is_on_grid(x: object, size: int, grid: tuple[int, ...]) -> bool:
    """Whether x is a tensor with an axis for each factor, and no matrix of columns."""
    shape = tuple(x.shape) if hasattr(x, "shape") else np.shape(cast(ArrayLike, x))
    return len(grid) > 1 and shape == grid and (len(shape) > 2 or shape[0] != size)


def _is_zero(value: object) -> bool:
    """Whether a value is the number 0, with which Python's sum begins."""
    return is_scalar(value) and not isinstance(value, str) and bool(value == 0)


def links_of(operator: Operator) -> list[Operator]:
    """Return the operators that a composition consists of; for others, the operator itself."""
    return list(operator.links) if isinstance(operator, ComposedOperator) else [operator]


def common_batch_shape(operators: Sequence[Operator]) -> tuple[int, ...]:
    """Return the one batch shape that operators have in common; operators of one system fit any."""
    shapes = {operator.batch_shape for operator in operators if operator.batch_shape}
    if len(shapes) > 1:
        text = " and ".join(str(shape) for shape in sorted(shapes))
        raise ValueError(f"operators of batch shapes {text} do not act together")
    return shapes.pop() if shapes else ()


def common_backend(operators: Sequence[Operator]) -> Backend:
    """Return the common backend of operators; raise TypeError if they are on different devices."""
    places = sorted({operator._place for operator in operators})
    if len(places) > 1:
        raise TypeError(f"operators on {' and '.join(places)} do not act together; use to()")
    return operators[0]._backend
