"""Solves, determinants and exponentials of products and sums of matrices, by factors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np

from batchkron.jax.arrays import batch_systems, checked_arrays, numbered
from batchkron.jax.kron import kron_matmul
from batchkron.jax.kron_primitives import multiply_mode
from batchkron.jax.multilinear import Function, primitive
from batchkron.jax.scaling import times_power_of_two, unit_exponent
from batchkron.jax.sum_logdet import outer_sum, sum_logdet
from batchkron.operators.determinants import (
    repeated_phases,
    repeated_signs,
    repeated_sum,
    repetitions,
)
from batchkron.operators.kronecker_sum.scaled_exponential import LN2, MAX_FOLDED, MAX_STEP
from batchkron.operators.memory import refuse_without_memory

__all__ = ["Kind", "checked_kind", "expm_apply", "logdet", "multiply_sum", "solve"]

Kind = Literal["product", "sum"]
"""Whether factors are those of A_1 ⊗ … ⊗ A_d, or of A_1 ⊕ … ⊕ A_d."""

Scaled: TypeAlias = tuple[jax.Array, jax.Array]
"""A matrix E and a number p, an integer in floating point, that stand for 2^p E."""

_MAX_NORM = 2.0  # of a matrix whose Padé approximant is exact up to rounding, without squaring
_MAX_DOUBLINGS = 20  # of larger ones, for norms up to 2e6


def _checked(factors: Sequence[Any], x: Any, name: str) -> list[jax.Array]:
    """Return factors as a list after checking that they are square; with vectors x in front.

    Raises `ValueError`, `TypeError` as `solve` documents.
    """
    if not len(factors):
        raise ValueError("factors is empty; expected at least one factor")
    given = [*factors] if x is None else [x, *factors]
    arrays = checked_arrays(given, numbered(*([] if x is None else [name]), rest="factors"))
    matrices = arrays if x is None else arrays[1:]
    for k, factor in enumerate(matrices):
        if factor.ndim != 2 or factor.shape[0] != factor.shape[1]:
            raise ValueError(f"factors[{k}] has shape {factor.shape}; expected a square matrix")
    size = math.prod(len(factor) for factor in matrices)
    if x is not None and (arrays[0].ndim == 0 or arrays[0].shape[-1] != size):
        raise ValueError(
            f"{name} has shape {arrays[0].shape}; expected (..., {size}), the product of the "
            f"factors' sizes"
        )
    return arrays


def checked_kind(kind: str) -> Kind:
    """Return a kind.

    Raises `ValueError` if it is another one.
    """
    if kind not in get_args(Kind):
        raise ValueError(f"kind is {kind!r}; expected 'product' or 'sum'")
    return kind  # type: ignore[return-value]


class _SolveSum(Function):
    """x[s, m, :, r] of (A_1s ⊕ … ⊕ A_ds) x = b, on the host; operands as for kron_matmul."""

    name = "solve_sum"

    def shape(self, *shapes: tuple[int, ...], **parameters: Any) -> tuple[int, ...]:
        return shapes[0]

    def batch(
        self, size: int, operands: Sequence[Any], axes: Sequence[int | None], **parameters: Any
    ) -> tuple[jax.Array, int]:
        return batch_systems(_solutions, size, operands, axes, **parameters)


_solver = primitive(_SolveSum())


def _solutions(b: jax.Array, *factors: jax.Array, transpose: bool) -> jax.Array:
    x: jax.Array = _solver.bind(b, *factors, transpose=transpose)
    return x


def multiply_sum(factors: Sequence[jax.Array], x: jax.Array) -> jax.Array:
    """Return (A_1 ⊕ … ⊕ A_d) x.

    ``factors`` (sequence of jax.Array, each (n_k, n_k)).
    ``x`` (jax.Array, (..., Π n_k)).

    Returns jax.Array, (..., Π n_k).
    """
    total = jnp.zeros_like(x)
    outer = math.prod(x.shape[:-1])
    for factor in factors:
        total = total + multiply_mode(x, factor, outer).reshape(x.shape)
        outer = outer * len(factor)
    return total


def solve(factors: Sequence[jax.Array], b: jax.Array, *, kind: Kind = "product") -> jax.Array:
    """Solve (A_1 ⊗ … ⊗ A_d) x = b, or (A_1 ⊕ … ⊕ A_d) x = b.

    Parameters
    ----------
    factors : sequence of jax.Array, each (n_k, n_k)
        The square matrices.
    b : jax.Array, (..., Π n_k)
        Right-hand sides along the last axis; float32, float64, complex64 or complex128.
    kind : {"product", "sum"}
        The Kronecker product, or the Kronecker sum Σ_k I ⊗ … ⊗ A_k ⊗ … ⊗ I.

    Returns
    -------
    jax.Array, (..., Π n_k)
        Infinite or NaN where a factor of a product is singular, as of `jax.numpy.linalg.solve`.

    Raises
    ------
    ValueError
        If there is no factor, one is not square, b does not fit, or the kind is another one.
    TypeError
        If one is no array, dtypes differ, or the dtype has no kernels.
    jax.errors.JaxRuntimeError
        If a sum is singular.

    Notes
    -----
    A product is solved factor by factor with `jax.numpy.linalg.solve`. A sum is solved as by
    `batchkron.KroneckerSum.solve`, by diagonalising the factors or by their Schur forms: XLA calls
    this Python code on the host, and on a CUDA device waits for the factors. Derivatives of a sum's
    solution are those of `jax.lax.custom_linear_solve`, from products and solves: no derivative of
    an eigenvalue occurs, so that repeated ones do no harm.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from batchkron.jax import solve
    >>> A, B = jnp.diag(jnp.array([1.0, 2.0])), jnp.diag(jnp.array([4.0, 5.0]))
    >>> solve([A, B], jnp.array([4.0, 5.0, 8.0, 10.0]))
    Array([1., 1., 1., 1.], dtype=float32)
    >>> solve([A, B], jnp.array([5.0, 6.0, 6.0, 7.0]), kind="sum")
    Array([1., 1., 1., 1.], dtype=float32)
    """
    checked_kind(kind)
    b, *matrices = _checked(factors, b, "b")
    if b.size == 0:
        return b
    if kind == "sum":
        return _solve_sum(matrices, b)
    x, before, after = b, math.prod(b.shape[:-1]), b.shape[-1]
    exponents = [unit_exponent(factor) for factor in matrices]  # added up, where scales cancel
    for factor, exponent in zip(matrices, exponents, strict=True):
        n = len(factor)
        after = after // n
        front = x.reshape(before, n, after).swapaxes(0, 1).reshape(n, before * after)
        scaled = times_power_of_two(factor, -exponent)
        x = jnp.linalg.solve(scaled, front).reshape(n, before, after).swapaxes(0, 1)
        before = before * n
    return times_power_of_two(x.reshape(b.shape), -sum(exponents[1:], exponents[0]))


def _solve_sum(matrices: Sequence[jax.Array], b: jax.Array) -> jax.Array:
    """Solve (A_1 ⊕ … ⊕ A_d) x = b for vectors along the last axis."""
    vectors = b.reshape(1, -1, b.shape[-1], 1)
    fixed = [jax.lax.stop_gradient(factor)[None] for factor in matrices]

    def multiply(x: jax.Array) -> jax.Array:
        return multiply_sum(matrices, x.reshape(b.shape)).reshape(x.shape)

    x: jax.Array = jax.lax.custom_linear_solve(
        multiply,
        vectors,
        lambda _, given: _solutions(given, *fixed, transpose=False),
        lambda _, given: _solutions(given, *fixed, transpose=True),
    )
    return x.reshape(b.shape)


def logdet(
    factors: Sequence[jax.Array], *, kind: Kind = "product", hermitian: bool = False
) -> jax.Array:
    """Compute log det (A_1 ⊗ … ⊗ A_d), or log det (A_1 ⊕ … ⊕ A_d).

    Parameters
    ----------
    factors : sequence of jax.Array, each (n_k, n_k)
        The square matrices; float32, float64, complex64 or complex128.
    kind : {"product", "sum"}
        As for `solve`.
    hermitian : bool
        Whether all factors are Hermitian (symmetric, if real). For sums it is faster and more
        precise; of each factor the Hermitian part (A + Aᴴ) / 2 is taken then.

    Returns
    -------
    jax.Array, ()
        Real for real factors: NaN if the determinant is negative. For complex factors that are not
        Hermitian complex, with an imaginary part in [-π, π].

    Raises
    ------
    ValueError
        If there is no factor, one is not square, or the kind is another one.
    TypeError
        If one is no array, dtypes differ, or the dtype has no kernels.
    MemoryError
        If the host's memory cannot hold the N eigenvalues of a sum, in three arrays.

    Notes
    -----
    log det of a product is Σ_k (N / n_k) log det A_k, N = Π n_k. That of a sum is the sum of the
    logarithms of λ_1 + … + λ_d over all combinations of the factors' eigenvalues. Derivatives of a
    sum are partial traces of its inverse: Σ (A_k + r I)⁻¹ for A_k, over all sums r of eigenvalues
    of the other factors, N / n_k inverses, for factors that need not be diagonalisable. Second
    derivatives of sums of more than one factor need well-conditioned eigenvectors, and are NaN
    else, as of I minus a shift. If ``hermitian`` is set, derivatives are those of eigenvalues, and
    second ones need simple eigenvalues.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from batchkron.jax import logdet
    >>> A, B = jnp.diag(jnp.array([1.0, 2.0])), jnp.diag(jnp.array([1.0, 3.0]))
    >>> print(f"{jnp.exp(logdet([A, B])):.3f}")  # of diag(1, 3, 2, 6)
    36.000
    >>> print(f"{jnp.exp(logdet([A, B], kind='sum', hermitian=True)):.3f}")  # of diag(2, 4, 3, 5)
    120.000
    """
    checked_kind(kind)
    matrices = _checked(factors, None, "")
    is_complex = jnp.iscomplexobj(matrices[0]) and not hermitian
    if kind == "product":
        logarithm, phase = _product_logdet(matrices, is_complex)
    else:
        size = math.prod(len(factor) for factor in matrices)
        item_bytes = jnp.finfo(matrices[0].dtype).bits // 8 * (1 if hermitian else 2)
        refuse_without_memory(size, 3, item_bytes, "eigenvalues of the sum")
        if hermitian:
            values = outer_sum([jnp.linalg.eigvalsh(factor) for factor in matrices])
            logarithm = jnp.log(jnp.abs(values)).sum()
            odd = jnp.count_nonzero(values < 0) % 2
            phase = jnp.where(logarithm == -math.inf, 0.0, math.pi * odd)
        else:
            logarithm, phase = sum_logdet(*matrices)
    if is_complex:
        return (logarithm + 1j * phase).astype(matrices[0].dtype)
    found = jnp.where(jnp.abs(phase) > math.pi / 2, math.nan, logarithm)
    return found.astype(jnp.finfo(matrices[0].dtype).dtype)


def _product_logdet(matrices: Sequence[jax.Array], is_complex: bool) -> tuple[Any, Any]:
    """Return log |det| = Σ_k (N / n_k) log |det A_k|, and the phase."""
    counts = repetitions([len(factor) for factor in matrices])
    signs, logarithms = zip(*[jnp.linalg.slogdet(one) for one in matrices], strict=True)
    logarithm = repeated_sum(logarithms, counts, jnp.zeros(()))
    if not is_complex:
        sign = repeated_signs([sign.real for sign in signs], counts, jnp.ones(()))
        return logarithm, jnp.where(sign < 0, math.pi, 0.0)
    turns = jnp.angle(jnp.stack(signs)) / (2 * math.pi)
    return logarithm, 2 * math.pi * repeated_phases(turns, counts, jnp.array)


def expm_apply(factors: Sequence[jax.Array], x: jax.Array, t: float | jax.Array = 1.0) -> jax.Array:
    """Compute exp(t (A_1 ⊕ … ⊕ A_d)) x of a Kronecker sum.

    Parameters
    ----------
    factors : sequence of jax.Array, each (n_k, n_k)
        The square matrices A_k.
    x : jax.Array, (..., Π n_k)
        Vectors along the last axis; float32, float64, complex64 or complex128.
    t : float, or jax.Array of shape ()
        The time, real.

    Returns
    -------
    jax.Array, (..., Π n_k)
        Numbers beyond the range of the dtype are infinite, those below are 0. NaN if the norm of
        some t A_k is above 2e6.

    Raises
    ------
    ValueError
        If there is no factor, one is not square, x does not fit, or t is no single number.
    TypeError
        If one is no array, dtypes differ, the dtype has no kernels, or t is complex.

    Notes
    -----
    The exponential of a Kronecker sum is the Kronecker product of the exponentials of its factors,
    exp(t A_1) ⊗ … ⊗ exp(t A_d). These are computed by `jax.scipy.linalg.expm`, with
    ``jax_enable_x64`` in float64 for float32 factors, because its errors in float32 are some
    hundred roundings. Factors may have shifts that cancel in their sum, as for
    `batchkron.KroneckerSum.expm_apply`: an exponential of a large matrix is a small one's, squared
    and scaled, and the scales are added up before they are multiplied.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from batchkron.jax import expm_apply
    >>> decay = jnp.diag(jnp.array([0.0, -1.0]))
    >>> [round(float(y), 4) for y in expm_apply([decay, decay], jnp.ones(4), 0.5)]
    [1.0, 0.6065, 0.6065, 0.3679]
    """
    x, *matrices = _checked(factors, x, "x")
    if np.shape(t) != ():
        raise ValueError(f"t has shape {np.shape(t)}; expected a single number")
    if jnp.iscomplexobj(t):
        raise TypeError("t is complex; expected a real number. Multiply the factors instead")
    wide = jnp.result_type(x.dtype, jax.dtypes.canonicalize_dtype(np.float64))
    if x.size == 0:
        return x
    found = [_exponential(t * factor.astype(wide)) for factor in matrices]
    exponentials = [exponential for exponential, _ in found]
    power = jnp.sum(jnp.stack([one for _, one in found]))
    folded = jnp.clip(power, -MAX_FOLDED, MAX_FOLDED)
    exponentials[0] = exponentials[0] * _power_of_two(folded)
    y = kron_matmul(x, [exponential.T.astype(x.dtype) for exponential in exponentials])
    return _scaled(y, power - folded)


@jax.jit  # so that calls which are not compiled compile it once
def _exponential(matrix: jax.Array) -> Scaled:
    """Return E, with entries near 1, and p, exp(A) = 2^p E; derivatives are those of E alone."""
    one = jnp.eye(len(matrix), dtype=matrix.dtype)
    shift = jnp.mean(jnp.diagonal(matrix).real) / math.log(2)
    shift = jax.lax.stop_gradient(jnp.round(shift))
    rest = matrix - shift * LN2[0] * one - shift * LN2[1] * one
    doublings = jnp.clip(jnp.ceil(jnp.log2(_norm(rest) / _MAX_NORM)), 0, _MAX_DOUBLINGS)
    small = jax.scipy.linalg.expm(rest * _power_of_two(-doublings), max_squarings=1)
    start = _balanced(small, jnp.zeros((), shift.dtype))

    def double(known: Scaled, step: jax.Array) -> tuple[Scaled, None]:
        return jax.lax.cond(step < doublings, _squared, lambda *same: same, *known), None

    (found, power), _ = jax.lax.scan(double, start, jnp.arange(_MAX_DOUBLINGS))
    return found, power + shift


def _squared(matrix: jax.Array, power: jax.Array) -> Scaled:
    square = jnp.matmul(matrix, matrix, precision=jax.lax.Precision.HIGHEST)
    return _balanced(square, 2 * power)


def _norm(matrix: jax.Array) -> jax.Array:
    """Return the 1-norm of a matrix, which takes no part in derivatives."""
    return jnp.abs(jax.lax.stop_gradient(matrix)).sum(axis=0).max()


def _balanced(matrix: jax.Array, power: jax.Array) -> Scaled:
    """Return a matrix divided by the power of two of its size, and 2^power times it."""
    bits = jnp.frexp(jnp.abs(jax.lax.stop_gradient(matrix)).max())[1].astype(power.dtype)
    return matrix * _power_of_two(-bits), power + bits


def _power_of_two(power: jax.Array) -> jax.Array:
    return jnp.ldexp(jnp.ones((), power.dtype), power.astype(jnp.int32))


@jax.jit
def _scaled(y: jax.Array, power: jax.Array) -> jax.Array:
    """Return 2^power y; beside infinity, zeros may be lost numbers, and become NaN."""

    def multiply(y: jax.Array, power: jax.Array) -> jax.Array:
        real = jnp.finfo(y.dtype).dtype
        step, scaled = MAX_STEP[real.char], y
        for _ in range(3):  # they take the largest number to 0, and the smallest one to infinity
            part = jnp.clip(power, -step, step)
            scaled, power = scaled * _power_of_two(part).astype(real), power - part
        lost = (y == 0) & jnp.isinf(scaled).any(axis=-1, keepdims=True)
        return jnp.where(lost, jnp.nan, scaled)

    return jax.lax.cond(power == 0, lambda y, _: y, multiply, y, power)  # type: ignore[no-any-return]
