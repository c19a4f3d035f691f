"""Multiply by a Kronecker product."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import ad, mlir

from batchkron.backends.cuda.gram.tiles import MAX_OF_KERNEL
from batchkron.jax.arrays import checked_arrays, in_front, numbered
from batchkron.jax.multilinear import Multilinear, register

__all__ = ["batch_systems", "kron_matmul", "multiply_mode"]


class _ModeGram(Multilinear):
    """sums[s, p, q] = Σ x[s, l, p, r] y[s, l, q, r] over l and r, for x and y of four axes."""

    name = "mode_gram"

    def shape(self, *shapes: tuple[int, ...], **parameters: Any) -> tuple[int, ...]:
        return shapes[0][0], shapes[0][2], shapes[1][2]

    def lowering(self, platform: str) -> Any:
        """By our kernel on a device, for small modes of real numbers; else by JAX."""
        by_kernel = super().lowering(platform)
        by_jax = mlir.lower_fun(self._by_jax, multiple_results=False)

        def lower(ctx: Any, *operands: Any, **parameters: Any) -> Any:
            x, y = ctx.avals_in
            is_small = max(x.shape[2], y.shape[2]) <= MAX_OF_KERNEL
            suits = platform == "cuda" and x.dtype.kind == "f" and is_small
            return (by_kernel if suits else by_jax)(ctx, *operands, **parameters)

        return lower

    @staticmethod
    def _by_jax(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.einsum("slpr,slqr->spq", x, y, precision=jax.lax.Precision.HIGHEST)

    def transpose(
        self, k: int, cotangent: jax.Array, operands: Sequence[Any], **parameters: Any
    ) -> jax.Array:
        return _multiply(operands[1 - k], cotangent, transpose=k == 0)

    def batch(
        self, size: int, operands: Sequence[Any], axes: Sequence[int | None], **parameters: Any
    ) -> tuple[jax.Array, int]:
        """More rows or columns of each system where one operand is mapped, else more systems."""
        if None not in axes:
            more = []
            for operand, axis in zip(operands, axes, strict=True):
                moved = in_front(operand, axis, size)
                systems, *rest = moved.shape[1:]
                more.append(moved.reshape(size * systems, *rest))
            sums = _mode_gram(*more)
            return sums.reshape(size, systems, *sums.shape[1:]), 0
        place = 0 if axes[1] is None else 1
        moved = jnp.moveaxis(operands[place], axes[place], 2)  # (systems, outer, size, rows, inner)
        systems, outer, _, rows, inner = moved.shape
        both = list(operands)
        both[place] = moved.reshape(systems, outer, size * rows, inner)
        sums = _mode_gram(*both)
        split = (*sums.shape[: place + 1], size, rows, *sums.shape[place + 2 :])
        return sums.reshape(split), place + 1


class _KronMatmul(Multilinear):
    """y[s, m, :, r] = x[s, m, :, r] (A_1s ⊗ … ⊗ A_ds), for systems s that have factors each.

    The operands are x (systems, outer, ΠP, inner) and the factors (systems or 1, P_k, Q_k), or
    (…, Q_k, P_k) with ``transpose=True``, where A_k are their transposes.
    """

    name = "kron_matmul"

    def shape(self, *shapes: tuple[int, ...], **parameters: Any) -> tuple[int, ...]:
        systems, outer, _, inner = shapes[0]
        columns = 1 if parameters["transpose"] else 2
        return systems, outer, math.prod(shape[columns] for shape in shapes[1:]), inner

    def transpose(
        self, k: int, cotangent: jax.Array, operands: Sequence[Any], **parameters: Any
    ) -> jax.Array:
        """For a factor: contract x with the factors before it, the cotangent with those after it.

        dA_k = Σ x (A_1 ⊗ … ⊗ A_{k-1} ⊗ I ⊗ … ⊗ I) · ȳ (I ⊗ … ⊗ I ⊗ A_{k+1} ⊗ … ⊗ A_d)ᵀ, summed
        over all indices but those of mode k. The transposes of several factors compute the same
        partial products, of which the compiler keeps one each.
        """
        turned = parameters["transpose"]
        x, factors = operands[0], operands[1:]
        if k == 0:
            return _multiply(cotangent, *factors, transpose=not turned)
        mode = k - 1
        shape = _shape(factors[mode])
        rows = [_shape(factor)[2 if turned else 1] for factor in factors]
        columns = [_shape(factor)[1 if turned else 2] for factor in factors]
        systems, vectors, inner = x.shape[0], x.shape[1], x.shape[3]
        before, after = x, cotangent
        for j in range(mode):
            outer = vectors * math.prod(columns[:j])
            before = _mode(before, factors[j], outer, rows[j], turned)
        for j in range(len(factors) - 1, mode, -1):
            outer = vectors * math.prod(columns[:j])
            after = _mode(after, factors[j], outer, columns[j], not turned)
        outer = vectors * math.prod(columns[:mode])
        behind = math.prod(rows[mode + 1 :]) * inner
        if shape[0] != systems:  # one factor for all systems
            systems, outer = 1, systems * outer
        left = before.reshape(systems, outer, rows[mode], behind)
        right = after.reshape(systems, outer, columns[mode], behind)
        return _mode_gram(right, left) if turned else _mode_gram(left, right)

    def batch(
        self, size: int, operands: Sequence[Any], axes: Sequence[int | None], **parameters: Any
    ) -> tuple[jax.Array, int]:
        return batch_systems(_multiply, size, operands, axes, **parameters)


def _shape(operand: Any) -> tuple[int, ...]:
    """Return the shape of an operand, which is no array where it is being transposed."""
    return tuple(operand.aval.shape) if ad.is_undefined_primal(operand) else operand.shape


def batch_systems(
    multiply: Callable[..., jax.Array],
    size: int,
    operands: Sequence[Any],
    axes: Sequence[int | None],
    **parameters: Any,
) -> tuple[jax.Array, int]:
    """Map a function of x (systems, outer, N, inner) and factors (systems or 1, rows, columns).

    Parameters
    ----------
    multiply : callable
        The function, of such operands and parameters.
    size, operands, axes, **parameters
        As for `Function.batch`.

    Returns
    -------
    tuple of jax.Array and int
        More vectors of each system where only x is mapped, else more systems.
    """
    x, factors = operands[0], operands[1:]
    systems = x.shape[0] if axes[0] is None else x.shape[1 if axes[0] == 0 else 0]
    if all(axis is None for axis in axes[1:]):  # more vectors of each system
        x = jnp.moveaxis(x, axes[0], 1)
        outer, *rest = x.shape[2:]
        y = multiply(x.reshape(systems, size * outer, *rest), *factors, **parameters)
        return y.reshape(systems, size, outer, *y.shape[2:]), 1
    x = in_front(x, axes[0], size)
    more = []
    for factor, axis in zip(factors, axes[1:], strict=True):
        if axis is None and factor.shape[0] == 1:
            more.append(factor)
            continue
        factor = in_front(factor, axis, size)
        factor = jnp.broadcast_to(factor, (size, systems, *factor.shape[2:]))
        more.append(factor.reshape(size * systems, *factor.shape[2:]))
    y = multiply(x.reshape(size * systems, *x.shape[2:]), *more, **parameters)
    return y.reshape(size, systems, *y.shape[1:]), 0


def _mode(x: jax.Array, factor: Any, outer: int, size: int, transpose: bool) -> jax.Array:
    """Multiply the axis of ``size`` that has ``outer`` elements before it, for each system."""
    systems = x.shape[0]
    inner = x.size // max(1, systems * outer * size)
    return _multiply(x.reshape(systems, outer, size, inner), factor, transpose=transpose)


_product, _gram = register(_KronMatmul()), register(_ModeGram())


def _mode_gram(x: jax.Array, y: jax.Array) -> jax.Array:
    """Bind the primitive, but for results without elements and sums without terms."""
    if x.size == 0 or y.size == 0:
        return jnp.zeros(_ModeGram().shape(x.shape, y.shape), x.dtype)
    sums: jax.Array = _gram.bind(x, y)
    return sums


def _multiply(x: jax.Array, *factors: jax.Array, transpose: bool) -> jax.Array:
    """Bind the primitive, but for results without elements and sums without terms."""
    if x.size == 0 or any(factor.size == 0 for factor in factors):
        shapes = (operand.shape for operand in (x, *factors))
        return jnp.zeros(_KronMatmul().shape(*shapes, transpose=transpose), x.dtype)
    y: jax.Array = _product.bind(x, *factors, transpose=transpose)
    return y


def multiply_mode(x: jax.Array, factor: jax.Array, outer: int) -> jax.Array:
    """Return A x over one axis of x, whose elements are (outer, columns, inner).

    Parameters
    ----------
    x : jax.Array, of any shape
    factor : jax.Array, (rows, columns)
    outer : int

    Returns
    -------
    jax.Array, (outer, rows, inner)
    """
    y = _mode(x.reshape(1, -1), factor[None], outer, factor.shape[1], True)
    return y.reshape(y.shape[1:])


def kron_matmul(x: jax.Array, factors: Sequence[jax.Array]) -> jax.Array:
    """Compute y = x (A_1 ⊗ … ⊗ A_d), which JAX differentiates, maps and compiles.

    Parameters
    ----------
    x : jax.Array, (..., ΠP)
        Vectors along the last axis; float32, float64, complex64 or complex128.
    factors : sequence of jax.Array, each (P_k, Q_k)
        The matrices, of the dtype of x. A_1 belongs to the slowest index, as in `jax.numpy.kron`.

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
    multiplied by the transposes of those after A_k). Compiled by `jax.jit`, all of them together
    take 2 (d - 1) multiplies by one factor. Derivatives of all orders are in
    batchkron/jax/multilinear.py. The product itself is that of `batchkron.gemkm`: algorithm 1 of
    FastKron (Jangda and Yadav, PPoPP 2024).

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
    x, *matrices = checked_arrays([x, *factors], numbered("x", rest="factors"))
    rows = 1
    for k, factor in enumerate(matrices):
        if factor.ndim != 2:
            raise ValueError(
                f"factors[{k}] has shape {factor.shape}; expected 2 dimensions, (rows, columns)"
            )
        rows = rows * factor.shape[0]
    if x.ndim == 0 or x.shape[-1] != rows:
        raise ValueError(
            f"x has shape {x.shape}; expected {rows} columns, the product of the factors' rows"
        )
    vectors = x.reshape(1, math.prod(x.shape[:-1]), rows, 1)
    y = _multiply(vectors, *(factor[None] for factor in matrices), transpose=False)
    return y.reshape(*x.shape[:-1], y.shape[2])
