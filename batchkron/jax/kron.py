"""Multiply by a Kronecker product."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax

from batchkron.jax.arrays import checked_arrays
from batchkron.jax.kron_primitives import multiply
from batchkron.spec.identities import IdentityFactor, runs_between_identities

__all__ = ["kron_matmul"]


def kron_matmul(x: jax.Array, factors: Sequence[jax.Array | IdentityFactor]) -> jax.Array:
    """Compute y = x (A_1 ⊗ … ⊗ A_d), which JAX differentiates, maps and compiles.

    Parameters
    ----------
    x : jax.Array, (..., ΠP)
        Vectors along the last axis; float32, float64, complex64 or complex128.
    factors : sequence of jax.Array, each (P_k, Q_k), or of `batchkron.Identity`
        The matrices, of the dtype of x. A_1 belongs to the slowest index, as in `jax.numpy.kron`.
        An ``Identity(n)`` is skipped, by the product and by all derivatives. It is part of the
        function, not an argument that JAX traces.

    Returns
    -------
    jax.Array, (..., ΠQ)

    Raises
    ------
    ValueError
        If there is no factor, one is no matrix, or x does not have ΠP columns.
    TypeError
        If one is no array, dtypes differ, or the dtype has no kernels.

    Notes
    -----
    With the cotangent ȳ of y: x̄ = ȳ (A_1 ⊗ … ⊗ A_d)ᵀ, one product; that of A_k is the sum, over
    all indices but those of mode k, of (x multiplied by the factors before A_k) times (ȳ
    multiplied by the transposes of those after A_k). All of them together take 2 (d - 1) multiplies
    by one factor, and one more for x̄; on a device they are one call, but for complex numbers and
    factors of more than 64 rows or columns, and XLA may capture the calls into CUDA graphs.
    Derivatives of all orders are in batchkron/jax/kron_primitives.py. The product itself is that of
    `batchkron.gemkm`: algorithm 1 of FastKron (Jangda and Yadav, PPoPP 2024).

    `jax.vmap` over x makes more vectors of one product. Over factors, it makes one call for all
    products.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> from batchkron.jax import kron_matmul
    >>> A, B = jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.eye(2)
    >>> kron_matmul(jnp.ones((1, 4)), [A, B])
    Array([[4., 4., 6., 6.]], dtype=float32)
    >>> jax.grad(lambda A: kron_matmul(jnp.ones(4), [A, B]).sum())(A)
    Array([[2., 2.],
           [2., 2.]], dtype=float32)
    """
    if not len(factors):
        raise ValueError("factors is empty; a Kronecker product needs at least one factor")
    skipped = [isinstance(factor, IdentityFactor) for factor in factors]
    places = [k for k, is_identity in enumerate(skipped) if not is_identity]
    x, *found = checked_arrays(
        [x, *(factors[k] for k in places)], lambda k: f"factors[{places[k - 1]}]" if k else "x"
    )
    matrices: list[Any] = list(factors)
    for k, matrix in zip(places, found, strict=True):
        matrices[k] = matrix
    rows = 1
    for k, factor in enumerate(matrices):
        if not skipped[k] and factor.ndim != 2:
            raise ValueError(
                f"factors[{k}] has shape {factor.shape}; expected 2 dimensions, (rows, columns)"
            )
        rows = rows * factor.shape[0]
    if x.ndim == 0 or x.shape[-1] != rows:
        raise ValueError(
            f"x has shape {x.shape}; expected {rows} columns, the product of the factors' rows"
        )
    inputs, outputs = zip(*[factor.shape for factor in matrices], strict=True)
    y, outer = x, math.prod(x.shape[:-1])
    for low, high, before, behind in runs_between_identities(inputs, outputs, skipped):
        vectors = y.reshape(1, outer * before, math.prod(inputs[low:high]), behind)
        y = multiply(vectors, *(one[None] for one in matrices[low:high]), transpose=False)
    return y.reshape(*x.shape[:-1], math.prod(outputs))
