"""Multiply by Kronecker-sparse matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from batchkron.jax.arrays import checked_arrays, in_front, numbered
from batchkron.jax.multilinear import Multilinear, register
from batchkron.spec.kron_sparse import Layout, check_layout

__all__ = ["kronecker_sparse"]


class _KroneckerSparse(Multilinear):
    """y[o, :, r] = K x[o, :, r], for x (outer, a c d, inner) and values (a, b, c, d)."""

    name = "kronecker_sparse"

    def shape(self, *shapes: tuple[int, ...], **parameters: Any) -> tuple[int, ...]:
        (outer, _, inner), (a, b, _, d) = shapes
        return outer, a * b * d, inner

    def transpose(
        self, k: int, cotangent: jax.Array, operands: Sequence[Any], **parameters: Any
    ) -> jax.Array:
        x, values = operands
        if k == 0:
            return _multiply(cotangent, values.swapaxes(1, 2))
        a, b, c, d = values.aval.shape
        outer, _, inner = x.shape
        outputs, inputs = (
            cotangent.reshape(outer, a, b, d, inner),
            x.reshape(outer, a, c, d, inner),
        )
        highest = jax.lax.Precision.HIGHEST
        return jnp.einsum("nikjr,niljr->iklj", outputs, inputs, precision=highest)

    def batch(
        self, size: int, operands: Sequence[Any], axes: Sequence[int | None], **parameters: Any
    ) -> tuple[jax.Array, int]:
        """Matrices of one pattern, one after another on the diagonal, are a matrix of size a."""
        x, values = operands
        x = in_front(x, axes[0], size)
        _, outer, columns, inner = x.shape
        if axes[1] is None:
            y = _multiply(x.reshape(size * outer, columns, inner), values)
            return y.reshape(size, outer, y.shape[1], inner), 0
        values = jnp.moveaxis(values, axes[1], 0)
        a, b, c, d = values.shape[1:]
        x = jnp.moveaxis(x, 0, 1).reshape(outer, size * columns, inner)
        y = _multiply(x, values.reshape(size * a, b, c, d))
        return y.reshape(outer, size, a * b * d, inner), 1


_product = register(_KroneckerSparse())


def _multiply(x: jax.Array, values: jax.Array) -> jax.Array:
    """Bind the primitive, but for results without elements and sums without terms."""
    if x.size == 0 or values.size == 0:
        return jnp.zeros(_KroneckerSparse().shape(x.shape, values.shape), x.dtype)
    y: jax.Array = _product.bind(x, values)
    return y


def kronecker_sparse(
    x: jax.Array, values: jax.Array | Sequence[jax.Array], *, layout: Layout = "batch-first"
) -> jax.Array:
    """Compute y = x Kᵀ, or K x, for a Kronecker-sparse matrix or a chain of them.

    K has the support I_a ⊗ 1_{b×c} ⊗ I_d, and y[n, i, k, j] = Σ_l values[i, k, l, j] x[n, i, l, j].

    Parameters
    ----------
    x : jax.Array, (..., a c d), or (a c d, ...) with "batch-last"
        The vectors that K multiplies; float32, float64, complex64 or complex128.
    values : jax.Array, (a, b, c, d), or a sequence of such
        The entries K[i b d + k d + j, i c d + l d + j] = values[i, k, l, j]. A sequence is the
        chain K = K_1 K_2 … K_L, of which K_L is applied first.
    layout : {"batch-first", "batch-last"}
        Whether the elements of a vector are the last or the first axis of x and y.

    Returns
    -------
    jax.Array, (..., a b d), or (a b d, ...) with "batch-last"

    Raises
    ------
    ValueError
        If a shape does not fit, there is no matrix, or the layout is another one.
    TypeError
        If one is no array, dtypes differ, or the dtype has no kernels.

    Notes
    -----
    With the cotangent ȳ of y: x̄ = ȳ K, a product with the pattern (a, c, b, d); that of
    values[i, k, l, j] is Σ_n ȳ[n, i, k, j] x[n, i, l, j]. Mapped over values by `jax.vmap`, the
    matrices are one with the pattern (systems a, b, c, d). The matrix is definition 2.1 of Gonon,
    Zheng, Carrivain and Le, "Fast inference with Kronecker-sparse matrices" (2024).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from batchkron.jax import kronecker_sparse
    >>> values = jnp.arange(1.0, 5.0).reshape(1, 2, 2, 1)
    >>> kronecker_sparse(jnp.array([[1.0, 1.0], [0.0, 1.0]]), values)
    Array([[3., 7.],
           [2., 4.]], dtype=float32)
    """
    chain = [values] if isinstance(values, (jax.Array, np.ndarray)) else list(values)
    if not chain:
        raise ValueError("values is empty; a chain needs at least one matrix")
    check_layout(layout)
    x, *chain = checked_arrays([x, *chain], numbered("x", rest="values"))
    first = layout == "batch-first"
    for k in reversed(range(len(chain))):
        if chain[k].ndim != 4:
            raise ValueError(
                f"values[{k}] has shape {chain[k].shape}; expected 4 dimensions, (a, b, c, d)"
            )
        a, b, c, d = chain[k].shape
        axis = -1 if first else 0
        if x.ndim == 0 or x.shape[axis] != a * c * d:
            raise ValueError(
                f"x has shape {x.shape} where it is multiplied by values[{k}]; expected "
                f"{a * c * d} elements along axis {axis} for layout {layout!r}"
            )
        others = x.shape[:-1] if first else x.shape[1:]
        count = math.prod(others)
        vectors = x.reshape((count, a * c * d, 1) if first else (1, a * c * d, count))
        shape = (*others, a * b * d) if first else (a * b * d, *others)
        x = _multiply(vectors, chain[k]).reshape(shape)
    return x
