"""Kronecker products and sums as operators of lineax, and a solver for them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from batchkron.errors import BackendUnavailableError
from batchkron.jax.arrays import checked_arrays, numbered
from batchkron.jax.kron import kron_matmul
from batchkron.jax.solves import Kind, checked_kind, multiply_sum, solve

try:
    import equinox as eqx  # which lineax needs
    import lineax as lx
except ImportError as error:
    raise BackendUnavailableError(
        "batchkron.jax.lineax needs lineax; install it with: pip install 'batchkron[lineax]'"
    ) from error

__all__ = ["KroneckerLinearOperator", "KroneckerSolver"]


class KroneckerLinearOperator(lx.AbstractLinearOperator):
    """The operator A_1 ⊗ … ⊗ A_d, or the Kronecker sum A_1 ⊕ … ⊕ A_d, of lineax.

    Parameters
    ----------
    factors : sequence of jax.Array, each (P_k, Q_k)
        The matrices; float32, float64, complex64 or complex128. Those of a sum are square.
    kind : {"product", "sum"}
        The Kronecker product, or the Kronecker sum Σ_k I ⊗ … ⊗ A_k ⊗ … ⊗ I.
    tags : object, or a frozenset of such
        What is known of the operator, as `lineax.positive_semidefinite_tag`. It is not checked.

    Raises
    ------
    ValueError
        If there is no factor, one is no matrix, one of a sum is not square, or the kind is
        another one.
    TypeError
        If one is no array, dtypes differ, or the dtype has no kernels.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import lineax as lx
    >>> from batchkron.jax.lineax import KroneckerLinearOperator, KroneckerSolver
    >>> A, B = jnp.array([[2.0, 1.0], [0.0, 2.0]]), jnp.diag(jnp.array([1.0, 4.0]))
    >>> operator = KroneckerLinearOperator([A, B])
    >>> b = operator.mv(jnp.ones(4))
    >>> lx.linear_solve(operator, b, KroneckerSolver()).value
    Array([1., 1., 1., 1.], dtype=float32)
    """

    factors: tuple[jax.Array, ...]
    kind: Kind = eqx.field(static=True)
    tags: frozenset[object] = eqx.field(static=True)

    def __init__(
        self,
        factors: Sequence[jax.Array],
        kind: Kind = "product",
        tags: object | frozenset[object] = frozenset(),
    ) -> None:
        if not len(factors):
            raise ValueError("factors is empty; expected at least one factor")
        self.kind = checked_kind(kind)
        self.factors = tuple(checked_arrays(factors, numbered(rest="factors")))
        self.tags = tags if isinstance(tags, frozenset) else frozenset([tags])
        for k, factor in enumerate(self.factors):
            if factor.ndim != 2:
                raise ValueError(f"factors[{k}] has shape {factor.shape}; expected a matrix")
            if kind == "sum" and factor.shape[0] != factor.shape[1]:
                raise ValueError(
                    f"factors[{k}] has shape {factor.shape}; expected a square matrix, because "
                    f"kind is 'sum'"
                )

    def mv(self, vector: jax.Array) -> jax.Array:
        """Return the product with a vector."""
        if self.kind == "sum":
            return multiply_sum(self.factors, vector)
        return kron_matmul(vector, [factor.T for factor in self.factors])

    def as_matrix(self) -> jax.Array:
        """Return the dense matrix."""
        return self._assembled(self.factors, jnp.kron, jnp.eye)

    def diagonal(self) -> jax.Array:
        """Return the diagonal."""
        diagonals = [jnp.diagonal(factor) for factor in self.factors]
        return self._assembled(diagonals, jnp.kron, jnp.ones)

    def _assembled(
        self,
        parts: Sequence[jax.Array],
        kron: Callable[[Any, Any], Any],
        identity: Callable[..., Any],
    ) -> jax.Array:
        """Return the product of parts of the factors, or their sum with parts of identities."""
        if self.kind == "product":
            return functools.reduce(kron, parts)
        units = [identity(len(part), dtype=part.dtype) for part in parts]
        terms = [[*units[:k], part, *units[k + 1 :]] for k, part in enumerate(parts)]
        return sum(functools.reduce(kron, term) for term in terms)  # type: ignore[return-value]

    def transpose(self) -> KroneckerLinearOperator:
        """Return the transposed operator."""
        turned = [factor.T for factor in self.factors]
        return KroneckerLinearOperator(turned, self.kind, lx.transpose_tags(self.tags))

    def in_structure(self) -> jax.ShapeDtypeStruct:
        """Return the shape and dtype of vectors that the operator multiplies."""
        return self._structure(1)

    def out_structure(self) -> jax.ShapeDtypeStruct:
        """Return the shape and dtype of products."""
        return self._structure(0)

    def _structure(self, axis: int) -> jax.ShapeDtypeStruct:
        size = 1
        for factor in self.factors:
            size = size * factor.shape[axis]
        return jax.ShapeDtypeStruct((size,), self.factors[0].dtype)


def _tridiagonal(operator: KroneckerLinearOperator) -> tuple[jax.Array, jax.Array, jax.Array]:
    matrix = operator.as_matrix()
    return jnp.diagonal(matrix), jnp.diagonal(matrix, -1), jnp.diagonal(matrix, 1)


def _conj(operator: KroneckerLinearOperator) -> KroneckerLinearOperator:
    factors = [factor.conj() for factor in operator.factors]
    return KroneckerLinearOperator(factors, operator.kind, operator.tags)


def _materialised(operator: KroneckerLinearOperator) -> Any:
    return lx.MatrixLinearOperator(operator.as_matrix(), operator.tags)


def _is_symmetric(operator: KroneckerLinearOperator) -> bool:
    """Return what tags say of A = Aᵀ: semidefinite operators are Hermitian."""
    tags = [lx.symmetric_tag, lx.diagonal_tag]
    if not jnp.iscomplexobj(operator.factors[0]):
        tags += [lx.positive_semidefinite_tag, lx.negative_semidefinite_tag]
    return any(tag in operator.tags for tag in tags)


def _define(function: Any, own: Callable[[KroneckerLinearOperator], Any]) -> None:
    """Make a function of lineax known for operators of this class."""
    function.register(KroneckerLinearOperator)(own)


def _define_by_tags(function: Any, *tags: object) -> None:
    """Let a function of lineax say of an operator whether it has one of some tags."""
    _define(function, lambda operator: any(tag in operator.tags for tag in tags))


_define(lx.linearise, lambda operator: operator)
_define(lx.materialise, _materialised)
_define(lx.diagonal, KroneckerLinearOperator.diagonal)
_define(lx.tridiagonal, _tridiagonal)
_define(lx.conj, _conj)
_define(lx.is_symmetric, _is_symmetric)
_define_by_tags(lx.is_diagonal, lx.diagonal_tag)
_define_by_tags(lx.is_tridiagonal, lx.tridiagonal_tag, lx.diagonal_tag)
_define_by_tags(lx.has_unit_diagonal, lx.unit_diagonal_tag)
_define_by_tags(lx.is_lower_triangular, lx.lower_triangular_tag, lx.diagonal_tag)
_define_by_tags(lx.is_upper_triangular, lx.upper_triangular_tag, lx.diagonal_tag)
_define_by_tags(lx.is_positive_semidefinite, lx.positive_semidefinite_tag)
_define_by_tags(lx.is_negative_semidefinite, lx.negative_semidefinite_tag)


class KroneckerSolver(lx.AbstractLinearSolver):
    """Solves with a `KroneckerLinearOperator` by its factors, see `batchkron.jax.solve`.

    It is for operators with square factors that are not singular.
    """

    def init(
        self, operator: KroneckerLinearOperator, options: dict[str, Any]
    ) -> KroneckerLinearOperator:
        """Return the operator after checking that it can be solved with.

        Raises
        ------
        TypeError
            If it is no `KroneckerLinearOperator`.
        ValueError
            If a factor is not square.
        """
        if not isinstance(operator, KroneckerLinearOperator):
            raise TypeError(
                f"the operator is a {type(operator).__name__}; expected a KroneckerLinearOperator"
            )
        for k, factor in enumerate(operator.factors):
            if factor.shape[0] != factor.shape[1]:
                raise ValueError(f"factors[{k}] has shape {factor.shape}; expected a square matrix")
        return operator

    def compute(
        self, state: KroneckerLinearOperator, vector: jax.Array, options: dict[str, Any]
    ) -> tuple[jax.Array, Any, dict[str, Any]]:
        """Return the solution, whether it is one, and no statistics."""
        return solve(state.factors, vector, kind=state.kind), lx.RESULTS.successful, {}

    def transpose(
        self, state: KroneckerLinearOperator, options: dict[str, Any]
    ) -> tuple[KroneckerLinearOperator, dict[str, Any]]:
        """Return the state of the transposed operator."""
        return state.transpose(), options

    def conj(
        self, state: KroneckerLinearOperator, options: dict[str, Any]
    ) -> tuple[KroneckerLinearOperator, dict[str, Any]]:
        """Return the state of the conjugated operator."""
        return lx.conj(state), options

    def assume_full_rank(self) -> bool:
        """Return that operators have full rank."""
        return True
