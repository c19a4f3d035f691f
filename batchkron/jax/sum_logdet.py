"""log det of Kronecker sums whose factors need not be diagonalisable, with derivatives.

Let r_i be the eigenvalues of the sum of all factors but A_k. In a Schur basis of these the inverse
of the whole sum is block triangular, and the blocks on its diagonal are (A_k + r_i I)⁻¹. So

    d log det (A_1 ⊕ … ⊕ A_d) = Σ_k tr (P_k dA_k),    P_k = Σ_i (A_k + r_i I)⁻¹,

with the partial traces P_k of the inverse. Sums over all r_i are as accurate as computed
eigenvalues are those of a matrix nearby; their own errors, large for factors far from normal, do
not matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from batchkron.jax.scaling import times_power_of_two, unit_exponent

__all__ = ["outer_sum", "sum_logdet"]


def outer_sum(values: Sequence[jax.Array]) -> jax.Array:
    """Return all sums with one entry of each array (n_k,), (Π n_k,); of no array, 0 as (1,)."""
    total = jnp.zeros(1, values[0].dtype if values else jnp.int32)
    for entries in values:
        total = (total[:, None] + entries).reshape(-1)
    return total


@jax.custom_jvp
def sum_logdet(*factors: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return log |det (A_1 ⊕ … ⊕ A_d)| and the determinant's phase modulo 2π, 0 or π if real."""
    values = outer_sum([_eigenvalues(factor) for factor in factors])
    logarithm = jnp.log(jnp.abs(values)).sum()
    regular = logarithm != -math.inf  # a determinant of 0 has no phase
    if not jnp.iscomplexobj(factors[0]):
        # conjugate pairs are there twice, so that they do not change the parity
        odd = jnp.count_nonzero((values.imag == 0) & (values.real < 0)) % 2
        return logarithm, jnp.where(regular, math.pi * odd, 0.0).astype(logarithm.dtype)
    phase = jnp.angle(values).sum()
    phase = phase - 2 * math.pi * jnp.round(phase / (2 * math.pi))
    return logarithm, jnp.where(regular, phase, 0.0)


@sum_logdet.defjvp
def _derivative(primals: Any, tangents: Any) -> Any:
    spectra = [_eigenvalues(factor) for factor in primals]
    total = jnp.zeros((), spectra[0].dtype)
    for k, (factor, tangent) in enumerate(zip(primals, tangents, strict=True)):
        others = [*spectra[:k], *spectra[k + 1 :]]
        total = total + (_partial_trace(factor, others).T * tangent).sum()
    return sum_logdet(*primals), (total.real, total.imag)


def _partial_trace(matrix: jax.Array, spectra: Sequence[jax.Array]) -> jax.Array:
    """Return Σ_i (A + r_i I)⁻¹ for all sums r_i of eigenvalues of the other factors.

    The matrices are inverted for all eigenvalues of the last one of these at once.
    """
    identity = jnp.eye(len(matrix))
    last = spectra[-1] if spectra else jnp.zeros(1, matrix.dtype)

    def add(total: jax.Array, shift: jax.Array) -> tuple[jax.Array, None]:
        shifts = (shift + last)[:, None, None] * identity.astype(last.dtype)
        return total + jnp.linalg.inv(matrix + shifts).sum(0), None

    zero = jnp.zeros_like(matrix, dtype=last.dtype)
    return jax.lax.scan(add, zero, outer_sum(spectra[:-1]).astype(last.dtype))[0]


@jax.custom_jvp
def _eigenvalues(matrix: jax.Array) -> jax.Array:
    """Return eigenvalues whose derivatives are NaN where they are wrong."""
    return _eigenpairs(matrix)[0]


def _eigenpairs(matrix: jax.Array) -> Any:
    # jaxlib does not undo the scaling that LAPACK does beyond 1e±12 in single precision
    exponent = unit_exponent(matrix)
    unit = times_power_of_two(matrix, -exponent)
    # with derivatives of eigenvectors, of which those of third order are made
    values, vectors = jax.lax.linalg.eig(
        unit, compute_left_eigenvectors=False, enable_eigvec_derivs=True
    )
    return times_power_of_two(values, exponent), vectors


@_eigenvalues.defjvp
def _derivative_of_eigenvalues(primals: Any, tangents: Any) -> Any:
    """Use that symmetric functions of the eigenvalues are differentiated: repeated ones may mix."""
    values, vectors = _eigenpairs(primals[0])
    inverse = jnp.linalg.inv(vectors)
    condition = jnp.linalg.norm(vectors) * jnp.linalg.norm(inverse)
    good = condition < jnp.finfo(primals[0].dtype).eps ** -0.5
    found = (inverse * (tangents[0] @ vectors).T).sum(1)
    return values, found * jnp.where(good, 1.0, math.nan)  # also transposed: a chosen NaN is not
