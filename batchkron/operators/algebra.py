"""Sums, multiples and compositions of operators, evaluated lazily."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from batchkron.operators.base import Operator
from batchkron.operators.scratch import scratch
from batchkron.spec import Array, as_scalar, scaled_dtype


class Identity(Operator):
    """The identity on vectors of N elements.

    Parameters
    ----------
    size : int
        N.
    dtype : dtype, optional
        float64 by default.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> op = bk.Identity(2) + bk.KroneckerProduct([np.ones((2, 2))])
    >>> op @ [1.0, 2.0]
    array([4., 5.])
    """

    def __init__(self, size: int, dtype: DTypeLike = np.float64) -> None:
        if size < 0:
            raise ValueError(f"size is {size}; expected 0 or more")
        super().__init__((size, size), np.dtype(dtype))

    def __reduce__(self) -> tuple[Any, ...]:
        return Identity, (self.shape[0], self.dtype)

    def _run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        source, target = x.reshape(-1), y.reshape(-1)
        if not accumulate:
            np.multiply(source, alpha, out=target)
        elif alpha == 1:
            target += source
        else:
            target += alpha * source

    def _build_transpose(self) -> Identity:
        return self

    def _build_conjugate(self) -> Identity:
        return self

    def _build_as(self, dtype: np.dtype[Any]) -> Identity:
        return Identity(self.shape[0], dtype)

    def diagonal(self) -> Array:
        """Return the diagonal, (N,), all ones."""
        return np.ones(self.shape[0], self.dtype)


class ScaledOperator(Operator):
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
        super().__init__(operator.shape, dtype, operator.batch_shape)

    def __reduce__(self) -> tuple[Any, ...]:
        return ScaledOperator, (self.scalar, self.operator)

    def _run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        self.operator._run(x, y, outer, inner, alpha * self.scalar, accumulate)

    def _build_transpose(self) -> ScaledOperator:
        return ScaledOperator(self.scalar, self.operator.T)

    def _build_conjugate(self) -> ScaledOperator:
        return ScaledOperator(np.conj(self.scalar), self.operator._relative("conjugate"))

    def _build_as(self, dtype: np.dtype[Any]) -> ScaledOperator:
        return ScaledOperator(self.scalar, self.operator.astype(dtype))

    def diagonal(self) -> Array:
        """Return the diagonal, (min(M, N),)."""
        return np.asarray(self.scalar * self.operator.diagonal(), self.dtype)


class SumOperator(Operator):
    """The operator A_1 + … + A_m; usually written as ``A + B``."""

    def __init__(self, terms: Sequence[Operator]) -> None:
        first = terms[0]
        for term in terms[1:]:
            if term.shape != first.shape:
                raise ValueError(f"operators of shapes {first.shape} and {term.shape} do not add")
        dtype = np.result_type(*[term.dtype for term in terms])
        flat: list[Operator] = []
        for term in terms:
            flat.extend(term.terms if isinstance(term, SumOperator) else [term])
        self.terms: tuple[Operator, ...] = tuple(term.astype(dtype) for term in flat)
        self.args = tuple(terms)
        super().__init__(first.shape, dtype, common_batch_shape(terms))

    def __reduce__(self) -> tuple[Any, ...]:
        return SumOperator, (self.args,)

    def _run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        for term in self.terms:
            term._run(x, y, outer, inner, alpha, accumulate)
            accumulate = True

    def _build_transpose(self) -> SumOperator:
        return SumOperator([term.T for term in self.terms])

    def _build_conjugate(self) -> SumOperator:
        return SumOperator([term._relative("conjugate") for term in self.terms])

    def _build_as(self, dtype: np.dtype[Any]) -> SumOperator:
        return SumOperator([term.astype(dtype) for term in self.terms])

    def diagonal(self) -> Array:
        """Return the diagonal, (min(M, N),)."""
        return np.asarray(np.sum([term.diagonal() for term in self.terms], axis=0))


class ComposedOperator(Operator):
    """The operator A B; usually written as ``A @ B``.

    The vector between the two lies in the calling thread's workspace.
    """

    def __init__(self, left: Operator, right: Operator) -> None:
        if left.shape[1] != right.shape[0]:
            raise ValueError(
                f"operators of shapes {left.shape} and {right.shape} do not compose: the left one "
                f"has {left.shape[1]} columns, the right one {right.shape[0]} rows"
            )
        dtype = np.result_type(left.dtype, right.dtype)
        self.left, self.right = left.astype(dtype), right.astype(dtype)
        shape = (left.shape[0], right.shape[1])
        self.args = (left, right)
        super().__init__(shape, dtype, common_batch_shape([left, right]))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args

    def _run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        with scratch(outer * self.right.shape[0] * inner, self.dtype) as between:
            self.right._run(x, between, outer, inner, 1, False)
            self.left._run(between, y, outer, inner, alpha, accumulate)

    def _build_transpose(self) -> ComposedOperator:
        return ComposedOperator(self.right.T, self.left.T)

    def _build_conjugate(self) -> ComposedOperator:
        left, right = self.left._relative("conjugate"), self.right._relative("conjugate")
        return ComposedOperator(left, right)

    def _build_as(self, dtype: np.dtype[Any]) -> ComposedOperator:
        return ComposedOperator(self.left.astype(dtype), self.right.astype(dtype))


class PowerOperator(ComposedOperator):
    """The operator A A … A; usually written as ``A**exponent``.

    Raises
    ------
    ValueError
        If the operator is not square.
    """

    def __init__(self, operator: Operator, exponent: int) -> None:
        operator._refuse_non_square("power")
        if exponent > 1:
            rest = operator if exponent == 2 else PowerOperator(operator, exponent - 1)
            super().__init__(operator, rest)
        else:
            one = Identity(operator.shape[0], operator.dtype)
            super().__init__(one if exponent == 0 else operator, one)
        self.args = (operator, exponent)


def common_batch_shape(operators: Sequence[Operator]) -> tuple[int, ...]:
    """Return the batch shape of operators that act together; one system goes with any.

    Raises
    ------
    ValueError
        If two differ.
    """
    shapes = {operator.batch_shape for operator in operators if operator.batch_shape}
    if len(shapes) > 1:
        text = " and ".join(str(shape) for shape in sorted(shapes))
        raise ValueError(f"operators of batch shapes {text} do not act together")
    return shapes.pop() if shapes else ()
